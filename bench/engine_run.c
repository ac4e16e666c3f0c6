/* engine_run: see the header. The blocks of the streams are interleaved in memory, as in a block
 * pool that has been used for a while. Each stream has its own copy of the cached tokens. */
#include "bench/engine_run.h"

#include "common/clock.h"
#include "common/random.h"
#include "model/forward/logit_edits.h"
#include "model/forward/model.h"
#include "model/forward/sampler.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_TOKENS   16
#define DEPTH_MAX      1024
#define PROMPT_MAX     2048
#define STREAMS_MAX    32
#define MEASURE_US_MIN 250000
#define STREAM_BLOCKS  ((DEPTH_MAX + ENGINE_DECODE_STEPS) / BLOCK_TOKENS)
#define ENGINES_MAX    8

const struct engine_case engine_cases[] = {
    {.name = "prompt of 128",
     .prompt_tokens = 128,
     .goal_one_thread = 2900,
     .goal_two_threads = 5000},
    {.name = "prompt of 512",
     .prompt_tokens = 512,
     .goal_one_thread = 2500,
     .goal_two_threads = 4200},
    {.name = "prompt of 2048",
     .prompt_tokens = 2048,
     .goal_one_thread = 1900,
     .goal_two_threads = 3000},
    {.name = "1 stream, depth 0", .streams = 1, .goal_one_thread = 430, .goal_two_threads = 520},
    {.name = "1 stream, depth 1024",
     .streams = 1,
     .depth_tokens = 1024,
     .goal_one_thread = 310,
     .goal_two_threads = 350},
    {.name = "8 streams, depth 0", .streams = 8, .goal_two_threads = 3000},
    {.name = "8 streams, depth 1024", .streams = 8, .depth_tokens = 1024, .goal_two_threads = 1000},
    {.name = "32 streams, depth 0", .streams = 32, .goal_two_threads = 4300},
    {.name = "32 streams, depth 1024",
     .streams = 32,
     .depth_tokens = 1024,
     .goal_two_threads = 1100},
    {.name = "1 stream, sampled", .streams = 1, .depth_tokens = 1024, .sampling = ENGINE_SAMPLED},
    {.name = "1 stream, penalties",
     .streams = 1,
     .depth_tokens = 1024,
     .sampling = ENGINE_PENALISED},
    {.name = "8 streams, sampled", .streams = 8, .depth_tokens = 1024, .sampling = ENGINE_SAMPLED},
    {.name = "8 streams, penalties",
     .streams = 8,
     .depth_tokens = 1024,
     .sampling = ENGINE_PENALISED},
    {.name = "32 streams, sampled",
     .streams = 32,
     .depth_tokens = 1024,
     .sampling = ENGINE_SAMPLED},
    {.name = "32 streams, penalties",
     .streams = 32,
     .depth_tokens = 1024,
     .sampling = ENGINE_PENALISED},
};
const size_t engine_case_count = sizeof(engine_cases) / sizeof(engine_cases[0]);

struct engine {
    struct compute *compute;
    struct model *model;
    struct forward *forward;
};

struct engine_run {
    struct model_file *g;
    struct engine engines[ENGINES_MAX];
    uint32_t engine_count;
    const struct model_hyper *hyper;
    struct model_kv kv;
    uint32_t block_count;
    uint32_t blocks[STREAMS_MAX][PROMPT_MAX / BLOCK_TOKENS]; /* One block table per stream. */
    uint32_t ids[PROMPT_MAX];
    struct logit_editor *editor;
    float *scratch; /* Three rows of logits. */
};

static void run_prompt(struct engine_run *run, struct forward *forward, uint32_t count)
{
    const struct compute_sequence sequence = {.row_count = count, .blocks = run->blocks[0]};
    const uint32_t last = count - 1;
    const struct forward_batch batch = {
        .token_ids = run->ids,
        .batch = {.row_count = count, .sequence_count = 1, .sequences = &sequence},
        .logits_rows = &last,
        .logits_count = 1,
    };
    const float *logits;
    forward_run(forward, &batch, &run->kv, &logits);
}

