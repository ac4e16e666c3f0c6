/* Goal: the draft layer of a model (multi-token prediction) is computed right, and in every way of
 * computing with the same bits; so are the model's final vectors, which the draft layer reads.
 * Method: random models; the engine in exact mode equals the plain fp32 reference, and as shipped
 * is near it. Then the draft layer drafts: each drafted token is computed from the layer's own
 * final vector of the token before. */
#include "tests/check.h"
#include "tests/model/file/file_gguf.h"
#include "tests/model/forward/engine.h"
#include "tests/model/forward/reference.h"
#include "tests/model/forward/synthetic.h"

#include <string.h>

#define TOKENS 45
#define DRAFTS 4 /* The last tokens: the draft layer reads its own final vectors there. */

struct sizes {
    uint32_t hidden, vocab;
};

struct results {
    float *finals, *draft_logits, *draft_finals;
};

static struct results results_take(const struct sizes *sizes)
{
    struct results r = {
        .finals = calloc(TOKENS, sizes->hidden * sizeof(float)),
        .draft_logits = calloc(TOKENS, sizes->vocab * sizeof(float)),
        .draft_finals = calloc(TOKENS, sizes->hidden * sizeof(float)),
    };
    CHECK(r.finals != NULL && r.draft_logits != NULL && r.draft_finals != NULL);
    return r;
}

static void results_free(struct results *r)
{
    free(r->finals);
    free(r->draft_logits);
    free(r->draft_finals);
}

static struct engine_options options_of(bool exact, bool draft_layer)
{
    struct engine_options options = engine_options_small(exact);
    options.draft_layer = draft_layer;
    return options;
}

/* Computes the model's final vectors: all rows together, or only the last row of each batch. */
static void model_run(const struct model_file *file, bool exact, bool tails, const uint32_t *ids,
                      const struct sizes *sizes, float *finals)
{
    const struct engine_options options = options_of(exact, false);
    const uint32_t rows = tails ? 3 : TOKENS;
    struct engine e;
    engine_open(file, &options, &e);
    for (uint32_t first = 0; first < TOKENS; first += rows) {
        engine_run(&e, ids + first, rows, first, tails ? rows - 1 : 0);
        for (uint32_t i = tails ? rows - 1 : 0; i < rows; i++)
            forward_final_vector(e.forwards[0], i, finals + (size_t)(first + i) * sizes->hidden);
    }
    engine_close(&e);
}

/* Computes the draft layer in batches of `rows`, from the final vectors of the token before each.
 * `own`: the last DRAFTS tokens have the draft layer's own final vectors. */
static void draft_run(const struct model_file *file, bool exact, uint32_t rows, bool own,
                      const uint32_t *ids, const struct sizes *sizes, struct results *r)
{
    const struct engine_options options = options_of(exact, true);
    const size_t hidden = sizes->hidden, vocab = sizes->vocab;
    const float *logits;
    struct engine e;
    engine_open(file, &options, &e);
    for (uint32_t first = 1, count; first < TOKENS; first += count) {
        const bool drafts = own && first >= TOKENS - DRAFTS;
        const uint32_t left = (own && !drafts ? TOKENS - DRAFTS : TOKENS) - first;
        count = drafts ? 1 : left < rows ? left : rows;
        e.finals = (drafts ? r->draft_finals : r->finals) + (first - 1) * hidden;
        logits = engine_run(&e, ids + first, count, first - 1, 0);
        memcpy(r->draft_logits + first * vocab, logits, count * vocab * sizeof(float));
        for (uint32_t i = 0; i < count; i++)
            forward_final_vector(e.forwards[0], i, r->draft_finals + (first + i) * hidden);
    }
    engine_close(&e);
}

static double distance(const float *a, const float *b, uint32_t width)
{
    return reference_distance(a + width, b + width, (size_t)(TOKENS - 1) * width);
}

/* Runs the same in other batches: no bit may differ. */
static void check_ways(const struct model_file *file, const uint32_t *ids,
                       const struct sizes *sizes, struct results *r)
{
    struct results other = results_take(sizes);
    const size_t hidden = sizes->hidden * sizeof(float);
    model_run(file, false, true, ids, sizes, other.finals);
    for (uint32_t i = 2; i < TOKENS; i += 3)
        CHECK(memcmp(other.finals + i * sizes->hidden, r->finals + i * sizes->hidden, hidden) == 0);
    memcpy(other.finals, r->finals, TOKENS * hidden);
    draft_run(file, false, 7, false, ids, sizes, &other);
    CHECK(memcmp(other.draft_logits, r->draft_logits, TOKENS * sizes->vocab * sizeof(float)) == 0);
    CHECK(memcmp(other.draft_finals, r->draft_finals, TOKENS * hidden) == 0);
    results_free(&other);
}

