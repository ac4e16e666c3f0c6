/* report: the findings of `cleave doctor` about this host, as one struct, and the functions that
 * fill and write the struct. doctor.c owns the struct and calls the functions on the main thread. A
 * number is 0 and a text is empty if the value is not known. No function judges the host, loads a
 * model or talks to a machine of a cluster. */
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
    char processor[96];    /* The processor's model name. */
    char features[128];    /* Processor features that kernels use: "avx2 fma f16c avx512f …". */
    char compute[64];      /* Kernels of the CPU backend; "" = the backend does not start. */
    char compute_why[160]; /* Why the CPU backend does not start; "" = the backend starts. */
    uint32_t cores_online;
    uint32_t cores_usable;      /* Cores that this process may use. */
    uint64_t memory_bytes;      /* Memory of the host. */
    uint64_t available_bytes;   /* Memory that this process can still use. */
    char huge_pages[32];        /* Linux' setting for private memory, such as "madvise". */
    char huge_pages_shared[32]; /* Linux' setting for shared segments, such as "never". */
    uint64_t shmmax_bytes;      /* Most bytes of one System V segment (kernel.shmmax). */
    uint64_t shmall_bytes;      /* Most bytes of all System V segments (kernel.shmall). */
    uint64_t shmmni; /* Most System V segments (kernel.shmmni); 0 = no segment can be made. */
    uint64_t dev_shm_bytes; /* Size of /dev/shm; 0 = there is no /dev/shm. */
    uint64_t memlock_bytes; /* Most bytes that this process may lock; UINT64_MAX = no limit. */
};

struct doctor_gpu {
    char device[16];       /* Name as in a config, such as "cuda:0". */
    char description[160]; /* The backend's description. */
    uint64_t free_bytes;
    uint64_t total_bytes;
    enum transport_memory_way way; /* How the transport moves KV out of the GPU. */
    /* Why `way` is not better, why peers cannot open the GPU's memory, or why no transport opened;
     * "" = none of these. */
    char way_note[128];
};

struct doctor_gpus {
    uint32_t count;
    struct doctor_gpu gpus[DOCTOR_GPUS_MAX];
    char end_why[512]; /* Why no more GPUs were found; "" = the list is full. */
};

/* Measured writes from the first GPU (`from`) to the GPU memory of another process (`to`), which
 * compares the bytes. `to` may be the first GPU, too. */
struct doctor_copy {
    char from[16], to[16];        /* Devices, such as "cuda:0". */
    char path[64];                /* How the writes travelled, such as "cuda ipc". */
    char note[160];               /* Why the writes did not travel faster; "" = no reason. */
    double bandwidth_bytes_per_s; /* Bandwidth of one large write. */
    double layer_write_us;        /* Time to write layer_bytes as scattered blocks. */
    uint64_t layer_bytes;         /* KV of one layer and 2048 tokens of an 8B model. */
    char failure[160];            /* Why the measurement failed; "" = the times are valid. */
};

/* Measured writes between two processes of this host over one transport. */
struct doctor_path {
    char transport[8]; /* "shm" or "tcp". */
    char path[64];     /* How the writes travelled, such as "ucx put over sysv". */
    double bandwidth_bytes_per_s;
    double layer_write_us; /* Time to write layer_bytes, until the writer knows of the arrival. */
    uint32_t layer_bytes;  /* Bytes of about one layer's KV; 0 = not measured. */
    double latency_us;     /* Time of a small write, until the writer knows of the arrival. */
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
    char ucx_why[512];    /* Why UCX does not start; "" = UCX starts. */
    struct doctor_paths paths;
    char paths_why[512]; /* Why a path could not be measured; "" = no failure. */
    /* doctor.c sets the fields below. */
    char region_why[256]; /* Why KV cannot use shared memory; "" = KV can, or not known. */
    bool can_serve;       /* The host can serve. */
    char why_not[640];    /* Why the host cannot serve; "" = can_serve. */
    double checks_s;      /* Time of all checks. */
};

/* Fills *out, in this process. */
void doctor_host_check(struct doctor_host *out);

/* The next three functions check in child processes, of which each has timeout_ms (probe.h). If a
 * check fails, the functions write the reason to the report. */

/* Fills report->gpus: checks GPUs from cuda:0 on, up to the first that cannot be opened. */
void doctor_gpus_check(struct doctor_report *report, int timeout_ms);
/* Fills report->copies: writes from the first GPU to another process on each of the first
 * DOCTOR_COPIES_MAX GPUs. Requires that doctor_gpus_check was called. */
void doctor_copies_check(struct doctor_report *report, int timeout_ms);
/* Fills report->ucx, and report->paths by measuring writes over shared memory and TCP. */
void doctor_paths_check(struct doctor_report *report, int timeout_ms);

/* Writes the report as text for a person. */
void doctor_text_write(const struct doctor_report *report, FILE *out);
/* Writes the report as JSON. Returns false if the JSON could not be written. */
bool doctor_json_write(const struct doctor_report *report, FILE *out);

#endif
