/* Goal: sequences with different low-rank adapters, and without one, share batches on a GPU, and
 * get the results of the CPU: in prompts, in decode steps, and in recorded steps, whatever
 * sequences a step has. A step without adapters does no work for them.
 *
 * Method: a small synthetic model with two adapters, on the device that is the argument, in exact
 * mode against the CPU in exact mode (fp32 both), and as shipped. Steps have two of five sequences,
 * other ones each time, so one recording is used for several sets of adapters. A step that is
 * watched (layer_done) is not recorded. */
#include "tests/check.h"
#include "tests/gpu/device_model.h"
#include "tests/model/file/adapter_writer.h"
#include "tests/model/forward/reference.h"
#include "tests/model/forward/synthetic.h"

#include "common/random.h"

#include <string.h>

#define SEQUENCES    5
#define ACTIVE       2 /* Sequences of a step. */
#define STEPS        24
#define TOKENS_MAX   48
#define BLOCK_TOKENS 16
#define BLOCKS       20

static const uint32_t adapters[SEQUENCES] = {1, 2, 0, 1, 0};
static const uint32_t prompts[SEQUENCES] = {19, 3, 11, 9, 1};
/* The sequences of each step, again and again. Adapters: 1 2, 2 -, - 1, 1 1, - -, 2 1. */
static const uint32_t sets[][ACTIVE] = {{0, 1}, {1, 2}, {2, 3}, {0, 3}, {2, 4}, {1, 3}};
#define SETS (sizeof(sets) / sizeof(sets[0]))

static uint32_t ids[SEQUENCES][TOKENS_MAX], tables[SEQUENCES][4];

/* ---- a device whose norms and adapters are counted ---- */

static const struct compute_ops *base_ops;
static struct compute_ops counted_ops;
static uint32_t norms, products;

static void counted_norm(struct compute *c, const float *x, const uint32_t *rows_in,
                         uint32_t row_count, uint32_t cols, const float *weight, float epsilon,
                         struct compute_activations *a)
{
    norms++;
    base_ops->norm(c, x, rows_in, row_count, cols, weight, epsilon, a);
}

static void counted_low_rank(struct compute *c, const struct compute_low_ranks *ranks,
                             const struct compute_batch *batch, const struct compute_activations *a,
                             float *y)
{
    products++;
    base_ops->low_rank(c, ranks, batch, a, y);
}

static const struct compute_ops *counted(const struct compute_ops *ops)
{
    base_ops = ops;
    counted_ops = *ops;
    counted_ops.norm = counted_norm;
    counted_ops.low_rank = counted_low_rank;
    return &counted_ops;
}

/* ---- runs ---- */

static void on_layer(void *self, uint32_t layer)
{
    (void)self, (void)layer;
}

/* Runs one batch of `count` sequences, and returns the logits of their last rows. */
static void run_batch(struct forward *f, const struct device_model *m, const uint32_t *which,
                      uint32_t count, const uint32_t *positions, const uint32_t *rows, bool watched,
                      bool adapted, float *logits_out)
{
    struct compute_sequence sequences[SEQUENCES];
    uint32_t all[SEQUENCES * TOKENS_MAX], last[SEQUENCES], row = 0;
    const float *logits;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t s = which[i];
        sequences[i] = (struct compute_sequence){.first_row = row,
                                                 .row_count = rows[s],
                                                 .first_position = positions[s],
                                                 .adapter = adapted ? adapters[s] : 0,
                                                 .blocks = tables[s]};
        memcpy(all + row, ids[s] + positions[s], rows[s] * sizeof(uint32_t));
        row += rows[s];
        last[i] = row - 1;
    }
    const struct forward_batch batch = {
        .token_ids = all,
        .batch = {.row_count = row, .sequence_count = count, .sequences = sequences},
        .logits_rows = last,
        .logits_count = count,
        .layer_done = watched ? on_layer : NULL,
    };
    forward_run(f, &batch, &m->kv, &logits);
    m->ops->wait(m->compute);
    device_model_check(m);
    memcpy(logits_out, logits, (size_t)count * m->hyper->vocab * sizeof(float));
}

struct result {
    float *logits; /* [SEQUENCES + STEPS * ACTIVE][vocab] */
    size_t count;
    uint32_t replayed; /* Steps without operations. */
};

