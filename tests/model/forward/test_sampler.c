/* Goal: the sampler draws from the distribution that its parameters describe, gives the same result
 * on every call, and survives any logits. Method: every draw is predicted by a plain model that
 * sorts the vocabulary and computes in double precision; a chi-square test over many draws;
 * log-probabilities compared with a log-softmax in double precision; logits with NaN, infinities
 * and ties. */
#include "common/random.h"
#include "model/forward/sampler.h"
#include "tests/check.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#define VOCAB_MAX 49152

static uint64_t seed;
static float logits[VOCAB_MAX];
static float scratch[2 * VOCAB_MAX];

static uint64_t below(uint64_t counter, uint64_t limit)
{
    return random_at(seed, counter) % limit;
}

/* Normal with the given deviation, rounded to a grid if one is given, which makes ties. */
static void fill(uint64_t key, uint32_t vocab, float deviation, float grid)
{
    for (uint32_t i = 0; i < vocab; i++) {
        float u = random_unit_at(seed ^ key, i * 2) + 1e-7f;
        float v = random_unit_at(seed ^ key, i * 2 + 1);
        logits[i] = deviation * sqrtf(-2.0f * logf(u)) * cosf(6.2831853f * v);
        if (grid > 0.0f)
            logits[i] = grid * rintf(logits[i] / grid);
    }
}

static uint32_t draw(const struct sampling *s, uint32_t vocab, uint32_t position,
                     const uint32_t *masked, uint32_t masked_count)
{
    struct sampled out;
    sampler_draw(s, logits, vocab, position, masked, masked_count, scratch, &out);
    CHECK(out.id < vocab);
    return out.id;
}

/* ---- the plain model ---- */

static uint32_t ranking[VOCAB_MAX];
static double weights[VOCAB_MAX];
static bool kept[VOCAB_MAX];

static int compare_ranks(const void *a, const void *b)
{
    uint32_t i = *(const uint32_t *)a;
    uint32_t k = *(const uint32_t *)b;
    if (logits[i] != logits[k])
        return logits[i] > logits[k] ? -1 : 1;
    return i < k ? -1 : i > k;
}

/* Sets kept[] and weights[]. Returns false if a limit of top_p or min_p is so near to a sum that
 * fp32 and double may differ about it. */
static bool plain_filter(const struct sampling *s, uint32_t vocab, const uint32_t *masked,
                         uint32_t masked_count)
{
    uint32_t count = 0;
    bool sure = true;
    for (uint32_t i = 0; i < vocab; i++) {
        bool out = false;
        for (uint32_t k = 0; k < masked_count; k++)
            out = out || masked[k] == i;
        kept[i] = false;
        weights[i] = 0.0;
        if (!out)
            ranking[count++] = i;
    }
    qsort(ranking, count, sizeof(*ranking), compare_ranks);
    for (uint32_t i = 0; i < count; i++)
        weights[ranking[i]] =
            exp(((double)logits[ranking[i]] - (double)logits[ranking[0]]) / (double)s->temperature);
    uint32_t last = count;
    while (s->min_p > 0.0f && weights[ranking[last - 1]] < (double)s->min_p)
        last--;
    if (last < count)
        sure = sure && fabs(weights[ranking[last]] / (double)s->min_p - 1) > 1e-5;
    sure = sure &&
           (s->min_p <= 0.0f || fabs(weights[ranking[last - 1]] / (double)s->min_p - 1) > 1e-5);
    if (s->top_k > 0 && s->top_k < last)
        last = s->top_k;
    double total = 0.0;
    for (uint32_t i = 0; i < last; i++)
        total += weights[ranking[i]];
    double mass = 0.0;
    for (uint32_t i = 0; i < last && s->top_p < 1.0f; i++) {
        if (mass >= (double)s->top_p * total)
            last = i;
        sure = sure && fabs(mass - (double)s->top_p * total) > 1e-5 * total;
        mass += weights[ranking[i]];
    }
    for (uint32_t i = 0; i < last; i++)
        kept[ranking[i]] = true;
    return sure;
}

/* What the draw must be: the token in which the share `unit` of the mass, counted in the order of
 * ids, ends. TOLERANCE around a border both neighbours are right. */
static void check_draw(const struct sampling *s, uint32_t vocab, uint32_t position, uint32_t id)
{
    double total = 0.0;
    double before = 0.0;
    for (uint32_t i = 0; i < vocab; i++)
        total += kept[i] ? weights[i] : 0.0;
    for (uint32_t i = 0; i < id; i++)
        before += kept[i] ? weights[i] : 0.0;
    double target = total * (double)random_unit_at(s->seed, position);
    CHECKF(kept[id], "id %u of %u is not in the set", id, vocab);
    CHECKF(target >= before - 2e-5 * total && target <= before + weights[id] + 2e-5 * total,
           "id %u of %u: target %.9g, from %.9g to %.9g", id, vocab, target / total, before / total,
           (before + weights[id]) / total);
}

