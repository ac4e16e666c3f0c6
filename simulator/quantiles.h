/* quantiles: of any number of values, in memory that does not grow: counts in buckets that are 0.2
 * % wide. One owner. */
#ifndef SIMULATOR_QUANTILES_H
#define SIMULATOR_QUANTILES_H

#include <stdint.h>

#define QUANTILES_BUCKETS 16384

struct quantiles { /* all 0: no values */
    uint64_t count;
    double sum;
    double most;
    uint64_t buckets[QUANTILES_BUCKETS];
};

/* value ≥ 0; those below 1e-6, and what is no number, count as 0. */
void quantiles_add(struct quantiles *values, double value);
/* The value that a share q of them is below, to 0.2 %. 0: there are none. */
double quantiles_at(const struct quantiles *values, double q);
double quantiles_mean(const struct quantiles *values);

#endif
