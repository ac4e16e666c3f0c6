/* replay_samples: values of one kind (milliseconds or slowdowns) and their percentiles. Percentiles
 * of more than REPLAY_SAMPLES_KEPT values come from buckets (quantiles.h, 0.2 % wide), so memory is
 * limited. report.c and comparison.c own structs; one thread at a time uses a struct. A struct of
 * zeros is empty. This part does not interpret the values. */
#ifndef TOOLS_REPLAY_SAMPLES_H
#define TOOLS_REPLAY_SAMPLES_H

#include "common/status.h"
#include "tools/report/quantiles.h"

#include <stdint.h>

#define REPLAY_SAMPLES_KEPT (1u << 20) /* Most values that are kept one by one. */

struct replay_samples {
    double *values; /* [count]; NULL = no value was added yet, or `quantiles` is used. */
    struct quantiles *quantiles; /* Buckets with all values; NULL = `values` is used. */
    uint64_t capacity;           /* Room of `values`. */
    uint64_t count;              /* Values that were added. */
    double sum;                  /* Sum of all values. */
    double max;                  /* Largest value. */
};

/* All fields are 0 if there are no values. */
struct replay_percentiles {
    uint64_t count;
    double mean, p50, p90, p99, max;
};

/* Frees the memory. The struct is then empty. */
void replay_samples_done(struct replay_samples *samples);

/* Adds a value. ST_NO_MEMORY: the value is lost. */
enum status replay_samples_add(struct replay_samples *samples, double value);

/* Returns the percentiles of the added values; sorts the values. */
struct replay_percentiles replay_samples_percentiles(struct replay_samples *samples);

#endif
