/* Goal: a model on the waiting backend takes exactly the time that its device gives, for any split
 * of a batch into slabs and any rows that the last layer leaves out; it keeps no weights; every
 * way of sampling gives the one token. Method: a clock of the test that counts the sleeps and ends
 * each of them late by a random time; sums are exact. Then the computer's clock: never too early.
 */
#include "tests/check.h"
#include "tests/model/forward/ranks.h"
#include "tests/model/forward/synthetic.h"

#include "common/clock.h"
#include "common/random.h"
#include "compute/wait/wait.h"
#include "model/forward/model.h"
#include "model/forward/sampler.h"

#define LAYERS   5
#define VOCAB    512
#define ROWS_MAX 700 /* more than two slabs of the forward pass */
#define BLOCK    16
#define LAYER_NS 200000
#define ROW_NS   700

static uint64_t seed, drawn;

struct fake_time {
    int64_t now_ns;
    int64_t late_ns_max;
    uint32_t sleeps;
};

struct bench {
    struct compute *compute;
    struct model *model;
    struct forward *forward;
    struct model_kv kv;
    uint32_t blocks[ROWS_MAX / BLOCK + 1];
    float *x;
    uint32_t layers_seen;
};

static int64_t fake_now(void *self)
{
    return ((struct fake_time *)self)->now_ns;
}

static void fake_sleep(void *self, int64_t at_ns)
{
    struct fake_time *time = self;
    CHECK(at_ns > time->now_ns);
    time->sleeps++;
    time->now_ns = at_ns;
    if (time->late_ns_max > 0)
        time->now_ns += (int64_t)(random_at(seed, drawn++) % (uint64_t)time->late_ns_max);
}

/* group: this process is a rank of it; NULL: of none. */
static void bench_open_in(struct bench *b, const struct model_file *g, uint32_t first,
                          uint32_t last, int64_t layer_ns, struct ranks *group)
{
    struct error error = {""};
    const struct compute_options options = {.wait_layer_ns = layer_ns, .wait_row_ns = ROW_NS};
    *b = (struct bench){0};
    CHECK(compute_wait.open(&options, &b->compute, &error) == ST_OK);
    struct model_options model_options = {
        .ops = &compute_wait, .compute = b->compute, .first_layer = first, .end_layer = last};
    if (group != NULL) {
        ranks_join(group, &compute_wait, b->compute);
        model_options.rank = group->rank;
        model_options.rank_count = group->ranks;
    }
    CHECKF(model_open(g, &model_options, &b->model, &error) == ST_OK, "%s", error.text);
    CHECKF(forward_open(b->model, ROWS_MAX, 4, &b->forward, &error) == ST_OK, "%s", error.text);
    const struct model_hyper *h = model_hyper_get(b->model);
    b->kv = (struct model_kv){.block_tokens = BLOCK, .dtype = COMPUTE_KV_I16};
    b->kv.block_bytes = compute_kv_block_bytes(BLOCK, h->kv_head_count, h->head_dim, b->kv.dtype);
    b->kv.layer_stride_bytes = b->kv.block_bytes * (ROWS_MAX / BLOCK + 1);
    b->kv.base = calloc(LAYERS, b->kv.layer_stride_bytes);
    b->x = aligned_alloc(64, (size_t)ROWS_MAX * h->hidden * sizeof(float));
    CHECK(b->kv.base != NULL && b->x != NULL);
    for (uint32_t i = 0; i < ROWS_MAX / BLOCK + 1; i++)
        b->blocks[i] = i;
}

static void bench_open(struct bench *b, const struct model_file *g, uint32_t first, uint32_t last)
{
    bench_open_in(b, g, first, last, LAYER_NS, NULL);
}

static void bench_close(struct bench *b)
{
    free(b->x);
    free(b->kv.base);
    forward_close(b->forward);
    model_close(b->model);
    compute_wait.close(b->compute);
}

static void on_layer(void *self, uint32_t layer)
{
    struct bench *b = self;
    (void)layer;
    b->layers_seen++;
}

static const float *run(struct bench *b, uint32_t rows, uint32_t logits, bool whole)
{
    static const uint32_t ids[ROWS_MAX];
    const struct compute_sequence sequence = {.row_count = rows, .blocks = b->blocks};
    uint32_t logits_rows[4];
    const float *out;
    for (uint32_t i = 0; i < logits; i++)
        logits_rows[i] = rows - logits + i;
    const struct forward_batch batch = {
        .token_ids = ids,
        .activations = whole ? NULL : b->x,
        .batch = {.row_count = rows, .sequence_count = 1, .sequences = &sequence},
        .logits_rows = logits_rows,
        .logits_count = logits,
        .layer_done = on_layer,
        .layer_done_self = b,
    };
    forward_run(b->forward, &batch, &b->kv, &out);
    return out;
}

