/* histogram: counts values in fixed buckets, for the gateway's /metrics (Prometheus); and quantiles
 * of sorted values, for `cleave replay`. A histogram does not keep the values, and its bounds never
 * change after histogram_init. Not thread-safe: the owner (server/metrics: the gateway's one
 * thread) makes every call on one thread. quantile_of_sorted has no state: any thread. */
#ifndef COMMON_HISTOGRAM_H
#define COMMON_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_BUCKETS 40

/* Bucket i counts values above bounds[i - 1] and up to bounds[i]. The last bucket has no upper
 * bound. */
struct histogram {
    uint32_t bound_count;
    double bounds[HISTOGRAM_BUCKETS]; /* Ascending. */
    uint64_t counts[HISTOGRAM_BUCKETS + 1];
    uint64_t total; /* Number of values. */
    double sum;     /* Sum of the values. */
};

/* Sets `count` bounds (at most HISTOGRAM_BUCKETS): first, first * factor, … */
void histogram_init(struct histogram *h, double first, double factor, uint32_t count);
/* Counts one value. */
void histogram_add(struct histogram *h, double value);
/* Returns the q-quantile of the values, interpolated within its bucket; 0 if the histogram is
 * empty. If the quantile is above the last bound, returns the last bound. q is in [0, 1]. */
double histogram_quantile(const struct histogram *h, double q);

/* Returns the q-quantile of `count` ascending values, interpolated linearly between ranks; 0 if
 * count is 0. */
double quantile_of_sorted(const double *values, uint64_t count, double q);

#endif
