/* replay_samples: values of one kind (milliseconds or slowdowns) and their percentiles. Up to a
 * million values are kept; after that they are counted in buckets (quantiles.h, 0.2 % wide), so
 * memory is limited. */
#ifndef TOOLS_REPLAY_SAMPLES_H
#define TOOLS_REPLAY_SAMPLES_H

#include "common/status.h"
#include "tools/report/quantiles.h"

#include <stdint.h>

#define REPLAY_SAMPLES_KEPT (1u << 20)

struct replay_samples {
    double *ms;             /* NULL before the first value, and when `many` is used. */
    struct quantiles *many; /* Buckets after the first million values; NULL before. */
    uint64_t capacity;
    uint64_t count;
    double sum;
    double max;
};

/* All 0 if count is 0. */
struct replay_percentiles {
    uint64_t count;
    double mean, p50, p90, p99, max;
};

void replay_samples_done(struct replay_samples *samples);

/* ST_NO_MEMORY: the value is lost. */
enum status replay_samples_add(struct replay_samples *samples, double ms);

/* Returns the percentiles so far; sorts the values. */
struct replay_percentiles replay_samples_percentiles(struct replay_samples *samples);

#endif
