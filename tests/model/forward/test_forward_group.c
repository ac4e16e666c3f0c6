/* Goal: a model shared by the ranks of a group computes what the whole model does, for any shape,
 * types and format; a row's bits depend only on the number of ranks, not on batch, chunks, threads
 * or stages; a rank holds no more than its slice; a model that cannot be split is refused by name.
 * Method: random models over 1 to 5 processes compared with the whole model, in exact mode up to
 * rounding, and as shipped up to what rounding leaves of 8 bits; the same tokens again in chunks
 * and in batches with others, to the bit; the default model, if it exists, compared with the tokens
 * of tests/data/model. */
#include "tests/check.h"
#include "tests/model/file/folder_writer.h"
#include "tests/model/forward/engine.h"
#include "tests/model/forward/greedy.h"
#include "tests/model/forward/reference.h"
#include "tests/model/forward/synthetic.h"

#include "common/random.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TOKENS       45
#define BLOCK_TOKENS 16
#define BLOCKS       4 /* of a sequence */
#define BESIDE       7 /* rows of another sequence in the same batch */

struct test {
    const char *what;
    struct model_file *file;
    uint32_t ids[TOKENS];
    float *logits[2]; /* [exact]: of the whole model, [TOKENS × vocab] */
    uint32_t vocab;
    size_t *weight_bytes; /* in shared memory: the ranks' sum */
    size_t whole_bytes;
};

static struct engine_options options_of(bool exact, struct ranks *group)
{
    return (struct engine_options){
        .threads = 1,
        .exact = exact,
        .dtype = exact ? COMPUTE_KV_F32 : COMPUTE_KV_I16,
        .block_tokens = BLOCK_TOKENS,
        .block_count = 2 * BLOCKS,
        .rows_max = 64,
        .logits_max = 64,
        .group = group,
    };
}

/* How tokens are computed: up to `count` a batch, beside others or not. */
struct way {
    uint32_t count, threads, stages;
    bool beside;
    bool scored; /* logits are asked for afterwards */
    bool tail;   /* only those of each batch's last row */
};

/* The logits of all rows, or of those, if they are this rank's. */
static void run(struct engine *e, const uint32_t *ids, const struct way *way, float *out)
{
    const uint32_t own[BLOCKS] = {0, 2, 4, 6}, other[BLOCKS] = {1, 3, 5, 7};
    const size_t vocab = e->hyper->vocab;
    for (uint32_t first = 0, part; first < TOKENS; first += part) {
        uint32_t batch_ids[64], rows[64];
        const float *logits;
        part = TOKENS - first < way->count ? TOKENS - first : way->count;
        const uint32_t more = way->beside ? BESIDE : 0; /* they come first */
        const uint32_t skipped = way->tail ? part - 1 : 0;
        for (uint32_t i = 0; i < more; i++)
            batch_ids[i] = ids[(first + 3 * i) % TOKENS];
        for (uint32_t i = 0; i < part; i++) {
            batch_ids[more + i] = ids[first + i];
            rows[i] = more + i;
        }
        const struct compute_sequence sequences[] = {
            {.row_count = more, .blocks = other},
            {.first_row = more, .row_count = part, .first_position = first, .blocks = own},
        };
        const struct forward_batch batch = {
            .token_ids = batch_ids,
            .batch = {.row_count = more + part,
                      .sequence_count = way->beside ? 2 : 1,
                      .sequences = sequences + !way->beside},
            .logits_rows = rows + skipped,
            .logits_count = way->scored ? 0 : part - skipped,
            .all_rows = way->scored,
        };
        engine_forward(e, &batch, &logits);
        if (way->scored)
            engine_logits(e, rows, part, &logits);
        CHECK((logits != NULL) == (e->shard->rank == 0));
        if (logits != NULL)
            memcpy(out + (first + skipped) * vocab, logits,
                   (part - skipped) * vocab * sizeof(float));
    }
}

/* ---- the same bits however ---- */

static const struct way whole_way = {.count = TOKENS, .threads = 1, .stages = 1};
static const struct way ways[] = {
    {.count = TOKENS, .threads = 2, .stages = 1, .scored = true},
    {.count = 1, .threads = 1, .stages = 1},
    {.count = 13, .threads = 1, .stages = 1, .beside = true},
    {.count = TOKENS, .threads = 1, .stages = 2, .beside = true},
    {.count = 5, .threads = 2, .stages = 2, .scored = true},
    {.count = 11, .threads = 1, .stages = 1, .beside = true, .tail = true},
};