static void test_against_plain(void)
{
    static const uint32_t vocabs[] = {1, 2, 3, 15, 16, 17, 255, 256, 257, 1000, 4097};
    static const float deviations[] = {0.0f, 0.1f, 1.0f, 3.0f, 20.0f};
    unsigned compared = 0;
    for (uint64_t round = 0; round < 1500; round++) {
        uint64_t c = 1000 + round * 32;
        uint32_t vocab = vocabs[below(c, 11)];
        uint32_t masked[5];
        uint32_t masked_count =
            below(c + 1, 3) == 0 && vocab > 5 ? 1 + (uint32_t)below(c + 2, 5) : 0;
        for (uint32_t i = 0; i < masked_count; i++)
            masked[i] = (uint32_t)below(c + 3 + i, vocab);
        struct sampling s = {.temperature = 0.1f + 2.0f * random_unit_at(seed, c + 10),
                             .top_p = 1.0f,
                             .seed = random_at(seed, c + 11),
                             .logprobs = -1};
        fill(round + 1, vocab, deviations[below(c + 12, 5)], below(c + 13, 2) ? 0.5f : 0.0f);
        if (below(c + 14, 2) != 0)
            s.top_p = 0.01f + 0.98f * random_unit_at(seed, c + 15);
        if (below(c + 16, 3) == 0)
            s.top_k = 1 + (uint32_t)below(c + 17, below(c + 18, 2) ? 8 : vocab + 3);
        if (below(c + 19, 3) == 0)
            s.min_p = random_unit_at(seed, c + 20) * (below(c + 21, 2) ? 1.0f : 0.01f);
        if (!plain_filter(&s, vocab, masked, masked_count))
            continue;
        for (uint32_t position = 0; position < 20; position++)
            check_draw(&s, vocab, position, draw(&s, vocab, position, masked, masked_count));
        compared++;
    }
    CHECK(compared > 1000);
    printf("%u configurations of 1500 compared\n", compared);
}

/* The size of real vocabularies, flat and peaked, so that every cut of the filter is used. */
static void test_large(void)
{
    static const struct sampling all[] = {
        {.temperature = 1.0f, .top_p = 0.9f, .logprobs = -1},
        {.temperature = 1.0f, .top_p = 0.999f, .logprobs = -1},
        {.temperature = 1.0f, .top_p = 1.0f, .top_k = 40, .logprobs = -1},
        {.temperature = 0.7f, .top_p = 0.8f, .top_k = 30000, .logprobs = -1},
        {.temperature = 1.3f, .top_p = 1.0f, .min_p = 0.01f, .logprobs = -1},
        {.temperature = 1.0f, .top_p = 1.0f, .logprobs = -1},
    };
    static const float deviations[] = {0.05f, 1.0f, 4.0f};
    for (unsigned d = 0; d < 3; d++) {
        fill(77 + d, VOCAB_MAX, deviations[d], 0.0f);
        for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
            struct sampling s = all[i];
            s.seed = seed + i;
            /* A border that is not sure concerns one token; the draws' tolerance covers its weight.
             */
            (void)plain_filter(&s, VOCAB_MAX, NULL, 0);
            for (uint32_t position = 0; position < 10; position++) {
                uint32_t id = draw(&s, VOCAB_MAX, position, NULL, 0);
                if (kept[id])
                    check_draw(&s, VOCAB_MAX, position, id);
                else
                    CHECKF(weights[id] < 1e-3, "id %u was filtered out", id);
            }
        }
    }
}

/* 9 tokens, 200 000 positions. With 8 degrees of freedom chi-square passes 50 once in 2e7 runs. */
static void test_chi_square(void)
{
    enum { VOCAB = 9, DRAWS = 200000 };
    static const uint32_t masked[] = {4};
    struct sampling s = {.temperature = 0.8f, .top_p = 1.0f, .seed = seed, .logprobs = -1};
    for (int masks = 0; masks < 2; masks++) {
        uint32_t hits[VOCAB] = {0};
        double total = 0.0;
        double chi = 0.0;
        fill(5, VOCAB, 1.0f, 0.0f);
        CHECK(plain_filter(&s, VOCAB, masked, (uint32_t)masks));
        for (uint32_t i = 0; i < DRAWS; i++)
            hits[draw(&s, VOCAB, i, masked, (uint32_t)masks)]++;
        for (uint32_t i = 0; i < VOCAB; i++)
            total += weights[i];
        for (uint32_t i = 0; i < VOCAB; i++) {
            double expected = DRAWS * weights[i] / total;
            CHECK(expected > 0.0 || hits[i] == 0);
            if (expected > 0.0)
                chi += ((double)hits[i] - expected) * ((double)hits[i] - expected) / expected;
        }
        printf("chi-square %.2f\n", chi);
        CHECKF(chi < 50.0, "%f", chi);
    }
}

