/* sampler: the steps are in the order of vLLM: temperature, then min_p, top_k and top_p, each
 * applied to what the step before has left, then one draw. "Most likely first" is the order of the
 * logits; among equals, the lowest id first. To keep the most likely tokens, the threshold is found
 * by radix selection over the logits' bits (counting tokens for top_k, adding up probability for
 * top_p). This is exact, and linear in the vocabulary.
 *
 * The numbers are the same on every machine: exp() is our own, made of additions and
 * multiplications only (the compiler may not fuse them), the logarithm is that of
 * common/fixed_math.h, and sums run over fixed lanes in a fixed order for any vector width. A NaN
 * logit counts as the least likely, an infinite one as the largest finite number. */
#include "model/forward/sampler.h"

#include "common/fixed_math.h"
#include "common/random.h"
#include "common/widest.h"

#include <assert.h>
#include <float.h>
#include <string.h>

#define LANES 16
#define BLOCK 256 /* Weights summed in fp32 before the sum continues in double. */

static inline float clean(float logit)
{
    float low = logit > -FLT_MAX ? logit : -FLT_MAX; /* False for NaN. */
    return low < FLT_MAX ? low : FLT_MAX;
}

/* exp(x) for x <= 0 within 2 ulp, 0 below -87: 2^n · e^r with |r| <= ln 2 / 2 and e^r by its
 * series. */
static inline float exp_negative(float x)
{
    float bounded = x > -87.0f ? x : -87.0f;
    float n = (bounded * 1.44269504f + 12582912.0f) - 12582912.0f; /* Rounds to a whole number. */
    float r = bounded - n * 0.693359375f;
    r = r + n * 2.12194440e-4f; /* ln 2 in two parts, so that n times the first part is exact. */
    float e = 1.0f / 5040.0f;
    e = e * r + 1.0f / 720.0f;
    e = e * r + 1.0f / 120.0f;
    e = e * r + 1.0f / 24.0f;
    e = e * r + 1.0f / 6.0f;
    e = e * r + 0.5f;
    e = e * r + 1.0f;
    e = e * r + 1.0f;
    uint32_t bits = (uint32_t)((int32_t)n + 127) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof(scale));
    return x > -87.0f ? e * scale : 0.0f;
}

WIDEST static float largest(const float *logits, uint32_t vocab)
{
    float best[LANES];
    uint32_t i = 0;
    for (unsigned k = 0; k < LANES; k++)
        best[k] = -FLT_MAX;
    for (; i + LANES <= vocab; i += LANES)
        for (unsigned k = 0; k < LANES; k++)
            best[k] = logits[i + k] > best[k] ? logits[i + k] : best[k];
    for (; i < vocab; i++)
        best[0] = logits[i] > best[0] ? logits[i] : best[0];
    for (unsigned k = 1; k < LANES; k++)
        best[0] = best[k] > best[0] ? best[k] : best[0];
    return best[0] < FLT_MAX ? best[0] : FLT_MAX;
}

#define FEW 64 /* Values checked together; most such groups are skipped. */

WIDEST static bool reaches(const float *values, uint32_t count, float least)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++)
        found |= values[i] >= least;
    return found != 0;
}

/* ---- weights ---- */

/* exp((logit - top) / temperature) for one block. */
WIDEST static void weigh(const float *logits, uint32_t count, float top, float temperature,
                         float *weights)
{
    for (uint32_t i = 0; i < count; i++)
        weights[i] = exp_negative((clean(logits[i]) - top) / temperature);
}

WIDEST static double sum_block(const float *weights, uint32_t count)
{
    float lanes[LANES] = {0};
    uint32_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (unsigned k = 0; k < LANES; k++)
            lanes[k] += weights[i + k];
    for (; i < count; i++)
        lanes[0] += weights[i];
    for (unsigned width = LANES / 2; width > 0; width /= 2)
        for (unsigned k = 0; k < width; k++)
            lanes[k] += lanes[k + width];
    return lanes[0];
}

