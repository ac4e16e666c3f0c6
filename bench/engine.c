/* bench-engine MODEL [--threads N] [--repeats N]: tokens/s of the engine alone (model/ over
 * compute/), without machines, transport or sampling: prompts of some lengths, and decoding at some
 * batch sizes and depths.
 *
 * Every repeat runs all cases in turn, so that a slow spell of the machine hits all of them; the
 * table shows the median, the range over the repeats, and the median's and the best's part of what
 * the machine's arithmetic or memory would allow (roofline.h). A case at a depth decodes behind a
 * cache of that many real tokens, each sequence with its own copy in memory. */
#include "model/model.h"

#include "bench/roofline.h"
#include "common/clock.h"
#include "common/random.h"

#include <getopt.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_TOKENS    16
#define DEPTH_MAX       1024
#define PROMPT_MAX      2048
#define BATCH_MAX       32
#define DECODE_STEPS    32 /* of one pass; the depth of a pass is the case's to that plus this */
#define MEASURE_US_MIN  300000 /* passes repeat until a measurement has taken this long */
#define REPEATS_MAX     99
#define SEQUENCE_BLOCKS ((DEPTH_MAX + DECODE_STEPS) / BLOCK_TOKENS)

struct bench_case {
    const char *name;
    uint32_t prompt; /* tokens of the prompt; 0: decoding */
    uint32_t batch;
    uint32_t depth;
    double rates[REPEATS_MAX]; /* tokens/s */
};

static struct bench_case cases[] = {
    {.name = "prompt of 128", .prompt = 128},
    {.name = "prompt of 512", .prompt = 512},
    {.name = "prompt of 2048", .prompt = 2048},
    {.name = "1 stream, depth 0", .batch = 1},
    {.name = "1 stream, depth 1024", .batch = 1, .depth = 1024},
    {.name = "8 streams, depth 0", .batch = 8},
    {.name = "8 streams, depth 1024", .batch = 8, .depth = 1024},
    {.name = "32 streams, depth 0", .batch = 32},
    {.name = "32 streams, depth 1024", .batch = 32, .depth = 1024},
};

#define CASE_COUNT (sizeof(cases) / sizeof(cases[0]))

struct bench {
    struct gguf *g;
    struct compute *compute;
    struct model *model;
    struct forward *forward;
    struct model_kv kv;
    const struct model_hyper *hyper;
    uint32_t block_count;
    uint32_t blocks[BATCH_MAX][PROMPT_MAX / BLOCK_TOKENS]; /* one table a stream */
    uint32_t ids[PROMPT_MAX];
};

static int64_t now_us(void)
{
    return clock_now_us(&clock_system);
}

static void run_prompt(struct bench *b, uint32_t count)
{
    const struct compute_sequence sequence = {.row_count = count, .blocks = b->blocks[0]};
    const uint32_t last = count - 1;
    const struct forward_batch batch = {
        .token_ids = b->ids,
        .batch = {.row_count = count, .sequence_count = 1, .sequences = &sequence},
        .logits_rows = &last,
        .logits_count = 1,
    };
    const float *logits;
    forward_run(b->forward, &batch, &b->kv, &logits);
}

static void run_decode(struct bench *b, uint32_t streams, uint32_t depth)
{
    struct compute_sequence sequences[BATCH_MAX];
    uint32_t rows[BATCH_MAX];
    for (uint32_t step = 0; step < DECODE_STEPS; step++) {
        for (uint32_t i = 0; i < streams; i++) {
            rows[i] = i;
            sequences[i] = (struct compute_sequence){.first_row = i,
                                                     .row_count = 1,
                                                     .first_position = depth + step,
                                                     .blocks = b->blocks[i]};
        }
        const struct forward_batch batch = {
            .token_ids = b->ids + step * 3,
            .batch = {.row_count = streams, .sequence_count = streams, .sequences = sequences},
            .logits_rows = rows,
            .logits_count = streams,
        };
        const float *logits;
        forward_run(b->forward, &batch, &b->kv, &logits);
    }
}