static void check_ways(const struct test *t, struct ranks *r, const float *wanted)
{
    const size_t bytes = (size_t)TOKENS * t->vocab * sizeof(float);
    float *again = malloc(bytes);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        struct engine_options options = options_of(false, r);
        struct engine e;
        options.threads = ways[i].threads;
        options.stage_count = ways[i].stages;
        engine_open(t->file, &options, &e);
        memcpy(again, wanted, ways[i].tail ? bytes : 0);
        run(&e, t->ids, &ways[i], again);
        engine_close(&e);
        CHECKF(r->rank != 0 || memcmp(again, wanted, bytes) == 0, "%s: other bits, way %zu",
               t->what, i);
    }
    free(again);
}

/* ---- the numbers of the whole ---- */

/* The same token wherever it is not a tie. */
static void check_tokens(const struct test *t, const float *found, const float *wanted)
{
    for (uint32_t row = 0; row < TOKENS; row++, found += t->vocab, wanted += t->vocab) {
        uint32_t best = 0, second = 1, chosen = 0;
        for (uint32_t i = 1; i < t->vocab; i++) {
            if (wanted[i] > wanted[best])
                second = best, best = i;
            else if (second == best || wanted[i] > wanted[second])
                second = i;
            chosen = found[i] > found[chosen] ? i : chosen;
        }
        const float margin = wanted[best] - wanted[second];
        CHECKF(chosen == best || margin < 0.05f * (wanted[best] > 1 ? wanted[best] : 1),
               "%s, row %u: token %u, want %u by %g", t->what, row, chosen, best, (double)margin);
    }
}

static double distance(const struct test *t, struct ranks *r, bool exact, float *out)
{
    const struct engine_options options = options_of(exact, r);
    struct engine e;
    engine_open(t->file, &options, &e);
    if (!exact)
        __atomic_add_fetch(t->weight_bytes, model_weight_bytes(e.models[0]), __ATOMIC_SEQ_CST);
    run(&e, t->ids, &whole_way, out);
    engine_close(&e);
    if (r->rank != 0)
        return 0;
    check_tokens(t, out, t->logits[exact]);
    return reference_distance(out, t->logits[exact], (size_t)TOKENS * t->vocab);
}

static void rank_main(struct ranks *r, void *context)
{
    const struct test *t = context;
    float *out = malloc((size_t)TOKENS * t->vocab * sizeof(float));
    const double exact = distance(t, r, true, out), shipped = distance(t, r, false, out);
    if (r->ranks > 1)
        check_ways(t, r, out);
    free(out);
    if (r->rank != 0)
        return;
    printf("%-28s %u ranks: exact %.2e, as shipped %.2e of the logits' size\n", t->what, r->ranks,
           exact, shipped);
    CHECK(exact < 2e-6);
    CHECK(shipped < 2e-2);
    if (r->ranks == 1)
        CHECK(exact == 0 && shipped == 0);
}

static void whole(struct test *t, bool exact)
{
    const struct engine_options options = options_of(exact, NULL);
    struct engine e;
    engine_open(t->file, &options, &e);
    t->vocab = e.hyper->vocab;
    t->whole_bytes = model_weight_bytes(e.models[0]);
    for (uint32_t i = 0; i < TOKENS; i++)
        t->ids[i] = (uint32_t)(random_at(7, i) % t->vocab);
    t->logits[exact] = malloc((size_t)TOKENS * t->vocab * sizeof(float));
    run(&e, t->ids, &whole_way, t->logits[exact]);
    engine_close(&e);
}

