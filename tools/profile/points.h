/* profile_points: the points at which a device is measured, their samples, and the results: grids
 * and curves of medians that do not decrease. A plan owns its points. device.c fills the samples
 * and calls the functions, on the main thread of `cleave profile`. This part accesses no device and
 * reads no clock. */
#ifndef TOOLS_PROFILE_POINTS_H
#define TOOLS_PROFILE_POINTS_H

#include "profile/profile.h"
#include "tools/profile/step.h"

#define PROFILE_SAMPLES_MAX 64 /* Most samples of one point. */

/* A size of a batch, and the samples of its times. */
struct profile_point {
    bool prompt;      /* true = a prompt; false = a decode step. */
    bool is_check;    /* The point makes a struct profile_check. */
    uint32_t rows;    /* Tokens of the prompt, or sequences of the decode step. */
    uint32_t context; /* Cached tokens of the prompt, or of each sequence. */
    uint32_t decodes; /* Decodes in the prompt's batch. If > 0, the point fills no grid or curve. */
    uint32_t sample_count;
    struct profile_step_times samples[PROFILE_SAMPLES_MAX];
};

/* The points that are measured, and the axes of the grids that the points fill. A cell of a grid
 * without a point (a very long prompt, a decode step beyond the memory) is extrapolated. */
struct profile_plan {
    /* Entries of the axes below. */
    uint32_t token_count, prompt_context_count, batch_count, token_context_count;
    /* Rows and contexts of the grids for prompts. */
    uint32_t tokens[PROFILE_ROWS_MAX], prompt_contexts[PROFILE_CONTEXTS_MAX];
    /* Rows and contexts of the grids for decode steps. */
    uint32_t batches[PROFILE_ROWS_MAX], token_contexts[PROFILE_CONTEXTS_MAX];
    uint32_t point_count;
    struct profile_point *points;
};

/* PROFILE_PLAN_QUICK: few points, for a trial on any device. */
enum profile_plan_kind { PROFILE_PLAN_CPU, PROFILE_PLAN_GPU, PROFILE_PLAN_QUICK };
/* Chooses the points. profile_plan_done frees them. context_tokens: longest context of the model.
 * decode_tokens_max: most tokens of all sequences of a batch with decodes. ST_NO_MEMORY: memory
 * runs out. */
enum status profile_plan_open(uint32_t context_tokens, uint32_t decode_tokens_max,
                              enum profile_plan_kind kind, struct profile_plan *plan);
void profile_plan_done(struct profile_plan *plan);

/* Returns roughly how long the point's batch takes, for comparison with other points. */
double profile_point_weight(const struct profile_point *point);

/* Fills the times, `disturbed` and the checks of *d from the samples. Requires that p->model,
 * d->layer_count and d->layers are set. ST_NO_MEMORY: memory runs out. */
enum status profile_points_conclude(const struct profile_plan *plan, const struct profile *p,
                                    struct profile_device *d);

#endif
