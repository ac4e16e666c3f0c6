/* profile_step: see the header. The engine's operations set stamps (stamps.h). Prompts are
 * measured as a machine runs them, with a report of each layer. A GPU records a decode step and
 * runs it as one; its parts are those of the same step with stamps, scaled to the recorded step's
 * time. */
#include "tools/profile/step.h"

#include "common/random.h"
#include "machine/executor/engine.h"
#include "tools/profile/cache.h"
#include "tools/profile/delay.h"
#include "tools/profile/stamps.h"

#include <assert.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RUN_BLOCKS 8     /* Number of adjacent blocks. */
#define WHOLE_RUNS 4     /* Runs until a step has been recorded and is replayed. */
#define JOIN_MS    60000 /* Time for the ranks to find each other, after all are open. */

struct profile_step {
    struct compute *compute;
    struct model *model;
    struct engine *engine;
    struct model_kv kv;
    uint32_t rows_max;
    uint32_t sequences_max;
    uint32_t block_count;
    uint32_t prompt_blocks;
    uint32_t *blocks; /* [block_count]: each id from 0 once, as scattered as in a block pool. */
    uint32_t *ids;    /* [rows_max]. */
    struct compute_sequence *sequences;
    struct engine_sample *samples;
    struct profile_step_weights weights;
    struct profile_delay delay;
    struct profile_ranks *ranks; /* NULL = this process computes whole layers. */
    bool opened;                 /* Rank 0: the other ranks wait for orders. */
    bool several;            /* Several threads or ranks, of which each can hold up the others. */
    bool alone;              /* One computing thread: its waits for a core are subtracted. */
    enum status rank_status; /* Rank 0: not ST_OK = another rank has ended. */
};

struct loading {
    struct profile_step *s;
    const struct profile_step_options *options;
};

static void on_layer_loaded(void *self, uint32_t done, uint32_t of)
{
    const struct loading *loading = self;
    struct profile_step_weights *weights = &loading->s->weights;
    weights->layer_bytes[done - 1] = profile_stamps_state.bytes;
    weights->layer_kinds[done - 1] = profile_stamps_state.layer_kind;
    profile_stamps_state.bytes = profile_stamps_state.layer_kind = 0;
    if (loading->options->progress != NULL)
        loading->options->progress(loading->options->self, done, of);
}

/* Adds to each layer its share of the norms and biases, which are not in matrices. */
static void share_vectors(struct profile_step *s)
{
    struct profile_step_weights *w = &s->weights;
    const struct model_hyper *h = model_hyper_get(s->model);
    const bool first = model_shard_get(s->model)->rank == 0; /* The other ranks repeat the norms. */
    const uint64_t final_norm = first ? h->hidden * sizeof(float) : 0;
    uint64_t all = model_weight_bytes(s->model), matrices = 0;
    w->tied = profile_stamps_state.end_count == 1;
    w->embedding_bytes = profile_stamps_state.end_bytes[0];
    w->vocabulary_bytes =
        profile_stamps_state.end_bytes[profile_stamps_state.end_count - 1] + final_norm;
    for (uint32_t i = 0; i < profile_stamps_state.end_count; i++)
        matrices += profile_stamps_state.end_bytes[i];
    for (uint32_t i = 0; i < h->layer_count; i++)
        matrices += w->layer_bytes[i];
    for (uint32_t i = 0; first && all > matrices + final_norm && i < h->layer_count; i++)
        w->layer_bytes[i] += (all - matrices - final_norm) / h->layer_count;
}

/* Adds up the sizes of all ranks' slices. */
static enum status ranks_weights(struct profile_step *s, struct error *error)
{
    enum { EMBEDDING = LIMIT_LAYERS, VOCABULARY, COUNT };
    struct profile_step_weights *w = &s->weights;
    uint64_t bytes[COUNT];
    memcpy(bytes, w->layer_bytes, sizeof(w->layer_bytes));
    bytes[EMBEDDING] = w->embedding_bytes;
    bytes[VOCABULARY] = w->vocabulary_bytes;
    if (s->ranks->rank > 0) {
        profile_ranks_weights_add(s->ranks, bytes, COUNT);
        return ST_OK;
    }
    enum status status = profile_ranks_weights_sum(s->ranks, bytes, COUNT, error);
    memcpy(w->layer_bytes, bytes, sizeof(w->layer_bytes));
    w->embedding_bytes = bytes[EMBEDDING];
    w->vocabulary_bytes = bytes[VOCABULARY];
    return status;
}

