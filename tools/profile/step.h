/* profile_step: one device that computes batches as a machine does (machine/executor/engine.h: with
 * the engine's thread and its sampling), and the time of each part of a batch. A process has at
 * most one profile_step at a time (stamps.h). device.c calls it on the main thread of `cleave
 * profile` and of the other ranks' processes; busy.c calls it in the processes that keep the host
 * busy. It chooses no sizes and drops no sample; points.c interprets the times. */
#ifndef TOOLS_PROFILE_STEP_H
#define TOOLS_PROFILE_STEP_H

#include "common/limits.h"
#include "common/status.h"
#include "model/file/model_file.h"
#include "model/forward/model.h"
#include "tools/profile/ranks.h"

#include <stdint.h>

#define PROFILE_BLOCK_TOKENS 16 /* The config's default. */

struct profile_step_options {
    const struct model_file *file; /* Used only while the device is opened. */
    const char *device;            /* Device as in a config. */
    uint32_t threads;              /* Threads of the device, of one rank. */
    /* Ranks that compute each layer together; this process is one of them. NULL or one rank = this
     * process computes whole layers. All ranks open the device with equal sizes. Rank 0's calls of
     * profile_step_prompt and profile_step_token are orders to the others. */
    struct profile_ranks *ranks;
    uint32_t rows_max;          /* Most tokens of one batch. */
    uint32_t sequences_max;     /* Most sequences of one decode step. */
    uint32_t prompt_tokens_max; /* Longest prompt with its cached context. */
    /* Most tokens of all sequences of a decode step, with the new ones. */
    uint32_t decode_tokens_max;
    /* Reports the number of loaded layers while the device is opened; NULL = none. */
    void (*progress)(void *self, uint32_t layers_done, uint32_t layer_count);
    void *self; /* First argument of `progress`. */
};

/* Sizes of the model's parts in the device's memory. With ranks: in rank 0, layer_bytes,
 * embedding_bytes and vocabulary_bytes are the sums over all ranks; all other values are those of
 * the process's own rank. */
struct profile_step_weights {
    uint64_t layer_bytes[LIMIT_LAYERS]; /* Weights of each layer. */
    uint64_t layer_kinds[LIMIT_LAYERS]; /* Equal numbers mean equal types and shapes. */
    uint64_t embedding_bytes;
    uint64_t vocabulary_bytes;
    bool tied; /* The embedding is also the vocabulary. */
    /* One routed expert, which one of the ranks has whole; layer_bytes include it. 0 = no
     * experts. */
    uint64_t expert_bytes;
};

/* Time of a part of a batch. All fields are in microseconds. */
struct profile_part_time {
    double us;        /* Time of the part; with one computing thread, without waited_us. */
    double waited_us; /* Sum over the threads: time that they waited for a core. */
    /* Sum over the threads: time that they did not run, for any reason; with one computing thread,
     * waited_us; 0 = the device has its own memory, or only waits. A sample with more idle time is
     * worse. */
    double idle_us;
};

/* The parts of a batch in the order in which they run. */
struct profile_step_times {
    struct profile_part_time batch;                /* From the call until the device begins. */
    struct profile_part_time embedding;            /* Embedding. */
    struct profile_part_time layers[LIMIT_LAYERS]; /* Each layer of the model. */
    /* Vocabulary and sampling, until the caller has the result. The final norm is in the last
     * layer. */
    struct profile_part_time vocabulary;
    struct profile_part_time whole; /* Sum of all parts above. */
};

struct profile_step;

/* Opens the device, loads the model and fills the KV cache. profile_step_close frees *out. Returns
 * ST_NO_MEMORY, ST_UNREACHABLE if another rank has ended, or the errors of the model and the
 * device. */
enum status profile_step_open(const struct profile_step_options *options, struct profile_step **out,
                              struct error *error);
void profile_step_close(struct profile_step *s); /* NULL is fine. */

/* Return the model's shape, the sizes of its parts, and the backend's description of the device.
 * The pointers are valid until profile_step_close. */
const struct model_hyper *profile_step_hyper(const struct profile_step *s);
const struct profile_step_weights *profile_step_weights(const struct profile_step *s);
const char *profile_step_describe(const struct profile_step *s);
/* Returns the type of the cached K and V: f16 on a GPU, else i16. */
enum compute_kv_dtype profile_step_kv_dtype(const struct profile_step *s);
/* Returns the size of the host's memory, or of the device's own. */
uint64_t profile_step_memory_bytes(const struct profile_step *s);
/* Returns ST_UNREACHABLE if another rank has ended, the device's error, or ST_OK. After an error
 * all measurements are worthless. */
enum status profile_step_check(const struct profile_step *s, struct error *error);

/* Computes `tokens` tokens of one prompt after `context` cached tokens; the last row is sampled.
 * Requires that `tokens` and `tokens` + `context` are within the options. Here and in
 * profile_step_token, *out is not written if a rank has ended (profile_step_check). */
void profile_step_prompt(struct profile_step *s, uint32_t tokens, uint32_t context,
                         struct profile_step_times *out);
/* Computes a decode step without measuring it. Returns the number of experts of a layer that its
 * rows choose together, on average over the layers; 0 = the model has no experts, the device has
 * its own memory, or a rank has ended. Requires what profile_step_token requires. */
double profile_step_experts(struct profile_step *s, uint32_t batch, uint32_t context);

/* Generates one token for each of `batch` sequences with `context` cached tokens each. Requires
 * that `batch`, and the tokens of all sequences, are within the options. A GPU then runs the step
 * without stamps, as a machine does, and the times of the parts are scaled to this run. */
void profile_step_token(struct profile_step *s, uint32_t batch, uint32_t context,
                        struct profile_step_times *out);

#endif
