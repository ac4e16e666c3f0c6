/* partition_even: one dynamic programme, run twice from the last stage to the first. The first run
 * finds the slowest stage's time; the second one minimises the sum of squares with no stage above
 * that time. A single run over (slowest, sum) pairs would be wrong: which split of the remaining
 * stages is best depends on the slowest of the stages before them. */
#include "scheduler/partition_even.h"

#include "common/limits.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#define EQUAL    1e-9  /* Relative. Sums of the same costs in another order differ by less. */
#define TIME_MAX 1e100 /* Longest time of a stage, so that squares can be added. */

struct problem {
    double before[LIMIT_LAYERS + 1]; /* Cost of the layers before each layer, with both extras. */
    const double *speeds;
    uint32_t layers;
    uint32_t stages;
    double limit; /* Longest time that a stage may take. */
    bool squares; /* true: minimise the sum of squares; false: the slowest stage. */
    uint8_t run[LIMIT_LAYERS][LIMIT_LAYERS]; /* [stage][first layer]: number of its layers - 1. */
};

static double time_of(const struct problem *p, uint32_t stage, uint32_t first, uint32_t end)
{
    double cost = p->before[end] - p->before[first];
    return p->speeds != NULL ? cost / p->speeds[stage] : cost;
}

/* Returns the best value for the stages from `stage` on over the layers from `first` on. after[i]
 * is the best value of the stages after `stage` over the layers from i on. INFINITY = impossible.
 */
static double best_from(struct problem *p, uint32_t stage, uint32_t first, const double *after)
{
    uint32_t end_max = p->layers - (p->stages - 1 - stage);
    double best = INFINITY;
    /* The longest run is tried first, so it wins ties. */
    for (uint32_t end = end_max; end > first; end--) {
        double time = time_of(p, stage, first, end);
        if (time > p->limit)
            continue;
        double value = p->squares ? time * time + after[end] : fmax(time, after[end]);
        if (best == INFINITY ? value < INFINITY : value < best * (1 - EQUAL)) {
            best = value;
            p->run[stage][first] = (uint8_t)(end - first - 1);
        }
    }
    return best;
}

static double solve(struct problem *p)
{
    double after[LIMIT_LAYERS + 1];
    for (uint32_t first = 0; first < p->layers; first++)
        after[first] = INFINITY;
    after[p->layers] = 0;
    for (uint32_t stage = p->stages; stage-- > 0;) {
        /* In place: each value depends only on later layers of the next stage. */
        for (uint32_t first = stage; first < p->layers; first++)
            after[first] = best_from(p, stage, first, after);
        after[p->layers] = INFINITY;
    }
    return after[0];
}

static enum status check(const double *layer_cost, uint32_t layer_count, double first_extra,
                         double last_extra, const double *speeds, uint32_t stage_count,
                         struct error *error)
{
    if (layer_count == 0 || layer_count > LIMIT_LAYERS)
        return error_set(error, ST_INVALID, "%u layers: want 1 to %u", layer_count, LIMIT_LAYERS);
    if (stage_count == 0 || stage_count > layer_count)
        return error_set(error, ST_INVALID, "%u stages for %u layers: want 1 to %u", stage_count,
                         layer_count, layer_count);
    for (uint32_t i = 0; i < layer_count; i++)
        if (!isfinite(layer_cost[i]) || layer_cost[i] < 0)
            return error_set(error, ST_INVALID, "layer %u costs %g: want a number from 0 on", i,
                             layer_cost[i]);
    if (!isfinite(first_extra) || first_extra < 0 || !isfinite(last_extra) || last_extra < 0)
        return error_set(error, ST_INVALID,
                         "before the first layer %g, after the last %g: want numbers from 0 on",
                         first_extra, last_extra);
    for (uint32_t s = 0; speeds != NULL && s < stage_count; s++)
        if (!isfinite(speeds[s]) || speeds[s] <= 0)
            return error_set(error, ST_INVALID, "stage %u has speed %g: want one above 0", s,
                             speeds[s]);
    return ST_OK;
}

enum status partition_even(const double *layer_cost, uint32_t layer_count, double first_extra,
                           double last_extra, const double *speeds, uint32_t stage_count,
                           uint32_t *ends_out, struct error *error)
{
    enum status status =
        check(layer_cost, layer_count, first_extra, last_extra, speeds, stage_count, error);
    if (status != ST_OK)
        return status;
    struct problem p = {
        .speeds = speeds, .layers = layer_count, .stages = stage_count, .limit = INFINITY};
    p.before[0] = -first_extra; /* Every run that begins at layer 0 includes first_extra. */
    double sum = 0;
    for (uint32_t i = 0; i < layer_count; i++) {
        sum += layer_cost[i];
        p.before[i + 1] = sum;
    }
    p.before[layer_count] += last_extra;
    double slowest = solve(&p);
    if (!(slowest <= TIME_MAX))
        return error_set(error, ST_INVALID, "the slowest stage takes %g: want at most %g", slowest,
                         TIME_MAX);
    p.limit = slowest * (1 + EQUAL);
    p.squares = true;
    solve(&p);
    uint32_t first = 0;
    for (uint32_t s = 0; s < stage_count; s++) {
        first += p.run[s][first] + 1u;
        ends_out[s] = first;
    }
    return ST_OK;
}
