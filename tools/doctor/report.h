/* report: the findings of `cleave doctor` about this host, as one struct, and the functions that
 * fill and write the struct. doctor.c owns the struct and calls the functions on the main thread;
 * it sets region_why, can_serve, why_not and checks_s itself. A number is 0 and a text is empty if
 * the host does not provide the value. No function loads a model or talks to a machine of a
 * cluster. */
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
    char processor[96]; /* The processor's model name. */
    char features[128]; /* Processor features that kernels use: "avx2 fma f16c avx512f …". */
    /* The CPU backend's description of its kernels; "" = the backend does not start. */
    char compute[64];
    char compute_why[160]; /* Why the CPU backend does not start; "" = it starts. */
    uint32_t cores_online;
    uint32_t cores_usable;      /* Cores that this process may use. */
    uint64_t memory_bytes;      /* Memory of the host. */
    uint64_t available_bytes;   /* Available to this process. */
    char huge_pages[32];        /* For private memory: "always", "madvise", "never". */
    char huge_pages_shared[32]; /* For shared segments. */
    uint64_t shmmax_bytes;      /* Most bytes of one System V segment (kernel.shmmax). */
    uint64_t shmall_bytes;      /* Most bytes of all System V segments (kernel.shmall). */
    uint64_t shmmni; /* Most System V segments (kernel.shmmni); 0 = no segment can be made. */
    uint64_t dev_shm_bytes; /* 0 = no /dev/shm. */
    uint64_t memlock_bytes; /* UINT64_MAX = no limit. */
};

struct doctor_gpu {
    char device[16]; /* Name as in a config, such as "cuda:0". */
    char text[160];  /* The backend's description. */
    uint64_t free_bytes;
    uint64_t total_bytes;
    enum transport_memory_way way; /* How the transport moves KV out of the GPU. */
    /* Why the transport uses no better `way`, or why no transport opened; "" = `way` is the
     * best. */
    char way_why[128];
};

struct doctor_gpus {
    uint32_t count;
    struct doctor_gpu gpus[DOCTOR_GPUS_MAX];
    /* Why no GPU, or no further GPU, was found; "" = all DOCTOR_GPUS_MAX were found. */
    char none_why[512];
};

/* Measured writes from the first GPU to the memory of another process, on the first GPU or on
 * another GPU. The other process compares the bytes. */
struct doctor_copy {
    char from[16], to[16]; /* Devices, such as "cuda:0". */
    char path[64];         /* E.g. "cuda ipc". */
    /* Why the write does not go directly from device to device; "" = it does, or the write
     * failed. */
    char note[160];
    double bandwidth_bytes_per_s;
    /* Time of a layer's KV of 2048 tokens (layer_bytes), written as scattered blocks. */
    double layer_us;
    uint64_t layer_bytes;
    char failure[160]; /* Why the write failed; "" = it did not. */
};

/* Measured writes between two processes of this host over one transport. */
struct doctor_path {
    char transport[8]; /* "shm" or "tcp". */
    char path[64];     /* Name of the path in UCX. */
    double bandwidth_bytes_per_s;
    /* Time of one layer's KV (layer_bytes), from the write until the writer knows that it has
     * arrived. */
    double layer_us;
    uint32_t layer_bytes;
    double latency_us; /* Time of a small write, until the writer knows that it has arrived. */
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
    struct ucx_probe ucx; /* What UCX offers (transport/ucx_probe.h). */
    char ucx_why[512];    /* Why UCX does not start; "" = it starts. */
    struct doctor_paths paths;
    char paths_why[512]; /* Why a write could not be measured; "" = all were measured. */
    /* Why KV between machines of this host goes over TCP instead of shared memory; "" = it does
     * not, or no path was measured. */
    char region_why[256];
    bool can_serve;
    char why_not[640]; /* Why the host cannot serve; "" = it can. */
    double checks_s;   /* Time of all checks. */
};

/* Fills *out from the kernel's files and the CPU backend, in this process. */
void doctor_host_check(struct doctor_host *out);

/* Each check of the next three functions runs in a process of its own, for at most timeout_ms
 * (probe.h). A check that fails leaves its reason in the report. */

/* Fills report->gpus: checks each GPU, up to the first GPU that cannot be opened. */
void doctor_gpus_check(struct doctor_report *report, int timeout_ms);
/* Fills report->copies: writes from the first GPU to each of the first DOCTOR_COPIES_MAX GPUs.
 * Requires that doctor_gpus_check was called. */
void doctor_copies_check(struct doctor_report *report, int timeout_ms);
/* Fills report->ucx and report->paths. */
void doctor_paths_check(struct doctor_report *report, int timeout_ms);

/* Writes the report as text for a person. */
void doctor_text_write(const struct doctor_report *report, FILE *out);
/* Writes the report as JSON. Returns false if the JSON could not be written. */
bool doctor_json_write(const struct doctor_report *report, FILE *out);

#endif
