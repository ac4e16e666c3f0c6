/* Goal: a whole model on a GPU gives what it should: log-probabilities near those of a plain fp32
 * pass, the same greedy tokens except at near ties, prompts in chunks, several sequences in a
 * batch, every type of weights and of KV; folders with E4M3 weights as well.
 *
 * Method: synthetic models of both head groupings and all families, on the device that is
 * named as the argument ("cuda:0"; the emulated one in CI), against
 * tests/model/forward/reference.h. A prompt runs in two chunks beside another sequence, then
 * tokens one at a time, over blocks that lie scattered. */
#include "tests/check.h"
#include "tests/gpu/device_model.h"
#include "tests/model/file/file_gguf.h"
#include "tests/model/file/folder_writer.h"
#include "tests/model/forward/reference.h"
#include "tests/model/forward/synthetic.h"

#include "common/random.h"

#include <math.h>
#include <string.h>

#define TOKENS       46
#define CHUNK        29
#define DECODED      5 /* The last tokens run one at a time. */
#define BLOCK_TOKENS 16
#define BLOCKS       12
#define F8_SIZE      0.12 /* Activations of E4M3 have 4 bits of precision: 0.06. */

static const char *device;

struct distance {
    double size;     /* Size of the differences, relative to the logits' size. */
    double logprob;  /* The largest difference of a likely token's log-probability. */
    uint32_t greedy; /* Rows whose most likely token differs without a tie. */
};

static uint32_t most_likely(const float *logits, uint32_t vocab)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

static double log_sum(const float *logits, uint32_t vocab)
{
    double top = logits[most_likely(logits, vocab)], sum = 0;
    for (uint32_t i = 0; i < vocab; i++)
        sum += exp(logits[i] - top);
    return top + log(sum);
}

/* Another token than the most likely one counts if its logit is more than `near` below. */
static void compare_row(const float *got, const float *want, uint32_t vocab, float near,
                        struct distance *d)
{
    double got_sum = log_sum(got, vocab), want_sum = log_sum(want, vocab);
    uint32_t mine = most_likely(got, vocab), right = most_likely(want, vocab);
    for (uint32_t i = 0; i < vocab; i++) {
        double logprob = want[i] - want_sum;
        double difference = fabs(got[i] - got_sum - logprob);
        if (logprob > -4 && !(difference <= d->logprob)) /* Also false for NaN. */
            d->logprob = difference;
    }
    d->greedy += mine != right && want[right] - want[mine] > near;
}

/* Computes rows of the tested sequence, with or without rows of another sequence beside them.
 * Returns the tested sequence's logits. */
static void run_rows(struct forward *f, const struct device_model *m, const uint32_t *ids,
                     uint32_t position, uint32_t count, bool beside, float *logits_out)
{
    static const uint32_t blocks[] = {7, 2, 9, 4}, other_blocks[] = {3, 11, 0, 8};
    uint32_t all_ids[2 * TOKENS], rows[TOKENS], others = beside ? 3 : 0;
    const float *logits;
    for (uint32_t i = 0; i < others; i++)
        all_ids[i] = ids[TOKENS - 1 - i];
    for (uint32_t i = 0; i < count; i++) {
        all_ids[others + i] = ids[position + i];
        rows[i] = others + i;
    }
    struct compute_sequence sequences[2] = {
        {.row_count = others, .blocks = other_blocks},
        {.first_row = others, .row_count = count, .first_position = position, .blocks = blocks}};
    const struct forward_batch batch = {
        .token_ids = all_ids,
        .batch = {.row_count = others + count,
                  .sequence_count = beside ? 2 : 1,
                  .sequences = beside ? sequences : sequences + 1},
        .logits_rows = rows,
        .logits_count = count,
    };
    forward_run(f, &batch, &m->kv, &logits);
    m->ops->wait(m->compute);
    device_model_check(m);
    memcpy(logits_out, logits, (size_t)count * m->hyper->vocab * sizeof(float));
}

