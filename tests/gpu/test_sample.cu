/* Goal: the device's sampler draws the same ids as model/sampler.c, and finds the same
 * log-probabilities.
 *
 * Method: rows of random logits (smooth, with ties, flat, peaked, with NaN and infinities) of many
 * sizes, with random settings, masked ids and positions, several rows a launch; every result
 * against sampler_draw and sampler_score: ids and alternatives equal, log-probabilities within 2
 * ulp (the two log() of double may differ). A row may be given back undecided only where it has
 * more candidates than the kernel takes. */
#include "compute/cuda/kernels.cuh"
#include "tests/gpu/harness.h"

extern "C" {
#include "model/sampler.h"
}

#include <cfloat>
#include <cmath>
#include <cstring>

namespace
{
constexpr uint32_t CANDIDATES_MAX = 4096; /* SAMPLE_MAX */

struct counts {
    unsigned rows, undecided, filtered, whole, greedy, scored;
};

void fill(gpu::random &random, std::vector<float> &logits)
{
    static const float deviations[] = {0.0f, 0.1f, 1.0f, 3.0f, 20.0f};
    const float deviation = deviations[random.below(5)];
    const float grid = random.below(2) ? 0.5f : 0.0f; /* makes ties */
    for (float &x : logits) {
        x = deviation * random.normal();
        if (grid > 0)
            x = grid * std::rint(x / grid);
    }
    if (random.below(4) == 0) /* one or two stand out */
        for (int i = 0; i < 2; i++)
            logits[random.below((uint32_t)logits.size())] += 12;
    if (random.below(8) == 0) {
        static const float odd[] = {NAN, INFINITY, -INFINITY, -0.0f, FLT_MAX, 1e-40f};
        for (uint32_t i = 0; i < 1 + random.below(20); i++)
            logits[random.below((uint32_t)logits.size())] = odd[random.below(6)];
    }
}

struct cuda_sample draw_settings(gpu::random &random, uint32_t vocab)
{
    struct cuda_sample s = {};
    s.temperature = random.below(5) == 0   ? 0
                    : random.below(3) == 0 ? 1
                                           : random.uniform(0.1f, 2.1f);
    s.top_p = random.below(2) ? 1 : random.uniform(0.01f, 0.999f);
    s.top_k = random.below(3) ? 0 : 1 + random.below(random.below(2) ? 60 : vocab + 3);
    s.min_p = random.below(3) ? 0 : random.uniform(0, random.below(2) ? 1.0f : 0.01f);
    s.seed = (uint64_t)random.bits() << 32 | random.bits();
    s.position = random.below(100000);
    s.logprobs = (int32_t)random.below(LIMIT_LOGPROBS + 2) - 1;
    s.forced_token = random.below(6) == 0 ? random.below(vocab) : CUDA_SAMPLE_NONE;
    if (random.below(3) == 0)
        s.masked_count = random.below(CUDA_SAMPLE_MASKED + 1);
    for (uint32_t i = 0; i < s.masked_count; i++)
        s.masked[i] = random.below(vocab);
    return s;
}

bool near(float a, float b)
{
    return a == b || std::fabs(a - b) <= 2.4e-7f * std::fabs(b);
}

/* Whether the kernel may meet more candidates than it takes: in a draw at the first threshold that
 * decides it, or among those near the most likely one. */
bool may_be_undecided(const struct cuda_sample &s, const std::vector<float> &logits)
{
    static const double cuts[] = {0x1p-10, 0x1p-18, 0x1p-30, 0x1p-50, 0x1p-80, 0x1p-149};
    static const double depths[] = {1, 4, 10, 25, 60, 2.0 * FLT_MAX};
    std::vector<double> values;
    double top = -FLT_MAX, total = 0;
    for (float x : logits)
        values.push_back(std::isnan(x) ? -FLT_MAX : std::fmin(std::fmax(x, -FLT_MAX), FLT_MAX));
    for (double x : values)
        top = std::fmax(top, x);
    size_t count = 0;
    for (size_t i = 0; s.logprobs > 0 && count < (size_t)s.logprobs && i < 6; i++) {
        count = 0;
        for (double x : values)
            count += x >= top - depths[i];
        if (count > CANDIDATES_MAX)
            return true;
    }
    if (s.forced_token != CUDA_SAMPLE_NONE || s.temperature <= 0 ||
        !(s.top_k > 0 || s.top_p < 1 || s.min_p > 0))
        return false;
    top = -FLT_MAX; /* of those that may be drawn */
    for (uint32_t i = 0; i < s.masked_count; i++)
        values[s.masked[i]] = -INFINITY;
    for (double x : values)
        top = std::fmax(top, x);
    for (double &x : values)
        total += x = std::exp((x - top) / (double)s.temperature);
    for (double cut : cuts) {
        double mass = 0;
        count = 0;
        for (double x : values) {
            count += x >= std::fmax(cut, (double)s.min_p) * (1 - 1e-5);
            mass += x >= cut ? x : 0;
        }
        if (count > CANDIDATES_MAX)
            return true;
        if (cut <= s.min_p || (s.top_k > 0 && count >= s.top_k) ||
            (s.top_k == 0 && s.min_p <= 0 && mass >= (double)s.top_p * total))
            return false;
    }
    return false;
}

void compare(const struct cuda_sample &s, const std::vector<float> &logits,
             const struct cuda_sampled &got, struct counts *counts)
{
    const uint32_t vocab = (uint32_t)logits.size();
    std::vector<float> scratch(2 * logits.size());
    struct sampled want;
    const struct sampling sampling = {s.temperature, s.top_p, s.min_p, s.top_k, s.seed, s.logprobs};
    if (s.forced_token == CUDA_SAMPLE_NONE)
        sampler_draw(&sampling, logits.data(), vocab, s.position, s.masked, s.masked_count,
                     scratch.data(), &want);
    else if (s.logprobs >= 0)
        sampler_score(logits.data(), vocab, s.forced_token, s.logprobs, &want);
    else
        want = {s.forced_token, 0, 0, {}, {}};
    char what[200];
    snprintf(what, sizeof(what),
             "vocabulary %u, temperature %g, top_k %u, top_p %g, min_p %g, %u masked, logprobs %d",
             vocab, (double)s.temperature, s.top_k, (double)s.top_p, (double)s.min_p,
             s.masked_count, s.logprobs);
    counts->rows++;
    counts->undecided += got.undecided;
    if (got.undecided != 0 && !may_be_undecided(s, logits))
        gpu::fail("%s: undecided", what);
    if (got.undecided != 0)
        return;
    const bool filters = s.top_k > 0 || s.top_p < 1 || s.min_p > 0;
    counts->greedy += s.temperature <= 0;
    counts->filtered += s.temperature > 0 && filters;
    counts->whole += s.temperature > 0 && !filters;
    counts->scored += s.logprobs >= 0;
    if (!gpu::expect_equal(what, &got.id, &want.id, sizeof(got.id)))
        gpu::fail("%s: id %u instead of %u", what, got.id, want.id);
    if (s.logprobs < 0)
        return;
    if (!near(got.logprob, want.logprob))
        gpu::fail("%s: log-probability %.9g instead of %.9g", what, (double)got.logprob,
                  (double)want.logprob);
    if (got.top_count != want.top_count) {
        gpu::fail("%s: %u alternatives instead of %u", what, got.top_count, want.top_count);
        return;
    }
    gpu::expect_equal(what, got.top_ids, want.top_ids, want.top_count * sizeof(uint32_t));
    for (uint32_t i = 0; i < want.top_count; i++)
        if (!near(got.top_logprobs[i], want.top_logprobs[i]))
            gpu::fail("%s: alternative %u has %.9g instead of %.9g", what, i,
                      (double)got.top_logprobs[i], (double)want.top_logprobs[i]);
}

void check(gpu::random &random, uint32_t vocab, uint32_t rows, struct counts *counts)
{
    std::vector<std::vector<float>> logits(rows, std::vector<float>(vocab));
    std::vector<float> all;
    std::vector<struct cuda_sample> settings;
    for (std::vector<float> &row : logits) {
        fill(random, row);
        all.insert(all.end(), row.begin(), row.end());
        settings.push_back(draw_settings(random, vocab));
    }
    gpu::buffer<float> on_device(all);
    gpu::buffer<struct cuda_sample> there(settings);
    gpu::buffer<struct cuda_sampled> results(rows);
    GPU_CHECK(cudaMemset(results, 0xee, rows * sizeof(struct cuda_sampled)));
    cuda_sample(NULL, on_device, vocab, there, rows, results);
    GPU_CHECK(cudaGetLastError());
    const std::vector<struct cuda_sampled> got = results.get();
    for (uint32_t i = 0; i < rows; i++)
        compare(settings[i], logits[i], got[i], counts);
}
} // namespace

int main()
{
    static const uint32_t vocabs[] = {1, 2, 3, 15, 16, 17, 255, 256, 257, 1000, 4097};
    gpu::begin();
    gpu::random random(gpu::seed());
    struct counts counts = {};
    for (int round = 0; round < (gpu::large() ? 400 : 60); round++)
        check(random, vocabs[round % 11], 8, &counts);
    for (int round = 0; round < (gpu::large() ? 60 : 8); round++)
        check(random, round % 2 ? 32000 : 128256, 4, &counts);
    printf("%u rows: %u undecided; of the others %u greedy, %u filtered, %u from all, %u scored\n",
           counts.rows, counts.undecided, counts.greedy, counts.filtered, counts.whole,
           counts.scored);
    if (counts.undecided * 4 > counts.rows || counts.greedy == 0 || counts.filtered == 0 ||
        counts.whole == 0 || counts.scored == 0)
        gpu::fail("too little was compared");
    return gpu::finish();
}
