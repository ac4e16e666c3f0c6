/* Goal: the device's sampler draws the same ids as model/forward/sampler.c, and finds the same
 * log-probabilities.
 *
 * Method: rows of random logits (smooth, with ties, flat, peaked, with NaN and infinities) of many
 * sizes, with random settings, masked ids and positions, several rows a launch; every result
 * against sampler_draw and sampler_score: ids and alternatives equal, log-probabilities within 2
 * ulp (the two log() of double may differ). A row may be returned undecided only if it has more
 * candidates than the kernel takes. */
#include "compute/cuda/kernels.cuh"
#include "tests/gpu/harness.h"

extern "C" {
#include "model/forward/logit_edits.h"
#include "model/forward/sampler.h"
}

#include <cfloat>
#include <cmath>
#include <cstring>

namespace
{
constexpr uint32_t CANDIDATES_MAX = 4096; /* Equals SAMPLE_MAX of the kernel. */

struct counts {
    unsigned rows, undecided, filtered, whole, greedy, scored, edited;
};

void fill(gpu::random &random, std::vector<float> &logits)
{
    static const float deviations[] = {0.0f, 0.1f, 1.0f, 3.0f, 20.0f};
    const float deviation = deviations[random.below(5)];
    const float grid = random.below(2) ? 0.5f : 0.0f; /* A grid makes ties. */
    for (float &x : logits) {
        x = deviation * random.normal();
        if (grid > 0)
            x = grid * std::rint(x / grid);
    }
    if (random.below(4) == 0) /* One or two tokens stand out. */
        for (int i = 0; i < 2; i++)
            logits[random.below((uint32_t)logits.size())] += 12;
    if (random.below(8) == 0) {
        static const float odd[] = {NAN, INFINITY, -INFINITY, -0.0f, FLT_MAX, 1e-40f};
        for (uint32_t i = 0; i < 1 + random.below(20); i++)
            logits[random.below((uint32_t)logits.size())] = odd[random.below(6)];
    }
}

struct compute_sample draw_settings(gpu::random &random, uint32_t vocab)
{
    struct compute_sample s = {};
    s.sampling.temperature = random.below(5) == 0   ? 0
                             : random.below(3) == 0 ? 1
                                                    : random.uniform(0.1f, 2.1f);
    s.sampling.top_p = random.below(2) ? 1 : random.uniform(0.01f, 0.999f);
    s.sampling.top_k = random.below(3) ? 0 : 1 + random.below(random.below(2) ? 60 : vocab + 3);
    s.sampling.min_p = random.below(3) ? 0 : random.uniform(0, random.below(2) ? 1.0f : 0.01f);
    s.sampling.seed = (uint64_t)random.bits() << 32 | random.bits();
    s.position = random.below(100000);
    s.sampling.logprobs = (int32_t)random.below(LIMIT_LOGPROBS + 2) - 1;
    s.forced_token = random.below(6) == 0 ? random.below(vocab) : COMPUTE_SAMPLE_DRAW;
    if (random.below(3) == 0)
        s.masked_count = random.below(SAMPLING_ENDS_MAX + 1);
    for (uint32_t i = 0; i < s.masked_count; i++)
        s.masked[i] = random.below(vocab);
    return s;
}

bool near(float a, float b)
{
    return a == b || std::fabs(a - b) <= 2.4e-7f * std::fabs(b);
}

/* Returns whether the kernel may meet more candidates than it takes: among the tokens above the
 * first threshold that decides a draw, or among those near the most likely one. */
bool may_be_undecided(const struct compute_sample &s, const std::vector<float> &logits,
                      const std::vector<float> &edited)
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
    for (size_t i = 0; s.sampling.logprobs > 0 && count < (size_t)s.sampling.logprobs && i < 6;
         i++) {
        count = 0;
        for (double x : values)
            count += x >= top - depths[i];
        if (count > CANDIDATES_MAX)
            return true;
    }
    if (s.forced_token != COMPUTE_SAMPLE_DRAW || s.sampling.temperature <= 0 ||
        !(s.sampling.top_k > 0 || s.sampling.top_p < 1 || s.sampling.min_p > 0))
        return false;
    values.clear();
    for (float x : edited)
        values.push_back(std::isnan(x) ? -FLT_MAX : std::fmin(std::fmax(x, -FLT_MAX), FLT_MAX));
    top = -FLT_MAX; /* The largest logit that may be drawn. */
    for (uint32_t i = 0; i < s.masked_count; i++)
        values[s.masked[i]] = -INFINITY;
    for (double x : values)
        top = std::fmax(top, x);
    for (double &x : values)
        total += x = std::exp((x - top) / (double)s.sampling.temperature);
    for (double cut : cuts) {
        double mass = 0;
        count = 0;
        for (double x : values) {
            count += x >= std::fmax(cut, (double)s.sampling.min_p) * (1 - 1e-5);
            mass += x >= cut ? x : 0;
        }
        if (count > CANDIDATES_MAX)
            return true;
        if (cut <= s.sampling.min_p || (s.sampling.top_k > 0 && count >= s.sampling.top_k) ||
            (s.sampling.top_k == 0 && s.sampling.min_p <= 0 &&
             mass >= (double)s.sampling.top_p * total))
            return false;
    }
    return false;
}