static struct distance run(const struct model_file *g, bool exact, enum compute_kv_dtype dtype,
                           const uint32_t *ids, const float *want, float *logits_out)
{
    struct device_model m;
    struct forward *f;
    struct error error = {0};
    struct distance d = {0};
    const struct device_model_options options = {.device = device,
                                                 .threads = 1,
                                                 .exact = exact,
                                                 .dtype = dtype,
                                                 .block_tokens = BLOCK_TOKENS,
                                                 .block_count = BLOCKS};
    device_model_open(g, &options, &m);
    CHECKF(forward_open(m.model, 64, 64, &f, &error) == ST_OK, "%s", error.text);
    uint32_t vocab = m.hyper->vocab;
    float *got = malloc((size_t)TOKENS * vocab * sizeof(float));
    CHECK(got != NULL);
    run_rows(f, &m, ids, 0, CHUNK, false, got);
    run_rows(f, &m, ids, CHUNK, TOKENS - DECODED - CHUNK, true, got + (size_t)CHUNK * vocab);
    for (uint32_t i = TOKENS - DECODED; i < TOKENS; i++)
        run_rows(f, &m, ids, i, 1, false, got + (size_t)i * vocab);
    for (uint32_t i = 0; i < TOKENS; i++)
        compare_row(got + (size_t)i * vocab, want + (size_t)i * vocab, vocab,
                    dtype == COMPUTE_KV_I8 ? 0.2f : 0.05f, &d);
    d.size = reference_distance(got, want, (size_t)TOKENS * vocab);
    if (logits_out != NULL)
        memcpy(logits_out, got, (size_t)TOKENS * vocab * sizeof(float));
    free(got);
    forward_close(f);
    device_model_close(&m);
    return d;
}

static void check_model(const char *what, const struct synthetic *s)
{
    static const enum compute_kv_dtype dtypes[] = {COMPUTE_KV_F16, COMPUTE_KV_F32, COMPUTE_KV_I16,
                                                   COMPUTE_KV_I8};
    uint32_t ids[TOKENS];
    uint8_t *image;
    struct model_file *g = synthetic_open(s, what, &image);
    synthetic_tokens(s, TOKENS, ids);
    struct reference *r = reference_open(file_gguf(g));
    float *want = malloc((size_t)TOKENS * s->vocab * sizeof(float));
    CHECK(want != NULL);
    reference_run(r, ids, TOKENS, 0, want);
    struct distance exact = run(g, true, COMPUTE_KV_F32, ids, want, NULL);
    printf("%-26s exact: %.1e of the logits' size\n", what, exact.size);
    CHECK(exact.size < 1e-4);
    enum compute_kv_dtype dtype = dtypes[s->seed % 4];
    struct distance shipped = run(g, false, dtype, ids, want, NULL);
    printf(
        "%-26s KV %s: %.1e of the logits' size, log-probabilities within %.3f, %u other tokens\n",
        what, compute_kv_dtype_name(dtype), shipped.size, shipped.logprob, shipped.greedy);
    /* The error of log-probabilities grows with the size of the logits, and random weights give
     * large logits, so this limit is wide; the default model's test has a tight one. KV of eight
     * bits for a whole head has twice the error. */
    double much = dtype == COMPUTE_KV_I8 ? 2 : 1;
    CHECK(shipped.size < 0.02 * much && shipped.logprob < 1 && shipped.greedy == 0);
    free(want);
    reference_close(r);
    model_file_close(g);
    free(image);
}

/* Folders with E4M3 weights on the device, against the same weights in fp32 on the CPU. */
static void check_f8(const char *what, enum folder_f8 form)
{
    struct folder_writer options = {.f8 = form};
    struct synthetic s = synthetic_default();
    struct error error = {0};
    struct model_file *file[2];
    uint32_t ids[TOKENS];
    uint8_t *image;
    s.hidden = 256;
    s.ffn = 384;
    s.seed = 300 + (uint64_t)form;
    struct model_file *gguf = synthetic_open(&s, what, &image);
    for (int undone = 0; undone < 2; undone++) {
        char path[] = "/tmp/cleave-f8-XXXXXX";
        options.f8_undone = undone == 1;
        CHECK(mkdtemp(path) != NULL);
        folder_write(gguf, &options, path);
        enum status status = model_file_open(path, &file[undone], &error);
        folder_remove(path); /* The mappings stay valid. */
        CHECKF(status == ST_OK, "%s", error.text);
    }
    synthetic_tokens(&s, TOKENS, ids);
    float *want = malloc((size_t)TOKENS * s.vocab * sizeof(float)), *zeros;
    const char *gpu = device;
    zeros = calloc((size_t)TOKENS * s.vocab, sizeof(float));
    CHECK(want != NULL && zeros != NULL);
    device = "cpu";
    (void)run(file[1], true, COMPUTE_KV_F32, ids, zeros, want);
    device = gpu;
    struct distance exact = run(file[0], true, COMPUTE_KV_F32, ids, want, NULL);
    struct distance shipped = run(file[0], false, COMPUTE_KV_F16, ids, want, NULL);
    printf(
        "%-26s exact %.1e, as shipped %.1e of the logits' size, log-probabilities within %.3f, %u "
        "other tokens\n",
        what, exact.size, shipped.size, shipped.logprob, shipped.greedy);
    CHECK(exact.size < 1e-4);
    CHECK(shipped.size < F8_SIZE && shipped.logprob < 1 && shipped.greedy == 0);
    free(want);
    free(zeros);
    model_file_close(file[0]);
    model_file_close(file[1]);
    model_file_close(gguf);
    free(image);
}

