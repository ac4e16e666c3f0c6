/* profile_points: the points at which a device is measured, their samples, and the results:
 * medians, spreads, and grids that never decrease. plan.c chooses the points, and points.c computes
 * the results. device.c calls both on the main thread of `cleave profile`, and fills the samples.
 * This part accesses no device and reads no clock. */
#ifndef TOOLS_PROFILE_POINTS_H
#define TOOLS_PROFILE_POINTS_H

#include "profile/profile.h"
#include "tools/profile/step.h"

#define PROFILE_SAMPLES_MAX 64 /* Most samples of one point. */

/* A size of a batch, and the samples of its times. */
struct profile_point {
    bool prompt;      /* True: a prompt. False: a decode step. */
    bool checks;      /* Compare the batch's time with the time that the profile gives for it. */
    uint32_t rows;    /* Tokens of the prompt, or sequences of the decode step. */
    uint32_t context; /* Cached tokens of each sequence before the batch. */
    uint32_t decodes; /* With `prompt`: decodes in the batch; such a point only checks. */
    uint32_t sample_count;
    struct profile_step_times samples[PROFILE_SAMPLES_MAX];
};

/* The points that are measured, and the axes of the grids that the points fill: tokens ×
 * prompt_contexts for prompts, batches × token_contexts for decode steps. Long prompts after a long
 * context, and decode steps that do not fit into memory, are extrapolated instead of measured. */
struct profile_plan {
    uint32_t token_count, prompt_context_count, batch_count, token_context_count;
    uint32_t tokens[PROFILE_ROWS_MAX], prompt_contexts[PROFILE_CONTEXTS_MAX];
    uint32_t batches[PROFILE_ROWS_MAX], token_contexts[PROFILE_CONTEXTS_MAX];
    uint32_t point_count;
    struct profile_point *points;
};

/* The points for a CPU, for a GPU, or few points for a trial. */
enum profile_plan_kind { PROFILE_PLAN_CPU, PROFILE_PLAN_GPU, PROFILE_PLAN_QUICK };
/* Chooses the points. context_tokens: longest context of the model. decode_tokens_max: most tokens
 * of all sequences of a decode step that fit into memory. ST_NO_MEMORY: memory runs out. */
enum status profile_plan_open(uint32_t context_tokens, uint32_t decode_tokens_max,
                              enum profile_plan_kind kind, struct profile_plan *plan);
void profile_plan_done(struct profile_plan *plan);

/* Returns roughly how long a batch of this size takes, in a unit that all points share. */
double profile_point_weight(const struct profile_point *point);

/* Computes the device's layers, last_layer_prompt, curves, batch_us and checks from the samples
 * with the least idle time, and `disturbed` from all samples. Requires that p->model,
 * d->layer_count (1 = all layers are alike) and d->layers are set. ST_NO_MEMORY: memory runs out.
 */
enum status profile_points_conclude(const struct profile_plan *plan, const struct profile *p,
                                    struct profile_device *d);

#endif
