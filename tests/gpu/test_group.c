/* Goal: the GPUs of several processes compute a model together: the results are those of one
 * GPU, except for the rounding of sums, also with recorded steps; a rank that dies, never starts
 * or finds no NCCL is reported. Method: two and three processes, each with its emulated device
 * and the emulator's NCCL, against a plain fp32 pass; then the same steps watched, which are not
 * recorded, to the bit. */
#include "tests/check.h"
#include "tests/gpu/device_model.h"
#include "tests/model/file/file_gguf.h"
#include "tests/model/forward/reference.h"
#include "tests/model/forward/synthetic.h"

#include "common/random.h"

#include <string.h>
#include <unistd.h>

#define PROMPT       21
#define STEPS        5
#define TOKENS       (PROMPT + STEPS)
#define SEQUENCES    2
#define BLOCK_TOKENS 16
#define BLOCKS       8

struct test {
    const char *what;
    struct model_file *file;
    bool exact; /* Exact mode is tested too. */
    uint32_t vocab;
    uint32_t ids[SEQUENCES][TOKENS];
    float *wanted; /* [SEQUENCES][1 + STEPS][vocab] */
};

static struct compute_ops counted;
static void (*norm)(struct compute *c, const float *x, const uint32_t *rows_in, uint32_t row_count,
                    uint32_t cols, const float *weight, float epsilon,
                    struct compute_activations *a);
static uint32_t norms;

static void counted_norm(struct compute *c, const float *x, const uint32_t *rows_in,
                         uint32_t row_count, uint32_t cols, const float *weight, float epsilon,
                         struct compute_activations *a)
{
    norms++;
    norm(c, x, rows_in, row_count, cols, weight, epsilon, a);
}

static void on_layer(void *self, uint32_t layer)
{
    (void)self, (void)layer;
}

/* Computes rows [position, position + count) of all sequences. Returns the logits of each
 * sequence's last row. */
static const float *run_rows(const struct test *t, const struct device_model *m, struct forward *f,
                             uint32_t position, uint32_t count, bool watched)
{
    static const uint32_t tables[SEQUENCES][2] = {{3, 6}, {1, 4}};
    struct compute_sequence sequences[SEQUENCES];
    uint32_t all[SEQUENCES * PROMPT], rows[SEQUENCES];
    const float *logits;
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        sequences[i] = (struct compute_sequence){.first_row = i * count,
                                                 .row_count = count,
                                                 .first_position = position,
                                                 .blocks = tables[i]};
        memcpy(all + (size_t)i * count, t->ids[i] + position, count * sizeof(uint32_t));
        rows[i] = (i + 1) * count - 1;
    }
    const struct forward_batch batch = {
        .token_ids = all,
        .batch = {.row_count = SEQUENCES * count,
                  .sequence_count = SEQUENCES,
                  .sequences = sequences},
        .logits_rows = rows,
        .logits_count = SEQUENCES,
        .layer_done = watched ? on_layer : NULL,
    };
    forward_run(f, &batch, &m->kv, &logits);
    m->ops->wait(m->compute);
    device_model_check(m);
    return logits;
}

/* Computes a prompt, then tokens. Returns how many of the token steps were replayed. */
static uint32_t run_all(const struct test *t, const struct device_model *m, struct forward *f,
                        bool watched, float *out)
{
    uint32_t replayed = 0;
    for (uint32_t i = 0; i <= STEPS; i++) {
        const uint32_t before = norms;
        const float *logits =
            run_rows(t, m, f, i == 0 ? 0 : PROMPT + i - 1, i == 0 ? PROMPT : 1, watched);
        replayed += norms == before;
        CHECK((logits != NULL) == (model_shard_get(m->model)->rank == 0));
        for (uint32_t k = 0; k < SEQUENCES && logits != NULL; k++)
            memcpy(out + ((size_t)k * (1 + STEPS) + i) * t->vocab, logits + (size_t)k * t->vocab,
                   t->vocab * sizeof(float));
    }
    return replayed;
}

/* Runs with recorded steps, and again watched. */
static void run(const struct test *t, struct ranks *r, bool exact, float *out, float *again)
{
    const struct device_model_options options = {.device = "cuda:0",
                                                 .exact = exact,
                                                 .threads = 1,
                                                 .dtype = COMPUTE_KV_F32,
                                                 .block_tokens = BLOCK_TOKENS,
                                                 .block_count = BLOCKS,
                                                 .group = r,
                                                 .ops = &counted};
    struct device_model m;
    struct forward *f;
    struct error error = {0};
    device_model_open(t->file, &options, &m);
    CHECKF(forward_open(m.model, 64, 4, &f, &error) == ST_OK, "%s", error.text);
    const uint32_t replayed = run_all(t, &m, f, false, out);
    CHECKF(replayed == STEPS - 2, "%u steps replayed", replayed);
    CHECK(run_all(t, &m, f, true, again) == 0);
    forward_close(f);
    device_model_close(&m);
}

static void ops_count(void)
{
    const struct compute_ops *ops;
    struct compute_options options = {0};
    struct error error = {0};
    CHECKF(compute_device_find("cuda:0", &ops, &options, &error) == ST_OK, "%s", error.text);
    counted = *ops;
    norm = ops->norm;
    counted.norm = counted_norm;
}

