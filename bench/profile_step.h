/* profile_step: one device that computes batches as a machine would (machine/engine.h: its own
 * thread, the same sampling), with stamps of where a batch's time went. One at a time in a process;
 * one thread. It draws no conclusions (profile_device.h). */
#ifndef BENCH_PROFILE_STEP_H
#define BENCH_PROFILE_STEP_H

#include "common/limits.h"
#include "common/status.h"
#include "model/model.h"
#include "model/model_file.h"

#include <stdint.h>

#define PROFILE_BLOCK_TOKENS 16 /* the config's default */

struct profile_step_options {
    const struct model_file *file; /* read while it opens */
    const char *device;            /* as in a config */
    uint32_t threads;
    uint32_t rows_max;
    uint32_t sequences_max;
    uint32_t prompt_tokens_max; /* of a prompt and what its cache has before */
    uint32_t decode_tokens_max; /* of all sequences of a step, the new ones included */
    void (*progress)(void *self, uint32_t done, uint32_t of); /* layers loaded */
    void *self;
};

/* What one device holds of a model. */
struct profile_step_weights {
    uint64_t layer_bytes[LIMIT_LAYERS];
    uint64_t layer_kinds[LIMIT_LAYERS]; /* equal: the same types and shapes */
    uint64_t embedding_bytes;
    uint64_t vocabulary_bytes;
    bool tied;
};

/* A part of one batch. With one thread `us` is without the time that it waited for a core. */
struct profile_time {
    double us;
    double waited; /* that threads could have run in, but for others on this computer */
    double idle;   /* that threads did not run in; the more, the less the part is worth */
};

struct profile_step_times {
    struct profile_time batch;                /* from the call until the device begins */
    struct profile_time first;                /* the embedding */
    struct profile_time layers[LIMIT_LAYERS]; /* each of the model's */
    struct profile_time last;  /* vocabulary and sampling, until the caller knows; the final norm is
                                  in the last layer */
    struct profile_time whole; /* all of these */
};

struct profile_step;

enum status profile_step_open(const struct profile_step_options *options, struct profile_step **out,
                              struct error *error);
void profile_step_close(struct profile_step *s); /* NULL is fine */

const struct model_hyper *profile_step_hyper(const struct profile_step *s);
const struct profile_step_weights *profile_step_weights(const struct profile_step *s);
const char *profile_step_describe(const struct profile_step *s);
enum compute_kv_dtype profile_step_kv_dtype(const struct profile_step *s); /* f16 of a GPU */
uint64_t profile_step_memory_bytes(const struct profile_step *s); /* the computer's, or its own */
/* Of a device that has failed, what was measured since is worth nothing. */
enum status profile_step_check(const struct profile_step *s, struct error *error);

/* `tokens` of one prompt after `context` others; its last row is sampled. */
void profile_step_prompt(struct profile_step *s, uint32_t tokens, uint32_t context,
                         struct profile_step_times *out);
/* `batch` sequences with `context` cached tokens each get one more. */
void profile_step_token(struct profile_step *s, uint32_t batch, uint32_t context,
                        struct profile_step_times *out);

#endif
