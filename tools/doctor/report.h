/* report: the findings of `cleave doctor`: filled by host.c, gpus.c, copies.c
 * and paths.c, judged by doctor.c, written by text.c and json.c. Numbers are 0
 * and texts empty if the host does not provide the value. One thread calls all functions. It does
 * not load a model or speak with machines. */
#ifndef TOOLS_DOCTOR_REPORT_H
#define TOOLS_DOCTOR_REPORT_H

#include "profile/profile.h"
#include "transport/transport.h"
#include "transport/ucx_probe.h"

#include <stdio.h>

#define DOCTOR_GPUS_MAX   16
#define DOCTOR_COPIES_MAX 8
#define DOCTOR_PATHS_MAX  2

struct doctor_host {
    char processor[96];
    char features[128];    /* Processor features that kernels use: "avx2 fma f16c avx512f …". */
    char compute[64];      /* The CPU backend's name for its kernels; "" = it does not start. */
    char compute_why[160]; /* Why it does not start. */
    uint32_t cores_online;
    uint32_t cores_usable;
    uint64_t memory_bytes;
    uint64_t available_bytes;   /* Available to this process. */
    char huge_pages[32];        /* For private memory: "always", "madvise", "never". */
    char huge_pages_shared[32]; /* For shared segments. */
    uint64_t shmmax_bytes;      /* Largest System V segment. */
    uint64_t shmall_bytes;      /* All System V segments together. */
    uint64_t shmmni;            /* Most System V segments; 0 = none can be made. */
    uint64_t dev_shm_bytes;     /* 0 = no /dev/shm. */
    uint64_t memlock_bytes;     /* UINT64_MAX = no limit. */
};

struct doctor_gpu {
    char device[16]; /* E.g. "cuda:0". */
    char text[160];  /* The backend's description. */
    uint64_t free_bytes;
    uint64_t total_bytes;
    enum transport_way way; /* How the transport moves KV out of the GPU. */
    char way_why[128];
};

struct doctor_gpus {
    uint32_t count;
    struct doctor_gpu gpus[DOCTOR_GPUS_MAX];
    char none_why[512]; /* Why no GPU, or no further GPU, was found. */
};

/* A write from the first GPU to another process's memory on this GPU or on another one; the bytes
 * are compared. */
struct doctor_copy {
    char from[16], to[16]; /* E.g. "cuda:0". */
    char path[64];         /* E.g. "cuda ipc". */
    /* Why the write does not go directly from device to device; "" = it does, or it failed. */
    char note[160];
    double bandwidth_bytes_per_s;
    double layer_us; /* Time of a layer's KV of 2048 tokens (layer_bytes), in scattered blocks. */
    uint64_t layer_bytes;
    char why[160]; /* Why it failed; "" = it did not. */
};

/* Writes between two processes of this host. */
struct doctor_path {
    char transport[8]; /* "shm" or "tcp". */
    char path[64];     /* Name of the path in UCX. */
    double bandwidth_bytes_per_s;
    /* Time of a layer's KV of a prompt (layer_bytes), until it is known to have arrived. */
    double layer_us;
    uint32_t layer_bytes;
    double latency_us; /* Time of a small write, until it is known to have arrived. */
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
    char ucx_why[512]; /* Why UCX does not start; "" = it does. */
    struct doctor_paths paths;
    char paths_why[512];
    /* Why KV is sent by message over TCP, from regions in private memory; "" = it is not. */
    char region_why[256];
    bool can_serve;
    char why_not[640];
    double took_s;
};

void doctor_host_look(struct doctor_host *out);
/* Each check runs in a process of its own, for at most timeout_ms. */
void doctor_gpus_look(struct doctor_report *report, int timeout_ms);
/* Requires doctor_gpus_look. */
void doctor_copies_look(struct doctor_report *report, int timeout_ms);
void doctor_paths_look(struct doctor_report *report, int timeout_ms);

void doctor_text_write(const struct doctor_report *report, FILE *out);
bool doctor_json_write(const struct doctor_report *report, FILE *out);

#endif