/* Compares drafts from the layer's own final vectors with the reference. */
static double check_drafts(const struct model_file *file, const struct reference *reference,
                           const uint32_t *ids, const struct sizes *sizes, struct results *r,
                           struct results *wanted)
{
    float *finals = calloc(TOKENS, sizes->hidden * sizeof(float));
    CHECK(finals != NULL);
    memcpy(finals, wanted->finals, TOKENS * sizes->hidden * sizeof(float));
    for (uint32_t i = TOKENS - DRAFTS; i <= TOKENS; i++) {
        reference_draft_run(reference, ids + 1, finals, i - 1, wanted->draft_logits + sizes->vocab,
                            wanted->draft_finals + sizes->hidden);
        memcpy(finals + (i - 1) * sizes->hidden, wanted->draft_finals + (i - 1) * sizes->hidden,
               sizes->hidden * sizeof(float));
    }
    memcpy(r->finals, wanted->finals, TOKENS * sizes->hidden * sizeof(float));
    draft_run(file, true, TOKENS, true, ids, sizes, r);
    free(finals);
    return distance(r->draft_logits, wanted->draft_logits, sizes->vocab);
}

static void check_model(const char *what, const struct synthetic *s)
{
    const struct sizes sizes = {s->hidden, s->vocab};
    struct results wanted = results_take(&sizes), exact = results_take(&sizes),
                   shipped = results_take(&sizes);
    uint32_t ids[TOKENS];
    uint8_t *image;
    struct model_file *file = synthetic_open(s, what, &image);
    synthetic_tokens(s, TOKENS, ids);
    struct reference *reference = reference_open(file_gguf(file));
    reference_finals(reference, ids, TOKENS, wanted.finals);
    reference_draft_run(reference, ids + 1, wanted.finals, TOKENS - 1,
                        wanted.draft_logits + s->vocab, wanted.draft_finals + s->hidden);
    model_run(file, true, false, ids, &sizes, exact.finals);
    draft_run(file, true, TOKENS, false, ids, &sizes, &exact);
    model_run(file, false, false, ids, &sizes, shipped.finals);
    draft_run(file, false, TOKENS, false, ids, &sizes, &shipped);
    const double finals = distance(exact.finals, wanted.finals, s->hidden),
                 logits = distance(exact.draft_logits, wanted.draft_logits, s->vocab),
                 near = distance(shipped.draft_logits, wanted.draft_logits, s->vocab);
    check_ways(file, ids, &sizes, &shipped);
    const double drafts = check_drafts(file, reference, ids, &sizes, &exact, &wanted);
    printf("%-36s final vectors %.1e, draft layer %.1e, drafts %.1e; as shipped %.1e\n", what,
           finals, logits, drafts, near);
    CHECK(finals < 1e-5 && logits < 1e-5 && drafts < 1e-5 && near < 0.05);
    reference_close(reference);
    model_file_close(file);
    free(image);
    results_free(&wanted);
    results_free(&exact);
    results_free(&shipped);
}

/* A model whose files have no draft layer has none to open. */
static void check_missing(void)
{
    struct synthetic s = synthetic_latent();
    struct model *model;
    struct compute *compute;
    struct error error = {0};
    uint8_t *image;
    const struct compute_options compute_options = {.threads = 1};
    struct model_file *file = synthetic_open(&s, "model", &image);
    CHECK(compute_cpu.open(&compute_options, &compute, &error) == ST_OK);
    const struct model_options options = {
        .ops = &compute_cpu, .compute = compute, .draft_layer = true};
    CHECK(model_open(file, &options, &model, &error) == ST_INVALID);
    CHECKF(strstr(error.text, "no draft layer") != NULL, "%s", error.text);
    compute_cpu.close(compute);
    model_file_close(file);
    free(image);
}

/* The quantisation blocks that ranks must not cut are those of the draft layer's own tensors. */
static void check_blocks(void)
{
    struct synthetic s = synthetic_latent();
    struct model_hyper model, draft;
    struct error error = {0};
    uint8_t *image;
    char name[64];
    s.draft_layers = 1;
    snprintf(name, sizeof(name), "blk.%u.ffn_down.weight", s.layers);
    s.retype = name;
    struct model_file *file = synthetic_open(&s, "model", &image);
    CHECKF(model_hyper_read(file, &model, &error) == ST_OK, "%s", error.text);
    CHECKF(model_hyper_read_draft_layer(file, &draft, &error) == ST_OK, "%s", error.text);
    CHECK(model.ffn_block == 1 && draft.ffn_block == 32);
    model_file_close(file);
    free(image);
}

int main(void)
{
    struct synthetic s = synthetic_latent();
    s.draft_layers = 1;
    s.tied = false;
    check_model("dense", &s);
    s.draft_shares = true;
    check_model("embedding and vocabulary shared", &s);
    s.tied = true;
    check_model("one shared matrix", &s);
    s.draft_shares = false;
    s.draft_layers = 2;
    s.dense_layers = 1;
    s.experts = 8;
    s.experts_used = 2;
    s.expert_ffn = 64;
    s.shared_ffn = 64;
    s.sigmoid = true;
    s.expert_groups = 4;
    s.expert_groups_used = 2;
    s.latent_q_rank = 96;
    s.latent_apart = true;
    check_model("experts, two draft layers", &s);
    s.experts = s.shared_ffn = s.expert_groups = s.dense_layers = 0;
    s.sigmoid = false; /* Rounding would change which experts are used. */
    s.type = COMPUTE_Q8_0;
    s.end_type = COMPUTE_BF16;
    check_model("Q8_0 and BF16", &s);
    s = synthetic_latent();
    s.draft_layers = 1;
    s.latent_rank = 32;
    s.rope_dim = 64; /* More than (rank + rotated) / 2. */
    s.head_dim = 96;
    check_model("a large rotated part", &s);
    check_missing();
    check_blocks();
    return 0;
}
