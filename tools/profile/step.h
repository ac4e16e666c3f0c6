/* profile_step: one device that computes batches as a machine does (machine/executor/engine.h), and
 * the time of each part of a batch. The struct owns device, model and KV memory. A process has
 * at most one profile_step at a time. tools/profile/ calls the functions on the main thread of
 * each process that computes. This part chooses no sizes of batches and drops no sample. */
#ifndef TOOLS_PROFILE_STEP_H
#define TOOLS_PROFILE_STEP_H

#include "common/limits.h"
#include "common/status.h"
#include "model/file/model_file.h"
#include "model/forward/model.h"
#include "profile/profile.h"
#include "tools/profile/ranks.h"

#include <stdint.h>

#define PROFILE_BLOCK_TOKENS 16 /* Tokens of a block: the config's default. */

struct profile_step_options {
    const struct model_file *file; /* Used only while the device is opened. */
    const char *device;            /* Device as in a config. */
    uint32_t threads;              /* Threads of this process's rank. */
    /* The ranks of the device; this process is one of them. NULL or one rank = this process
     * computes whole layers. All ranks open the device with equal sizes. When rank 0 computes a
     * batch, it orders the other ranks to compute the batch, too. */
    struct profile_ranks *ranks;
    uint32_t rows_max;          /* Most rows of a batch. */
    uint32_t sequences_max;     /* Most sequences of a batch. */
    uint32_t prompt_tokens_max; /* Most tokens of a prompt, cached and new. */
    /* Most cached tokens of a decode step. Also the most tokens, cached and new, of a batch with a
     * prompt and decodes. */
    uint32_t decode_tokens_max;
    /* Reports the number of loaded layers while the device is opened; NULL = none. */
    void (*progress)(void *self, uint32_t layers_done, uint32_t layer_count);
    void *self; /* First argument of `progress`. */
};

/* Sizes of the model's parts in the device's memory. With ranks: the sizes of this process's rank.
 * Exception: in rank 0, the fields marked "sum" are sums over all ranks. */
struct profile_step_weights {
    uint64_t layer_bytes[LIMIT_LAYERS]; /* Weights of each layer; sum. */
    uint64_t layer_kinds[LIMIT_LAYERS]; /* Layers with equal numbers have equal types and shapes. */
    uint64_t embedding_bytes;           /* Embedding matrix; sum. */
    uint64_t vocabulary_bytes;          /* Vocabulary matrix and final norm; sum. */
    bool tied;                          /* The embedding matrix is also the vocabulary matrix. */
    /* One routed expert, which one of the ranks has whole; layer_bytes include it. 0 = no experts,
     * or the device keeps no weights. */
    uint64_t expert_bytes;
};

/* Time of a part of a batch. */
struct profile_part_time {
    double us;        /* Time of the part; with one computing thread, waited_us is subtracted. */
    double waited_us; /* Time that threads waited for a core, summed over the threads. */
    /* Time that threads did not run, for any reason, summed over the threads. With one computing
     * thread: waited_us. With several: measured for the whole batch; each part gets a share in
     * proportion to its time. 0 if the device has its own memory, or only waits. */
    double idle_us;
};

/* The parts of a batch in the order in which they run. */
struct profile_step_times {
    struct profile_part_time batch;     /* From the call until the device begins. */
    struct profile_part_time embedding; /* Embedding matrix, and the norm before layer 0. */
    /* Each layer without the norm before it, but with the norm after it (the next layer's first or
     * the final norm). */
    struct profile_part_time layers[LIMIT_LAYERS];
    struct profile_part_time vocabulary; /* Vocabulary matrix, sampling and the result. */
    struct profile_part_time whole;      /* Sum of all parts above. */
};

struct profile_step;

/* Opens the device, loads the model and fills the KV memory. profile_step_close frees *out.
 * ST_NO_MEMORY: memory runs out. ST_UNREACHABLE: another rank has ended. Other errors are those of
 * the model and the device. */
enum status profile_step_open(const struct profile_step_options *options, struct profile_step **out,
                              struct error *error);
void profile_step_close(struct profile_step *s); /* NULL is fine. */

/* The next three functions return pointers that are valid until profile_step_close. */
const struct model_hyper *profile_step_hyper(const struct profile_step *s); /* The model's shape. */
const struct profile_step_weights *profile_step_weights(const struct profile_step *s);
const char *profile_step_describe(const struct profile_step *s); /* The device, for a person. */
/* Returns the type of the cached K and V. */
enum compute_kv_dtype profile_step_kv_dtype(const struct profile_step *s);
/* Returns the size of the device's own memory, or of the host's if the device has none. */
uint64_t profile_step_memory_bytes(const struct profile_step *s);
/* Returns the device's error. ST_UNREACHABLE: another rank has ended. After an error, earlier times
 * are not valid. */
enum status profile_step_check(const struct profile_step *s, struct error *error);

/* Computes a batch: `tokens` tokens of one prompt after `context` cached tokens, and one token for
 * each of `decodes` other sequences with PROFILE_CHECK_DECODE_CONTEXT cached tokens. The last row
 * of each sequence is sampled. Requires a batch within the sizes in the options. Leaves *out
 * unchanged if a rank has ended (profile_step_check). */
void profile_step_prompt(struct profile_step *s, uint32_t tokens, uint32_t context,
                         uint32_t decodes, struct profile_step_times *out);
/* Computes the decode step of profile_step_token. Returns the number of experts of a layer that the
 * rows choose together, on average over the layers. 0 = not known: no experts are computed,
 * the device has its own memory, or a rank has ended. */
double profile_step_experts(struct profile_step *s, uint32_t batch, uint32_t context);

/* Computes a decode step: one token for each of `batch` sequences with `context` cached tokens.
 * Requires a batch within the sizes in the options. The times of a GPU are scaled so that `whole`
 * is the time without stamps. Leaves *out unchanged if a rank has ended. */
void profile_step_token(struct profile_step *s, uint32_t batch, uint32_t context,
                        struct profile_step_times *out);

#endif
