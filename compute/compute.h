/* compute: the kernels of one device behind a table of functions, struct compute_ops. It separates
 * its callers, the forward pass (model/forward/) and the engine (machine/executor/), from the
 * backends cpu/, wait/ and cuda/. `cleave profile`, `cleave check`, `cleave doctor` and benchmarks
 * call it too. It does not know requests, owners of blocks, or files: it is given pointers, shapes
 * and block ids.
 *
 * Threads: at most one thread at a time calls a `struct compute`. In a machine that is first the
 * event loop thread, which opens the device, loads the weights and prepares the device (steps.h),
 * then the engine thread. Exceptions: the functions of struct device_memory_ops
 * (common/device_memory.h), and compute_group_ops.id_make and compute_ops.close, which the event
 * loop thread calls while the engine computes nothing. The backend has its own worker threads.
 *
 * Numbers (docs/ARCHITECTURE.md, "Numbers that do not depend on placement"): on CPUs every function
 * computes a result row from its own input row only, in one accumulation order that is the same for
 * 1 row and for 4096, for every thread count and for every instruction set. So a request gives the
 * same bits on every machine whose stages have the same number of ranks. On GPUs this holds for all
 * kernels except products of more than 16 rows, which cuBLAS computes. */
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
    /* AUTO = the best that this CPU has, or what the environment variable CLEAVE_ISA names. */
    enum compute_isa isa;
    /* AUTO = decided by measuring, or what the environment variable CLEAVE_LANES names. */
    enum compute_lanes lanes;
    /* Keep activations in fp32 and dequantise weights: slow, for tests and scoring. */
    bool exact;
    uint32_t device;       /* Number of the GPU; only for `cuda`. */
    bool bf16_activations; /* Use bfloat16 activations also with E4M3 weights; only for `cuda`. */
    /* Simulated time that a layer takes for any batch, and the time that each row of the batch adds
     * to it; only for `wait`. */
    int64_t wait_layer_ns;
    int64_t wait_row_ns;
};

/* Returns how many lanes c has; 1 = none besides the device itself. */
static inline uint32_t compute_lanes_count(const struct compute_ops *ops, const struct compute *c)
{
    return ops->lanes != NULL ? ops->lanes->count(c) : 1;
}

extern const struct compute_ops compute_cpu; /* The CPUs of this host. */
/* A device that computes nothing: each layer of a batch is a wait. It simulates pipelines of more
 * devices than this host has (docs/profile.md). */
extern const struct compute_ops compute_wait;

/* Interprets a device name of a config: "cpu"; "cuda:N", GPU number N of the host (plugin.h; "cuda"
 * is "cuda:0"); or "wait:LAYER_US+ROW_US", microseconds with decimals allowed ("wait:2000+10": a
 * layer takes 2000 us and 10 us per row). Sets the fields of *options_out that belong to the
 * device; other fields, such as threads, stay as they are. ST_INVALID: an unknown name; the error
 * lists the known ones. Other errors say why the GPU is not available. */
enum status compute_device_find(const char *device, const struct compute_ops **ops_out,
                                struct compute_options *options_out, struct error *error);

/* Finds the device and opens it; the caller closes *out with (*ops_out)->close. If a GPU cannot be
 * opened (no plugin, no driver, no such device) and `fallback` is true, opens the CPU instead, and
 * *instead_out says why the GPU is not used; otherwise the text of *instead_out is empty. Returns
 * the errors of compute_device_find and of compute_ops.open. */
enum status compute_device_open(const char *device, bool fallback,
                                const struct compute_options *options,
                                const struct compute_ops **ops_out, struct compute **out,
                                struct error *instead_out, struct error *error);

#endif
