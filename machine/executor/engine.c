/* engine: jobs are handed to the thread with a semaphore (a futex: no system call while the engine
 * is awake), and results come back through an atomic word and an eventfd. */
#include "machine/executor/engine.h"

#include "common/clock.h"
#include "common/log.h"
#include "host/child.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Logit rows computed at a time: 32 × 49152 × 4 bytes are 6 MiB. More rows take several rounds. On
 * a device with its own memory each round would read the vocabulary's weights again, and memory is
 * available, so a round is larger. */
#define LOGITS_ROWS        32
#define LOGITS_ROWS_DEVICE 256

/* Rows of floats, as long as a row of logits, that one sampler works in: two for sampler_draw, and
 * the edited logits. */
#define SCRATCH_ROWS 3

/* Chooses tokens from rows of logits, or scores known tokens: on the host or on the device. */
struct chooser {
    uint32_t rows; /* Most rows of a call. */
    void (*sample)(struct engine *engine, struct engine_sample *samples, uint32_t count,
                   const float *logits);
    /* The tokens' log-probabilities, and `logprobs` alternatives, go to results[0..count). */
    void (*score)(struct engine *engine, const uint32_t *ids, int32_t logprobs, uint32_t count,
                  const float *logits, struct sampled *results);
};

struct engine {
    struct engine_options options;
    struct forward *forward;
    const struct chooser *chooser;
    struct compute_sample *wanted; /* [chooser->rows]; used for a device that samples. */
    struct compute_sampled *found;
    struct compute_edit *edits; /* [edit_capacity]: the edits of `wanted`. NULL = none yet. */
    uint32_t edit_count;
    uint32_t edit_capacity;
    /* [LOGITS_ROWS]: logits copied from a device; NULL = the host can read the device's logits. */
    float *host_rows;
    float *scratch; /* Working memory of the samplers, SCRATCH_ROWS each, one after the other. */
    struct logit_editor **editors; /* [samplers] */
    uint32_t samplers;
    uint32_t vocab;
    int fd;
    pthread_t thread;
    sem_t started;
    bool stop;              /* Set before `started` is posted. */
    struct engine_job *job; /* Set before `started` is posted; NULL = join the group. */
    struct {
        uint8_t id[COMPUTE_GROUP_ID_BYTES];
        uint32_t ranks;
        uint32_t timeout_ms;
        enum status status; /* Result of joining. */
        struct error error;
    } group;
    atomic_uint layers;
    atomic_bool done;
    atomic_bool abandon; /* See engine_abandon. */
};

static void wake_loop(struct engine *engine)
{
    uint64_t one = 1;
    ssize_t written = write(engine->fd, &one, sizeof(one));
    assert(written == sizeof(one));
}

/* K and V of the layers before `end` are stored. Called on a thread of the device, if the device
 * has threads. */
static void layers_stored(void *self, uint32_t end)
{
    struct engine *engine = self;
    atomic_store_explicit(&engine->layers, end, memory_order_release);
    wake_loop(engine);
}

static void on_layer(void *self, uint32_t layer)
{
    struct engine *engine = self;
    if (engine->job->report_layers)
        engine->options.ops->mark(engine->options.compute, layer + 1, layers_stored, engine);
    turns_yield(engine->options.turns);
}

struct draw { /* Rows to be sampled, divided into shares. */
    struct engine *engine;
    struct engine_sample *samples;
    uint32_t count;
    uint32_t shares;
    const float *logits;
};

/* Draws from logits that were edited or masked. The log-probabilities are those of the logits that
 * were not edited. */
static void draw_edited(const struct engine *engine, struct logit_editor *editor,
                        struct engine_sample *sample, const float *logits, float *scratch)
{
    const uint32_t vocab = engine->vocab;
    struct compute_sample *wanted = &sample->choice;
    struct sampling sampling = wanted->sampling;
    struct logit_edits edits;
    float *row = scratch + 2 * (size_t)vocab;
    const float *from = logits;
    if (logit_edits_wanted(&sample->context)) {
        logit_edits_make(editor, &sampling, &sample->context, wanted->masked, wanted->masked_count,
                         &edits);
        logit_edits_apply(&edits, logits, vocab, row);
        from = row;
    }
    if (sample->allowed != NULL)
        sampler_mask(from, vocab, sample->allowed, row);
    sampling.logprobs = -1;
    sampler_draw(&sampling, row, vocab, wanted->position, wanted->masked, wanted->masked_count,
                 scratch, &sample->result);
    if (wanted->sampling.logprobs >= 0)
        sampler_score(logits, vocab, sample->result.id, wanted->sampling.logprobs, &sample->result);
}