void compare(const struct compute_sample &s, const std::vector<float> &logits,
             const struct compute_edit *edits, const struct compute_sampled &got,
             struct counts *counts)
{
    const uint32_t vocab = (uint32_t)logits.size();
    std::vector<float> scratch(2 * logits.size()), edited(logits.size());
    struct sampled want;
    const struct logit_edits all = {edits, s.edit_count, NULL, 0};
    struct sampling unscored = s.sampling;
    unscored.logprobs = -1;
    logit_edits_apply(&all, logits.data(), vocab, edited.data());
    if (s.forced_token == COMPUTE_SAMPLE_DRAW)
        sampler_draw(&unscored, edited.data(), vocab, s.position, s.masked, s.masked_count,
                     scratch.data(), &want);
    if (s.forced_token == COMPUTE_SAMPLE_DRAW && s.sampling.logprobs >= 0)
        sampler_score(logits.data(), vocab, want.id, s.sampling.logprobs, &want);
    else if (s.forced_token == COMPUTE_SAMPLE_DRAW)
        ;
    else if (s.sampling.logprobs >= 0)
        sampler_score(logits.data(), vocab, s.forced_token, s.sampling.logprobs, &want);
    else
        want = {s.forced_token, 0, 0, {}, {}};
    char what[200];
    snprintf(what, sizeof(what),
             "vocabulary %u, temperature %g, top_k %u, top_p %g, min_p %g, %u masked, logprobs %d",
             vocab, (double)s.sampling.temperature, s.sampling.top_k, (double)s.sampling.top_p,
             (double)s.sampling.min_p, s.masked_count, s.sampling.logprobs);
    counts->rows++;
    counts->undecided += got.undecided;
    counts->edited += s.edit_count > 0;
    if (got.undecided != 0 && !may_be_undecided(s, logits, edited))
        gpu::fail("%s: undecided", what);
    if (got.undecided != 0)
        return;
    const bool filters = s.sampling.top_k > 0 || s.sampling.top_p < 1 || s.sampling.min_p > 0;
    counts->greedy += s.sampling.temperature <= 0;
    counts->filtered += s.sampling.temperature > 0 && filters;
    counts->whole += s.sampling.temperature > 0 && !filters;
    counts->scored += s.sampling.logprobs >= 0;
    if (!gpu::expect_equal(what, &got.sampled.id, &want.id, sizeof(got.sampled.id)))
        gpu::fail("%s: id %u instead of %u", what, got.sampled.id, want.id);
    if (s.sampling.logprobs < 0)
        return;
    if (!near(got.sampled.logprob, want.logprob))
        gpu::fail("%s: log-probability %.9g instead of %.9g", what, (double)got.sampled.logprob,
                  (double)want.logprob);
    if (got.sampled.top_count != want.top_count) {
        gpu::fail("%s: %u alternatives instead of %u", what, got.sampled.top_count, want.top_count);
        return;
    }
    gpu::expect_equal(what, got.sampled.top_ids, want.top_ids, want.top_count * sizeof(uint32_t));
    for (uint32_t i = 0; i < want.top_count; i++)
        if (!near(got.sampled.top_logprobs[i], want.top_logprobs[i]))
            gpu::fail("%s: alternative %u has %.9g instead of %.9g", what, i,
                      (double)got.sampled.top_logprobs[i], (double)want.top_logprobs[i]);
}

/* Adds edits of a third of the rows: at most half of the tokens, some of them forbidden. */
void draw_edits(gpu::random &random, uint32_t vocab, struct compute_sample *s,
                std::vector<struct compute_edit> &edits)
{
    s->edit_first = (uint32_t)edits.size();
    if (random.below(3) != 0 || s->forced_token != COMPUTE_SAMPLE_DRAW)
        return;
    const uint32_t step = 2 + random.below(random.below(2) ? 3 : 300);
    for (uint32_t id = random.below(step); id + 1 < vocab; id += step) {
        struct compute_edit edit = {id, random.uniform(-4, 4), random.uniform(0.5f, 2),
                                    random.uniform(-2, 2)};
        if (random.below(4) == 0)
            edit.add = -INFINITY;
        edits.push_back(edit);
    }
    s->edit_count = (uint32_t)edits.size() - s->edit_first;
}

void check(gpu::random &random, uint32_t vocab, uint32_t rows, struct counts *counts)
{
    std::vector<std::vector<float>> logits(rows, std::vector<float>(vocab));
    std::vector<float> all;
    std::vector<struct compute_sample> settings;
    std::vector<struct compute_edit> edits;
    for (std::vector<float> &row : logits) {
        fill(random, row);
        all.insert(all.end(), row.begin(), row.end());
        settings.push_back(draw_settings(random, vocab));
        draw_edits(random, vocab, &settings.back(), edits);
    }
    gpu::buffer<struct compute_edit> edits_there(edits.size() + 1);
    gpu::buffer<float> saved(edits.size() + 1);
    if (!edits.empty())
        GPU_CHECK(cudaMemcpy(edits_there, edits.data(), edits.size() * sizeof(edits[0]),
                             cudaMemcpyHostToDevice));
    gpu::buffer<float> on_device(all);
    gpu::buffer<struct compute_sample> there(settings);
    gpu::buffer<struct compute_sampled> results(rows);
    GPU_CHECK(cudaMemset(results, 0xee, rows * sizeof(struct compute_sampled)));
    cuda_sample(NULL, on_device, vocab, there, rows, edits_there, saved, results);
    GPU_CHECK(cudaGetLastError());
    const std::vector<struct compute_sampled> got = results.get();
    const std::vector<float> after = on_device.get();
    gpu::expect_equal("logits after the call", after.data(), all.data(),
                      all.size() * sizeof(float));
    for (uint32_t i = 0; i < rows; i++)
        compare(settings[i], logits[i], edits.data() + settings[i].edit_first, got[i], counts);
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
        counts.whole == 0 || counts.scored == 0 || counts.edited == 0)
        gpu::fail("too little was compared");
    return gpu::finish();
}