static void test_greedy(void)
{
    struct sampling s = {.temperature = 0.0f, .top_p = 1.0f, .logprobs = -1};
    static const uint32_t masked[] = {40, 50};
    for (uint32_t vocab = 60; vocab < 100; vocab++) {
        for (uint32_t i = 0; i < vocab; i++)
            logits[i] = -5.0f;
        CHECK(draw(&s, vocab, 0, NULL, 0) == 0);
        logits[40] = logits[50] = logits[55] = 2.0f;
        CHECK(draw(&s, vocab, 0, NULL, 0) == 40);
        CHECK(draw(&s, vocab, 0, masked, 1) == 50);
        CHECK(draw(&s, vocab, 0, masked, 2) == 55);
        logits[vocab - 1] = 3.0f;
        CHECK(draw(&s, vocab, 0, masked, 2) == vocab - 1);
    }
    logits[0] = -0.0f;
    logits[1] = 0.0f;
    CHECK(draw(&s, 2, 0, NULL, 0) == 0);
    /* The most likely token also when the temperature goes to zero, or only one may stay. */
    fill(9, 1000, 1.0f, 0.0f);
    uint32_t best = draw(&s, 1000, 0, NULL, 0);
    struct sampling cold = {.temperature = 1e-30f, .top_p = 1.0f, .logprobs = -1};
    struct sampling single = {.temperature = 5.0f, .top_p = 1.0f, .top_k = 1, .logprobs = -1};
    struct sampling narrow = {.temperature = 5.0f, .top_p = 1e-6f, .logprobs = -1};
    struct sampling strict = {.temperature = 1.0f, .top_p = 1.0f, .min_p = 1.0f, .logprobs = -1};
    for (uint32_t position = 0; position < 50; position++) {
        CHECK(draw(&cold, 1000, position, NULL, 0) == best);
        CHECK(draw(&single, 1000, position, NULL, 0) == best);
        CHECK(draw(&narrow, 1000, position, NULL, 0) == best);
        CHECK(draw(&strict, 1000, position, NULL, 0) == best);
    }
}

static void test_odd_logits(void)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, 0.0f, -NAN, 1e-40f};
    static const uint32_t all[] = {0, 1, 2, 3};
    for (uint64_t round = 0; round < 3000; round++) {
        uint64_t c = 500000 + round * 16;
        uint32_t vocab = 1 + (uint32_t)below(c, 40);
        struct sampling s = {.temperature =
                                 below(c + 1, 3) == 0 ? 0.0f : random_unit_at(seed, c + 2) * 2.0f,
                             .top_p = below(c + 3, 2) ? 1.0f : 0.5f,
                             .top_k = (uint32_t)below(c + 4, 4),
                             .min_p = below(c + 5, 2) ? 0.0f : 0.1f,
                             .seed = round,
                             .logprobs = 5};
        uint32_t masked_count = (uint32_t)below(c + 6, 5);
        uint64_t kinds = 1 + below(c + 7, 8); /* few kinds: often all NaN, or all infinite */
        struct sampled out;
        for (uint32_t i = 0; i < vocab; i++)
            logits[i] = odd[(below(c + 8, 8) + random_at(c, i) % kinds) % 8];
        sampler_draw(&s, logits, vocab, (uint32_t)round, all, masked_count, scratch, &out);
        CHECKF(out.id < vocab, "id %u of %u", out.id, vocab);
        CHECK(vocab <= masked_count || out.id >= masked_count);
        CHECK(out.top_count == (vocab < 5 ? vocab : 5));
        CHECK(!isnan(out.logprob));
        for (uint32_t i = 0; i < out.top_count; i++)
            CHECK(out.top_ids[i] < vocab && !isnan(out.top_logprobs[i]));
    }
    logits[0] = NAN;
    logits[1] = INFINITY;
    logits[2] = 7.0f;
    struct sampling greedy = {.temperature = 0.0f, .top_p = 1.0f, .logprobs = -1};
    CHECK(draw(&greedy, 3, 0, NULL, 0) == 1);
    logits[1] = -INFINITY;
    CHECK(draw(&greedy, 3, 0, NULL, 0) == 2);
}

