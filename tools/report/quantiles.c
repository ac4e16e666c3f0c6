/* quantiles: see the header. */
#include "tools/report/quantiles.h"

#include <math.h>

#define LEAST  1e-6
#define GROWTH 1.002

void quantiles_add(struct quantiles *values, double value)
{
    double place = value > LEAST ? 1 + log(value / LEAST) / log(GROWTH) : 0; /* NaN becomes 0. */
    uint32_t bucket = place >= QUANTILES_BUCKETS ? QUANTILES_BUCKETS - 1 : (uint32_t)place;
    values->count++;
    values->sum += value;
    values->value_max = value > values->value_max ? value : values->value_max;
    values->buckets[bucket]++;
}

void quantiles_merge(struct quantiles *into, const struct quantiles *from)
{
    into->count += from->count;
    into->sum += from->sum;
    into->value_max = from->value_max > into->value_max ? from->value_max : into->value_max;
    for (uint32_t i = 0; i < QUANTILES_BUCKETS; i++)
        into->buckets[i] += from->buckets[i];
}

double quantiles_at(const struct quantiles *values, double q)
{
    double before = 0;
    double wanted = q * (double)values->count;
    for (uint32_t i = 0; i < QUANTILES_BUCKETS && values->count > 0; i++) {
        double here = (double)values->buckets[i];
        if (here > 0 && before + here >= wanted) {
            double place = i == 0 ? 0 : i - 1 + (wanted - before) / here;
            double value = i == 0 ? 0 : LEAST * pow(GROWTH, place);
            return value < values->value_max ? value : values->value_max;
        }
        before += here;
    }
    return values->value_max;
}

double quantiles_mean(const struct quantiles *values)
{
    return values->count > 0 ? values->sum / (double)values->count : 0;
}