/* Sleeps that end in time: each batch takes what it should, to the nanosecond. */
static void check_sums(const struct model_file *g, uint32_t first, uint32_t last)
{
    static const uint32_t rows[] = {1, 3, 16, 252, 253, 600, ROWS_MAX};
    struct fake_time time = {.now_ns = 1000};
    struct bench b;
    bench_open(&b, g, first, last);
    wait_clock_set(b.compute, &(struct wait_clock){fake_now, fake_sleep, &time});
    const uint32_t layers = last - first;
    const bool whole = layers == LAYERS;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (uint32_t logits = 0; logits < 2; logits++) {
            int64_t before = time.now_ns;
            time.sleeps = b.layers_seen = 0;
            run(&b, rows[i], logits, whole);
            CHECK(time.sleeps == layers && b.layers_seen == layers);
            CHECKF(time.now_ns - before == layers * (LAYER_NS + rows[i] * (int64_t)ROW_NS),
                   "%u rows, %u logits took %" PRId64 " ns", rows[i], logits, time.now_ns - before);
            time.now_ns += 12345; /* the batch after this one comes late: nothing makes up for it */
        }
    }
    CHECK(model_weight_bytes(b.model) < 64 << 10); /* norms only */
    bench_close(&b);
}

/* Sleeps that end late: what is missing at the end is the last one's piece alone; but no more than
 * the credit is ever made up for. */
static void check_lateness(const struct model_file *g)
{
    struct fake_time time = {.now_ns = 1000, .late_ns_max = LAYER_NS};
    struct bench b;
    bench_open(&b, g, 0, LAYERS);
    wait_clock_set(b.compute, &(struct wait_clock){fake_now, fake_sleep, &time});
    const int64_t batch_ns = LAYERS * (LAYER_NS + 2 * ROW_NS);
    for (int i = 1; i <= 50; i++) {
        run(&b, 2, 1, true);
        CHECK(time.now_ns - 1000 >= i * batch_ns);
        CHECK(time.now_ns - 1000 < i * batch_ns + LAYER_NS);
    }
    run(&b, 2, 1, true);
    time.late_ns_max = 1; /* never late again, but for one long stop */
    compute_wait.layer_begin(b.compute, 1);
    int64_t before = time.now_ns;
    time.now_ns += 100 * WAIT_CREDIT_NS_MAX; /* between batches: this counts for nothing */
    run(&b, 2, 1, true);
    CHECK(time.now_ns - before > 100 * WAIT_CREDIT_NS_MAX + batch_ns - 2 * LAYER_NS);
    bench_close(&b);
}

static void check_sampling(const struct model_file *g)
{
    static float scratch[2 * VOCAB];
    struct bench b;
    bench_open(&b, g, 0, LAYERS);
    for (int round = 0; round < 2; round++) {
        const float *logits = run(&b, 600, 4, true);
        for (uint32_t row = 0; row < 4; row++) {
            for (int hot = 0; hot < 2; hot++) {
                const struct sampling sampling = {
                    .temperature = hot ? 2.0f : 0, .top_p = 1, .seed = row, .logprobs = -1};
                struct sampled sampled;
                sampler_draw(&sampling, logits + (size_t)row * VOCAB, VOCAB, row, NULL, 0, scratch,
                             &sampled);
                CHECKF(sampled.id == WAIT_TOKEN(VOCAB), "token %u", sampled.id);
            }
        }
    }
    bench_close(&b);
}

static const float *run_ten(struct bench *b)
{
    const float *logits = NULL;
    for (int i = 0; i < 10; i++)
        logits = run(b, 100, 1, true);
    return logits;
}

static void check_real_time(const struct model_file *g)
{
    struct bench b;
    bench_open(&b, g, 0, LAYERS);
    int64_t took = clock_system_ns();
    run_ten(&b);
    took = clock_system_ns() - took;
    int64_t wanted = 10 * LAYERS * (LAYER_NS + 100 * (int64_t)ROW_NS);
    printf("10 batches: %.3f ms, wanted %.3f\n", (double)took * 1e-6, (double)wanted * 1e-6);
    CHECK(took >= wanted);
    bench_close(&b);
}

/* A group is as slow as its slowest rank; rank 0 gets the token; a rank that ends is reported. */
static void rank_main(struct ranks *r, void *context)
{
    struct error error = {""};
    struct bench b;
    const int64_t slow_ns = 10 * LAYER_NS, begin_ns = clock_system_ns(); /* nobody has joined */
    bench_open_in(&b, context, 0, LAYERS, r->rank == 1 ? slow_ns : LAYER_NS, r);
    const float *logits = run_ten(&b);
    CHECK(clock_system_ns() - begin_ns >= 10 * LAYERS * (slow_ns + 100 * (int64_t)ROW_NS));
    CHECK((logits != NULL) == (r->rank == 0));
    for (uint32_t i = 0; i < VOCAB && logits != NULL; i++)
        CHECK(logits[i] == (i == WAIT_TOKEN(VOCAB) ? WAIT_LOGIT : 0));
    CHECK(compute_wait.check(b.compute, &error) == ST_OK);
    if (r->rank == 0) {
        run(&b, 1, 1, true); /* alone */
        CHECK(compute_wait.check(b.compute, &error) == ST_UNREACHABLE);
    }
    bench_close(&b);
}

int main(void)
{
    struct synthetic s = synthetic_default();
    uint8_t *image;
    seed = test_seed();
    s.layers = LAYERS;
    s.vocab = VOCAB;
    s.context = 1024;
    struct model_file *g = synthetic_open(&s, "synthetic", &image);
    check_sums(g, 0, LAYERS);
    check_sums(g, 0, 2);
    check_sums(g, 2, 3);
    check_sums(g, LAYERS - 1, LAYERS); /* a stage of the last layer alone */
    check_lateness(g);
    check_sampling(g);
    check_real_time(g);
    ranks_run(2, rank_main, g);
    model_file_close(g);
    free(image);
    return 0;
}