static void test_score(void)
{
    static const float deviations[] = {0.1f, 1.0f, 5.0f, 30.0f};
    for (unsigned d = 0; d < 8; d++) {
        uint32_t vocab = d < 4 ? VOCAB_MAX : 37;
        struct sampled out;
        double total = 0.0;
        fill(400 + d, vocab, deviations[d % 4], d % 2 ? 0.25f : 0.0f);
        for (uint32_t i = 0; i < vocab; i++)
            total += exp((double)logits[i]);
        for (uint32_t i = 0; i < vocab; i++)
            ranking[i] = i;
        qsort(ranking, vocab, sizeof(*ranking), compare_ranks);
        uint32_t id = (uint32_t)below(900 + d, vocab);
        sampler_score(logits, vocab, id, LIMIT_LOGPROBS, &out);
        CHECK(out.id == id && out.top_count == LIMIT_LOGPROBS);
        CHECKF(fabs((double)out.logprob - ((double)logits[id] - log(total))) <
                   2e-6 * (1 + fabs((double)out.logprob)),
               "%.9g", (double)out.logprob);
        for (uint32_t i = 0; i < LIMIT_LOGPROBS; i++) {
            double expected = (double)logits[ranking[i]] - log(total);
            CHECKF(out.top_ids[i] == ranking[i], "place %u: %u, want %u", i, out.top_ids[i],
                   ranking[i]);
            CHECK(fabs((double)out.top_logprobs[i] - expected) < 2e-6 * (1 + fabs(expected)));
        }
        sampler_score(logits, vocab, id, 0, &out);
        CHECK(out.top_count == 0);
    }
    /* A draw reports the same, on the raw logits whatever the temperature and the masks. */
    struct sampling s = {.temperature = 0.3f, .top_p = 0.9f, .seed = seed, .logprobs = 3};
    static const uint32_t masked[] = {7};
    struct sampled drawn;
    struct sampled scored;
    fill(450, 37, 2.0f, 0.0f);
    logits[7] = 50.0f;
    sampler_draw(&s, logits, 37, 12, masked, 1, scratch, &drawn);
    sampler_score(logits, 37, drawn.id, 3, &scored);
    CHECK(drawn.id != 7 && drawn.logprob == scored.logprob && drawn.top_count == 3 &&
          drawn.top_ids[0] == 7);
}

/* The draw is a function of (seed, position) and the logits: nothing is left from earlier draws. */
static void test_pure(void)
{
    struct sampling s = {.temperature = 1.0f, .top_p = 0.95f, .seed = seed, .logprobs = -1};
    uint32_t first[64];
    unsigned different = 0;
    fill(600, 1000, 1.0f, 0.0f);
    for (uint32_t i = 0; i < 64; i++)
        first[i] = draw(&s, 1000, i, NULL, 0);
    for (uint32_t i = 64; i-- > 0;) {
        memset(scratch, (int)i, sizeof(scratch));
        CHECK(draw(&s, 1000, i, NULL, 0) == first[i]);
        different += first[i] != first[0];
    }
    CHECK(different > 32);
}

static void report_speed(void)
{
    static const struct {
        const char *name;
        struct sampling sampling;
    } kinds[] = {
        {"greedy", {.temperature = 0.0f, .top_p = 1.0f, .logprobs = -1}},
        {"greedy, 20 log-probabilities", {.temperature = 0.0f, .top_p = 1.0f, .logprobs = 20}},
        {"temperature", {.temperature = 1.0f, .top_p = 1.0f, .logprobs = -1}},
        {"top_p 0.9", {.temperature = 1.0f, .top_p = 0.9f, .logprobs = -1}},
        {"top_k 50, top_p 0.95",
         {.temperature = 1.0f, .top_p = 0.95f, .top_k = 50, .logprobs = -1}},
        {"top_p 0.99999", {.temperature = 1.0f, .top_p = 0.99999f, .logprobs = -1}},
    };
    fill(700, VOCAB_MAX, 3.0f, 0.0f);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        double best = 1e9;
        for (uint32_t round = 0; round < 30; round++) {
            struct timespec start;
            struct timespec end;
            clock_gettime(CLOCK_MONOTONIC, &start);
            draw(&kinds[i].sampling, VOCAB_MAX, round, NULL, 0);
            clock_gettime(CLOCK_MONOTONIC, &end);
            double us = (double)(end.tv_sec - start.tv_sec) * 1e6 +
                        (double)(end.tv_nsec - start.tv_nsec) * 1e-3;
            best = us < best ? us : best;
        }
        printf("%s: %.0f us over %d logits\n", kinds[i].name, best, VOCAB_MAX);
    }
}

int main(void)
{
    seed = test_seed();
    test_greedy();
    test_against_plain();
    test_large();
    test_chi_square();
    test_odd_logits();
    test_score();
    test_pure();
    report_speed();
    return 0;
}
