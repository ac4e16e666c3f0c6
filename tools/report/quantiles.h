/* quantiles: quantiles of any number of values in constant memory. Values are counted in buckets
 * that are 0.2 % wide; the values themselves are not kept. Commands of tools/ and bench/
 * use this part for times and slowdowns. The caller owns the struct, which one thread at a time may
 * use. */
#ifndef TOOLS_REPORT_QUANTILES_H
#define TOOLS_REPORT_QUANTILES_H

#include <stdint.h>

#define QUANTILES_BUCKETS 16384

struct quantiles {                       /* All 0 = no values. */
    uint64_t count;                      /* Values that were added. */
    double sum;                          /* Sum of all values. */
    double value_max;                    /* Largest value. */
    uint64_t buckets[QUANTILES_BUCKETS]; /* Values in each bucket. */
};

/* Adds a value ≥ 0. */
void quantiles_add(struct quantiles *values, double value);
/* Adds all values of `from` to `into`. */
void quantiles_merge(struct quantiles *into, const struct quantiles *from);
/* Returns the value below which a share q (0 to 1) of all values lies, with an error of at most
 * 0.2 %. Values up to 1e-6 count as 0, and values above 1.6e8 as 1.6e8. 0 = no values. */
double quantiles_at(const struct quantiles *values, double q);
/* Returns the exact mean; 0 = no values. */
double quantiles_mean(const struct quantiles *values);

#endif
