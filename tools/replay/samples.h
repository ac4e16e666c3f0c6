/* replay_samples: values of one kind (milliseconds or slowdowns) and their percentiles. Up to
 * REPLAY_SAMPLES_KEPT values (about a million) are kept; with more values, all are counted in
 * buckets (quantiles.h, 0.2 % wide), so memory is limited. The reports and comparisons of replays
 * (report.h, comparison.h) have one struct per kind of value; one thread makes every call. A struct
 * of zeros is empty. This part does not interpret the values. */
#ifndef TOOLS_REPLAY_SAMPLES_H
#define TOOLS_REPLAY_SAMPLES_H

#include "common/status.h"
#include "tools/report/quantiles.h"

#include <stdint.h>

#define REPLAY_SAMPLES_KEPT (1u << 20)

struct replay_samples {
    /* [count]: the values, in milliseconds or as slowdowns. NULL before the first value, and when
     * `quantiles` is used. */
    double *values;
    /* Buckets with all values, used if there are more than REPLAY_SAMPLES_KEPT; NULL = not used. */
    struct quantiles *quantiles;
    uint64_t capacity; /* Room of `values`. */
    uint64_t count;    /* Values that were added. */
    double sum;        /* Sum of all values. */
    double max;        /* Largest value. */
};

/* All fields are 0 if there are no values. */
struct replay_percentiles {
    uint64_t count;
    double mean, p50, p90, p99, max;
};

/* Frees the memory; the struct is empty again. */
void replay_samples_done(struct replay_samples *samples);

/* Adds a value. ST_NO_MEMORY: the value is lost. */
enum status replay_samples_add(struct replay_samples *samples, double value);

/* Returns the percentiles so far; sorts the values. */
struct replay_percentiles replay_samples_percentiles(struct replay_samples *samples);

#endif
