/* histogram: counts values in buckets, for the gateway's page /metrics (Prometheus).
 * server/metrics/ owns the histograms, on the gateway's event loop thread. A histogram is not
 * thread-safe, and does not keep the values. tools/ call quantile_of_sorted, which keeps no
 * state. */
#ifndef COMMON_HISTOGRAM_H
#define COMMON_HISTOGRAM_H

#include <stdint.h>

/* Most bounds of a histogram. A histogram with N bounds has N + 1 buckets. */
#define HISTOGRAM_BOUNDS_MAX 40

/* Bucket i counts the values above bounds[i - 1], up to and including bounds[i]. The first bucket
 * has no lower bound; the last bucket has no upper bound. */
struct histogram {
    uint32_t bound_count;
    double bounds[HISTOGRAM_BOUNDS_MAX];       /* Ascending. */
    uint64_t counts[HISTOGRAM_BOUNDS_MAX + 1]; /* Number of values in each bucket. */
    uint64_t total;                            /* Number of values. */
    double sum;                                /* Sum of the values. */
};

/* Empties the histogram and sets `count` bounds (at most HISTOGRAM_BOUNDS_MAX): first,
 * first * factor, first * factor² and so on. Requires first > 0 and factor > 1. */
void histogram_init(struct histogram *h, double first, double factor, uint32_t count);
/* Adds a bound. If the histogram has a bound that differs from `bound` by at most 0.1 %, replaces
 * this bound instead. Requires bound > 0, an empty histogram, and room for the bound. */
void histogram_bound_add(struct histogram *h, double bound);
/* Counts one value. */
void histogram_add(struct histogram *h, double value);

/* Returns the q-quantile (q from 0 to 1) of `count` ascending values, interpolated linearly between
 * the two nearest values; 0 if count is 0. */
double quantile_of_sorted(const double *values, uint64_t count, double q);

#endif
