/* report: what `cleave doctor` has found: filled by doctor_host.c, doctor_gpus.c,
 * doctor_copies.c and doctor_paths.c, judged by doctor.c, written by doctor_text.c and
 * doctor_json.c. Numbers are 0, and texts empty, where this computer does not say. */
#ifndef DOCTOR_REPORT_H
#define DOCTOR_REPORT_H

#include "common/profile.h"
#include "transport/transport.h"
#include "transport/ucx_probe.h"

#include <stdio.h>

#define DOCTOR_GPUS_MAX   16
#define DOCTOR_COPIES_MAX 8
#define DOCTOR_PATHS_MAX  2

struct doctor_host {
    char processor[96];
    char features[128];    /* those that kernels exist for: "avx2 fma f16c avx512f …" */
    char compute[64];      /* the CPU backend's word for what it runs on; empty: it does not */
    char compute_why[160]; /* then */
    uint32_t cores_online;
    uint32_t cores_usable;
    uint64_t memory_bytes;
    uint64_t available_bytes;   /* to this process */
    char huge_pages[32];        /* of plain memory: "always", "madvise", "never" */
    char huge_pages_shared[32]; /* of shared segments */
    uint64_t shmmax_bytes;      /* the largest System V segment */
    uint64_t shmall_bytes;      /* all of them */
    uint64_t shmmni;            /* how many; 0: none can be made */
    uint64_t dev_shm_bytes;     /* 0: there is no /dev/shm */
    uint64_t memlock_bytes;     /* UINT64_MAX: no limit */
};

struct doctor_gpu {
    char device[16]; /* "cuda:0" */
    char text[160];  /* the backend's word for it */
    uint64_t free_bytes;
    uint64_t total_bytes;
    enum transport_way way; /* how KV would leave it */
    char way_why[128];
};

struct doctor_gpus {
    uint32_t count;
    struct doctor_gpu gpus[DOCTOR_GPUS_MAX];
    char none_why[512]; /* why there is none, or not more */
};

/* From a GPU to another process's on it or on another one, written and compared. */
struct doctor_copy {
    char from[16], to[16]; /* "cuda:0" */
    char path[64];         /* "cuda ipc" */
    char note[160];        /* why not from device to device; empty: it is, or cannot be */
    double bandwidth_bytes_per_s;
    double layer_us; /* a layer's KV of 2048 tokens, of so many bytes in scattered blocks */
    uint64_t layer_bytes;
    char why[160]; /* it does not work; else empty */
};

/* Between two processes of this computer. */
struct doctor_path {
    char transport[8]; /* "shm", "tcp" */
    char path[64];     /* as UCX carries it */
    double bandwidth_bytes_per_s;
    double layer_us; /* a layer's KV of a prompt, of so many bytes, written and known to be there */
    uint32_t layer_bytes;
    double latency_us; /* a small write, likewise */
};

struct doctor_paths {
    uint32_t count;
    struct doctor_path paths[DOCTOR_PATHS_MAX];
};

struct doctor_report {
    struct doctor_host host;
    struct doctor_gpus gpus;
    uint32_t copy_count;
    struct doctor_copy copies[DOCTOR_COPIES_MAX];
    struct ucx_probe ucx;
    char ucx_why[512]; /* UCX does not start; empty: it does */
    struct doctor_paths paths;
    char paths_why[512];
    char region_why[256]; /* KV regions are plain memory, and go by message over TCP; empty: not so
                           */
    bool can_serve;
    char why_not[640];
    double took_s;
};

void doctor_host_look(struct doctor_host *out);
/* Each in a process of its own, for so long at most. */
void doctor_gpus_look(struct doctor_report *report, int timeout_ms);
void doctor_copies_look(struct doctor_report *report, int timeout_ms); /* after that */
void doctor_paths_look(struct doctor_report *report, int timeout_ms);

void doctor_text_write(const struct doctor_report *report, FILE *out);
bool doctor_json_write(const struct doctor_report *report, FILE *out);

#endif
