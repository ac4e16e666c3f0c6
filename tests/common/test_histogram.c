/* Goal: values are counted in the right buckets, and quantiles are right. Method: bounds by hand;
 * random values, where the histogram's quantile must be in the bucket of the exact quantile of the
 * sorted values. */
#include "common/histogram.h"
#include "common/random.h"
#include "tests/check.h"

#include <math.h>

#define VALUES 2000

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static void test_buckets(void)
{
    struct histogram h;
    histogram_init(&h, 1, 2, 4); /* 1 2 4 8 */
    CHECK(histogram_quantile(&h, 0.5) == 0);
    const double values[] = {0, 1, 1.5, 2, 8, 8.1, 1e9};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        histogram_add(&h, values[i]);
    const uint64_t counts[] = {2, 2, 0, 1, 2};
    for (int i = 0; i < 5; i++)
        CHECK(h.counts[i] == counts[i]);
    CHECK(h.total == 7 && h.bound_count == 4 && fabs(h.sum - (20.6 + 1e9)) < 1e-3);
    CHECK(histogram_quantile(&h, 1) == 8);                     /* nothing is known above */
    CHECK(fabs(histogram_quantile(&h, 3.0 / 7) - 1.5) < 1e-9); /* rank 3: half way through (1, 2] */
}

static void test_random(uint64_t seed)
{
    static double values[VALUES];
    struct histogram h;
    histogram_init(&h, 1e-4, 1.6, HISTOGRAM_BUCKETS);
    for (uint32_t i = 0; i < VALUES; i++) {
        values[i] = exp(8 * (double)random_unit_at(seed, i) - 5);
        histogram_add(&h, values[i]);
    }
    qsort(values, VALUES, sizeof(values[0]), compare);
    for (double q = 0.01; q < 1; q += 0.07) {
        double exact = values[(uint64_t)ceil(q * VALUES) - 1];
        double found = histogram_quantile(&h, q);
        CHECKF(found <= exact * 1.61 && found >= exact / 1.61, "q %f: %f, exact %f", q, found,
               exact);
    }
    for (double q = 0, last = 0; q <= 1; q += 0.01) {
        double found = histogram_quantile(&h, q);
        CHECK(found >= last);
        last = found;
    }
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
    test_sorted();
    return 0;
}
