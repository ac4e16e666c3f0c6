/* histogram: geometric buckets, found by bisection. */
#include "common/histogram.h"

#include <assert.h>
#include <string.h>

void histogram_init(struct histogram *h, double first, double factor, uint32_t count)
{
    assert(count <= HISTOGRAM_BOUNDS_MAX && first > 0 && factor > 1);
    memset(h, 0, sizeof(*h));
    h->bound_count = count;
    for (uint32_t i = 0; i < count; i++, first *= factor)
        h->bounds[i] = first;
}

void histogram_bound_add(struct histogram *h, double bound)
{
    uint32_t at = 0;
    assert(h->total == 0 && bound > 0);
    while (at < h->bound_count && h->bounds[at] < bound * 0.999)
        at++;
    if (at == h->bound_count || h->bounds[at] > bound * 1.001) {
        assert(h->bound_count < HISTOGRAM_BOUNDS_MAX);
        memmove(&h->bounds[at + 1], &h->bounds[at], (h->bound_count - at) * sizeof(h->bounds[0]));
        h->bound_count++;
    }
    h->bounds[at] = bound;
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
