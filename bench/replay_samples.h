/* replay_samples: milliseconds of one kind, and their percentiles. All are kept up to a million;
 * beyond that they become counts in buckets (quantiles.h, 0.2 % wide), so that memory stays
 * bounded. */
#ifndef BENCH_REPLAY_SAMPLES_H
#define BENCH_REPLAY_SAMPLES_H

#include "common/status.h"
#include "simulator/quantiles.h"

#include <stdint.h>

#define REPLAY_SAMPLES_KEPT (1u << 20)

struct replay_samples {
    double *ms;             /* NULL once there are too many, or before the first */
    struct quantiles *many; /* then */
    uint64_t capacity;
    uint64_t count;
    double sum;
    double max;
};

/* count 0: all zero. */
struct replay_percentiles {
    uint64_t count;
    double mean, p50, p90, p99, max;
};

void replay_samples_done(struct replay_samples *samples);

/* ST_NO_MEMORY: it is lost. */
enum status replay_samples_add(struct replay_samples *samples, double ms);

/* Sorts what has come so far. */
struct replay_percentiles replay_samples_percentiles(struct replay_samples *samples);

#endif
