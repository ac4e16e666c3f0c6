/* profile_plan: the points of a device at which it is measured. */
#include "tools/profile/points.h"

#include <stdlib.h>
#include <string.h>

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

struct axis {
    uint32_t count;
    uint32_t values[PROFILE_ROWS_MAX];
};

struct checked {
    bool prompt;
    uint32_t rows;
    uint32_t context;
    uint32_t decodes;
};

struct selection {
    struct axis tokens;
    struct axis prompt_contexts;
    struct axis batches;
    struct axis token_contexts;
    uint32_t check_count;
    /* Points whose whole steps are compared with the sum of their parts: between the other points,
     * at some of them, and with decodes beside a prompt. */
    struct checked checks[PROFILE_CHECKS_MAX];
};

/* Largest tokens × context of a prompt's point. Larger ones are extrapolated (cell_guess). */
#define PROMPT_PAIRS_MAX     (512u * 4096)
#define PROMPT_PAIRS_MAX_GPU (4096u * 4096)

/* Dense where prompts are cut into chunks and pipelines into micro-batches. */
static const struct selection all = {
    .tokens = {13, {1, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024}},
    .prompt_contexts = {3, {0, 1024, 4096}},
    .batches = {8, {1, 2, 4, 8, 16, 32, 64, 128}},
    .token_contexts = {3, {0, 256, 1024}},
    .check_count = 15,
    .checks = {{true, 128, 0},
               {true, 512, 0},
               {true, 300, 0},
               {true, 80, 500},
               {true, 640, 300},
               {true, 512, 2560},
               {true, 48, 0, 4},
               {true, 96, 0, 16},
               {true, 256, 300, 8},
               {false, 1, 0},
               {false, 1, 700},
               {false, 6, 128},
               {false, 12, 600},
               {false, 24, 1000},
               {false, 48, 300}},
};
/* GPU: longer prompts, because short ones leave the device idle, and as many sequences as the
 * memory holds. */
static const struct selection of_gpu = {
    .tokens = {11, {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096}},
    .prompt_contexts = {3, {0, 1024, 4096}},
    .batches = {10, {1, 2, 4, 8, 16, 24, 32, 64, 128, 256}},
    .token_contexts = {4, {0, 256, 1024, 4096}},
    .check_count = 10,
    .checks = {{true, 512, 0},
               {true, 2048, 0},
               {true, 1500, 300},
               {true, 300, 2000},
               {true, 512, 0, 16},
               {true, 1024, 0, 64},
               {false, 1, 0},
               {false, 1, 2000},
               {false, 12, 600},
               {false, 48, 700}},
};
static const struct selection quick = {
    .tokens = {3, {1, 16, 64}},
    .prompt_contexts = {2, {0, 128}},
    .batches = {2, {1, 4}},
    .token_contexts = {2, {0, 128}},
    .check_count = 5,
    .checks = {{true, 64, 0}, {true, 40, 60}, {true, 32, 0, 2}, {false, 1, 0}, {false, 3, 60}},
};

static uint32_t values_up_to(const struct axis *axis, uint32_t limit, uint32_t *out)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < axis->count; i++)
        if (axis->values[i] <= limit)
            out[used++] = axis->values[i];
    return used;
}

static struct profile_point *point_add(struct profile_plan *plan, const struct checked *what)
{
    for (uint32_t i = 0; i < plan->point_count; i++) {
        struct profile_point *p = &plan->points[i];
        if (p->prompt == what->prompt && p->rows == what->rows && p->context == what->context &&
            p->decodes == what->decodes)
            return p;
    }
    struct profile_point *point = &plan->points[plan->point_count++];
    point->prompt = what->prompt;
    point->rows = what->rows;
    point->context = what->context;
    point->decodes = what->decodes;
    return point;
}

static bool check_fits(const struct profile_plan *plan, const struct checked *check,
                       uint32_t decode_tokens_max)
{
    if (check->prompt)
        return check->rows <= plan->tokens[plan->token_count - 1] &&
               check->context <= plan->prompt_contexts[plan->prompt_context_count - 1] &&
               check->decodes < plan->batches[plan->batch_count - 1] &&
               (check->decodes == 0 ||
                check->rows + check->context +
                        check->decodes * (PROFILE_CHECK_DECODE_CONTEXT + 1) <=
                    decode_tokens_max);
    return check->rows <= plan->batches[plan->batch_count - 1] &&
           check->context <= plan->token_contexts[plan->token_context_count - 1] &&
           check->rows * check->context <= decode_tokens_max;
}

enum status profile_plan_open(uint32_t context_tokens, uint32_t decode_tokens_max,
                              enum profile_plan_kind kind, struct profile_plan *plan)
{
    const struct selection *s = kind == PROFILE_PLAN_QUICK ? &quick
                                : kind == PROFILE_PLAN_GPU ? &of_gpu
                                                           : &all;
    const uint32_t pairs_max = kind == PROFILE_PLAN_GPU ? PROMPT_PAIRS_MAX_GPU : PROMPT_PAIRS_MAX;
    const uint32_t half = context_tokens > 1 ? context_tokens / 2 : 1;
    memset(plan, 0, sizeof(*plan));
    plan->token_count = values_up_to(&s->tokens, half, plan->tokens);
    const uint32_t left = context_tokens - plan->tokens[plan->token_count - 1];
    plan->prompt_context_count = values_up_to(&s->prompt_contexts, left, plan->prompt_contexts);
    plan->batch_count = values_up_to(&s->batches, LIMIT_BATCH_SEQUENCES, plan->batches);
    plan->token_context_count =
        values_up_to(&s->token_contexts, decode_tokens_max < left ? decode_tokens_max : left,
                     plan->token_contexts);
    plan->points = calloc(plan->token_count * plan->prompt_context_count +
                              plan->batch_count * plan->token_context_count + s->check_count,
                          sizeof(*plan->points));
    if (plan->points == NULL)
        return ST_NO_MEMORY;
    for (uint32_t i = 0; i < plan->token_count; i++)
        for (uint32_t c = 0; c < plan->prompt_context_count; c++)
            if (plan->tokens[i] * plan->prompt_contexts[c] <= pairs_max)
                point_add(plan,
                          &(struct checked){true, plan->tokens[i], plan->prompt_contexts[c], 0});
    for (uint32_t i = 0; i < plan->batch_count; i++)
        for (uint32_t c = 0; c < plan->token_context_count; c++)
            if (plan->batches[i] * plan->token_contexts[c] <= decode_tokens_max)
                point_add(plan,
                          &(struct checked){false, plan->batches[i], plan->token_contexts[c], 0});
    for (uint32_t i = 0; i < s->check_count; i++)
        if (check_fits(plan, &s->checks[i], decode_tokens_max))
            point_add(plan, &s->checks[i])->is_check = true;
    return ST_OK;
}

void profile_plan_done(struct profile_plan *plan)
{
    free(plan->points);
}

double profile_point_weight(const struct profile_point *point)
{
    /* For a small model: 1000 tokens of context make a row half as expensive again. A step of few
     * rows reads all weights, which takes as long as ten or twenty rows. */
    double rows = point->rows + point->decodes + (point->prompt ? 10 : 20);
    return rows * (1 + (point->context + (point->prompt ? point->rows / 2.0 : 0)) / 2000);
}
