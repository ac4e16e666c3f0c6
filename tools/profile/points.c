/* profile_points: see the header. A layer's time is a median over the samples of a point. If all
 * layers are alike, it is the median over all samples of all layers. */
#include "tools/profile/points.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A sample is disturbed if it waited for a core for more than this share of its time. A sample is
 * good if the idle share of its threads exceeds the best sample's by at most IDLE_SHARE_MORE. */
#define WAITED_SHARE_MAX 0.01
#define IDLE_SHARE_MORE  0.01
#define SAMPLES_MIN      3

/* Times of one kind from many samples. */
struct timings {
    uint32_t count;
    struct profile_part_time *times;
};

static bool disturbed(const struct profile_part_time *time)
{
    return time->waited_us > WAITED_SHARE_MAX * (time->us + time->waited_us);
}

static double idle_share(const struct profile_part_time *time)
{
    return time->idle_us / (time->us + time->idle_us + 1e-9);
}

static int compare_idle(const void *a, const void *b)
{
    double x = idle_share(a), y = idle_share(b);
    return x < y ? -1 : x > y;
}

static int compare_us(const void *a, const void *b)
{
    const struct profile_part_time *x = a, *y = b;
    return x->us < y->us ? -1 : x->us > y->us;
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

/* Sorts the values and returns the median. */
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
        if (p->prompt == prompt && p->rows == rows && p->context == context && p->decodes == 0 &&
            p->sample_count > 0)
            return p;
    }
    return NULL;
}

/* Keeps the samples with the least idle time, at least three, sorted by their time. */
static struct timings timings_settle(struct timings timings)
{
    uint32_t good = 0;
    uint32_t least = timings.count < SAMPLES_MIN ? timings.count : SAMPLES_MIN;
    qsort(timings.times, timings.count, sizeof(*timings.times), compare_idle);
    while (good < timings.count &&
           idle_share(&timings.times[good]) <= idle_share(&timings.times[0]) + IDLE_SHARE_MORE)
        good++;
    timings.count = good > least ? good : least;
    qsort(timings.times, timings.count, sizeof(*timings.times), compare_us);
    return timings;
}

static double timings_quantile(const struct timings *timings, double q)
{
    if (timings->count == 0)
        return 0;
    double at = q * (timings->count - 1);
    uint32_t i = (uint32_t)at;
    double us = timings->times[i].us;
    return i + 1 < timings->count ? us + (timings->times[i + 1].us - us) * (at - i) : us;
}

/* Returns the median over the layers [first, last), which are alike, in all samples. */
static double layers_median(const struct profile_point *point, uint32_t first, uint32_t last,
                            struct profile_part_time *room)
{
    struct timings timings = {.times = room};
    for (uint32_t i = 0; i < point->sample_count; i++)
        for (uint32_t k = first; k < last; k++)
            timings.times[timings.count++] = point->samples[i].layers[k];
    timings = timings_settle(timings);
    return timings_quantile(&timings, 0.5);
}

static struct timings point_wholes(const struct profile_point *point,
                                   struct profile_part_time *room)
{
    struct timings timings = {.times = room};
    for (uint32_t i = 0; i < point->sample_count; i++)
        timings.times[timings.count++] = point->samples[i].whole;
    return timings_settle(timings);
}

/* Returns (distance of the quartiles) / median of the whole steps. */
static double point_spread(const struct profile_point *point, struct profile_part_time *room)
{
    const struct timings timings = point_wholes(point, room);
    return (timings_quantile(&timings, 0.75) - timings_quantile(&timings, 0.25)) /
           timings_quantile(&timings, 0.5);
}

/* Makes the grid increase with rows and context: the mean of the smallest increasing grid above the
 * measured one and the largest one below it, so that noise in both directions counts equally. */
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

/* Extrapolates a cell that was not measured. The cost of attention is proportional to rows ×
 * context, so the increase over the cell with less context is that of the row above, times the
 * ratio of rows. */
static double cell_guess(const struct profile_grid *g, uint32_t i, uint32_t c)
{
    if (i == 0 || c == 0)
        return 0;
    double more = fmax(0, g->us[i - 1][c] - g->us[i - 1][c - 1]);
    return fmax(g->us[i - 1][c], g->us[i][c - 1] + more * g->rows[i] / g->rows[i - 1]);
}

/* Fills a grid with the medians of layers [first, last) at every point. */
static void grid_fill(const struct profile_plan *plan, bool prompt, uint32_t first, uint32_t last,
                      struct profile_part_time *room, struct profile_grid *g)
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
            g->us[i][c] =
                point != NULL ? layers_median(point, first, last, room) : cell_guess(g, i, c);
            if (point != NULL)
                spreads[spread_count++] = point_spread(point, room);
        }
    }
    g->spread = median_of(spreads, spread_count);
    grid_straighten(g);
}

enum part { PART_FIRST, PART_LAST, PART_BATCH };

static struct profile_part_time part_of(const struct profile_step_times *times, enum part part)
{
    return part == PART_FIRST  ? times->embedding
           : part == PART_LAST ? times->vocabulary
                               : times->batch;
}