static uint32_t block_end(uint32_t start, uint32_t vocab)
{
    return vocab - start < BLOCK ? vocab : start + BLOCK;
}

static double sum_all(const float *weights, uint32_t vocab)
{
    double total = 0.0;
    for (uint32_t i = 0; i < vocab; i += BLOCK)
        total += sum_block(weights + i, block_end(i, vocab) - i);
    return total;
}

/* ---- log-probabilities ---- */

void sampler_score(const float *logits, uint32_t vocab, uint32_t id, int32_t logprobs,
                   struct sampled *out)
{
    assert(id < vocab && logprobs <= LIMIT_LOGPROBS);
    float weights[BLOCK];
    float top = largest(logits, vocab);
    double total = 0.0;
    for (uint32_t i = 0; i < vocab; i += BLOCK) {
        uint32_t count = block_end(i, vocab) - i;
        weigh(logits + i, count, top, 1.0f, weights);
        total += sum_block(weights, count);
    }
    double base = (double)top + fixed_log(total);
    uint32_t wanted = logprobs > 0 ? (uint32_t)logprobs : 0;
    uint32_t count = 0;
    /* The least of the alternatives found so far, once there are enough of them. */
    float least = -FLT_MAX;
    for (uint32_t i = 0; i < vocab && wanted > 0; i++) {
        uint32_t few = vocab - i < FEW ? vocab - i : FEW;
        if (count == wanted && i % FEW == 0 && !reaches(logits + i, few, least)) {
            /* A NaN would be the least likely; it fails the comparison and is skipped too. */
            i += few - 1;
            continue;
        }
        float logit = clean(logits[i]);
        if (count == wanted && logit <= least)
            continue;
        uint32_t at = count < wanted ? count++ : count - 1;
        for (; at > 0 && logit > out->top_logprobs[at - 1]; at--) {
            out->top_logprobs[at] = out->top_logprobs[at - 1];
            out->top_ids[at] = out->top_ids[at - 1];
        }
        out->top_logprobs[at] = logit;
        out->top_ids[at] = i;
        least = out->top_logprobs[count - 1];
    }
    for (uint32_t i = 0; i < count; i++)
        out->top_logprobs[i] = (float)((double)out->top_logprobs[i] - base);
    out->id = id;
    out->logprob = (float)((double)clean(logits[id]) - base);
    out->top_count = count;
}

/* ---- choosing ---- */

/* Far above the logit of tokens outside a mask: at any temperature their weight is 0. */
#define ALLOWED_LEAST -1e38f

WIDEST void sampler_mask(const float *logits, uint32_t vocab, const uint32_t *allowed,
                         float *row_out)
{
    for (uint32_t i = 0; i < vocab; i++) {
        float logit = clean(logits[i]);
        float kept = logit > ALLOWED_LEAST ? logit : ALLOWED_LEAST;
        row_out[i] = (allowed[i / 32] >> (i % 32) & 1) != 0 ? kept : -FLT_MAX;
    }
}

static bool is_masked(uint32_t id, const uint32_t *masked, uint32_t masked_count)
{
    for (uint32_t i = 0; i < masked_count; i++)
        if (masked[i] == id)
            return true;
    return false;
}

WIDEST static bool holds(const float *logits, uint32_t count, float value)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++)
        found |= clean(logits[i]) == value;
    return found != 0;
}

/* Returns the lowest id among the largest logits that are not masked. Requires masked entries of
 * `logits` to be -FLT_MAX already. */
static uint32_t draw_greedy(const float *logits, uint32_t vocab, float top, const uint32_t *masked,
                            uint32_t masked_count)
{
    for (uint32_t block = 0; block < vocab; block += BLOCK) {
        uint32_t end = block_end(block, vocab);
        if (!holds(logits + block, end - block, top))
            continue;
        for (uint32_t i = block; i < end; i++)
            if (clean(logits[i]) == top && !is_masked(i, masked, masked_count))
                return i;
    }
    return 0; /* All tokens are masked. */
}

