/* routing: see routing.h. */
#include "compute/cpu/routing.h"

#include <math.h>
#include <string.h>

/* Returns e^x for -700 ≤ x ≤ 700 or NaN: 2^n e^r with |r| ≤ ln 2 / 2, and the Taylor series of e^r
 * up to r^13, whose error is below 2^-53. The C library's exp has other bits on other CPUs. */
static double fixed_exp(double x)
{
    if (!(x == x))
        return x;
    const double n = floor(x * 0x1.71547652b82fep+0 + 0.5);
    const double r = (x - n * 0x1.62e42fee00000p-1) - n * 0x1.a39ef35793c76p-33;
    double sum = 1;
    for (int i = 13; i > 0; i--)
        sum = 1 + sum * (r / i);
    return ldexp(sum, (int)n);
}

static double limited_exp(double x)
{
    return fixed_exp(x < -700 ? -700 : x > 700 ? 700 : x);
}

float routing_sigmoid(float x)
{
    return (float)(1 / (1 + limited_exp(-(double)x)));
}

/* Moves down the entries of ids[0..count) that come after expert `id`, and inserts it; with more
 * than `most` entries the last one is dropped. Returns the new count. */
static uint32_t insert(const float *scores, uint32_t id, uint32_t *ids, uint32_t count,
                       uint32_t most)
{
    uint32_t at = count;
    while (at > 0 && scores[id] > scores[ids[at - 1]])
        at--;
    if (at == most)
        return count;
    const uint32_t moved = (count < most ? count : most - 1) - at;
    memmove(ids + at + 1, ids + at, moved * sizeof(*ids));
    ids[at] = id;
    return count < most ? count + 1 : most;
}

/* Writes the `most` greatest of scores[first..end) to ids, in descending order; of equal scores,
 * the lower number is first. Returns how many there are. */
static uint32_t greatest(const float *scores, uint32_t first, uint32_t end, uint32_t most,
                         uint32_t *ids)
{
    uint32_t count = 0;
    for (uint32_t i = first; i < end; i++)
        count = insert(scores, i, ids, count, most);
    return count;
}

/* Sets the scores of all groups except the best ones to -infinity. */
static void groups_limit(const struct compute_routing *routing, float *scores)
{
    const uint32_t size = routing->experts / routing->groups;
    uint32_t ids[COMPUTE_EXPERTS_MAX];
    float totals[COMPUTE_EXPERTS_MAX];
    bool allowed[COMPUTE_EXPERTS_MAX] = {false};
    for (uint32_t g = 0; g < routing->groups; g++) {
        uint32_t count = greatest(scores, g * size, (g + 1) * size, routing->group_best, ids);
        totals[g] = 0;
        for (uint32_t i = 0; i < count; i++)
            totals[g] += scores[ids[i]];
    }
    uint32_t count = greatest(totals, 0, routing->groups, routing->groups_used, ids);
    for (uint32_t i = 0; i < count; i++)
        allowed[ids[i]] = true;
    for (uint32_t i = 0; i < routing->experts; i++)
        if (!allowed[i / size])
            scores[i] = -INFINITY;
}

static void ascend(uint32_t *ids, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++)
        for (uint32_t k = i; k > 0 && ids[k - 1] > ids[k]; k--) {
            uint32_t id = ids[k];
            ids[k] = ids[k - 1];
            ids[k - 1] = id;
        }
}

/* Writes the unscaled weights of the chosen experts and returns what they are divided by. */
static double weigh(const struct compute_routing *routing, const float *product,
                    const uint32_t *ids, double *weights)
{
    double chosen = 0, all = 0, most = (double)product[0];
    for (uint32_t i = 1; i < routing->experts; i++)
        most = (double)product[i] > most ? (double)product[i] : most;
    for (uint32_t i = 0; i < routing->used; i++) {
        const double x = (double)product[ids[i]];
        weights[i] = routing->sigmoid ? 1 / (1 + limited_exp(-x)) : limited_exp(x - most);
        chosen += weights[i];
    }
    if (routing->normalise) /* DeepSeek-V3 adds 1e-20, and a sum of sigmoids can be as small. */
        return routing->sigmoid ? chosen + 1e-20 : chosen;
    if (routing->sigmoid)
        return 1;
    for (uint32_t i = 0; i < routing->experts; i++)
        all += limited_exp((double)product[i] - most);
    return all;
}

void routing_choose(const struct compute_routing *routing, const float *product, uint32_t *ids,
                    float *weights)
{
    float scores[COMPUTE_EXPERTS_MAX];
    double unscaled[COMPUTE_EXPERTS_USED_MAX];
    for (uint32_t i = 0; i < routing->experts; i++) {
        scores[i] = routing->sigmoid ? routing_sigmoid(product[i]) : product[i];
        if (routing->choice_bias != NULL)
            scores[i] += routing->choice_bias[i];
    }
    if (routing->groups > 1)
        groups_limit(routing, scores);
    (void)greatest(scores, 0, routing->experts, routing->used, ids);
    ascend(ids, routing->used);
    const double divisor = weigh(routing, product, ids, unscaled);
    for (uint32_t i = 0; i < routing->used; i++)
        weights[i] = (float)(unscaled[i] / divisor * (double)routing->scale);
}