static enum status open_model(struct profile_step *s, const struct profile_step_options *options,
                              struct error *error)
{
    struct compute_options compute_options = {.threads = options->threads};
    struct model_hyper hyper;
    memset(&profile_stamps_state, 0, sizeof(profile_stamps_state));
    enum status status =
        compute_device_find(options->device, &profile_stamps_state.base, &compute_options, error);
    if (status == ST_OK)
        status = model_hyper_read(options->file, &hyper, error);
    if (status == ST_OK)
        status = profile_stamps_state.base->open(&compute_options, &s->compute, error);
    if (status != ST_OK) {
        error_prefix(error, "device %s", options->device);
        return status;
    }
    profile_stamps_set(s->compute);
    profile_stamps_state.layer_count = hyper.layer_count;
    profile_stamps_state.ends_wanted =
        model_file_tensor_find(options->file, ROLE_OUTPUT, 0) != NULL ? 2 : 1;
    struct loading loading = {.s = s, .options = options};
    const struct model_options model_options = {.ops = &profile_stamps_state.ops,
                                                .compute = s->compute,
                                                .rank = s->ranks != NULL ? s->ranks->rank : 0,
                                                .rank_count =
                                                    s->ranks != NULL ? s->ranks->count : 0,
                                                .progress = on_layer_loaded,
                                                .progress_self = &loading};
    status = model_open(options->file, &model_options, &s->model, error);
    if (status == ST_OK)
        share_vectors(s);
    if (status == ST_OK && s->ranks != NULL)
        status = ranks_weights(s, error);
    s->weights.expert_bytes = profile_stamps_state.expert_bytes;
    return status;
}

/* A block pool gives a prompt adjacent blocks, but mixes the blocks of growing answers. So runs of
 * a few blocks are shuffled here. */
static void scatter(uint32_t *blocks, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        blocks[i] = i;
    for (uint32_t run = count / RUN_BLOCKS; run > 1; run--) {
        uint32_t *one = blocks + (size_t)(run - 1) * RUN_BLOCKS;
        uint32_t *other = blocks + (size_t)(random_at(2, run) % run) * RUN_BLOCKS;
        for (uint32_t i = 0; i < RUN_BLOCKS; i++) {
            uint32_t kept = one[i];
            one[i] = other[i];
            other[i] = kept;
        }
    }
}

