/* profile_points: a layer's time is a median over the samples of a point; where all layers are
 * alike, over the samples' means over the layers. */
#include "bench/profile_points.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of its time that a measurement may have waited for a core. */
#define WAITED_SHARE_MAX 0.01
#define SAMPLES_MIN      3

static int compare_waited(const void *a, const void *b)
{
    const struct profile_step_times *x = a, *y = b;
    double left = x->waited / x->whole, right = y->waited / y->whole;
    return left < right ? -1 : left > right;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double quantile(const double *sorted, uint32_t count, double q)
{
    double at = q * (count - 1);
    uint32_t i = (uint32_t)at;
    return i + 1 < count ? sorted[i] + (sorted[i + 1] - sorted[i]) * (at - i) : sorted[i];
}

/* Sorts them. */
static double median_of(double *values, uint32_t count)
{
    qsort(values, count, sizeof(*values), compare);
    return count > 0 ? quantile(values, count, 0.5) : 0;
}

static const struct profile_point *point_find(const struct profile_plan *plan, bool prompt,
                                              uint32_t rows, uint32_t context)
{
    for (uint32_t i = 0; i < plan->point_count; i++) {
        const struct profile_point *p = &plan->points[i];
        if (p->prompt == prompt && p->rows == rows && p->context == context && p->sample_count > 0)
            return p;
    }
    return NULL;
}

/* Leaves the samples in which nobody else had the cores; but three at least, the best. Returns how
 * many went. */
static uint32_t point_settle(struct profile_point *point)
{
    uint32_t before = point->sample_count, good = 0;
    qsort(point->samples, before, sizeof(*point->samples), compare_waited);
    while (good < before &&
           point->samples[good].waited <= WAITED_SHARE_MAX * point->samples[good].whole)
        good++;
    uint32_t least = before < SAMPLES_MIN ? before : SAMPLES_MIN;
    point->sample_count = good > least ? good : least;
    return before - good;
}

/* Layers [first, last) of a sample, their mean. */
static double layers_median(const struct profile_point *point, uint32_t first, uint32_t last)
{
    double values[PROFILE_SAMPLES_MAX] = {0};
    for (uint32_t i = 0; i < point->sample_count; i++) {
        values[i] = 0;
        for (uint32_t k = first; k < last; k++)
            values[i] += point->samples[i].layers[k] / (last - first);
    }
    return median_of(values, point->sample_count);
}

/* (Quartiles' distance) / median of whole steps. */
static double point_spread(const struct profile_point *point)
{
    double values[PROFILE_SAMPLES_MAX] = {0};
    for (uint32_t i = 0; i < point->sample_count; i++)
        values[i] = point->samples[i].whole;
    double median = median_of(values, point->sample_count);
    return (quantile(values, point->sample_count, 0.75) -
            quantile(values, point->sample_count, 0.25)) /
           median;
}

/* Halfway between the smallest grid that nowhere falls above the measured one, and the greatest
 * below: noise of either sign counts alike. */
static void grid_straighten(struct profile_grid *g)
{
    struct profile_grid above = *g, below = *g;
    for (uint32_t i = 0; i < g->row_count; i++)
        for (uint32_t c = 0; c < g->context_count; c++) {
            double *us = &above.us[i][c];
            *us = fmax(*us, fmax(i > 0 ? above.us[i - 1][c] : 0, c > 0 ? above.us[i][c - 1] : 0));
        }
    for (uint32_t i = g->row_count; i-- > 0;)
        for (uint32_t c = g->context_count; c-- > 0;) {
            double *us = &below.us[i][c];
            *us = fmin(*us, fmin(i + 1 < g->row_count ? below.us[i + 1][c] : *us,
                                 c + 1 < g->context_count ? below.us[i][c + 1] : *us));
        }
    for (uint32_t i = 0; i < g->row_count; i++)
        for (uint32_t c = 0; c < g->context_count; c++)
            g->us[i][c] = round((above.us[i][c] + below.us[i][c]) / 2 * 1e4) / 1e4;
}

/* What no memory holds, or takes too long: attention goes by rows times context, so it takes as
 * much more than with less context as fewer rows do, times the ratio of rows. */
static double cell_guess(const struct profile_grid *g, uint32_t i, uint32_t c)
{
    if (i == 0 || c == 0)
        return 0;
    return g->us[i][c - 1] + (g->us[i - 1][c] - g->us[i - 1][c - 1]) * g->rows[i] / g->rows[i - 1];
}

/* The mean of layers [first, last) at every point. */
static void grid_fill(const struct profile_plan *plan, bool prompt, uint32_t first, uint32_t last,
                      struct profile_grid *g)
{
    const uint32_t *rows = prompt ? plan->tokens : plan->batches;
    const uint32_t *contexts = prompt ? plan->prompt_contexts : plan->token_contexts;
    double spreads[PROFILE_ROWS_MAX * PROFILE_CONTEXTS_MAX] = {0};
    uint32_t spread_count = 0;
    g->row_count = prompt ? plan->token_count : plan->batch_count;
    g->context_count = prompt ? plan->prompt_context_count : plan->token_context_count;
    for (uint32_t c = 0; c < g->context_count; c++)
        g->contexts[c] = contexts[c];
    for (uint32_t i = 0; i < g->row_count; i++) {
        g->rows[i] = rows[i];
        for (uint32_t c = 0; c < g->context_count; c++) {
            const struct profile_point *point = point_find(plan, prompt, rows[i], contexts[c]);
            g->us[i][c] = point != NULL ? layers_median(point, first, last) : cell_guess(g, i, c);
            if (point != NULL)
                spreads[spread_count++] = point_spread(point);
        }
    }
    g->spread = median_of(spreads, spread_count);
    grid_straighten(g);
}

enum part { PART_FIRST, PART_LAST, PART_BATCH, PART_WHOLE };

static double part_of(const struct profile_step_times *times, enum part part)
{
    return part == PART_FIRST   ? times->first
           : part == PART_LAST  ? times->last
           : part == PART_BATCH ? times->batch
                                : times->whole;
}

/* Over all samples of the points with so many rows (for PART_LAST: sampled ones). 0 rows: all. */
static double part_median(const struct profile_plan *plan, enum part part, uint32_t rows)
{
    uint32_t count = 0;
    double *values = calloc((size_t)plan->point_count * PROFILE_SAMPLES_MAX, sizeof(*values));
    for (uint32_t i = 0; values != NULL && i < plan->point_count; i++) {
        const struct profile_point *point = &plan->points[i];
        uint32_t counted = part == PART_LAST && point->prompt ? 1 : point->rows;
        for (uint32_t k = 0; (rows == 0 || counted == rows) && k < point->sample_count; k++)
            values[count++] = part_of(&point->samples[k], part);
    }
    double median = values != NULL ? median_of(values, count) : 0;
    free(values);
    return median;
}

/* Rows ascend; never falls. */
static void curve_add(struct profile_curve *curve, uint32_t rows, double us)
{
    uint32_t i = curve->row_count++;
    curve->rows[i] = rows;
    us = round(us * 1e4) / 1e4;
    curve->us[i] = i > 0 ? fmax(us, curve->us[i - 1]) : us;
}

static void curves_fill(const struct profile_plan *plan, struct profile_device *d)
{
    uint32_t t = 0, b = 0;
    while (t < plan->token_count || b < plan->batch_count) {
        uint32_t token = t < plan->token_count ? plan->tokens[t] : UINT32_MAX;
        uint32_t batch = b < plan->batch_count ? plan->batches[b] : UINT32_MAX;
        uint32_t rows = token < batch ? token : batch;
        curve_add(&d->first, rows, part_median(plan, PART_FIRST, rows));
        t += token == rows;
        b += batch == rows;
    }
    for (uint32_t i = 0; i < plan->batch_count; i++)
        curve_add(&d->last, plan->batches[i], part_median(plan, PART_LAST, plan->batches[i]));
}

static void checks_fill(const struct profile_plan *plan, const struct profile *p,
                        struct profile_device *d)
{
    const uint32_t layers = p->model.layer_count;
    for (uint32_t i = 0; i < plan->point_count && d->check_count < PROFILE_CHECKS_MAX; i++) {
        const struct profile_point *point = &plan->points[i];
        if (!point->checks || point->sample_count == 0)
            continue;
        double values[PROFILE_SAMPLES_MAX] = {0};
        for (uint32_t k = 0; k < point->sample_count; k++)
            values[k] = point->samples[k].whole;
        struct profile_check *check = &d->checks[d->check_count++];
        *check = (struct profile_check){
            .prompt = point->prompt,
            .rows = point->rows,
            .context = point->context,
            .measured_us = median_of(values, point->sample_count),
            .sum_us = point->prompt
                          ? profile_stage_prompt_us(p, d, 0, layers, point->rows, point->context, 1)
                          : profile_stage_token_us(p, d, 0, layers, point->rows, point->context)};
    }
}

void profile_points_conclude(struct profile_plan *plan, const struct profile *p,
                             struct profile_device *d)
{
    uint32_t samples = 0, disturbed = 0;
    for (uint32_t i = 0; i < plan->point_count; i++) {
        samples += plan->points[i].sample_count;
        disturbed += point_settle(&plan->points[i]);
    }
    d->disturbed = (double)disturbed / samples;
    const uint32_t layers = p->model.layer_count;
    /* The last layer of a prompt is no layer like others; but a model may have no other. */
    const uint32_t prompt_end = layers > 1 ? layers - 1 : 1;
    if (d->layer_count == 1) {
        grid_fill(plan, true, 0, prompt_end, &d->layers[0].prompt);
        grid_fill(plan, false, 0, layers, &d->layers[0].token);
    }
    for (uint32_t i = 0; d->layer_count > 1 && i < layers; i++) {
        grid_fill(plan, true, i, i + 1, &d->layers[i].prompt);
        grid_fill(plan, false, i, i + 1, &d->layers[i].token);
    }
    grid_fill(plan, true, layers - 1, layers, &d->last_layer_prompt);
    curves_fill(plan, d);
    d->batch_us = round(part_median(plan, PART_BATCH, 0) * 1e4) / 1e4;
    checks_fill(plan, p, d);
}