/* Tokens per second of one measurement. */
static double measure(struct bench *b, const struct bench_case *c)
{
    uint64_t tokens = 0;
    int64_t started = now_us();
    int64_t took;
    do {
        if (c->prompt > 0)
            run_prompt(b, c->prompt);
        else
            run_decode(b, c->batch, c->depth);
        tokens += c->prompt > 0 ? c->prompt : c->batch * DECODE_STEPS;
        took = now_us() - started;
    } while (took < MEASURE_US_MIN);
    return (double)tokens * 1e6 / (double)took;
}

/* Real tokens up to DEPTH_MAX in stream 0, copied to the blocks of the others. */
static void fill_cache(struct bench *b)
{
    run_prompt(b, DEPTH_MAX);
    for (uint32_t layer = 0; layer < b->hyper->layer_count; layer++) {
        uint8_t *base = (uint8_t *)b->kv.base + layer * b->kv.layer_stride_bytes;
        for (uint32_t i = 1; i < BATCH_MAX; i++)
            for (uint32_t block = 0; block < DEPTH_MAX / BLOCK_TOKENS; block++)
                memcpy(base + b->blocks[i][block] * b->kv.block_bytes,
                       base + b->blocks[0][block] * b->kv.block_bytes, b->kv.block_bytes);
    }
}

/* Stream 0 has room for the longest prompt. The streams' blocks are interleaved, as in a busy pool.
 */
