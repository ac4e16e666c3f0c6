/* engine: the thread that computes: forward pass, vocabulary projection, sampling. It takes one job
 * at a time from the event loop thread and knows no requests: rows, block tables and sampling rules
 * come in, tokens come out. Between engine_start and the end of the job (engine_poll) the engine
 * owns the job and all that it points to; nothing is copied. Every function is called by the loop
 * thread. */
#ifndef MACHINE_ENGINE_H
#define MACHINE_ENGINE_H

#include "common/turns.h"
#include "compute/compute.h"
#include "model/model.h"
#include "model/sampler.h"

#include <stdbool.h>
#include <stdint.h>

#define ENGINE_MASKED_MAX 16 /* end tokens of one request (struct message_sampling) */

struct engine_sample { /* one row that gives a token */
    uint32_t row;
    uint32_t position; /* of the new token */
    struct sampling sampling;
    uint32_t masked_count;
    uint32_t masked[ENGINE_MASKED_MAX];
    struct sampled result;
};

struct engine_score { /* rows whose next token is known: how likely was it */
    uint32_t first_row;
    uint32_t row_count;
    const uint32_t *ids; /* of row first_row + i: ids[i] */
    int32_t logprobs;
    struct sampled *results; /* [row_count] */
};

struct engine_job {
    const uint32_t *token_ids;
    float *x; /* activations that come and go (struct forward_batch); NULL with a whole model */
    struct compute_batch batch;
    uint32_t sample_count;
    struct engine_sample *samples; /* ascending rows */
    uint32_t score_count;
    struct engine_score *scores; /* ascending rows */
    bool report_layers;          /* wake the loop after each layer, not only at the end */
    uint32_t turn_us; /* when others wait for the cores, they get them after so long, at the end of
                         a layer (options.turns) */
};

struct engine_options {
    const struct model *model;     /* kept */
    const struct compute_ops *ops; /* the model's */
    struct compute *compute;
    struct model_kv kv;
    uint32_t rows_max;
    struct turns *turns; /* kept; a job is computed in our turns only; NULL: at any time */
    /* Of a group (engine_group_join): all get the same jobs; others than 0 know no logits, and
     * sample nothing. */
    uint32_t rank;
};

struct engine;

/* Takes all memory and starts the thread. */
enum status engine_open(const struct engine_options *options, struct engine **out,
                        struct error *error);
void engine_close(struct engine *engine); /* NULL is fine; waits for the job that runs */

void engine_start(struct engine *engine, struct engine_job *job);

/* Joins the device's group (compute_ops.group_join), instead of a job: engine_poll says when that
 * is done, and engine_group_joined what came of it. */
void engine_group_join(struct engine *engine, const uint8_t id[COMPUTE_GROUP_ID_BYTES],
                       uint32_t ranks, uint32_t timeout_ms);
enum status engine_group_joined(const struct engine *engine, struct error *error);

struct engine_progress {
    uint32_t layers; /* of the job: their K and V are stored (only with report_layers) */
    bool done;       /* the job is the caller's again */
};

/* Readable when there is news. */
int engine_fd(const struct engine *engine);
/* What has happened to the job that was started last. */
struct engine_progress engine_poll(struct engine *engine);

#endif