/* All types, or `count` consecutive types from `first` on. */
static void check_types(uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t type = (first + i) % COMPUTE_GGUF_COUNT;
        struct synthetic s = synthetic_default();
        s.hidden = 256;
        s.ffn = 512;
        s.tied = false;
        s.type = s.v_type = s.end_type = (enum compute_type)type;
        s.seed = 100 + (uint64_t)type;
        check_model(compute_type_name(s.type), &s);
    }
}

static void check_families(uint32_t first, uint32_t end)
{
    static const char *const families[5] = {"llama", "qwen2", "qwen3", "gemma3", "gemma2"};
    for (uint32_t i = first; i < end; i++) {
        struct synthetic s = synthetic_default();
        s.architecture = families[i];
        s.hidden = 128;
        s.ffn = 256;
        s.heads = 4 + 4 * (i % 2);
        s.head_dim = i == 1 ? 128 : 64;
        s.biases = i == 1;
        s.tied = i >= 3;
        s.type = s.v_type = s.end_type = COMPUTE_BF16;
        s.layers = i == 3 ? 7 : 2;
        s.seed = 1 + i;
        s.window = i >= 3 ? 11 : 0;
        s.attention_cap = i == 4 ? 3 : 0;
        s.logits_cap = i == 4 ? 5 : 0;
        check_model(families[i], &s);
    }
}

/* Experts: routing by softmax and a shared expert with a gate, and by sigmoid in groups. */
static void check_experts(void)
{
    struct synthetic s = synthetic_default();
    s.architecture = "qwen2moe";
    s.biases = true;
    s.hidden = 128;
    s.ffn = 256;
    s.head_dim = 64;
    s.experts = 8;
    s.experts_used = 3;
    s.expert_ffn = 64;
    s.shared_ffn = 96;
    s.dense_layers = 1;
    s.type = COMPUTE_Q4_0;
    s.v_type = COMPUTE_Q8_0;
    check_model("qwen2moe, Q4_0 and Q8_0", &s);
    s.sigmoid = true;
    s.expert_groups = 4;
    s.expert_groups_used = 2;
    s.type = s.v_type = COMPUTE_BF16;
    check_model("groups of experts, BF16", &s);
}

/* Latent attention, with few heads and with more than a thread block computes: queries with and
 * without a rank of their own, and both ways to store the matrix of keys and values. */
static void check_latent(uint32_t seed)
{
    struct synthetic s = synthetic_latent();
    s.hidden = 128;
    s.ffn = 192;
    s.kv_heads = 1;
    s.head_dim = 48;
    s.rope_dim = 16;
    for (uint32_t i = 0; i < 2; i++) {
        s.heads = i == 0 ? 4 : 20;
        s.latent_q_rank = i == 0 ? 0 : 32;
        s.latent_apart = i == 1;
        s.type = s.v_type = i == 0 ? COMPUTE_Q8_0 : COMPUTE_BF16;
        s.seed = seed + i;
        check_model(i == 0 ? "latent attention" : "latent attention, 20 heads", &s);
    }
}

int main(int argc, char **argv)
{
    struct error error = {0};
    struct compute_options options = {0};
    const struct compute_ops *ops;
    struct compute *c;
    setvbuf(stdout, NULL, _IOLBF, 0);
    device = argc > 1 ? argv[1] : "cuda:0";
    if (compute_device_find(device, &ops, &options, &error) != ST_OK ||
        ops->open(&options, &c, &error) != ST_OK)
        test_skip(error.text);
    printf("%s\n", ops->describe(c));
    ops->close(c);
    if (argc > 2 && strcmp(argv[2], "few") == 0) {
        const uint64_t seed = test_seed();
        const uint32_t family = (uint32_t)(random_at(seed, 0) % 5);
        check_families(family, family + 1);
        check_types((uint32_t)(random_at(seed, 1) % COMPUTE_GGUF_COUNT), 2);
        check_f8("E4M3, 128 x 128", FOLDER_F8_BLOCK);
        check_experts();
        check_latent(400 + (uint32_t)(random_at(seed, 2) % 4));
        return 0;
    }
    check_families(0, 5);
    check_types(0, COMPUTE_GGUF_COUNT);
    check_f8("E4M3, a scale a matrix", FOLDER_F8_TENSOR);
    check_f8("E4M3, a scale a row", FOLDER_F8_ROW);
    check_f8("E4M3, 128 x 128", FOLDER_F8_BLOCK);
    check_experts();
    check_latent(400);
    check_latent(402);
    return 0;
}
