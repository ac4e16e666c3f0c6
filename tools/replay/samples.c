/* replay_samples: see the header. A growing array that is sorted when needed, then one array of
 * counts. */
#include "tools/replay/samples.h"

#include "common/histogram.h"

#include <stdbool.h>
#include <stdlib.h>

#define FIRST_KEPT 4096

void replay_samples_done(struct replay_samples *samples)
{
    free(samples->values);
    free(samples->quantiles);
    *samples = (struct replay_samples){0};
}

static bool quantiles_begin(struct replay_samples *samples)
{
    samples->quantiles = calloc(1, sizeof(*samples->quantiles));
    if (samples->quantiles == NULL)
        return false;
    for (uint64_t i = 0; i < samples->count; i++)
        quantiles_add(samples->quantiles, samples->values[i]);
    free(samples->values);
    samples->values = NULL;
    return true;
}

static bool room_make(struct replay_samples *samples)
{
    if (samples->capacity == REPLAY_SAMPLES_KEPT)
        return quantiles_begin(samples);
    uint64_t wanted = samples->capacity == 0 ? FIRST_KEPT : samples->capacity * 2;
    double *grown = realloc(samples->values, wanted * sizeof(*grown));
    if (grown == NULL)
        return false;
    samples->values = grown;
    samples->capacity = wanted;
    return true;
}

enum status replay_samples_add(struct replay_samples *samples, double value)
{
    if (samples->quantiles == NULL && samples->count == samples->capacity && !room_make(samples))
        return ST_NO_MEMORY;
    if (samples->quantiles != NULL)
        quantiles_add(samples->quantiles, value);
    else
        samples->values[samples->count] = value;
    if (samples->count++ == 0 || value > samples->max)
        samples->max = value;
    samples->sum += value;
    return ST_OK;
}

static int compare_values(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double quantile(const struct replay_samples *samples, double q)
{
    return samples->quantiles != NULL ? quantiles_at(samples->quantiles, q)
                                      : quantile_of_sorted(samples->values, samples->count, q);
}

struct replay_percentiles replay_samples_percentiles(struct replay_samples *samples)
{
    if (samples->count == 0)
        return (struct replay_percentiles){0};
    if (samples->quantiles == NULL)
        qsort(samples->values, samples->count, sizeof(*samples->values), compare_values);
    return (struct replay_percentiles){.count = samples->count,
                                       .mean = samples->sum / (double)samples->count,
                                       .p50 = quantile(samples, 0.50),
                                       .p90 = quantile(samples, 0.90),
                                       .p99 = quantile(samples, 0.99),
                                       .max = samples->max};
}
