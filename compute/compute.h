/* compute: the kernels of one device behind a table of functions, struct compute_ops
 * (operations.h), and functions that find and open devices. The backends cpu/, wait/ and cuda/
 * implement the table. The forward pass (model/forward/), the engine (machine/executor/), tools and
 * benchmarks call the functions. Backends know no requests, owners of blocks, or files: callers
 * pass pointers, shapes and block ids.
 *
 * Threads: at most one thread at a time calls the functions for one `struct compute`. Exception:
 * while the engine thread of a machine computes, the event loop thread may call `describe` and the
 * functions of struct device_memory_ops (common/device_memory.h). A backend may have worker
 * threads. A lane (lanes.h) is a `struct compute` of its own.
 *
 * Numbers (docs/ARCHITECTURE.md, "Numbers that do not depend on placement"): on CPUs, the bits of a
 * row's result do not depend on the other rows of the batch, the number of threads, or the
 * instruction set. The number of ranks changes the bits. On GPUs, the bits of a row may also depend
 * on the number of rows in the batch, and may differ after a restart. */
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
enum compute_isa {
    COMPUTE_ISA_AUTO,
    COMPUTE_ISA_PORTABLE,
    COMPUTE_ISA_AVX2,
    COMPUTE_ISA_AVX_VNNI,
    COMPUTE_ISA_AVX512,
};

/* Whether batches run in lanes (compute_lanes_ops.pick). */
enum compute_lanes { COMPUTE_LANES_AUTO, COMPUTE_LANES_NEVER, COMPUTE_LANES_ALWAYS };

/* Options for opening a device. All zeros = the defaults. */
struct compute_options {
    /* Threads, including the calling thread, at most 64; 0 = one for each logical CPU on which the
     * calling thread may run (cores_usable), but at most 64. Only for `cpu`. */
    uint32_t threads;
    /* AUTO = the instruction set that the environment variable CLEAVE_ISA names. If the variable is
     * not set, empty or `auto`: the best that this CPU has. Only for `cpu`. */
    enum compute_isa isa;
    /* AUTO = the choice that the environment variable CLEAVE_LANES names (auto, never, always). If
     * the variable is not set, empty or `auto`: the backend measures. Only for `cpu`. */
    enum compute_lanes lanes;
    /* Keep activations in fp32 and dequantise weights: slow, for tests and comparisons. */
    bool exact;
    uint32_t device;       /* Number of the GPU; only for `cuda`. */
    bool bf16_activations; /* Use bfloat16 activations also with E4M3 weights; only for `cuda`. */
    int64_t wait_layer_ns; /* Time of a layer, without the time of its rows; only for `wait`. */
    int64_t wait_row_ns;   /* Time of each row in each layer; only for `wait`. */
};

/* Returns how many lanes c has; 1 = the device has no lanes. */
static inline uint32_t compute_lanes_count(const struct compute_ops *ops, const struct compute *c)
{
    return ops->lanes != NULL ? ops->lanes->count(c) : 1;
}

extern const struct compute_ops compute_cpu; /* The CPUs of this host. */
/* A device that sleeps for each layer of a batch instead of computing, to simulate pipelines of
 * more devices than this host has (docs/profile.md). */
extern const struct compute_ops compute_wait;

/* Interprets a device name of a config: "cpu"; "cuda:N", GPU number N of the host ("cuda" is
 * "cuda:0"); or "wait:LAYER_US+ROW_US", two decimal numbers of microseconds, at most 10,000,000
 * ("wait:2000+10": a layer takes 2000 us and 10 us per row). In *options_out, a GPU's name sets
 * `device`, and a name "wait:…" sets wait_layer_ns and wait_row_ns; other fields keep their values.
 * Returns ST_INVALID for other names, or an error of compute_plugin_open (plugin.h). */
enum status compute_device_find(const char *device, const struct compute_ops **ops_out,
                                struct compute_options *options_out, struct error *error);

/* Finds the device and opens it. The caller closes *out with (*ops_out)->close. If `fallback` is
 * true and a GPU cannot be opened, for any reason, opens the CPU instead and writes the reason to
 * *fallback_reason_out. Otherwise, the text of *fallback_reason_out is empty.
 * Returns an error of compute_device_find or of compute_ops.open. */
enum status compute_device_open(const char *device, bool fallback,
                                const struct compute_options *options,
                                const struct compute_ops **ops_out, struct compute **out,
                                struct error *fallback_reason_out, struct error *error);

#endif
