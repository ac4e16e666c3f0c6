/* engine: owns the thread that computes batches: forward pass, vocabulary projection, sampling. One
 * other thread makes all calls, and gives the engine one job at a time: the event loop thread of a
 * machine or stage process, or a thread of `cleave profile`. The engine knows no requests: rows,
 * block tables and sampling rules go in, tokens come out. From engine_start until engine_poll
 * reports the end of the job, the engine uses the job and the memory that the job points to. If the
 * device fails, the engine ends the process with the exit status CHILD_EXIT_CRASHED
 * (host/child.h). */
#ifndef MACHINE_EXECUTOR_ENGINE_H
#define MACHINE_EXECUTOR_ENGINE_H

#include "compute/compute.h"
#include "host/turns.h"
#include "model/forward/logit_edits.h"
#include "model/forward/model.h"
#include "model/forward/sampler.h"

#include <stdbool.h>
#include <stdint.h>

/* A row from which a token is sampled. */
struct engine_sample {
    uint32_t row; /* Index of the row in the batch. */
    /* How the token is chosen. The caller sets forced_token to COMPUTE_SAMPLE_DRAW, and edit_first
     * and edit_count to 0; the engine makes the edits from `context`. */
    struct compute_sample choice;
    /* Rules and earlier tokens for the edits of the row's logits (logit_edits.h). The memory to
     * which `context` points must stay valid until the job is done. */
    struct sample_context context;
    /* Bit id % 32 of word id / 32 is 1 if token `id` may be drawn; NULL = any token may. */
    const uint32_t *allowed;
    struct sampled result; /* Result: the token. */
    /* Result: [hidden], the row's final vector (forward_final_vector); NULL = not wanted. */
    float *final;
};

/* Rows whose next tokens are known, as in a prompt. The engine computes the log-probabilities of
 * these tokens. */
struct engine_score {
    uint32_t first_row;
    uint32_t row_count;
    const uint32_t *next_ids; /* The next token of row first_row + i is next_ids[i]. */
    int32_t logprobs;         /* As in struct sampling. */
    struct sampled *results;  /* [row_count] */
};

/* Rows whose final vectors are added to *sum (forward_pool). */
struct engine_pooled {
    uint32_t first_row;
    uint32_t row_count;
    /* [hidden], in units of 1 / POOLING_ONE; the caller sets the sum to 0 before the first rows. */
    int64_t *sum;
};

/* One batch to compute. */
struct engine_job {
    const uint32_t *token_ids; /* [batch.row_count]; NULL = the stage does not have layer 0. */
    /* Activations, in and out (struct forward_batch); not used with a whole model. */
    float *activations;
    const float *finals; /* Final vectors for a draft layer (struct forward_batch). */
    struct compute_batch batch;
    uint32_t sample_count;
    struct engine_sample *samples; /* In ascending order of rows. */
    uint32_t score_count;
    struct engine_score *scores; /* In ascending order of rows. */
    uint32_t pooled_count;
    struct engine_pooled *pooled;
    /* engine_fd also becomes readable whenever K and V of more layers are stored. */
    bool report_layers;
    uint32_t turn_us; /* Length of a turn (slice_us of turns_begin). */
    uint64_t used_us; /* Result: time that the job has taken, without waiting for turns. */
    /* Result: the job ended early (engine_abandon), without results except used_us. */
    bool abandoned;
};

struct engine_options {
    const struct model *model;     /* Not owned; must outlive the engine. */
    const struct compute_ops *ops; /* The model's backend. */
    struct compute *compute;       /* Not owned; must outlive the engine. */
    struct model_kv kv;            /* The KV cache, which the caller owns. */
    uint32_t rows_max;             /* Most rows of a batch. */
    /* Not owned. Jobs are computed only during this process's turns; NULL = at any time. */
    struct turns *turns;
    /* This process's rank in its group (engine_group_join); 0 without ranks. All ranks must get
     * equal jobs. Ranks other than 0 do not sample, score and pool. */
    uint32_t rank;
};

struct engine;

/* Allocates the memory of the forward pass and of the samplers, and starts the thread. The text of
 * an error says what failed. */
enum status engine_open(const struct engine_options *options, struct engine **out,
                        struct error *error);
void engine_close(struct engine *engine); /* NULL is fine. Waits for the job that runs. */

/* Hands the job to the engine thread and returns at once. Requires that the engine has no job. */
void engine_start(struct engine *engine, struct engine_job *job);

/* Ends the job before its next layer, if that is possible; engine_poll reports the end. Has no
 * effect with ranks, and on a backend that computes whole steps (compute_ops.steps). */
void engine_abandon(struct engine *engine);

/* Starts to join the group of ranks with this id (compute_group_ops.join) on the engine thread;
 * `id` is copied. Requires that the engine has no job, and that the backend has groups. engine_poll
 * reports the end. */
void engine_group_join(struct engine *engine, const uint8_t id[COMPUTE_GROUP_ID_BYTES],
                       uint32_t ranks, uint32_t timeout_ms);
/* Returns the result of engine_group_join: ST_OK, or the error of compute_group_ops.join. */
enum status engine_group_joined(const struct engine *engine, struct error *error);

struct engine_progress {
    /* K and V of the layers before layer `stored_layers` are stored; 0 = no layer is known to be
     * stored. Counted from the model's first layer, also in a stage. */
    uint32_t stored_layers;
    bool done; /* The job, or engine_group_join, has ended. */
};

/* Returns a descriptor that becomes readable when engine_poll has something to report. */
int engine_fd(const struct engine *engine);
/* Returns the progress of the latest job; all zeros if engine_fd is not readable. */
struct engine_progress engine_poll(struct engine *engine);

#endif
