/* quantiles: quantiles of any number of values in constant memory. Values are counted in buckets
 * that are 0.2 % wide. One owner. */
#ifndef TOOLS_REPORT_QUANTILES_H
#define TOOLS_REPORT_QUANTILES_H

#include <stdint.h>

#define QUANTILES_BUCKETS 16384

struct quantiles { /* All 0 = no values. */
    uint64_t count;
    double sum;
    double most;
    uint64_t buckets[QUANTILES_BUCKETS];
};

/* Requires value ≥ 0. Values below 1e-6 and NaN count as 0. */
void quantiles_add(struct quantiles *values, double value);
/* Returns the value below which a share q of all values lies, exact to 0.2 %; 0 = no values. */
double quantiles_at(const struct quantiles *values, double q);
double quantiles_mean(const struct quantiles *values);

#endif
