/* Goal: what a device stores late counts for the batch that it belongs to. A batch that is given up
 * after some of its layers leaves no mark ("K and V of the layers before N are stored") that the
 * engine reports during the next batch, whose KV would then be sent before it is computed.
 *
 * Method: the CPU as a device that reports its marks only when it is waited for, or when the test
 * says so, as a slow GPU does. The first batch is given up after its first layer. The second batch
 * is held before its first operation; there the device reports the marks that it still has. Then
 * the second batch ends, with the same token as on an engine that has given up nothing. Nothing
 * depends on time: the two threads wait for each other. */
#include "compute/cpu/cpu.h"
#include "machine/executor/engine.h"
#include "model/file/model_file.h"
#include "tests/check.h"
#include "tests/model/forward/synthetic.h"

#include <poll.h>
#include <semaphore.h>
#include <string.h>

#define LAYERS       4
#define TOKENS       24
#define BLOCK_TOKENS 16
#define BLOCKS       2
#define MARKS_MAX    (2 * LAYERS)

struct mark {
    uint32_t number;
    void (*done)(void *self, uint32_t number);
    void *self;
};

/* The device's marks that are not reported yet. The engine thread or the test's thread uses them,
 * never both: each waits for the other's semaphore. */
static struct mark marks[MARKS_MAX];
static uint32_t mark_count;
/* If `holds`, the engine's thread posts `held` at the first operation of a batch and after each
 * mark, and waits for `go`. */
static bool holds;
static sem_t held, go;

static void hold(void)
{
    if (!holds)
        return;
    CHECK(sem_post(&held) == 0);
    while (sem_wait(&go) != 0)
        continue;
}

static void held_wait(void)
{
    while (sem_wait(&held) != 0)
        continue;
}

static void marks_report(void)
{
    for (uint32_t i = 0; i < mark_count; i++)
        marks[i].done(marks[i].self, marks[i].number);
    mark_count = 0;
}

static void late_mark(struct compute *c, uint32_t number, void (*done)(void *self, uint32_t number),
                      void *self)
{
    (void)c;
    CHECK(mark_count < MARKS_MAX);
    marks[mark_count++] = (struct mark){number, done, self};
    hold();
}

static void late_wait(struct compute *c)
{
    compute_cpu.wait(c);
    marks_report();
}

static void late_embed(struct compute *c, const struct compute_matrix *m, const uint32_t *ids,
                       uint32_t count, float *y)
{
    hold();
    compute_cpu.embed(c, m, ids, count, y);
}

struct batch {
    struct engine_job job;
    struct engine_sample sample;
    struct compute_sequence sequence;
    uint32_t blocks[BLOCKS];
    uint32_t ids[TOKENS];
};

/* `first` says which tokens the prompt has; the answer's first token is sampled. */
static void batch_start(struct engine *engine, struct batch *batch, uint32_t first)
{
    memset(batch, 0, sizeof(*batch));
    for (uint32_t i = 0; i < TOKENS; i++)
        batch->ids[i] = first + i;
    for (uint32_t i = 0; i < BLOCKS; i++)
        batch->blocks[i] = i;
    batch->sequence = (struct compute_sequence){.row_count = TOKENS, .blocks = batch->blocks};
    batch->sample = (struct engine_sample){
        .row = TOKENS - 1,
        .choice = {.sampling = {.top_p = 1, .logprobs = 0},
                   .position = TOKENS,
                   .forced_token = COMPUTE_SAMPLE_DRAW},
    };
    batch->job = (struct engine_job){
        .token_ids = batch->ids,
        .batch = {.row_count = TOKENS, .sequence_count = 1, .sequences = &batch->sequence},
        .sample_count = 1,
        .samples = &batch->sample,
        .report_layers = true,
    };
    engine_start(engine, &batch->job);
}

/* Returns the progress at the job's end. */
static struct engine_progress end_wait(struct engine *engine)
{
    for (;;) {
        struct pollfd news = {.fd = engine_fd(engine), .events = POLLIN};
        CHECK(poll(&news, 1, -1) == 1);
        struct engine_progress progress = engine_poll(engine);
        if (progress.done)
            return progress;
    }
}

