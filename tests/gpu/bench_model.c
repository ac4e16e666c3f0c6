/* bench_model DEVICE SHAPE[:LAYERS] [prompts×tokens…] [ops]: how fast a model of a real shape is on
 * a device, as the machine computes it (the engine thread, sampling included): lines of "name
 * value", times in milliseconds. Weights are random bf16 (large_model.h), the KV-cache f16.
 *
 *   prompt NxT     N prompts of T tokens in one batch
 *   token N@T      one step of N sequences with T tokens behind them
 *
 *   ops            also the time of each operation, for each case (bench_ops.h)
 *
 * Each case runs once to warm up, then for at least a second and at least three times. The median
 * is printed. */
#include "common/random.h"
#include "machine/executor/engine.h"
#include "tests/check.h"
#include "tests/gpu/bench_ops.h"
#include "tests/gpu/device_model.h"
#include "tests/gpu/large_model.h"

#include <poll.h>
#include <string.h>

#define BLOCK_TOKENS 16
#define RUNS_MAX     64

struct bench {
    struct device_model m;
    struct engine *engine;
    uint32_t block_count, rows_max;
    double seconds; /* Minimum time of a measurement. */
    bool ops;       /* Measure each operation. */
};

struct work {
    bool prompt;
    uint32_t count, tokens;
};

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static bool work_read(const char *text, struct work *out)
{
    char kind;
    if (sscanf(text, "%u%c%u", &out->count, &kind, &out->tokens) != 3 ||
        (kind != 'x' && kind != '@'))
        return false;
    out->prompt = kind == 'x';
    return out->count > 0 && out->tokens > 0;
}

static double job_time(struct bench *b, struct engine_job *job)
{
    struct pollfd fd = {.fd = engine_fd(b->engine), .events = POLLIN};
    double begin = now_ms();
    engine_start(b->engine, job);
    do
        CHECK(poll(&fd, 1, 120000) == 1);
    while (!engine_poll(b->engine).done);
    return now_ms() - begin;
}

