/* Goal: fixed_math has the same bits on every CPU, and is as exact as its header says.
 *
 * Method: a checksum of many results, for arguments as in RoPE tables and in log-probabilities, is
 * compared with the one that another CPU gave. Results at random arguments are compared with the C
 * library's in long double. */
#include "common/fixed_math.h"
#include "common/random.h"
#include "common/siphash.h"
#include "tests/check.h"

#include <float.h>
#include <math.h>

#define RESULTS 60000
#define ROUNDS  (TEST_SANITIZED ? 20000 : 200000)

static double results[RESULTS];

/* Returns a multiple of 2^-53 in [0, 1), which is computed without rounding. */
static double unit_at(uint64_t seed, uint64_t index)
{
    return (double)(random_at(seed, index) >> 11) * 0x1p-53;
}

static void check_bits(void)
{
    static const double bases[] = {10000, 150000, 500000, 1000000, 8000000};
    static const uint64_t key[2] = {1, 2};
    uint32_t count = 0;
    for (uint32_t b = 0; b < 5; b++)
        for (uint32_t i = 0; i < 256; i++)
            results[count++] = fixed_pow(bases[b], -2.0 * i / 512);
    for (; count < RESULTS / 2; count++)
        results[count] = fixed_log(1 + 200000 * unit_at(3, count));
    for (; count < RESULTS; count += 2)
        fixed_sine_cosine(1048576 * unit_at(4, count), &results[count], &results[count + 1]);
    const uint64_t sum = siphash(key, (const uint8_t *)results, sizeof(results));
    CHECKF(sum == 0xdbd8bc6ac65b289eu, "other bits than elsewhere: checksum 0x%" PRIx64, sum);
}

/* Returns |value - exact| in units of the last place of a double. */
static double error_ulp(double value, long double exact)
{
    const double size = fabs((double)exact);
    return (double)(fabsl((long double)value - exact) /
                    (long double)(nextafter(size, INFINITY) - size));
}

static void check_exactness(uint64_t seed)
{
    double worst[3] = {0};
    for (uint64_t i = 0; i < ROUNDS; i++) {
        const double u = unit_at(seed, 3 * i), v = unit_at(seed, 3 * i + 1);
        const double angle = i % 3 == 0 ? u : i % 3 == 1 ? u * 0x1p20 : u * 0x1p26;
        const double x = i % 2 == 0 ? 1 + u * 200000 : ldexp(1 + u, (int)(v * 2000) - 1000);
        const double base = 1 + u * 1e7;
        double sine, cosine;
        fixed_sine_cosine(angle, &sine, &cosine);
        worst[0] = fmax(worst[0], error_ulp(fixed_log(x), logl((long double)x)));
        worst[1] = fmax(worst[1], error_ulp(fixed_pow(base, v * 2 - 1),
                                            powl((long double)base, (long double)(v * 2 - 1))));
        worst[2] = fmax(worst[2], error_ulp(sine, sinl((long double)angle)));
        worst[2] = fmax(worst[2], error_ulp(cosine, cosl((long double)angle)));
    }
    printf("worst errors: log %.3f ulp, pow %.3f ulp, sine and cosine %.3f ulp\n", worst[0],
           worst[1], worst[2]);
    for (int i = 0; i < 3; i++)
        CHECK(worst[i] <= 1);
}

static void check_edges(void)
{
    double sine, cosine;
    CHECK(fixed_log(1) == 0 && fixed_log(DBL_TRUE_MIN) < -744 && fixed_log(DBL_MAX) > 709);
    CHECK(error_ulp(fixed_log(1 + DBL_EPSILON), logl(1 + (long double)DBL_EPSILON)) <= 1);
    CHECK(fixed_pow(10000, 0) == 1 && fixed_pow(1, -0.5) == 1 && fixed_pow(4, 0.5) == 2);
    fixed_sine_cosine(0, &sine, &cosine);
    CHECK(sine == 0 && cosine == 1);
    fixed_sine_cosine(INFINITY, &sine, &cosine);
    CHECK(sine == 0 && cosine == 1);
    fixed_sine_cosine(NAN, &sine, &cosine);
    CHECK(sine == 0 && cosine == 1);
    fixed_sine_cosine(1e8, &sine, &cosine);
    CHECK(fabs(sine - (double)sinl(1e8L)) < 1e8 * 0x1p-53);
    fixed_sine_cosine(DBL_MAX, &sine, &cosine);
    CHECK(fabs(sine * sine + cosine * cosine - 1) < 1e-15);
}

int main(void)
{
    check_bits();
    check_edges();
    check_exactness(test_seed());
    return 0;
}