/* Chooses a token as machine/executor/engine.c does. */
static void sample(struct engine_run *run, enum engine_sampling how, const float *logits,
                   uint32_t depth)
{
    const uint32_t vocab = run->hyper->vocab;
    struct sampling sampling = {.temperature = 0.8f, .top_p = 0.95f, .logprobs = -1};
    struct sampled token;
    if (how == ENGINE_PENALISED) {
        const struct sample_context context = {
            .tokens = run->ids, .token_count = depth, .prompt_count = depth / 2};
        struct logit_edits edits;
        float *row = run->scratch + 2 * (size_t)vocab;
        sampling.presence_penalty = sampling.frequency_penalty = 0.5f;
        sampling.repetition_penalty = 1.1f;
        logit_edits_make(run->editor, &sampling, &context, NULL, 0, &edits);
        logit_edits_apply(&edits, logits, vocab, row);
        logits = row;
    }
    sampler_draw(&sampling, logits, vocab, depth, NULL, 0, run->scratch, &token);
}

static void run_decode(struct engine_run *run, struct forward *forward, const struct engine_case *c)
{
    const uint32_t streams = c->streams, depth = c->depth_tokens;
    struct compute_sequence sequences[STREAMS_MAX];
    uint32_t rows[STREAMS_MAX];
    for (uint32_t step = 0; step < ENGINE_DECODE_STEPS; step++) {
        for (uint32_t i = 0; i < streams; i++) {
            rows[i] = i;
            sequences[i] = (struct compute_sequence){.first_row = i,
                                                     .row_count = 1,
                                                     .first_position = depth + step,
                                                     .blocks = run->blocks[i]};
        }
        const struct forward_batch batch = {
            .token_ids = run->ids + step * 3,
            .batch = {.row_count = streams, .sequence_count = streams, .sequences = sequences},
            .logits_rows = rows,
            .logits_count = streams,
        };
        const float *logits;
        forward_run(forward, &batch, &run->kv, &logits);
        for (uint32_t i = 0; i < streams && c->sampling != ENGINE_UNSAMPLED; i++)
            sample(run, c->sampling, logits + (size_t)i * run->hyper->vocab, depth + step);
    }
}

double engine_run_measure(struct engine_run *run, uint32_t index, const struct engine_case *c)
{
    struct forward *forward = run->engines[index].forward;
    uint64_t tokens = 0;
    int64_t started = clock_now_us(&clock_system), took;
    do {
        if (c->prompt_tokens > 0)
            run_prompt(run, forward, c->prompt_tokens);
        else
            run_decode(run, forward, c);
        tokens += c->prompt_tokens > 0 ? c->prompt_tokens : c->streams * ENGINE_DECODE_STEPS;
        took = clock_now_us(&clock_system) - started;
    } while (took < MEASURE_US_MIN);
    return (double)tokens * 1e6 / (double)took;
}

/* Computes DEPTH_MAX real tokens in stream 0 and copies them to the blocks of the other streams. */
static void fill_cache(struct engine_run *run)
{
    run_prompt(run, run->engines[run->engine_count - 1].forward, DEPTH_MAX);
    for (uint32_t layer = 0; layer < run->hyper->layer_count; layer++) {
        uint8_t *base = (uint8_t *)run->kv.base + layer * run->kv.layer_stride_bytes;
        for (uint32_t i = 1; i < STREAMS_MAX; i++)
            for (uint32_t block = 0; block < DEPTH_MAX / BLOCK_TOKENS; block++)
                memcpy(base + run->blocks[i][block] * run->kv.block_bytes,
                       base + run->blocks[0][block] * run->kv.block_bytes, run->kv.block_bytes);
    }
}