static int compare_times(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The blocks of a sequence are scattered, as they are in a pool that has been used. */
static void lay_sequences(const struct bench *b, const struct work *work, uint32_t *blocks,
                          struct compute_sequence *sequences, struct engine_sample *samples)
{
    uint32_t rows = work->prompt ? work->tokens : 1;
    uint32_t each = (work->tokens + 1 + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    for (uint32_t i = 0; i < b->block_count; i++)
        blocks[i] = i;
    for (uint32_t i = b->block_count; i > 1; i--) {
        uint32_t other = (uint32_t)(random_at(7, i) % i), kept = blocks[i - 1];
        blocks[i - 1] = blocks[other];
        blocks[other] = kept;
    }
    CHECK((uint64_t)each * work->count <= b->block_count);
    for (uint32_t i = 0; i < work->count; i++) {
        sequences[i] = (struct compute_sequence){.first_row = i * rows,
                                                 .row_count = rows,
                                                 .first_position = work->prompt ? 0 : work->tokens,
                                                 .blocks = blocks + (size_t)i * each};
        samples[i].row = i * rows + rows - 1;
        samples[i].choice = (struct compute_sample){
            .sampling = {.top_p = 1, .logprobs = -1}, /* Greedy: temperature 0. */
            .position = work->tokens,
            .forced_token = COMPUTE_SAMPLE_DRAW};
    }
}

static void measure(struct bench *b, const struct work *work)
{
    uint32_t rows = work->count * (work->prompt ? work->tokens : 1);
    uint32_t *blocks = malloc(b->block_count * sizeof(*blocks));
    uint32_t *ids = malloc(rows * sizeof(*ids));
    struct compute_sequence *sequences = calloc(work->count, sizeof(*sequences));
    struct engine_sample *samples = calloc(work->count, sizeof(*samples));
    CHECK(blocks != NULL && ids != NULL && sequences != NULL && samples != NULL);
    CHECK(rows <= b->rows_max);
    lay_sequences(b, work, blocks, sequences, samples);
    for (uint32_t i = 0; i < rows; i++)
        ids[i] = (uint32_t)(random_at(3, i) % b->m.hyper->vocab);
    struct engine_job job = {
        .token_ids = ids,
        .batch = {.row_count = rows, .sequence_count = work->count, .sequences = sequences},
        .sample_count = work->count,
        .samples = samples};
    double times[RUNS_MAX] = {0};
    uint32_t runs = 0;
    for (int i = 0; i < 3; i++) /* Warm-up: kernels are loaded, and a graph is recorded. */
        job_time(b, &job);
    double begin = now_ms();
    while (runs < 3 || (runs < RUNS_MAX && now_ms() - begin < b->seconds * 1e3))
        times[runs++] = job_time(b, &job);
    qsort(times, runs, sizeof(times[0]), compare_times);
    printf("%s %u%c%u ms %.4f min %.4f max %.4f runs %u\n", work->prompt ? "prompt" : "token",
           work->count, work->prompt ? 'x' : '@', work->tokens, times[runs / 2], times[0],
           times[runs - 1], runs);
    if (b->ops) {
        char name[32];
        snprintf(name, sizeof(name), "%u%c%u", work->count, work->prompt ? 'x' : '@', work->tokens);
        bench_ops_begin();
        job_time(b, &job);
        bench_ops_end(name);
    }
    free(samples);
    free(sequences);
    free(ids);
    free(blocks);
}

static void bench_open(struct bench *b, const char *device, const struct large_shape *shape,
                       const struct work *works, uint32_t count)
{
    struct error error = {0};
    uint32_t context = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t rows = works[i].count * (works[i].prompt ? works[i].tokens : 1);
        uint32_t blocks = works[i].count * ((works[i].tokens + BLOCK_TOKENS) / BLOCK_TOKENS);
        b->rows_max = rows > b->rows_max ? rows : b->rows_max;
        b->block_count = blocks > b->block_count ? blocks : b->block_count;
        context = works[i].tokens + 16 > context ? works[i].tokens + 16 : context;
    }
    struct model_file *g = large_model_open(shape, COMPUTE_BF16);
    const struct device_model_options options = {.device = device,
                                                 .dtype = COMPUTE_KV_F16,
                                                 .block_tokens = BLOCK_TOKENS,
                                                 .block_count = b->block_count,
                                                 .context_tokens = context,
                                                 .wrap = b->ops ? bench_ops_wrap : NULL};
    double begin = now_ms();
    device_model_open(g, &options, &b->m);
    printf("device %s\n", b->m.ops->describe(b->m.compute));
    printf("load ms %.1f\nweights %llu\n", now_ms() - begin,
           (unsigned long long)model_weight_bytes(b->m.model));
    const struct engine_options engine_options = {.model = b->m.model,
                                                  .ops = b->m.ops,
                                                  .compute = b->m.compute,
                                                  .kv = b->m.kv,
                                                  .rows_max = b->rows_max};
    CHECKF(engine_open(&engine_options, &b->engine, &error) == ST_OK, "%s", error.text);
    model_file_close(g);
}

int main(int argc, char **argv)
{
    struct bench b = {.seconds = 1};
    struct work works[16];
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 5 && strcmp(argv[1], "write") == 0) { /* write SHAPE TYPE FILE */
        CHECK(large_shape_find(argv[2]) != NULL);
        large_model_write(large_shape_find(argv[2]),
                          strcmp(argv[3], "f16") == 0 ? COMPUTE_F16 : COMPUTE_BF16, argv[4]);
        return 0;
    }
    CHECKF(argc > 3 && argc < 19, "usage: %s DEVICE SHAPE[:LAYERS] NxT|N@T… [ops]", argv[0]);
    char *layers = strchr(argv[2], ':');
    if (layers != NULL)
        *layers++ = 0;
    CHECKF(large_shape_find(argv[2]) != NULL, "no shape %s", argv[2]);
    struct large_shape some = *large_shape_find(argv[2]);
    const struct large_shape *shape = &some;
    if (layers != NULL)
        some.layers = (uint32_t)atoi(layers);
    CHECKF(some.layers > 0, "want some layers of %s", argv[2]);
    uint32_t count = 0;
    b.ops = strcmp(argv[argc - 1], "ops") == 0;
    for (int i = 3; i < argc - b.ops; i++)
        CHECKF(work_read(argv[i], &works[count++]), "%s: want NxT or N@T", argv[i]);
    bench_open(&b, argv[1], shape, works, count);
    printf("shape %s step_weights %llu kv_token_bytes %llu layers %u heads %u head_dim %u\n",
           shape->name, (unsigned long long)large_shape_weights(shape),
           (unsigned long long)(b.m.hyper->layer_count * b.m.hyper->kv_head_count *
                                compute_kv_token_bytes(b.m.hyper->head_dim, COMPUTE_KV_F16)),
           b.m.hyper->layer_count, b.m.hyper->head_count, b.m.hyper->head_dim);
    for (uint32_t i = 0; i < count; i++)
        measure(&b, &works[i]);
    engine_close(b.engine);
    device_model_check(&b.m);
    device_model_close(&b.m);
    return 0;
}