/* Draws once over all weights: first the block, then the token in it. */
static uint32_t draw_all(const float *weights, uint32_t vocab, float unit)
{
    double target = sum_all(weights, vocab) * (double)unit;
    double done = 0.0;
    /* The last token with a weight, in case rounding moves the target beyond all sums. */
    uint32_t last = 0;
    for (uint32_t i = 0; i < vocab; i += BLOCK) {
        double block = sum_block(weights + i, block_end(i, vocab) - i);
        if (done + block <= target && block_end(i, vocab) < vocab) {
            done += block;
            continue;
        }
        for (uint32_t k = i; k < block_end(i, vocab); k++) {
            if (weights[k] <= 0.0f)
                continue;
            done += (double)weights[k];
            last = k;
            if (done > target)
                return k;
        }
        if (last != 0 || weights[0] > 0.0f)
            return last;
    }
    return last;
}

/* Candidates; ids are in ascending order. */
struct candidates {
    uint32_t *ids;
    uint32_t count;
    const float *logits;
    const float *weights;
};

static double mass_of(const struct candidates *c)
{
    double mass = 0.0;
    for (uint32_t i = 0; i < c->count; i++)
        mass += (double)c->weights[c->ids[i]];
    return mass;
}

static void gather(struct candidates *c, uint32_t vocab, float least)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < vocab; i += FEW) {
        uint32_t end = vocab - i < FEW ? vocab : i + FEW;
        if (!reaches(c->weights + i, end - i, least))
            continue;
        for (uint32_t k = i; k < end; k++) {
            c->ids[count] = k;
            count += c->weights[k] >= least;
        }
    }
    c->count = count;
}

/* Returns a logit as an unsigned number with the same order. */
static uint32_t order_of(float logit)
{
    float value = clean(logit) + 0.0f; /* -0 becomes 0. */
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    /* Without a branch, because signs are random. */
    return bits ^ ((0u - (bits >> 31)) | 0x80000000u);
}

#define RADIX_BITS 11
#define RADIX      (1u << RADIX_BITS)

/* Sums by bucket. Even and odd candidates have separate sums, so that one addition does not wait
 * for the previous one when both hit the same bucket. The extra bucket collects candidates that are
 * already excluded. */
struct histogram {
    double amounts[RADIX + 1][2];
};

/* Keeps the most likely candidates: as few as reach `limit` together, where a candidate counts with
 * its weight or as 1. Three levels of 11, 11 and 10 bits find the order value of the last candidate
 * that is kept. */
static void keep_top(struct candidates *c, bool by_weight, double limit)
{
    static const unsigned shifts[] = {21, 10, 0};
    static const unsigned widths[] = {RADIX_BITS, RADIX_BITS, 32 - 2 * RADIX_BITS};
    struct histogram h;
    double above = 0.0;
    uint64_t prefix = 0;
    for (unsigned level = 0; level < 3; level++) {
        unsigned decided = shifts[level] + widths[level];
        uint32_t mask = (1u << widths[level]) - 1;
        memset(&h, 0, sizeof(h));
        for (uint32_t i = 0; i < c->count; i++) {
            uint64_t order = order_of(c->logits[c->ids[i]]);
            uint32_t bucket = (uint32_t)(order >> shifts[level]) & mask;
            bucket = order >> decided == prefix ? bucket : RADIX;
            h.amounts[bucket][i & 1] += by_weight ? (double)c->weights[c->ids[i]] : 1.0;
        }
        uint32_t bucket = mask;
        while (above + (h.amounts[bucket][0] + h.amounts[bucket][1]) < limit) {
            above += h.amounts[bucket][0] + h.amounts[bucket][1];
            /* All candidates together do not reach the limit: by rounding, or there are too few. */
            if (bucket == 0)
                return;
            bucket--;
        }
        prefix = prefix << widths[level] | bucket;
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        uint32_t order = order_of(c->logits[c->ids[i]]);
        bool keep = order > prefix;
        if (order == prefix && above < limit) {
            keep = true;
            above += by_weight ? (double)c->weights[c->ids[i]] : 1.0;
        }
        c->ids[kept] = c->ids[i];
        kept += keep;
    }
    c->count = kept;
}

