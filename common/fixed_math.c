/* fixed_math: see the header. */
#include "common/fixed_math.h"

#include <assert.h>
#include <math.h>

/* ---- numbers of about 106 bits ---- */

/* The number high + low, where |low| is at most half an ulp of high. The operations are those of
 * Dekker, "A floating-point technique for extending the available precision" (1971). */
struct pair {
    double high, low;
};

static const struct pair ln_2 = {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};

/* Returns a + b, exactly. Requires |a| >= |b|, or a = 0. */
static struct pair pair_of(double a, double b)
{
    const double sum = a + b;
    return (struct pair){sum, b - (sum - a)};
}

static struct pair pair_add(struct pair a, struct pair b)
{
    const double sum = a.high + b.high, of_b = sum - a.high;
    const double lost = (a.high - (sum - of_b)) + (b.high - of_b);
    return pair_of(sum, lost + (a.low + b.low));
}

static struct pair pair_multiply(struct pair a, struct pair b)
{
    const double product = a.high * b.high, lost = fma(a.high, b.high, -product);
    return pair_of(product, lost + (a.high * b.low + a.low * b.high));
}

static struct pair pair_divide(struct pair a, double b)
{
    const double quotient = a.high / b, rest = fma(-quotient, b, a.high);
    return pair_of(quotient, (rest + a.low) / b);
}

/* Returns e^x for |x| <= 700: 2^n e^r with |r| <= ln 2 / 2, and the Taylor series of e^r up to
 * r^28, whose error is below 2^-106. */
static struct pair pair_exp(struct pair x)
{
    const double n = floor(x.high * 0x1.71547652b82fep+0 + 0.5);
    const struct pair r = pair_add(x, pair_multiply((struct pair){-n, 0}, ln_2));
    struct pair sum = {1, 0};
    for (int i = 28; i > 0; i--)
        sum = pair_add((struct pair){1, 0}, pair_divide(pair_multiply(sum, r), i));
    return (struct pair){ldexp(sum.high, (int)n), ldexp(sum.low, (int)n)};
}

/* Returns ln x = n ln 2 + ln m with m from about 0.7 to 1.4. Let y be the series of
 * 2 artanh((m - 1) / (m + 1)): it is ln m within a few ulp. Then ln m = y + ln(m e^-y), and this
 * logarithm is m e^-y - 1 within 2^-100, because m e^-y - 1 is below 2^-50. */
static struct pair pair_log(double x)
{
    int n;
    assert(x > 0 && x <= 0x1.fffffffffffffp+1023);
    double m = frexp(x, &n);
    if (m < 0x1.6a09e667f3bcdp-1) { /* The square root of 1/2. */
        m *= 2;
        n--;
    }
    const double s = (m - 1) / (m + 1);
    double series = 0;
    for (int i = 23; i > 0; i -= 2)
        series = 1.0 / i + s * s * series;
    const double y = 2 * s * series;
    const struct pair ratio = pair_multiply((struct pair){m, 0}, pair_exp((struct pair){-y, 0}));
    const struct pair ln_m = pair_add((struct pair){y, 0}, pair_add((struct pair){-1, 0}, ratio));
    return pair_add(pair_multiply((struct pair){n, 0}, ln_2), ln_m);
}

double fixed_log(double x)
{
    return pair_log(x).high;
}

double fixed_pow(double base, double exponent)
{
    return pair_exp(pair_multiply((struct pair){exponent, 0}, pair_log(base))).high;
}

/* ---- sine and cosine ---- */

/* An angle of at most about pi / 4; `low` is what the double `high` could not hold. */
static double sine_of(struct pair angle)
{
    static const double terms[] = {
        -1.0 / 6,        1.0 / 120,        -1.0 / 5040,          1.0 / 362880,
        -1.0 / 39916800, 1.0 / 6227020800, -1.0 / 1307674368000, 1.0 / 355687428096000};
    const double x = angle.high, square = x * x;
    double series = 0;
    for (int i = 7; i >= 0; i--)
        series = terms[i] + square * series;
    return x + (x * square * series + angle.low * (1 - 0.5 * square));
}

static double cosine_of(struct pair angle)
{
    static const double terms[] = {
        1.0 / 24,        -1.0 / 720,         1.0 / 40320,          -1.0 / 3628800,
        1.0 / 479001600, -1.0 / 87178291200, 1.0 / 20922789888000, -1.0 / 6402373705728000};
    const double x = angle.high, square = x * x, half = 0.5 * square, rest = 1 - half;
    double series = 0;
    for (int i = 7; i >= 0; i--)
        series = terms[i] + square * series;
    return rest + (((1 - rest) - half) + (square * square * series - x * angle.low));
}

/* Subtracts n pi / 2, where pi / 2 has three parts. The first two parts have 26 bits, so that their
 * products with n below 2^26 are exact, and so are the differences. */
void fixed_sine_cosine(double angle, double *sine_out, double *cosine_out)
{
    if (!(angle <= 0x1p26))
        angle = isfinite(angle) ? fmod(angle, 0x1.921fb54442d18p+2) : 0;
    const double n = floor(angle * 0x1.45f306dc9c883p-1 + 0.5);
    const double rest = (angle - n * 0x1.921fb5p+0) - n * 0x1.110b46p-26;
    const double last = n * 0x1.1a62633145c07p-54, high = rest - last;
    const struct pair x = {high, (rest - high) - last};
    const double sine = sine_of(x), cosine = cosine_of(x);
    switch ((long)n & 3) {
    case 0:
        *sine_out = sine;
        *cosine_out = cosine;
        break;
    case 1:
        *sine_out = cosine;
        *cosine_out = -sine;
        break;
    case 2:
        *sine_out = -sine;
        *cosine_out = -cosine;
        break;
    default:
        *sine_out = -cosine;
        *cosine_out = sine;
        break;
    }
}