static void draw_share(void *context, uint32_t share)
{
    const struct draw *draw = context;
    const struct engine *engine = draw->engine;
    float *scratch = engine->scratch + SCRATCH_ROWS * (size_t)engine->vocab * share;
    uint32_t end = draw->count * (share + 1) / draw->shares;
    for (uint32_t i = draw->count * share / draw->shares; i < end; i++) {
        struct engine_sample *sample = &draw->samples[i];
        const float *logits = draw->logits + (size_t)i * engine->vocab;
        if (logit_edits_wanted(&sample->context) || sample->allowed != NULL)
            draw_edited(engine, engine->editors[share], sample, logits, scratch);
        else
            sampler_draw(&sample->choice.sampling, logits, engine->vocab, sample->choice.position,
                         sample->choice.masked, sample->choice.masked_count, scratch,
                         &sample->result);
    }
}

/* Samples on all threads of the device: a row takes 7 to 90 us, during which the other threads
 * would wait. */
static void sample_host(struct engine *engine, struct engine_sample *samples, uint32_t count,
                        const float *logits)
{
    const struct compute_ops *ops = engine->options.ops;
    struct draw draw = {.engine = engine, .samples = samples, .count = count, .logits = logits};
    draw.shares = count < engine->samplers ? count : engine->samplers;
    if (draw.shares > 1)
        ops->lanes->run(engine->options.compute, draw.shares, draw_share, &draw);
    else if (draw.shares == 1)
        draw_share(&draw, 0);
}

/* Returns up to LOGITS_ROWS rows of logits that the host can read, valid until the next call. */
static const float *logits_read(const struct engine *engine, const float *logits, uint32_t count)
{
    if (engine->host_rows == NULL)
        return logits;
    engine->options.ops->memory_read(engine->options.compute, engine->host_rows, logits,
                                     (size_t)count * engine->vocab * sizeof(float));
    return engine->host_rows;
}

static_assert(LOGITS_ROWS_DEVICE <= COMPUTE_SAMPLES_MAX, "a device draws them at once");

/* Chooses engine->found for engine->wanted. */
static void sample_device(struct engine *engine, uint32_t count, const float *logits)
{
    /* The logits are the device's own memory, written by the forward pass. */
    engine->options.ops->sampling->sample(engine->options.compute, (float *)(uintptr_t)logits,
                                          engine->vocab, engine->wanted, count, engine->edits,
                                          engine->edit_count, engine->found);
}

/* Adds the row's edits to engine->edits. Returns false if the host must choose the token: a list of
 * allowed tokens is no edit, or there is no memory. */
static bool edits_add(struct engine *engine, struct engine_sample *sample,
                      struct compute_sample *wanted)
{
    struct logit_edits edits;
    if (!logit_edits_wanted(&sample->context))
        return true;
    logit_edits_make(engine->editors[0], &wanted->sampling, &sample->context, wanted->masked,
                     wanted->masked_count, &edits);
    if (edits.allowed_count > 0)
        return false;
    uint32_t needed = engine->edit_count + edits.count;
    if (needed > engine->edit_capacity) {
        struct compute_edit *more = realloc(engine->edits, 2 * (size_t)needed * sizeof(*more));
        if (more == NULL)
            return false;
        engine->edits = more;
        engine->edit_capacity = 2 * needed;
    }
    if (edits.count > 0)
        memcpy(engine->edits + engine->edit_count, edits.edits,
               edits.count * sizeof(*engine->edits));
    wanted->edit_first = engine->edit_count;
    wanted->edit_count = edits.count;
    engine->edit_count = needed;
    return true;
}

static void sample_rows_host(struct engine *engine, struct engine_sample *samples, uint32_t count,
                             const float *logits)
{
    sample_host(engine, samples, count, logits_read(engine, logits, count));
}

static void score_rows_host(struct engine *engine, const uint32_t *ids, int32_t logprobs,
                            uint32_t count, const float *logits, struct sampled *results)
{
    logits = logits_read(engine, logits, count);
    for (uint32_t i = 0; i < count; i++)
        sampler_score(logits + (size_t)i * engine->vocab, engine->vocab, ids[i], logprobs,
                      &results[i]);
}