static enum status take_memory(struct profile_step *s, const struct profile_step_options *options,
                               struct error *error)
{
    const struct model_hyper *h = model_hyper_get(s->model);
    const uint32_t block = PROFILE_BLOCK_TOKENS;
    s->rows_max = options->rows_max;
    s->sequences_max = options->sequences_max;
    s->prompt_blocks = (options->prompt_tokens_max + block - 1) / block;
    s->block_count = (options->decode_tokens_max + block - 1) / block + options->sequences_max;
    s->block_count = s->block_count > s->prompt_blocks ? s->block_count : s->prompt_blocks;
    s->kv = (struct model_kv){.block_tokens = block, .dtype = profile_step_kv_dtype(s)};
    s->kv.block_bytes = compute_kv_block_bytes(block, model_shard_get(s->model)->kv_head_count,
                                               h->head_dim, s->kv.dtype);
    s->kv.layer_stride_bytes = s->kv.block_bytes * s->block_count;
    size_t bytes = s->kv.layer_stride_bytes * h->layer_count;
    s->blocks = calloc(s->block_count, sizeof(*s->blocks));
    s->ids = calloc(s->rows_max, sizeof(*s->ids));
    s->sequences = calloc(s->sequences_max, sizeof(*s->sequences));
    s->samples = calloc(s->sequences_max, sizeof(*s->samples));
    if (s->blocks == NULL || s->ids == NULL || s->sequences == NULL || s->samples == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    enum status status =
        profile_cache_take(profile_stamps_state.base, s->compute, bytes, &s->kv.base, error);
    if (status != ST_OK)
        return status;
    for (uint32_t i = 0; i < s->rows_max; i++)
        s->ids[i] = (uint32_t)(random_at(1, i) % h->vocab);
    scatter(s->blocks, s->block_count);
    return ST_OK;
}

/* Returns the time between two neighbouring stamps. */
static struct profile_part_time part(const struct profile_step *s, uint32_t stamp)
{
    const struct profile_stamp *from = &profile_stamps_state.stamps[stamp], *to = from + 1;
    struct profile_part_time time = {.us = (double)(to->end_ns - from->begin_ns) * 1e-3,
                                     .waited_us = to->waited_us - from->waited_us};
    if (s->alone)
        time.us = time.us > time.waited_us ? time.us - time.waited_us : 0;
    /* The waiting backend makes up for a late start. */
    time.idle_us = s->alone ? time.waited_us : 0;
    return time;
}

/* With several threads, a thread that waits in one part leaves its work to the others in the next
 * part, and its wait is not known before it runs again. So every part gets the idle share of the
 * whole step. */
static void spread_idle(const struct profile_step *s, struct profile_step_times *times)
{
    times->whole.idle_us = profile_delay_idle_us(&s->delay, times->whole.us);
    double share = times->whole.idle_us / times->whole.us;
    times->batch.idle_us = times->batch.us * share;
    times->embedding.idle_us = times->embedding.us * share;
    times->vocabulary.idle_us = times->vocabulary.us * share;
    for (uint32_t i = 0; i < profile_stamps_state.layer_count; i++)
        times->layers[i].idle_us = times->layers[i].us * share;
}

static void job_run(struct profile_step *s, struct engine_job *job)
{
    struct pollfd fd = {.fd = engine_fd(s->engine), .events = POLLIN};
    profile_stamps_state.stamp_count = 0;
    profile_stamps_state.layer = NULL;
    profile_delay_begin(&s->delay);
    profile_stamp_add();
    engine_start(s->engine, job);
    do
        poll(&fd, 1, -1);
    while (!engine_poll(s->engine).done);
    profile_stamp_add();
    if (profile_stamps_state.has_own_memory)
        profile_stamps_state.base->wait(s->compute); /* Until every mark has been reported. */
}

static void scale(struct profile_part_time *time, double factor)
{
    time->us *= factor;
}

/* Measures a step as a machine runs it (recorded, if the device records), and scales the parts to
 * it. */
static void run_whole(struct profile_step *s, struct engine_job *job,
                      struct profile_step_times *out)
{
    profile_stamps_state.no_inner_stamps = true;
    for (int i = 0; i < WHOLE_RUNS; i++) {
        const uint32_t before = profile_stamps_state.embed_count;
        job_run(s, job);
        if (profile_stamps_state.embed_count == before)
            break;
    }
    profile_stamps_state.no_inner_stamps = false;
    const double us =
        (double)(profile_stamps_state.stamps[1].end_ns - profile_stamps_state.stamps[0].begin_ns) *
        1e-3;
    const double factor = us / out->whole.us;
    scale(&out->batch, factor);
    scale(&out->embedding, factor);
    scale(&out->vocabulary, factor);
    scale(&out->whole, factor);
    for (uint32_t i = 0; i < profile_stamps_state.layer_count; i++)
        scale(&out->layers[i], factor);
}

static void run(struct profile_step *s, struct engine_job *job, struct profile_step_times *out)
{
    const uint32_t layers = profile_stamps_state.layer_count;
    job_run(s, job);
    assert(profile_stamps_state.stamp_count == PROFILE_STAMP_LAYERS + layers + 2);
    out->batch = part(s, PROFILE_STAMP_START);
    out->embedding = part(s, PROFILE_STAMP_EMBED);
    for (uint32_t i = 0; i < layers; i++)
        out->layers[i] = part(s, PROFILE_STAMP_LAYERS + i);
    out->vocabulary = part(s, PROFILE_STAMP_LAYERS + layers);
    out->whole = (struct profile_part_time){0};
    for (uint32_t i = 0; i + 1 < profile_stamps_state.stamp_count; i++) {
        struct profile_part_time time = part(s, i);
        out->whole.us += time.us;
        out->whole.waited_us += time.waited_us;
        out->whole.idle_us += time.idle_us;
    }
    if (s->several)
        spread_idle(s, out);
}

/* Lets the other ranks compute the same batch. Returns false if one of them has ended. */
static bool ranks_begin(struct profile_step *s, const struct profile_order *order)
{
    struct error error;
    if (s->ranks == NULL || s->ranks->rank > 0 || !s->opened || s->rank_status != ST_OK)
        return s->rank_status == ST_OK;
    s->rank_status = profile_ranks_order(s->ranks, order, &error);
    return s->rank_status == ST_OK;
}

static void sample_set(struct profile_step *s, uint32_t index, uint32_t row, uint32_t position)
{
    s->samples[index] = (struct engine_sample){
        .row = row,
        .choice = {.sampling = {.temperature = 1, .top_p = 1, .seed = index, .logprobs = -1},
                   .position = position,
                   .forced_token = COMPUTE_SAMPLE_DRAW}};
}

/* Makes sequence `index` generate one token, in the batch's row `row`. */
static void decode_set(struct profile_step *s, uint32_t index, uint32_t row, uint32_t context,
                       const uint32_t *blocks)
{
    s->sequences[index] = (struct compute_sequence){
        .first_row = row, .row_count = 1, .first_position = context, .blocks = blocks};
    sample_set(s, index, row, context + 1);
}

void profile_step_prompt(struct profile_step *s, uint32_t tokens, uint32_t context,
                         uint32_t decodes, struct profile_step_times *out)
{
    const uint32_t blocks_each = PROFILE_CHECK_DECODE_CONTEXT / PROFILE_BLOCK_TOKENS + 1;
    const uint32_t own_blocks =
        (context + tokens + PROFILE_BLOCK_TOKENS - 1) / PROFILE_BLOCK_TOKENS;
    assert(tokens + decodes <= s->rows_max && 1 + decodes <= s->sequences_max &&
           own_blocks <= s->prompt_blocks && own_blocks + decodes * blocks_each <= s->block_count);
    if (!ranks_begin(
            s, &(struct profile_order){
                   .kind = PROFILE_PROMPT, .rows = tokens, .context = context, .decodes = decodes}))
        return;
    s->sequences[0] = (struct compute_sequence){
        .row_count = tokens, .first_position = context, .blocks = s->blocks};
    sample_set(s, 0, tokens - 1, context + tokens);
    for (uint32_t i = 0; i < decodes; i++)
        decode_set(s, 1 + i, tokens + i, PROFILE_CHECK_DECODE_CONTEXT,
                   s->blocks + own_blocks + i * blocks_each);
    struct engine_job job = {.token_ids = s->ids,
                             .batch = {.row_count = tokens + decodes,
                                       .sequence_count = 1 + decodes,
                                       .sequences = s->sequences},
                             .sample_count = 1 + decodes,
                             .samples = s->samples};
    run(s, &job, out);
}

void profile_step_token(struct profile_step *s, uint32_t batch, uint32_t context,
                        struct profile_step_times *out)
{
    const uint32_t blocks_each = context / PROFILE_BLOCK_TOKENS + 1;
    assert(batch <= s->sequences_max && batch * blocks_each <= s->block_count);
    if (!ranks_begin(
            s, &(struct profile_order){.kind = PROFILE_TOKEN, .rows = batch, .context = context}))
        return;
    for (uint32_t i = 0; i < batch; i++)
        decode_set(s, i, i, context, s->blocks + i * blocks_each);
    struct engine_job job = {
        .token_ids = s->ids,
        .batch = {.row_count = batch, .sequence_count = batch, .sequences = s->sequences},
        .sample_count = batch,
        .samples = s->samples};
    run(s, &job, out);
    if (profile_stamps_state.has_own_memory)
        run_whole(s, &job, out);
}

/* A layer is one call, because the rows of a decode step fit one chunk. */
double profile_step_experts(struct profile_step *s, uint32_t batch, uint32_t context)
{
    struct profile_step_times unused;
    if (profile_stamps_state.routing_count == 0 || profile_stamps_state.has_own_memory)
        return 0;
    profile_stamps_state.chosen = profile_stamps_state.experts_layers = 0;
    profile_stamps_state.counts_experts = true;
    profile_step_token(s, batch, context, &unused);
    profile_stamps_state.counts_experts = false;
    return profile_stamps_state.experts_layers > 0
               ? (double)profile_stamps_state.chosen / profile_stamps_state.experts_layers
               : 0;
}

/* Fills every block with K and V of a real prompt. */
static enum status fill_cache(struct profile_step *s, struct error *error)
{
    struct profile_step_times times;
    profile_step_prompt(s, s->rows_max < PROFILE_BLOCK_TOKENS ? s->rows_max : PROFILE_BLOCK_TOKENS,
                        0, 0, &times);
    return profile_cache_fill(profile_stamps_state.base, s->compute, &s->kv,
                              profile_stamps_state.layer_count, s->block_count, s->blocks[0],
                              error);
}

/* All ranks have loaded their weights: they find each other, and wait until all have joined. */
static enum status ranks_join(struct profile_step *s, struct error *error)
{
    uint8_t id[COMPUTE_GROUP_ID_BYTES];
    struct pollfd fd = {.fd = engine_fd(s->engine), .events = POLLIN};
    enum status status = ST_OK;
    if (s->ranks == NULL)
        return ST_OK;
    if (s->ranks->rank == 0) {
        status = profile_stamps_state.base->group->id_make(s->compute, id, error);
        if (status != ST_OK)
            return status;
        profile_ranks_id_set(s->ranks, id);
    } else {
        profile_ranks_id_get(s->ranks, id);
    }
    engine_group_join(s->engine, id, s->ranks->count, JOIN_MS);
    do
        poll(&fd, 1, -1);
    while (!engine_poll(s->engine).done);
    return engine_group_joined(s->engine, error);
}

enum status profile_step_open(const struct profile_step_options *options, struct profile_step **out,
                              struct error *error)
{
    struct profile_step *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    s->ranks = options->ranks != NULL && options->ranks->count > 1 ? options->ranks : NULL;
    enum status status = open_model(s, options, error);
    if (status == ST_OK)
        status = take_memory(s, options, error);
    const struct engine_options engine_options = {.model = s->model,
                                                  .ops = &profile_stamps_state.ops,
                                                  .compute = s->compute,
                                                  .kv = s->kv,
                                                  .rows_max = options->rows_max,
                                                  .rank = s->ranks != NULL ? s->ranks->rank : 0};
    if (status == ST_OK)
        status = engine_open(&engine_options, &s->engine, error);
    if (status == ST_OK)
        status = ranks_join(s, error);
    if (status != ST_OK) {
        profile_step_close(s);
        return status;
    }
    profile_delay_open(&s->delay);
    profile_stamps_state.core_waits = &s->delay;
    const bool computes =
        profile_stamps_state.base != &compute_wait && !profile_stamps_state.has_own_memory;
    s->several = computes && (options->threads > 1 || s->ranks != NULL);
    s->alone = computes && !s->several;
    profile_stamps_state.no_inner_stamps = false;
    status = fill_cache(s, error);
    if (status != ST_OK) {
        profile_step_close(s);
        return status;
    }
    s->opened = true;
    *out = s;
    return ST_OK;
}

void profile_step_close(struct profile_step *s)
{
    if (s == NULL)
        return;
    profile_delay_close(&s->delay);
    engine_close(s->engine);
    model_close(s->model);
    if (s->kv.base != NULL)
        profile_cache_free(profile_stamps_state.base, s->compute, s->kv.base);
    if (s->compute != NULL)
        profile_stamps_state.base->close(s->compute);
    free(s->blocks);
    free(s->ids);
    free(s->sequences);
    free(s->samples);
    free(s);
}

const struct model_hyper *profile_step_hyper(const struct profile_step *s)
{
    return model_hyper_get(s->model);
}

const struct profile_step_weights *profile_step_weights(const struct profile_step *s)
{
    return &s->weights;
}

const char *profile_step_describe(const struct profile_step *s)
{
    return profile_stamps_state.base->describe(s->compute);
}

enum compute_kv_dtype profile_step_kv_dtype(const struct profile_step *s)
{
    (void)s;
    return profile_stamps_state.has_own_memory ? COMPUTE_KV_F16 : COMPUTE_KV_I16;
}

uint64_t profile_step_memory_bytes(const struct profile_step *s)
{
    uint64_t left, all = 0;
    if (!profile_stamps_state.has_own_memory)
        return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    const struct device_memory *memory = profile_stamps_state.base->device_memory(s->compute);
    memory->ops->memory_sizes(memory->self, &left, &all);
    return all;
}

enum status profile_step_check(const struct profile_step *s, struct error *error)
{
    if (s->rank_status != ST_OK)
        return error_set(error, s->rank_status, "a rank of device %s has ended",
                         profile_stamps_state.base->name);
    return profile_stamps_state.base->check(s->compute, error);
}
