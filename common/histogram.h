/* histogram: counts of values in fixed buckets, for Prometheus and for percentiles in reports. One
 * owner. */
#ifndef COMMON_HISTOGRAM_H
#define COMMON_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_BUCKETS 40

/* Bucket i counts values ≤ bounds[i] (and above bounds[i-1]); the last one has no upper bound. */
struct histogram {
    uint32_t bound_count;
    double bounds[HISTOGRAM_BUCKETS];
    uint64_t counts[HISTOGRAM_BUCKETS + 1];
    uint64_t total;
    double sum;
};

/* Bounds first, first*factor, … (`count` of them, at most HISTOGRAM_BUCKETS). */
void histogram_init(struct histogram *h, double first, double factor, uint32_t count);
void histogram_add(struct histogram *h, double value);
/* Interpolated within its bucket; 0 when empty. q in [0, 1]. */
double histogram_quantile(const struct histogram *h, double q);

/* The q-quantile of sorted values (linear interpolation between ranks); 0 when count is 0. */
double quantile_of_sorted(const double *values, uint64_t count, double q);

#endif