/* Returns the median of a part over all samples of the points with this number of rows (PART_LAST:
 * sampled rows); 0 rows = all points. */
static double part_median(const struct profile_plan *plan, enum part part, uint32_t rows,
                          struct profile_part_time *room)
{
    struct timings timings = {.times = room};
    for (uint32_t i = 0; i < plan->point_count; i++) {
        const struct profile_point *point = &plan->points[i];
        uint32_t counted = part == PART_LAST && point->prompt ? 1 : point->rows;
        if (point->decodes > 0)
            continue;
        for (uint32_t k = 0; (rows == 0 || counted == rows) && k < point->sample_count; k++)
            timings.times[timings.count++] = part_of(&point->samples[k], part);
    }
    timings = timings_settle(timings);
    return timings_quantile(&timings, 0.5);
}

/* Appends a point. Rows must ascend; the time never decreases. */
static void curve_add(struct profile_curve *curve, uint32_t rows, double us)
{
    uint32_t i = curve->row_count++;
    curve->rows[i] = rows;
    us = round(us * 1e4) / 1e4;
    curve->us[i] = i > 0 ? fmax(us, curve->us[i - 1]) : us;
}

static void curves_fill(const struct profile_plan *plan, struct profile_part_time *room,
                        struct profile_device *d)
{
    uint32_t t = 0, b = 0;
    while (t < plan->token_count || b < plan->batch_count) {
        uint32_t token = t < plan->token_count ? plan->tokens[t] : UINT32_MAX;
        uint32_t batch = b < plan->batch_count ? plan->batches[b] : UINT32_MAX;
        uint32_t rows = token < batch ? token : batch;
        curve_add(&d->embedding, rows, part_median(plan, PART_FIRST, rows, room));
        t += token == rows;
        b += batch == rows;
    }
    for (uint32_t i = 0; i < plan->batch_count; i++)
        curve_add(&d->vocabulary, plan->batches[i],
                  part_median(plan, PART_LAST, plan->batches[i], room));
}

static void checks_fill(const struct profile_plan *plan, const struct profile *p,
                        struct profile_part_time *room, struct profile_device *d)
{
    const uint32_t layers = p->model.layer_count;
    for (uint32_t i = 0; i < plan->point_count && d->check_count < PROFILE_CHECKS_MAX; i++) {
        const struct profile_point *point = &plan->points[i];
        if (!point->is_check || point->sample_count == 0)
            continue;
        const struct timings wholes = point_wholes(point, room);
        const struct profile_work prompt = {.prompt_tokens = point->rows,
                                            .prompt_context = point->context,
                                            .prompts_ending = 1,
                                            .decodes = point->decodes,
                                            .decode_context = PROFILE_CHECK_DECODE_CONTEXT};
        const struct profile_work decodes = {.decodes = point->rows,
                                             .decode_context = point->context};
        struct profile_check *check = &d->checks[d->check_count++];
        *check = (struct profile_check){
            .prompt = point->prompt,
            .rows = point->rows,
            .context = point->context,
            .decodes = point->decodes,
            .measured_us = timings_quantile(&wholes, 0.5),
            .predicted_us = profile_stage_us(p, d, 0, layers, point->prompt ? &prompt : &decodes)};
    }
}

static double disturbed_share(const struct profile_plan *plan)
{
    uint32_t samples = 0, bad = 0;
    for (uint32_t i = 0; i < plan->point_count; i++)
        for (uint32_t k = 0; k < plan->points[i].sample_count; k++) {
            samples++;
            bad += disturbed(&plan->points[i].samples[k].whole);
        }
    return samples > 0 ? (double)bad / samples : 0;
}

enum status profile_points_conclude(const struct profile_plan *plan, const struct profile *p,
                                    struct profile_device *d)
{
    const uint32_t layers = p->model.layer_count;
    /* The last layer of a prompt differs from the others, but a model may have only that one. */
    const uint32_t prompt_end = layers > 1 ? layers - 1 : 1;
    /* Room for all samples of all points, or of all layers of one point. */
    const uint32_t most = plan->point_count > layers ? plan->point_count : layers;
    struct profile_part_time *room = calloc((size_t)most * PROFILE_SAMPLES_MAX, sizeof(*room));
    if (room == NULL)
        return ST_NO_MEMORY;
    if (d->layer_count == 1) {
        grid_fill(plan, true, 0, prompt_end, room, &d->layers[0].prompt);
        grid_fill(plan, false, 0, layers, room, &d->layers[0].token);
    }
    for (uint32_t i = 0; d->layer_count > 1 && i < layers; i++) {
        grid_fill(plan, true, i, i + 1, room, &d->layers[i].prompt);
        grid_fill(plan, false, i, i + 1, room, &d->layers[i].token);
    }
    grid_fill(plan, true, layers - 1, layers, room, &d->last_layer_prompt);
    curves_fill(plan, room, d);
    d->batch_us = round(part_median(plan, PART_BATCH, 0, room) * 1e4) / 1e4;
    d->disturbed = disturbed_share(plan);
    checks_fill(plan, p, room, d);
    free(room);
    return ST_OK;
}
