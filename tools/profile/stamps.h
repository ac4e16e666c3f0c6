/* profile_stamps: the operations of a compute backend, with time stamps before some of them. The
 * stamps are in one global variable, so a process profiles one device at a time. step.c calls the
 * functions on the main thread. The operations run on the threads of the engine and of the device,
 * and call the backend's operations. This part does not turn stamps into times. */
#ifndef TOOLS_PROFILE_STAMPS_H
#define TOOLS_PROFILE_STAMPS_H

#include "common/limits.h"
#include "compute/compute.h"
#include "tools/profile/delay.h"

#include <stdatomic.h>

/* Matrices at the two ends of a model: the embedding and, unless tied, the vocabulary. */
#define PROFILE_ENDS_MAX 2

/* A stamp between two parts of a batch. Making the stamp takes the time from end_ns to begin_ns. */
struct profile_stamp {
    int64_t end_ns; /* End of the earlier part. */
    /* Total time for which the device's threads had waited for a core up to end_ns. Always 0 for a
     * device with its own memory. */
    double waited_us;
    int64_t begin_ns; /* Begin of the later part. */
};

/* Indices of stamps: the stamp of layer i is PROFILE_STAMP_LAYERS + i. */
enum { PROFILE_STAMP_START, PROFILE_STAMP_EMBED, PROFILE_STAMP_LAYERS };

/* How the rows of a batch choose the experts of a layer. */
struct profile_routing {
    const struct compute_experts *experts;
    struct compute_routing routing;
};

/* The timed operations, their stamps, and the sizes of the matrices that were opened. While a batch
 * runs, only the threads of the engine and of the device write the struct. */
struct profile_stamps_state {
    const struct compute_ops *base;                      /* The backend's own operations. */
    struct compute_ops ops;                              /* The timed operations. */
    struct compute_steps_ops steps;                      /* Used if the backend has steps. */
    uint32_t layer_count;                                /* Layers of the model. */
    const struct compute_matrix *ends[PROFILE_ENDS_MAX]; /* Opened before the layers' matrices. */
    uint64_t end_bytes[PROFILE_ENDS_MAX];                /* Bytes of each entry of `ends`. */
    uint32_t end_count;                                  /* Entries of `ends` in use. */
    uint32_t ends_wanted; /* Number of entries that `ends` has once the model is open. */
    uint64_t bytes;       /* Bytes of the matrices opened since the previous layer. */
    /* Hash of the types and shapes of the matrices opened since the previous layer. */
    uint64_t layer_kind;
    /* How long the device's threads have waited for a core; owned by step.c. */
    const struct profile_delay *core_waits;
    /* Start, embedding, the layers, vocabulary, end. */
    struct profile_stamp stamps[PROFILE_STAMP_LAYERS + LIMIT_LAYERS + 2];
    atomic_uint stamp_count;                    /* Stamps of the current batch. */
    const struct compute_matrix *_Atomic layer; /* The q matrix of the current layer. */
    bool is_wait_backend;                       /* `base` is compute_wait, which only waits. */
    bool has_own_memory; /* The device has its own memory, and reports when it reaches a stamp. */
    /* Make no stamps inside a batch: while the device is prepared, and in decode steps that a GPU
     * records or replays. */
    bool no_inner_stamps;
    struct compute_experts_ops experts; /* Used if the backend has experts. */
    uint64_t expert_bytes;              /* Weights of one expert; 0 = the model has none. */
    bool counts_experts;                /* Count the experts that a batch chooses; takes time. */
    uint64_t chosen;         /* Sum of the chosen experts over the layers of counted batches. */
    uint32_t experts_layers; /* Layers whose chosen experts are in `chosen`. */
    uint32_t routing_count;  /* Entries of `routings`: the layers with experts. */
    struct profile_routing routings[LIMIT_LAYERS];
    uint32_t embed_count; /* Calls of ops.embed; a replayed step makes none. */
};

extern struct profile_stamps_state profile_stamps_state;

/* Makes profile_stamps_state.ops, .steps and .experts from .base, and sets .is_wait_backend,
 * .has_own_memory and .no_inner_stamps (to true). `c` is a device of .base. Requires that all
 * fields except .base are 0. */
void profile_stamps_set(struct compute *c);
void profile_stamp_add(void); /* Adds a stamp with the current time. */

#endif
