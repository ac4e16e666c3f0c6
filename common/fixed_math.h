/* fixed_math: logarithm, power, sine and cosine with the same bits on every CPU. (The C library has
 * several versions of its functions. The CPU decides which one runs, and the last bit of a result
 * may differ.) Code whose results decide tokens or log-probabilities of answers calls fixed_math.
 *
 * The functions add, subtract, multiply and divide, and call fma, floor, fmod, frexp and ldexp.
 * IEEE 754 defines all these results, if the file is compiled with -ffp-contract=off. Any folder
 * may call the functions, on any thread; they keep no state. */
#ifndef COMMON_FIXED_MATH_H
#define COMMON_FIXED_MATH_H

/* Returns the natural logarithm, within 1 ulp. Requires that x is finite and above 0. */
double fixed_log(double x);

/* Returns base^exponent, within 1 ulp. Requires that the base is finite and above 0, and that the
 * result is between 1e-300 and 1e300. */
double fixed_pow(double base, double exponent);

/* Writes the sine and the cosine of an angle in radians that is not negative. They are within 1 ulp
 * for angles up to 2^26; a larger angle is off by up to 2^-53 of itself; for an infinite angle or
 * NaN, they are those of 0. */
void fixed_sine_cosine(double angle, double *sine_out, double *cosine_out);

#endif