static const struct chooser host_chooser = {LOGITS_ROWS, sample_rows_host, score_rows_host};

/* Samples on the device that has the logits, except for rows that the device leaves to the host,
 * and rows with a mask. */
static void sample_rows_device(struct engine *engine, struct engine_sample *samples, uint32_t count,
                               const float *logits)
{
    const struct compute_sampled *found = engine->found;
    bool on_host[LOGITS_ROWS_DEVICE];
    engine->edit_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        engine->wanted[i] = samples[i].choice;
        on_host[i] = !edits_add(engine, &samples[i], &engine->wanted[i]);
    }
    sample_device(engine, count, logits);
    for (uint32_t i = 0; i < count; i++) {
        if (found[i].undecided || on_host[i] || samples[i].allowed != NULL)
            sample_rows_host(engine, &samples[i], 1, logits + (size_t)i * engine->vocab);
        else
            samples[i].result = found[i].sampled;
    }
}

static void score_rows_device(struct engine *engine, const uint32_t *ids, int32_t logprobs,
                              uint32_t count, const float *logits, struct sampled *results)
{
    const struct compute_sampled *found = engine->found;
    engine->edit_count = 0;
    for (uint32_t i = 0; i < count; i++)
        engine->wanted[i] = (struct compute_sample){.sampling = {.top_p = 1, .logprobs = logprobs},
                                                    .forced_token = ids[i]};
    sample_device(engine, count, logits);
    for (uint32_t i = 0; i < count; i++) {
        if (found[i].undecided)
            score_rows_host(engine, &ids[i], logprobs, 1, logits + (size_t)i * engine->vocab,
                            &results[i]);
        else
            results[i] = found[i].sampled;
    }
}

static const struct chooser device_chooser = {LOGITS_ROWS_DEVICE, sample_rows_device,
                                              score_rows_device};

/* A rank other than 0 takes part in computing the logits, but does not have them. */
static bool has_logits(const struct engine *engine)
{
    return engine->options.rank == 0;
}

static void sample_rows(struct engine *engine, struct engine_sample *samples, uint32_t count,
                        const float *logits)
{
    if (has_logits(engine) && count > 0)
        engine->chooser->sample(engine, samples, count, logits);
}

static void score_rows(struct engine *engine, const struct engine_score *score)
{
    uint32_t rows[LOGITS_ROWS_DEVICE];
    const float *logits;
    for (uint32_t at = 0, count; at < score->row_count; at += count) {
        uint32_t left = score->row_count - at;
        count = left < engine->chooser->rows ? left : engine->chooser->rows;
        for (uint32_t i = 0; i < count; i++)
            rows[i] = score->first_row + at + i;
        forward_logits(engine->forward, rows, count, &logits);
        if (has_logits(engine))
            engine->chooser->score(engine, score->next_ids + at, score->logprobs, count, logits,
                                   score->results + at);
    }
}

/* A device that has failed computes nothing more, and its latest results may be wrong, so the
 * process ends before it reports them. Its requests are resumed on other machines, as after any
 * other death of a process. */
static void check_device(const struct engine *engine)
{
    const struct compute_ops *ops = engine->options.ops;
    struct error error;
    if (ops->check(engine->options.compute, &error) == ST_OK)
        return;
    log_error("the device has failed, this process ends: %s", error.text);
    _exit(CHILD_EXIT_CRASHED); /* The gateway looks for the request that caused it. */
}

static uint32_t sample_rows_of(const struct engine *engine, const struct engine_job *job,
                               uint32_t at, uint32_t rows[LOGITS_ROWS_DEVICE])
{
    uint32_t left = job->sample_count - at;
    uint32_t count = left < engine->chooser->rows ? left : engine->chooser->rows;
    for (uint32_t i = 0; i < count; i++)
        rows[i] = job->samples[at + i].row;
    return count;
}