static struct result run(const struct model_file *file, const char *device, bool exact,
                         bool watched, bool adapted)
{
    static const uint32_t all[SEQUENCES] = {0, 1, 2, 3, 4}, zero[SEQUENCES];
    static const uint32_t one[SEQUENCES] = {1, 1, 1, 1, 1};
    struct device_model m;
    struct forward *f;
    struct error error = {0};
    uint32_t positions[SEQUENCES];
    const struct device_model_options options = {.device = device,
                                                 .threads = 2,
                                                 .exact = exact,
                                                 .dtype = exact ? COMPUTE_KV_F32 : COMPUTE_KV_I16,
                                                 .block_tokens = BLOCK_TOKENS,
                                                 .block_count = BLOCKS,
                                                 .wrap = counted};
    device_model_open(file, &options, &m);
    CHECKF(forward_open(m.model, 64, 64, &f, &error) == ST_OK, "%s", error.text);
    const size_t vocab = m.hyper->vocab;
    struct result r = {.count = (SEQUENCES + STEPS * ACTIVE) * vocab};
    r.logits = malloc(r.count * sizeof(float));
    CHECK(r.logits != NULL);
    products = 0;
    run_batch(f, &m, all, SEQUENCES, zero, prompts, watched, adapted, r.logits);
    CHECK((products > 0) == adapted);
    memcpy(positions, prompts, sizeof(positions));
    for (uint32_t step = 0; step < STEPS; step++) {
        const uint32_t *which = sets[step % SETS], before = norms;
        const bool any = adapted && (adapters[which[0]] != 0 || adapters[which[1]] != 0);
        products = 0;
        run_batch(f, &m, which, ACTIVE, positions, one, watched, adapted,
                  r.logits + (SEQUENCES + step * ACTIVE) * vocab);
        r.replayed += norms == before;
        CHECK(products == 0 || any);
        CHECK(norms == before || (products > 0) == any);
        for (uint32_t i = 0; i < ACTIVE; i++)
            positions[which[i]]++;
    }
    forward_close(f);
    device_model_close(&m);
    return r;
}

/* ---- the model ---- */

static struct model_file *open_model(const struct synthetic *s, uint8_t **image_out)
{
    struct adapter_writer w = {.layers = s->layers,
                               .hidden = s->hidden,
                               .ffn = s->ffn,
                               .q = s->heads * s->head_dim,
                               .kv = s->kv_heads * s->head_dim,
                               .rank = 5,
                               .alpha = 8,
                               .seed = s->seed + 1};
    struct model_file *file = synthetic_open(s, "synthetic", image_out);
    adapter_writer_add(&w, file, "all");
    w.rank = 12;
    w.only_q_v = w.root_scale = true;
    w.seed++;
    adapter_writer_add(&w, file, "some");
    return file;
}

static void check(const struct model_file *file, const char *device)
{
    const struct result cpu = run(file, "cpu", true, false, true);
    const struct result without = run(file, "cpu", true, false, false);
    const struct result exact = run(file, device, true, false, true);
    const struct result watched = run(file, device, true, true, true);
    const struct result shipped = run(file, device, false, false, true);
    const double much = reference_distance(without.logits, cpu.logits, cpu.count);
    const double apart = reference_distance(exact.logits, cpu.logits, cpu.count);
    const double recorded = reference_distance(exact.logits, watched.logits, cpu.count);
    const double rounded = reference_distance(shipped.logits, cpu.logits, cpu.count);
    printf("adapters change %.2f of the logits' size; exact %.1e, recorded %.1e, as shipped %.1e "
           "apart; %u of %u steps replayed\n",
           much, apart, recorded, rounded, exact.replayed, STEPS);
    CHECK(much > 0.1);
    CHECK(apart < 1e-4 && recorded < 1e-5 && rounded < 0.02);
    /* Two shapes, with and without adapters: each is plain once and recorded once. */
    CHECK(watched.replayed == 0 && exact.replayed == STEPS - 4);
    free(cpu.logits);
    free(without.logits);
    free(exact.logits);
    free(watched.logits);
    free(shipped.logits);
}

int main(int argc, char **argv)
{
    struct synthetic s = synthetic_default();
    struct error error = {0};
    struct compute_options options = {0};
    const struct compute_ops *ops;
    struct compute *c;
    uint8_t *image;
    const char *device = argc > 1 ? argv[1] : "cuda:0";
    if (compute_device_find(device, &ops, &options, &error) != ST_OK ||
        ops->open(&options, &c, &error) != ST_OK)
        test_skip(error.text);
    ops->close(c);
    s.hidden = 128;
    s.ffn = 192;
    s.head_dim = 64;
    s.type = s.v_type = COMPUTE_Q8_0;
    s.end_type = COMPUTE_BF16;
    s.seed = test_seed();
    struct model_file *file = open_model(&s, &image);
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        for (uint32_t k = 0; k < TOKENS_MAX; k++)
            ids[i][k] = (uint32_t)(random_at(s.seed, i * 100 + k) % s.vocab);
        for (uint32_t k = 0; k < 4; k++)
            tables[i][k] = (i * 4 + k) * 7 % BLOCKS;
    }
    check(file, device);
    model_file_close(file);
    free(image);
    return 0;
}
