/* histogram: geometric buckets. A quantile is interpolated linearly within its bucket, as
 * Prometheus' histogram_quantile does, so that /metrics and reports agree. */
#include "common/histogram.h"

#include <assert.h>
#include <string.h>

void histogram_init(struct histogram *h, double first, double factor, uint32_t count)
{
    assert(count <= HISTOGRAM_BUCKETS && first > 0 && factor > 1);
    memset(h, 0, sizeof(*h));
    h->bound_count = count;
    for (uint32_t i = 0; i < count; i++, first *= factor)
        h->bounds[i] = first;
}

/* The first bucket whose bound is not below `value`. NaN goes to the last bucket. */
static uint32_t bucket_of(const struct histogram *h, double value)
{
    uint32_t low = 0;
    uint32_t high = h->bound_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (value <= h->bounds[middle])
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

void histogram_add(struct histogram *h, double value)
{
    h->counts[bucket_of(h, value)]++;
    h->total++;
    h->sum += value;
}

double histogram_quantile(const struct histogram *h, double q)
{
    assert(q >= 0 && q <= 1);
    if (h->total == 0 || h->bound_count == 0)
        return 0;
    double rank = q * (double)h->total;
    double before = 0;
    for (uint32_t i = 0; i < h->bound_count; i++) {
        double here = (double)h->counts[i];
        if (here > 0 && before + here >= rank) {
            double lower = i == 0 ? 0 : h->bounds[i - 1];
            return lower + (h->bounds[i] - lower) * (rank - before) / here;
        }
        before += here;
    }
    return h->bounds[h->bound_count - 1]; /* Values above the last bound are not distinguished. */
}

double quantile_of_sorted(const double *values, uint64_t count, double q)
{
    assert(q >= 0 && q <= 1);
    if (count == 0)
        return 0;
    double rank = q * (double)(count - 1);
    uint64_t below = (uint64_t)rank;
    if (below + 1 >= count)
        return values[count - 1];
    return values[below] + (values[below + 1] - values[below]) * (rank - (double)below);
}