static enum status take_cache(struct bench *b, struct error *error)
{
    b->kv.block_tokens = BLOCK_TOKENS;
    b->kv.dtype = COMPUTE_KV_F16;
    b->kv.block_bytes = compute_kv_block_bytes(BLOCK_TOKENS, b->hyper->kv_head_count,
                                               b->hyper->head_dim, b->kv.dtype);
    b->block_count = 0;
    for (uint32_t block = 0; block < PROMPT_MAX / BLOCK_TOKENS; block++)
        for (uint32_t i = 0; i < (block < SEQUENCE_BLOCKS ? BATCH_MAX : 1); i++)
            b->blocks[i][block] = b->block_count++;
    b->kv.layer_stride_bytes = b->kv.block_bytes * b->block_count;
    size_t bytes = b->kv.layer_stride_bytes * b->hyper->layer_count;
    b->kv.base = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (b->kv.base == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for a cache of %zu MiB", bytes >> 20);
    memset(b->kv.base, 0, bytes); /* pages are there before the clock runs */
    return ST_OK;
}

static enum status open_bench(struct bench *b, const char *path, uint32_t threads,
                              struct error *error)
{
    const struct compute_options options = {.threads = threads};
    enum status status = gguf_open(path, &b->g, error);
    if (status == ST_OK)
        status = compute_cpu.open(&options, &b->compute, error);
    if (status != ST_OK)
        return status;
    const struct model_options model_options = {
        .ops = &compute_cpu, .compute = b->compute, .context_tokens_max = PROMPT_MAX};
    int64_t started = now_us();
    status = model_open(b->g, &model_options, &b->model, error);
    if (status != ST_OK)
        return status;
    b->hyper = model_hyper_of(b->model);
    printf("%s on %s; weights of %.1f MB loaded in %.0f ms\n", b->hyper->name,
           compute_cpu.describe(b->compute), (double)model_weight_bytes(b->model) / 1e6,
           (double)(now_us() - started) / 1e3);
    status = forward_open(b->model, PROMPT_MAX, BATCH_MAX, &b->forward, error);
    if (status == ST_OK)
        status = take_cache(b, error);
    for (uint32_t i = 0; status == ST_OK && i < PROMPT_MAX; i++)
        b->ids[i] = (uint32_t)(random_at(1, i) % b->hyper->vocab);
    return status;
}

static void close_bench(struct bench *b)
{
    free(b->kv.base);
    forward_close(b->forward);
    model_close(b->model);
    compute_cpu.close(b->compute);
    gguf_close(b->g);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Tokens/s that the roofline allows, 0 if it is not known. Attention counts as fp32, and a weight
 * is read once a pass; the second row of refined activations (model/forward.c) is work of the
 * kernels, not of the model, and does not count. */
static double bound(const struct bench *b, const struct roofline *roofline,
                    const struct bench_case *c, bool *reads)
{
    const struct model_hyper *h = b->hyper;
    double hidden = h->hidden, ffn = h->ffn, q = (double)h->head_count * h->head_dim;
    double kv = (double)h->kv_head_count * h->head_dim;
    double rows = c->prompt > 0 ? c->prompt : c->batch;
    double context = c->prompt > 0 ? (c->prompt + 1) / 2.0 : c->depth + (DECODE_STEPS + 1) / 2.0;
    double sampled = c->prompt > 0 ? 1 : c->batch, cached = c->prompt > 0 ? 0 : c->batch * context;
    double layer_ops = 2 * (hidden * (2 * q + 2 * kv) + 3 * hidden * ffn);
    double ops = rows * h->layer_count * layer_ops + sampled * 2 * hidden * h->vocab;
    double flops = rows * h->layer_count * 4 * q * context;
    double bytes = (double)model_weight_bytes(b->model) + cached * h->layer_count * 2 * kv * 2;
    double seconds = roofline_seconds(roofline, ops, flops, bytes, reads);
    return seconds > 0 ? rows / seconds : 0;
}

static void print_table(const struct bench *b, uint32_t repeats, const struct roofline *roofline)
{
    printf("at best: %.0f Gop/s of 8-bit dot products, reads of %.1f GB/s (%u threads)\n",
           roofline->dot_ops * 1e-9, roofline->read_bytes * 1e-9, roofline->threads);
    printf("%-24s %10s   %-16s %s\n", "case", "tokens/s", "range", "bound");
    for (size_t i = 0; i < CASE_COUNT; i++) {
        double *rates = cases[i].rates;
        char range[32];
        bool reads = false;
        double most = bound(b, roofline, &cases[i], &reads);
        qsort(rates, repeats, sizeof(*rates), by_value);
        snprintf(range, sizeof(range), "%.0f to %.0f", rates[0], rates[repeats - 1]);
        printf("%-24s %10.0f   %-16s", cases[i].name, rates[repeats / 2], range);
        if (most > 0)
            printf(" %.0f by %s (%.0f %%, best %.0f %%)", most, reads ? "memory" : "arithmetic",
                   100 * rates[repeats / 2] / most, 100 * rates[repeats - 1] / most);
        printf("\n");
    }
}

static int usage(void)
{
    fprintf(stderr, "usage: bench-engine MODEL [--threads N] [--repeats 1..%d]\n", REPEATS_MAX);
    return 2;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"threads", required_argument, NULL, 't'}, {"repeats", required_argument, NULL, 'r'}, {0}};
    static struct bench bench;
    struct error error = {0};
    unsigned long threads = 0, repeats = 5;
    int option;
    while ((option = getopt_long(argc, argv, "t:r:", options, NULL)) != -1) {
        if (option == 't')
            threads = strtoul(optarg, NULL, 10);
        else if (option == 'r')
            repeats = strtoul(optarg, NULL, 10);
        else
            return usage();
    }
    if (optind + 1 != argc || repeats < 1 || repeats > REPEATS_MAX || threads > 1024)
        return usage();
    cpu_set_t cores;
    if (threads == 0) /* as many as the engine takes */
        threads = sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
    if (open_bench(&bench, argv[optind], (uint32_t)threads, &error) != ST_OK) {
        fprintf(stderr, "bench-engine: %s\n", error.text);
        close_bench(&bench);
        return 1;
    }
    fill_cache(&bench);
    for (uint32_t repeat = 0; repeat < repeats; repeat++) {
        fprintf(stderr, "repeat %u of %lu\r", repeat + 1, repeats);
        for (size_t i = 0; i < CASE_COUNT; i++)
            cases[i].rates[repeat] = measure(&bench, &cases[i]);
    }
    fprintf(stderr, "                \r");
    struct roofline roofline;
    if (roofline_measure((uint32_t)threads, &roofline) == ST_OK)
        print_table(&bench, (uint32_t)repeats, &roofline);
    else
        fprintf(stderr, "bench-engine: cannot measure the roofline\n");
    close_bench(&bench);
    return 0;
}
