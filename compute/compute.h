/* compute: the kernels of one device behind a table of functions, struct compute_ops
 * (operations.h). The forward pass (model/forward/) and the engine (machine/executor/) call the
 * functions; `cleave profile`, `cleave check`, `cleave doctor` and benchmarks do, too. The backends
 * cpu/, wait/ and cuda/ implement the functions. This header also finds and opens devices. Backends
 * know no requests, owners of blocks, or files: callers pass pointers, shapes and block ids.
 *
 * Threads: at most one thread at a time calls the functions for one `struct compute`. In a machine,
 * the event loop thread opens the device, loads the weights and prepares the device (steps.h).
 * Then the engine thread computes. After the engine thread has ended, the event loop thread closes
 * the weights and the device. Two exceptions: the event loop thread calls struct device_memory_ops
 * (common/device_memory.h) also while the engine thread computes, and compute_group_ops.id_make
 * while the engine thread computes nothing. A backend may have worker threads of its own.
 *
 * Numbers (docs/ARCHITECTURE.md, "Numbers that do not depend on placement"): on CPUs, a row's
 * result depends only on the row and on the KV of its sequence. The order of additions is the same
 * for 1 row and for 4096, for every thread count and for every instruction set. So a request gives
 * the same bits on every machine whose stages have the same number of ranks. On GPUs, the bits of a
 * row may also depend on the number of rows: cuBLASLt computes products of more than 16 rows, and
 * attention has other kernels for many rows (cuda/attention.cuh). */
#ifndef COMPUTE_COMPUTE_H
#define COMPUTE_COMPUTE_H

#include "compute/experts.h"
#include "compute/group.h"
#include "compute/lanes.h"
#include "compute/latent.h"
#include "compute/operations.h"
#include "compute/sampling.h"
#include "compute/steps.h"

/* Instruction sets of the CPU backend. */
enum compute_isa { COMPUTE_ISA_AUTO, COMPUTE_ISA_PORTABLE, COMPUTE_ISA_AVX2, COMPUTE_ISA_AVX512 };

/* Whether batches run in lanes (compute_lanes_ops.pick). */
enum compute_lanes { COMPUTE_LANES_AUTO, COMPUTE_LANES_NEVER, COMPUTE_LANES_ALWAYS };

/* What a device is opened with. All zeros = the defaults. */
struct compute_options {
    /* Threads, including the calling thread, at most 64; 0 = one for each core that this process
     * may use. Only for `cpu`. */
    uint32_t threads;
    /* AUTO = the instruction set that the environment variable CLEAVE_ISA names, or, if the
     * variable is not set, the best that this CPU has. Only for `cpu`. */
    enum compute_isa isa;
    /* AUTO = what the environment variable CLEAVE_LANES says, or, if the variable is not set, what
     * measurements say. Only for `cpu`. */
    enum compute_lanes lanes;
    /* Keep activations in fp32 and dequantise weights: slow, for tests and scoring. */
    bool exact;
    uint32_t device;       /* Number of the GPU; only for `cuda`. */
    bool bf16_activations; /* Use bfloat16 activations also with E4M3 weights; only for `cuda`. */
    /* A layer of a batch of n rows takes wait_layer_ns + n * wait_row_ns; only for `wait`. */
    int64_t wait_layer_ns;
    int64_t wait_row_ns;
};

/* Returns how many lanes c has; 1 = the device computes every batch without lanes. */
static inline uint32_t compute_lanes_count(const struct compute_ops *ops, const struct compute *c)
{
    return ops->lanes != NULL ? ops->lanes->count(c) : 1;
}

extern const struct compute_ops compute_cpu; /* The CPUs of this host. */
/* A device that sleeps for each layer of a batch instead of computing. Such devices simulate
 * pipelines of more devices than this host has (docs/profile.md). */
extern const struct compute_ops compute_wait;

/* Interprets a device name of a config: "cpu"; "cuda:N", GPU number N of the host (plugin.h; "cuda"
 * is "cuda:0"); or "wait:LAYER_US+ROW_US", microseconds with decimals allowed ("wait:2000+10": a
 * layer takes 2000 us and 10 us per row). Sets the fields of *options_out that the name contains
 * (`device`, wait_layer_ns, wait_row_ns), and leaves the other fields unchanged. ST_INVALID: an
 * unknown name; the error lists the known names. Other errors say why the GPU is not available. */
enum status compute_device_find(const char *device, const struct compute_ops **ops_out,
                                struct compute_options *options_out, struct error *error);

/* Finds the device and opens it; the caller closes *out with (*ops_out)->close. If a GPU cannot be
 * opened (no plugin, no driver, no such device) and `fallback` is true, opens the CPU instead, and
 * writes to *fallback_reason_out why the GPU is not used; in all other cases the text of
 * *fallback_reason_out is empty. Returns the errors of compute_device_find and of
 * compute_ops.open. */
enum status compute_device_open(const char *device, bool fallback,
                                const struct compute_options *options,
                                const struct compute_ops **ops_out, struct compute **out,
                                struct error *fallback_reason_out, struct error *error);

#endif