static void check_file(const char *what, struct model_file *file, uint32_t first, uint32_t last)
{
    struct test t = {.what = what, .file = file};
    t.weight_bytes = mmap(NULL, sizeof(*t.weight_bytes), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    whole(&t, true);
    whole(&t, false);
    struct model_hyper hyper;
    struct error error;
    CHECK(model_hyper_read(file, &hyper, &error) == ST_OK);
    const bool latent = hyper.latent.rank != 0;
    for (uint32_t ranks = first; ranks <= last; ranks++) {
        *t.weight_bytes = 0;
        ranks_run(ranks, rank_main, &t);
        /* Norms are everybody's, and of few rows the padding shows. With latent attention, every
         * rank makes the latent vectors. */
        const size_t more = t.whole_bytes / (latent ? 2 : 4);
        CHECKF(ranks > 3 || *t.weight_bytes < t.whole_bytes + more, "%s: %zu bytes, whole %zu",
               what, *t.weight_bytes, t.whole_bytes);
    }
    munmap(t.weight_bytes, sizeof(*t.weight_bytes));
    free(t.logits[0]);
    free(t.logits[1]);
}

static void check(const char *what, const struct synthetic *s, uint32_t first, uint32_t last)
{
    uint8_t *image;
    struct model_file *file = synthetic_open(s, what, &image);
    check_file(what, file, first, last);
    model_file_close(file);
    free(image);
}

/* The same as a folder of safetensors: its own names, its own order of a head's dimensions. */
static void check_folder(const char *what, const struct synthetic *s, enum folder_f8 f8)
{
    char path[] = "/tmp/cleave-group-XXXXXX";
    const struct folder_writer writer = {.shards = 2, .f8 = f8};
    struct model_file *gguf, *folder = NULL;
    struct error error = {0};
    uint8_t *image;
    gguf = synthetic_open(s, what, &image);
    CHECK(mkdtemp(path) != NULL);
    folder_write(gguf, &writer, path);
    enum status status = model_file_open(path, &folder, &error);
    folder_remove(path); /* the mappings stay */
    CHECKF(status == ST_OK, "%s", error.text);
    check_file(what, folder, 2, 2);
    model_file_close(folder);
    model_file_close(gguf);
    free(image);
}

static void check_shapes(void)
{
    struct synthetic s = synthetic_default();
    s.layers = 3;
    check("llama", &s, 1, 2);
    s.architecture = "qwen2";
    s.biases = true;
    s.tied = false;
    s.heads = 6;
    s.kv_heads = 3;
    s.head_dim = 32;
    s.vocab = 333;
    check("qwen2, 3 KV heads", &s, 2, 3);
    s = synthetic_default();
    s.architecture = "qwen3";
    s.head_dim = 32;
    s.type = s.v_type = s.end_type = COMPUTE_BF16;
    check("qwen3, BF16", &s, 2, 2);
    check_folder("safetensors", &s, FOLDER_F8_NONE);
    s = synthetic_default();
    s.hidden = 256;
    s.ffn = 320; /* slices of 160 begin inside of a block of scales */
    check_folder("E4M3, a scale a row", &s, FOLDER_F8_ROW);
    check_folder("E4M3, a scale a block", &s, FOLDER_F8_BLOCK);
    s = synthetic_default();
    s.head_dim = 32;
    s.architecture = "gemma3";
    s.layers = 7;
    s.type = s.v_type = s.end_type = COMPUTE_Q8_0;
    check("gemma3, Q8_0", &s, 2, 2);
    s = synthetic_default();
    s.head_dim = 32;
    s.architecture = "qwen3moe";
    s.heads = s.kv_heads = 4;
    s.experts = 7; /* Ranks have different numbers of experts. */
    s.experts_used = 3;
    s.expert_ffn = 64;
    s.type = COMPUTE_Q4_0;
    check("qwen3moe, 7 experts, Q4_0", &s, 2, 4);
    s.architecture = "qwen2moe";
    s.biases = true;
    s.shared_ffn = 160;
    s.dense_layers = 1;
    s.type = COMPUTE_F32;
    check("qwen2moe, a dense layer", &s, 2, 3);
    s = synthetic_latent();
    check("latent attention", &s, 2, 4);
    s.latent_apart = true;
    s.latent_q_rank = 48;
    check("latent attention, newer file", &s, 2, 3);
    s = synthetic_default();
    s.heads = s.kv_heads = 5;
    s.head_dim = 16;
    s.ffn = 77;
    check("5 heads of 16, rows of 77", &s, 4, 5);
}

/* Columns of 256 a rank: every type's blocks fit. */
static void check_types(void)
{
    for (int type = 0; type < COMPUTE_GGUF_COUNT; type++) {
        struct synthetic s = synthetic_default();
        s.hidden = 256;
        s.head_dim = 128;
        s.ffn = 768;
        s.seed = 100 + (uint64_t)type;
        s.type = s.end_type = (enum compute_type)type;
        s.v_type = (enum compute_type)((type + 3) % COMPUTE_GGUF_COUNT);
        check(compute_type_name(s.type), &s, 2, 2);
    }
}

/* ---- what cannot be cut ---- */

static void refused(const struct synthetic *s, uint32_t rank, uint32_t ranks, const char *said)
{
    const struct compute_options compute_options = {.threads = 1};
    struct error error = {0};
    struct model_options options = {.ops = &compute_cpu, .rank = rank, .rank_count = ranks};
    struct model *m;
    uint8_t *image;
    struct model_file *file = synthetic_open(s, "synthetic", &image);
    CHECK(compute_cpu.open(&compute_options, &options.compute, &error) == ST_OK);
    CHECK(model_open(file, &options, &m, &error) == ST_INVALID);
    CHECKF(strstr(error.text, said) != NULL, "\"%s\" lacks \"%s\"", error.text, said);
    compute_cpu.close(options.compute);
    model_file_close(file);
    free(image);
}

static void check_refused(void)
{
    struct compute_ops ops = compute_cpu;
    struct synthetic s = synthetic_default();
    struct model_options options = {.ops = &ops, .rank_count = 2};
    struct error error = {0};
    struct model *m;
    uint8_t *image;
    refused(&s, 0, 3, "3 ranks: the model has 2 KV heads");
    s.hidden = 256;
    s.head_dim = 64;
    s.ffn = 512;
    s.type = COMPUTE_Q4_K; /* attention's output: 128 columns a rank */
    refused(&s, 1, 2,
            "tensor blk.0.attn_output.weight of type Q4_K: rank 1 of 2 has its columns 128 to 255, "
            "which cuts a block of 256");
    s = synthetic_default();
    s.heads = s.kv_heads = 4;
    s.experts = s.experts_used = 3;
    s.expert_ffn = 32;
    refused(&s, 0, 4, "4 ranks: the model has 3 experts in a layer");
    s = synthetic_default();
    ops.group = NULL;
    struct model_file *file = synthetic_open(&s, "synthetic", &image);
    CHECK(model_open(file, &options, &m, &error) == ST_UNSUPPORTED);
    CHECKF(strstr(error.text, "cpu have no tensor parallelism") != NULL, "%s", error.text);
    model_file_close(file);
    free(image);
}

/* ---- the default model ---- */

#define GREEDY_CASES 2
#define GREEDY_ROWS  256

static void greedy_main(struct ranks *r, void *context)
{
    const struct model_file *file = context;
    struct greedy_case *cases;
    const uint32_t count = greedy_read(&cases);
    struct engine_options options = options_of(true, r);
    struct engine e;
    uint32_t steps = 0;
    double worst = 0;
    options.rows_max = GREEDY_ROWS;
    options.block_count = GREEDY_ROWS / BLOCK_TOKENS;
    engine_open(file, &options, &e);
    for (uint32_t i = 0; i < count && i < GREEDY_CASES; i++) {
        const struct greedy_case *c = &cases[i];
        const uint32_t rows = c->prompt_count + c->step_count - 1;
        CHECK(rows <= GREEDY_ROWS && c->step_count <= options.logits_max);
        const float *logits = engine_run(&e, c->ids, rows, 0, c->prompt_count - 1);
        for (uint32_t s = 0; s < c->step_count && logits != NULL; s++, steps++) {
            struct greedy_compared compared;
            greedy_compare(&c->steps[s], logits + (size_t)s * e.hyper->vocab, e.hyper->vocab,
                           &compared);
            CHECKF(compared.best == c->ids[c->prompt_count + s], "case %u, step %u: %u, want %u", i,
                   s, compared.best, c->ids[c->prompt_count + s]);
            worst = compared.error_max > worst ? compared.error_max : worst;
        }
    }
    engine_close(&e);
    greedy_free(cases, count);
    if (r->rank != 0)
        return;
    printf("the default model, %u ranks: %u steps, log-probabilities off by up to %.6f\n", r->ranks,
           steps, worst);
    CHECK(steps > 0 && worst < 0.001);
}

int main(void)
{
    struct model_file *file;
    struct error error = {0};
    check_refused();
    check_shapes();
    check_types();
#ifdef __SANITIZE_ADDRESS__
    printf("the default model: left out under a sanitizer\n");
    return 0;
#endif
    CHECKF(model_file_open(test_model_path(), &file, &error) == ST_OK, "%s", error.text);
    for (uint32_t ranks = 2; ranks <= 3; ranks++)
        ranks_run(ranks, greedy_main, file);
    model_file_close(file);
    return 0;
}