static void job_run(struct engine *engine, struct engine_job *job)
{
    uint32_t rows[LOGITS_ROWS_DEVICE];
    uint32_t count = sample_rows_of(engine, job, 0, rows);
    struct forward_batch batch = {
        .token_ids = job->token_ids,
        .activations = job->activations,
        .draft_final_vectors = job->finals,
        .batch = job->batch,
        .logits_rows = rows,
        .logits_count = count,
        .all_rows = job->score_count > 0 || job->pooled_count > 0 || job->sample_count > count,
        .logits_stay = true,
        .layer_done_self = engine,
        .abandon = &engine->abandon,
    };
    /* Without a callback per layer, a device records the whole step and queues it at once. */
    if (job->report_layers || engine->options.turns != NULL)
        batch.layer_done = on_layer;
    const float *logits;
    job->abandoned = !forward_run(engine->forward, &batch, &engine->options.kv, &logits);
    if (job->abandoned) {
        /* A mark of this job that is reported during the next job would say that layers of the next
         * job are stored, and their KV would be sent before it is computed. */
        engine->options.ops->wait(engine->options.compute);
        check_device(engine);
        return;
    }
    sample_rows(engine, job->samples, count, logits);
    for (uint32_t at = count; at < job->sample_count; at += count) {
        count = sample_rows_of(engine, job, at, rows);
        forward_logits(engine->forward, rows, count, &logits);
        sample_rows(engine, job->samples + at, count, logits);
    }
    for (uint32_t i = 0; i < job->sample_count; i++)
        if (job->samples[i].final != NULL)
            forward_final_vector(engine->forward, job->samples[i].row, job->samples[i].final);
    for (uint32_t i = 0; i < job->score_count; i++)
        score_rows(engine, &job->scores[i]);
    for (uint32_t i = 0; has_logits(engine) && i < job->pooled_count; i++)
        forward_pool(engine->forward, job->pooled[i].first_row, job->pooled[i].row_count,
                     job->pooled[i].sum);
    engine->options.ops->wait(engine->options.compute);
    check_device(engine);
}

static void group_join(struct engine *engine)
{
    engine->group.status = engine->options.ops->group->join(
        engine->options.compute, engine->group.id, engine->options.rank, engine->group.ranks,
        engine->group.timeout_ms, &engine->group.error);
    atomic_store_explicit(&engine->done, true, memory_order_release);
    wake_loop(engine);
}

static void *engine_main(void *self)
{
    struct engine *engine = self;
    pthread_setname_np(pthread_self(), "engine");
    for (;;) {
        while (sem_wait(&engine->started) != 0)
            assert(errno == EINTR);
        if (engine->stop)
            return NULL;
        if (engine->job == NULL) {
            group_join(engine);
            continue;
        }
        turns_begin(engine->options.turns, engine->job->turn_us);
        int64_t began_us = clock_now_us(&clock_system);
        job_run(engine, engine->job);
        engine->job->used_us = engine->options.turns != NULL
                                   ? turns_used_us(engine->options.turns)
                                   : (uint64_t)(clock_now_us(&clock_system) - began_us);
        atomic_store_explicit(&engine->done, true, memory_order_release);
        /* Before other processes get the cores, because one of these is needed to report the
         * result. */
        wake_loop(engine);
        turns_end(engine->options.turns);
    }
}

static enum status check_attention(const struct engine_options *options, struct error *error)
{
    const struct model_hyper *h = model_hyper_get(options->model);
    const struct model_shard *shard = model_shard_get(options->model);
    const struct compute_kv kv = {
        .block_bytes = options->kv.block_bytes,
        .block_tokens = options->kv.block_tokens,
        .head_count = shard->kv_head_count,
        .head_dim = h->head_dim,
        .dtype = options->kv.dtype,
        .latent = h->latent.rank,
    };
    return options->ops->attention_check(options->compute, &kv, shard->head_count, error);
}

/* Frees an engine without a thread; what has not been opened yet is 0, and fd -1. */
static void engine_free(struct engine *engine)
{
    if (engine->fd >= 0)
        close(engine->fd);
    free(engine->scratch);
    for (uint32_t i = 0; engine->editors != NULL && i < engine->samplers; i++)
        logit_editor_close(engine->editors[i]);
    free(engine->editors);
    free(engine->edits);
    free(engine->host_rows);
    free(engine->wanted);
    free(engine->found);
    forward_close(engine->forward);
    free(engine);
}

/* engine_free closes them, also after an error. */
static bool editors_open(struct engine *engine)
{
    bool good = true;
    engine->editors = calloc(engine->samplers, sizeof(struct logit_editor *));
    for (uint32_t i = 0; engine->editors != NULL && i < engine->samplers; i++) {
        engine->editors[i] = logit_editor_open(engine->vocab);
        good &= engine->editors[i] != NULL;
    }
    return good && engine->editors != NULL;
}

