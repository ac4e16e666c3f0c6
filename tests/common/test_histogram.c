/* Goal: values are counted in the right buckets, and quantiles of sorted values are right. Method:
 * bounds by hand; random values, where the count of the values up to each bound is known. */
#include "common/histogram.h"
#include "common/random.h"
#include "tests/check.h"

#include <math.h>

#define VALUES 2000

static void test_buckets(void)
{
    struct histogram h;
    histogram_init(&h, 1, 2, 4); /* Bounds 1, 2, 4, 8. */
    const double values[] = {0, 1, 1.5, 2, 8, 8.1, 1e9};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        histogram_add(&h, values[i]);
    const uint64_t counts[] = {2, 2, 0, 1, 2};
    for (int i = 0; i < 5; i++)
        CHECK(h.counts[i] == counts[i]);
    CHECK(h.total == 7 && h.bound_count == 4 && fabs(h.sum - (20.6 + 1e9)) < 1e-3);
}

/* Every bucket counts the values above the bound before it and up to its own bound. */
static void test_random(uint64_t seed)
{
    static double values[VALUES];
    struct histogram h;
    histogram_init(&h, 1e-4, 1.6, HISTOGRAM_BOUNDS_MAX);
    for (uint32_t i = 0; i < VALUES; i++) {
        values[i] = exp(8 * (double)random_unit_at(seed, i) - 5);
        histogram_add(&h, values[i]);
    }
    uint64_t up_to_bound = 0;
    for (uint32_t bucket = 0; bucket <= HISTOGRAM_BOUNDS_MAX; bucket++) {
        uint64_t wanted = 0;
        for (uint32_t i = 0; i < VALUES; i++)
            wanted += bucket == HISTOGRAM_BOUNDS_MAX || values[i] <= h.bounds[bucket];
        up_to_bound += h.counts[bucket];
        CHECKF(up_to_bound == wanted, "bucket %u", bucket);
    }
    CHECK(h.total == VALUES);
}

/* A bound is added in its place, at the end, and instead of one that is almost equal. */
static void test_bound_add(void)
{
    struct histogram h;
    histogram_init(&h, 1, 2, 3); /* Bounds 1, 2, 4. */
    histogram_bound_add(&h, 3);
    histogram_bound_add(&h, 10);
    histogram_bound_add(&h, 0.5);
    histogram_bound_add(&h, 2.001);
    const double bounds[] = {0.5, 1, 2.001, 3, 4, 10};
    CHECK(h.bound_count == 6);
    for (int i = 0; i < 6; i++)
        CHECKF(h.bounds[i] == bounds[i], "%d: %f", i, h.bounds[i]);
    histogram_add(&h, 2.001);
    histogram_add(&h, 3.5);
    histogram_add(&h, 11);
    CHECK(h.counts[2] == 1 && h.counts[4] == 1 && h.counts[6] == 1);
}

static void test_sorted(void)
{
    const double values[] = {1, 2, 4, 8};
    CHECK(quantile_of_sorted(values, 0, 0.5) == 0);
    CHECK(quantile_of_sorted(values, 1, 0.9) == 1);
    CHECK(quantile_of_sorted(values, 4, 0) == 1);
    CHECK(quantile_of_sorted(values, 4, 1) == 8);
    CHECK(quantile_of_sorted(values, 4, 0.5) == 3);
}

int main(void)
{
    test_buckets();
    test_random(test_seed());
    test_bound_add();
    test_sorted();
    return 0;
}