static void check_token(const struct batch *batch, const struct sampled *want)
{
    CHECKF(batch->sample.result.id == want->id && batch->sample.result.logprob == want->logprob,
           "token %u with log-probability %.9g, want %u with %.9g", batch->sample.result.id,
           (double)batch->sample.result.logprob, want->id, (double)want->logprob);
}

/* Gives up a batch after its first layer. */
static void batch_abandon(struct engine *engine, struct batch *batch)
{
    holds = true;
    batch_start(engine, batch, 1);
    held_wait(); /* Before its first operation. */
    CHECK(sem_post(&go) == 0);
    held_wait(); /* The first layer is computed. */
    CHECK(mark_count == 1 && engine_poll(engine).stored_layers == 0);
    engine_abandon(engine);
    holds = false;
    CHECK(sem_post(&go) == 0);
    end_wait(engine);
    CHECK(batch->job.abandoned);
}

static void check_abandoned(struct engine *engine, const struct sampled *want)
{
    struct batch given_up, next;
    batch_abandon(engine, &given_up);
    holds = true;
    batch_start(engine, &next, 100);
    held_wait(); /* Before its first operation: no layer of this batch is computed. */
    marks_report();
    uint32_t stored = engine_poll(engine).stored_layers;
    CHECKF(stored == 0, "%u layers of the next batch are reported as stored before it computes",
           stored);
    holds = false;
    CHECK(sem_post(&go) == 0);
    CHECK(end_wait(engine).stored_layers == LAYERS);
    CHECK(!next.job.abandoned);
    check_token(&next, want);
}

static struct model_kv kv_make(const struct model_hyper *hyper)
{
    struct model_kv kv = {.block_tokens = BLOCK_TOKENS, .dtype = COMPUTE_KV_I16};
    kv.block_bytes =
        compute_kv_block_bytes(BLOCK_TOKENS, hyper->kv_head_count, hyper->head_dim, kv.dtype);
    kv.layer_stride_bytes = BLOCKS * kv.block_bytes;
    CHECK(posix_memalign(&kv.base, 4096, LAYERS * kv.layer_stride_bytes) == 0);
    memset(kv.base, 0, LAYERS * kv.layer_stride_bytes);
    return kv;
}

/* Opens compute device and model; the caller closes both. */
static struct model *model_make(const struct compute_ops *ops, struct compute **compute)
{
    struct synthetic s = synthetic_default();
    const struct compute_options compute_options = {.threads = 1};
    struct model *model;
    struct error error = {0};
    uint8_t *image;
    s.layers = LAYERS;
    struct model_file *file = synthetic_open(&s, "synthetic", &image);
    CHECKF(ops->open(&compute_options, compute, &error) == ST_OK, "%s", error.text);
    const struct model_options options = {.ops = ops, .compute = *compute};
    CHECKF(model_open(file, &options, &model, &error) == ST_OK, "%s", error.text);
    model_file_close(file);
    free(image);
    return model;
}

int main(void)
{
    struct compute_ops ops = compute_cpu;
    ops.mark = late_mark;
    ops.wait = late_wait;
    ops.embed = late_embed;
    CHECK(sem_init(&held, 0, 0) == 0 && sem_init(&go, 0, 0) == 0);
    struct compute *compute;
    struct model *model = model_make(&ops, &compute);
    struct engine_options options = {.model = model,
                                     .ops = &ops,
                                     .compute = compute,
                                     .kv = kv_make(model_hyper_get(model)),
                                     .rows_max = TOKENS};
    struct engine *engine;
    struct error error = {0};
    CHECKF(engine_open(&options, &engine, &error) == ST_OK, "%s", error.text);
    struct batch whole;
    batch_start(engine, &whole, 100);
    CHECK(end_wait(engine).stored_layers == LAYERS && !whole.job.abandoned);
    const struct sampled want = whole.sample.result;
    for (int i = 0; i < 3; i++)
        check_abandoned(engine, &want);
    engine_close(engine);
    free(options.kv.base);
    model_close(model);
    compute_cpu.close(compute);
    sem_destroy(&held);
    sem_destroy(&go);
    printf("ok\n");
    return 0;
}