/* Keeps the candidates that pass min_p, top_k and top_p. Weights are relative to the largest, so
 * min_p is compared with them directly. Usually few tokens matter, so the cut starts high and is
 * lowered only while the tokens above it do not decide the result. */
static void filter(struct candidates *c, const struct sampling *s, uint32_t vocab)
{
    static const float cuts[] = {0x1p-10f, 0x1p-18f, FLT_TRUE_MIN};
    /* The sum that top_p is a share of: after top_k and min_p the candidates' sum (0 here),
     * otherwise the sum of all weights. */
    double total = s->top_k == 0 && s->min_p <= 0.0f ? sum_all(c->weights, vocab) : 0.0;
    for (unsigned i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        bool complete = cuts[i] <= s->min_p || cuts[i] == FLT_TRUE_MIN;
        gather(c, vocab, cuts[i] > s->min_p ? cuts[i] : s->min_p);
        if (complete)
            break;
        if (s->top_k > 0 && c->count >= s->top_k)
            break;
        if (s->top_k == 0 && s->min_p <= 0.0f && mass_of(c) >= (double)s->top_p * total)
            break;
    }
    if (s->top_k > 0 && s->top_k < c->count)
        keep_top(c, false, (double)s->top_k);
    if (s->top_p < 1.0f)
        keep_top(c, true, (double)s->top_p * (total > 0.0 ? total : mass_of(c)));
}

static uint32_t draw_candidates(const struct candidates *c, float unit)
{
    double target = mass_of(c) * (double)unit;
    double done = 0.0;
    for (uint32_t i = 0; i < c->count; i++) {
        done += (double)c->weights[c->ids[i]];
        if (done > target)
            return c->ids[i];
    }
    return c->ids[c->count - 1]; /* Never empty: the largest weight is 1. */
}

/* Requires the weights of all tokens at the start of `scratch`. */
static uint32_t draw_random(const struct sampling *s, const float *logits, uint32_t vocab,
                            float unit, const uint32_t *masked, uint32_t masked_count,
                            float *scratch)
{
    for (uint32_t i = 0; i < masked_count; i++)
        if (masked[i] < vocab)
            scratch[masked[i]] = 0.0f;
    if (s->top_k == 0 && s->top_p >= 1.0f && s->min_p <= 0.0f)
        return draw_all(scratch, vocab, unit);
    struct candidates c = {(uint32_t *)(void *)(scratch + vocab), 0, logits, scratch};
    filter(&c, s, vocab);
    return draw_candidates(&c, unit);
}

void sampler_draw(const struct sampling *sampling, const float *logits, uint32_t vocab,
                  uint32_t position, const uint32_t *masked, uint32_t masked_count, float *scratch,
                  struct sampled *out)
{
    assert(vocab > 0);
    const float *allowed = logits;
    uint32_t id;
    if (masked_count > 0) { /* Masked tokens must not be the maximum. */
        memcpy(scratch + vocab, logits, vocab * sizeof(*logits));
        for (uint32_t i = 0; i < masked_count; i++)
            if (masked[i] < vocab)
                scratch[vocab + masked[i]] = -FLT_MAX;
        allowed = scratch + vocab;
    }
    float top = largest(allowed, vocab);
    id = draw_greedy(allowed, vocab, top, masked, masked_count);
    bool all_masked = masked_count > 0 && is_masked(id, masked, masked_count);
    if (sampling->temperature > 0.0f && !all_masked) {
        for (uint32_t i = 0; i < vocab; i += BLOCK)
            weigh(allowed + i, block_end(i, vocab) - i, top, sampling->temperature, scratch + i);
        id = draw_random(sampling, logits, vocab, random_unit_at(sampling->seed, position), masked,
                         masked_count, scratch);
    }
    out->id = id;
    out->logprob = 0.0f;
    out->top_count = 0;
    if (sampling->logprobs >= 0)
        sampler_score(logits, vocab, id, sampling->logprobs, out);
}