enum status engine_open(const struct engine_options *options, struct engine **out,
                        struct error *error)
{
    enum status status = ST_NO_MEMORY;
    struct engine *engine = calloc(1, sizeof(*engine));
    if (engine == NULL)
        return error_set(error, status, "engine: out of memory");
    engine->fd = -1;
    engine->options = *options;
    status = check_attention(options, error);
    if (status != ST_OK)
        goto undo;
    engine->vocab = model_hyper_get(options->model)->vocab;
    engine->chooser = options->ops->sampling != NULL ? &device_chooser : &host_chooser;
    status = forward_open(options->model, options->rows_max, engine->chooser->rows,
                          &engine->forward, error);
    if (status != ST_OK)
        goto undo;
    engine->samplers = compute_lanes_count(options->ops, options->compute);
    engine->scratch =
        malloc(engine->samplers * SCRATCH_ROWS * (size_t)engine->vocab * sizeof(float));
    const bool copied = options->ops->device_memory(options->compute) != NULL;
    if (copied)
        engine->host_rows = malloc((size_t)LOGITS_ROWS * engine->vocab * sizeof(float));
    engine->wanted = calloc(engine->chooser->rows, sizeof(*engine->wanted));
    engine->found = calloc(engine->chooser->rows, sizeof(*engine->found));
    engine->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (!editors_open(engine) || engine->scratch == NULL || engine->wanted == NULL ||
        engine->found == NULL || engine->fd < 0 || (copied && engine->host_rows == NULL)) {
        status = error_set(error, ST_NO_MEMORY, "engine: out of memory or descriptors");
        goto undo;
    }
    forward_prepare(engine->forward, &options->kv);
    status = options->ops->check(options->compute, error);
    if (status != ST_OK)
        goto undo;
    sem_init(&engine->started, 0, 0);
    int failed = pthread_create(&engine->thread, NULL, engine_main, engine);
    if (failed != 0) {
        sem_destroy(&engine->started);
        status = error_set(error, ST_NO_RESOURCE, "engine: no thread: %s", strerror(failed));
        goto undo;
    }
    *out = engine;
    return ST_OK;

undo:
    engine_free(engine);
    return status;
}

void engine_close(struct engine *engine)
{
    if (engine == NULL)
        return;
    /* The thread reads this after the semaphore, so after a job that still runs. */
    engine->stop = true;
    sem_post(&engine->started);
    pthread_join(engine->thread, NULL);
    sem_destroy(&engine->started);
    engine_free(engine);
}

void engine_start(struct engine *engine, struct engine_job *job)
{
    engine->job = job;
    atomic_store_explicit(&engine->abandon, false, memory_order_relaxed);
    atomic_store_explicit(&engine->layers, 0, memory_order_relaxed);
    atomic_store_explicit(&engine->done, false, memory_order_relaxed);
    turns_request(engine->options.turns);
    sem_post(&engine->started);
}

void engine_abandon(struct engine *engine)
{
    atomic_store_explicit(&engine->abandon, true, memory_order_relaxed);
}

void engine_group_join(struct engine *engine, const uint8_t id[COMPUTE_GROUP_ID_BYTES],
                       uint32_t ranks, uint32_t timeout_ms)
{
    engine->job = NULL;
    memcpy(engine->group.id, id, sizeof(engine->group.id));
    engine->group.ranks = ranks;
    engine->group.timeout_ms = timeout_ms;
    atomic_store_explicit(&engine->layers, 0, memory_order_relaxed);
    atomic_store_explicit(&engine->done, false, memory_order_relaxed);
    sem_post(&engine->started);
}

enum status engine_group_joined(const struct engine *engine, struct error *error)
{
    if (engine->group.status != ST_OK)
        *error = engine->group.error;
    return engine->group.status;
}

int engine_fd(const struct engine *engine)
{
    return engine->fd;
}

struct engine_progress engine_poll(struct engine *engine)
{
    uint64_t news;
    struct engine_progress progress = {0};
    if (read(engine->fd, &news, sizeof(news)) != sizeof(news))
        return progress;
    progress.stored_layers = atomic_load_explicit(&engine->layers, memory_order_acquire);
    progress.done = atomic_load_explicit(&engine->done, memory_order_acquire);
    return progress;
}