static void rank_main(struct ranks *r, void *context)
{
    const struct test *t = context;
    const size_t count = (size_t)SEQUENCES * (1 + STEPS) * t->vocab;
    float *out = calloc(count, sizeof(float)), *again = calloc(count, sizeof(float));
    ops_count();
    for (int exact = 0; exact <= (t->exact ? 1 : 0); exact++) {
        run(t, r, exact, out, again);
        CHECKF(memcmp(out, again, count * sizeof(float)) == 0, "%s: recorded steps differ",
               t->what);
        if (r->rank != 0)
            continue;
        const double distance = reference_distance(out, t->wanted, count);
        printf("%-16s %u ranks, %s: off by %.1e of the logits' size\n", t->what, r->ranks,
               exact ? "exact" : "as shipped", distance);
        CHECK(distance < (exact ? 1e-4 : 0.03));
    }
    free(again);
    free(out);
}

static void check(const char *what, const struct synthetic *s, uint32_t ranks, bool exact)
{
    struct test t = {.what = what, .exact = exact, .vocab = s->vocab};
    uint8_t *image;
    t.file = synthetic_open(s, what, &image);
    struct reference *reference = reference_open(file_gguf(t.file));
    t.wanted = malloc((size_t)SEQUENCES * (1 + STEPS) * s->vocab * sizeof(float));
    for (uint32_t k = 0; k < SEQUENCES; k++) {
        for (uint32_t i = 0; i < TOKENS; i++)
            t.ids[k][i] = (uint32_t)(random_at(s->seed + 50 + k, i) % s->vocab);
        reference_run(reference, t.ids[k], TOKENS, PROMPT - 1,
                      t.wanted + (size_t)k * (1 + STEPS) * s->vocab);
    }
    reference_close(reference);
    ranks_run(ranks, rank_main, &t);
    free(t.wanted);
    model_file_close(t.file);
    free(image);
}

static void check_models(void)
{
    struct synthetic s = synthetic_default();
    s.hidden = 128;
    s.ffn = 256;
    s.heads = 8;
    s.kv_heads = 4;
    s.head_dim = 64;
    s.type = s.v_type = s.end_type = COMPUTE_BF16;
    check("llama, BF16", &s, 2, true);
    s.architecture = "gemma3";
    s.kv_heads = 2;
    check("gemma3, BF16", &s, 2, false);
    s.architecture = "qwen2";
    s.biases = true;
    s.tied = false;
    s.heads = 6;
    s.kv_heads = 3;
    s.type = s.v_type = s.end_type = COMPUTE_Q8_0;
    check("qwen2, Q8_0", &s, 3, false);
}

/* ---- what goes wrong ---- */

static struct compute *device_open(const struct compute_ops **ops_out)
{
    struct compute_options options = {0};
    struct error error = {0};
    struct compute *c;
    CHECKF(compute_device_find("cuda:0", ops_out, &options, &error) == ST_OK, "%s", error.text);
    CHECKF((*ops_out)->open(&options, &c, &error) == ST_OK, "%s", error.text);
    return c;
}

static void test_died(struct ranks *r, void *context)
{
    const struct compute_ops *ops;
    struct compute *c = device_open(&ops);
    struct error error = {0};
    float *y;
    (void)context;
    ranks_join(r, ops, c);
    CHECK(ops->memory_allocate(c, 64, &y) == ST_OK);
    ops->group->sum(c, 64, y);
    ops->wait(c);
    CHECKF(ops->check(c, &error) == ST_OK, "%s", error.text);
    if (r->rank == 1)
        _exit(0);
    ops->group->sum(c, 64, y);
    ops->wait(c);
    CHECK(ops->check(c, &error) == ST_IO);
    CHECKF(strstr(error.text, "NCCL: a rank of the group: a rank has died") != NULL, "%s",
           error.text);
    ops->memory_free(c, y);
    ops->close(c);
}

static void test_missing(struct ranks *r, void *context)
{
    const struct compute_ops *ops;
    struct compute *c = device_open(&ops);
    uint8_t id[COMPUTE_GROUP_ID_BYTES];
    struct error error = {0};
    (void)r, (void)context;
    CHECKF(ops->group->id_make(c, id, &error) == ST_OK, "%s", error.text);
    CHECK(ops->group->join(c, id, 0, 2, 50, &error) == ST_TIMED_OUT);
    CHECKF(strstr(error.text, "rank 0 of 2: the others have not joined within 50 ms") != NULL, "%s",
           error.text);
    CHECK(ops->check(c, &error) != ST_OK);
    _exit(0); /* NCCL still waits in another thread. */
}

static void test_no_nccl(struct ranks *r, void *context)
{
    const struct compute_ops *ops;
    uint8_t id[COMPUTE_GROUP_ID_BYTES];
    struct error error = {0};
    (void)r, (void)context;
    setenv("CLEAVE_NCCL", "/nowhere/libnccl.so.2", 1);
    struct compute *c = device_open(&ops);
    CHECK(ops->group->id_make(c, id, &error) == ST_UNSUPPORTED);
    CHECKF(strstr(error.text, "needs NCCL: /nowhere/libnccl.so.2") != NULL, "%s", error.text);
    CHECK(ops->check(c, &error) == ST_OK); /* Without a group the device computes alone. */
    ops->close(c);
}

int main(void)
{
    ranks_run(1, test_no_nccl, NULL);
    ranks_run(1, test_missing, NULL);
    ranks_run(2, test_died, NULL);
    check_models();
    return 0;
}
