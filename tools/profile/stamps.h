/* profile_stamps: the operations of a compute backend with time stamps around some of them. An
 * operation knows only its device, so the stamps are in one global variable: one device is profiled
 * at a time in a process. A device with its own memory works from a queue and reports when it
 * reaches a stamp. step.c calls the functions on its one thread and turns the stamps into times;
 * the operations run on the threads of the engine and of the device. This part computes nothing of
 * a model: each operation calls the backend's own. */
#ifndef TOOLS_PROFILE_STAMPS_H
#define TOOLS_PROFILE_STAMPS_H

#include "common/limits.h"
#include "compute/compute.h"
#include "tools/profile/delay.h"

#include <stdatomic.h>

/* Matrices at the two ends of a model: the embedding and, unless tied, the vocabulary. */
#define PROFILE_ENDS_MAX 2

/* A stamp between two parts of a batch: when the earlier part ended, how long threads had waited
 * for a core by then (delay.h), and when the later part began. Reading the waits takes some
 * microseconds, which belong to neither part. */
struct profile_stamp {
    int64_t end_ns;
    double waited_us;
    int64_t begin_ns;
};

/* Indices of stamps: the stamp of layer i is PROFILE_STAMP_LAYERS + i. */
enum { PROFILE_STAMP_START, PROFILE_STAMP_EMBED, PROFILE_STAMP_LAYERS };

/* How the rows of a layer choose its experts. */
struct profile_routing {
    const struct compute_experts *experts;
    struct compute_routing routing;
};

/* The timed operations, their stamps, and the sizes of the matrices that were opened. The threads
 * of the engine and of the device write it while a batch runs; step.c reads it when the batch is
 * done. */
struct profile_timed {
    const struct compute_ops *base;                      /* The backend's own operations. */
    struct compute_ops ops;                              /* The timed operations. */
    struct compute_steps_ops steps;                      /* Used if the backend has steps. */
    uint32_t layer_count;                                /* Layers of the model. */
    const struct compute_matrix *ends[PROFILE_ENDS_MAX]; /* Opened before the layers' matrices. */
    uint64_t end_bytes[PROFILE_ENDS_MAX];                /* Bytes of each entry of `ends`. */
    uint32_t end_count;                                  /* Entries of `ends` so far. */
    uint32_t ends_wanted; /* Number of entries that `ends` has once the model is open. */
    uint64_t bytes;       /* Bytes of the matrices opened since the previous layer. */
    /* Hash of the types and shapes of the matrices opened since the previous layer. */
    uint64_t layer_kind;
    const struct profile_delay *delay;
    /* Start, embedding, the layers, vocabulary, end. */
    struct profile_stamp stamps[PROFILE_STAMP_LAYERS + LIMIT_LAYERS + 2];
    atomic_uint stamp_count;                    /* Number of stamps so far in this batch. */
    const struct compute_matrix *_Atomic layer; /* The q matrix of the current layer. */
    /* The backend that only waits (compute_wait). */
    bool is_wait_backend;
    /* The device has its own memory; stamps inside a batch are marks that it reports. */
    bool has_own_memory;
    /* Set no stamps inside a batch. True while the device is prepared, and when a GPU is to record
     * a step or to run a recorded step. */
    bool no_inner_stamps;
    struct compute_experts_ops experts; /* Used if the backend has experts. */
    uint64_t expert_bytes;              /* Weights of one expert; 0 = the model has none. */
    /* Count the experts that a batch chooses, which takes time: not while times are measured. */
    bool experts_counted;
    uint64_t chosen;       /* Sum of the chosen experts over the layers of counted batches. */
    uint32_t chosen_count; /* Layers in that sum. */
    uint32_t routing_count;
    struct profile_routing routings[LIMIT_LAYERS];
    uint32_t embed_count; /* Calls of `embed`; a replayed step makes none. */
};

extern struct profile_timed profile_timed;

/* Makes profile_timed.ops, .steps and .experts from .base, and sets .is_wait_backend,
 * .has_own_memory and .no_inner_stamps. `c` is a device of .base. Requires that all fields except
 * .base are 0. */
void profile_stamps_set(struct compute *c);
void profile_stamp_add(void); /* Adds a stamp with the current time. */

#endif