/* Stream 0 gets blocks for the longest prompt. */
static enum status take_cache(struct engine_run *run, struct error *error)
{
    const struct model_hyper *h = run->hyper;
    run->kv.block_tokens = BLOCK_TOKENS;
    run->kv.dtype = COMPUTE_KV_I16;
    run->kv.block_bytes =
        compute_kv_block_bytes(BLOCK_TOKENS, h->kv_head_count, h->head_dim, run->kv.dtype);
    for (uint32_t block = 0; block < PROMPT_MAX / BLOCK_TOKENS; block++)
        for (uint32_t i = 0; i < (block < STREAM_BLOCKS ? STREAMS_MAX : 1); i++)
            run->blocks[i][block] = run->block_count++;
    run->kv.layer_stride_bytes = run->kv.block_bytes * run->block_count;
    size_t bytes = run->kv.layer_stride_bytes * h->layer_count;
    run->kv.base = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (run->kv.base == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for a cache of %zu MiB", bytes >> 20);
    memset(run->kv.base, 0, bytes); /* Touch all pages before the measurement. */
    return ST_OK;
}

static enum status engine_open(struct engine *engine, const struct model_file *g, uint32_t threads,
                               struct error *error)
{
    const struct compute_options options = {.threads = threads};
    enum status status = compute_cpu.open(&options, &engine->compute, error);
    if (status != ST_OK)
        return status;
    const struct model_options model_options = {
        .ops = &compute_cpu, .compute = engine->compute, .context_tokens_max = PROMPT_MAX};
    status = model_open(g, &model_options, &engine->model, error);
    if (status != ST_OK)
        return status;
    return forward_open(engine->model, PROMPT_MAX, STREAMS_MAX, &engine->forward, error);
}

static enum status run_open(struct engine_run *run, const char *model, const uint32_t *threads,
                            uint32_t threads_count, struct error *error)
{
    enum status status = model_file_open(model, &run->g, error);
    if (status != ST_OK)
        return status;
    for (uint32_t i = 0; i < threads_count; i++) {
        run->engine_count++; /* Counted first, so that a partly opened engine is closed too. */
        status = engine_open(&run->engines[i], run->g, threads[i], error);
        if (status != ST_OK)
            return status;
    }
    run->hyper = model_hyper_get(run->engines[0].model);
    for (uint32_t i = 0; i < PROMPT_MAX; i++)
        run->ids[i] = (uint32_t)(random_at(1, i) % run->hyper->vocab);
    run->editor = logit_editor_open(run->hyper->vocab);
    run->scratch = malloc(3 * (size_t)run->hyper->vocab * sizeof(*run->scratch));
    if (run->editor == NULL || run->scratch == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory");
    status = take_cache(run, error);
    if (status == ST_OK)
        fill_cache(run);
    return status;
}

enum status engine_run_open(const char *model, const uint32_t *threads, uint32_t threads_count,
                            struct engine_run **out, struct error *error)
{
    if (threads_count == 0 || threads_count > ENGINES_MAX)
        return error_set(error, ST_INVALID, "%u numbers of threads: want 1 to %d", threads_count,
                         ENGINES_MAX);
    struct engine_run *run = calloc(1, sizeof(*run));
    if (run == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory");
    enum status status = run_open(run, model, threads, threads_count, error);
    if (status != ST_OK) {
        engine_run_close(run);
        return status;
    }
    *out = run;
    return ST_OK;
}

void engine_run_close(struct engine_run *run)
{
    if (run == NULL)
        return;
    free(run->kv.base);
    free(run->scratch);
    logit_editor_close(run->editor);
    for (uint32_t i = 0; i < run->engine_count; i++) {
        forward_close(run->engines[i].forward);
        model_close(run->engines[i].model);
        compute_cpu.close(run->engines[i].compute);
    }
    model_file_close(run->g);
    free(run);
}

const struct model_hyper *engine_run_hyper(const struct engine_run *run)
{
    return run->hyper;
}

size_t engine_run_weight_bytes(const struct engine_run *run)
{
    return model_weight_bytes(run->engines[0].model);
}

const char *engine_run_describe(const struct engine_run *run, uint32_t index)
{
    return compute_cpu.describe(run->engines[index].compute);
}
