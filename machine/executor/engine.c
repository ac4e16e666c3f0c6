/* engine: jobs are handed to the thread with a semaphore (a futex: no system call while the engine
 * is awake), and results come back through an atomic word and an eventfd. */
#include "machine/executor/engine.h"

#include "common/log.h"

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

struct engine {
    struct engine_options options;
    struct forward *forward;
    /* Rows per round: LOGITS_ROWS_DEVICE on a device that samples, else LOGITS_ROWS. */
    uint32_t logits_rows;
    struct compute_sample *wanted; /* [logits_rows]; used for a device that samples. */
    struct compute_sampled *found;
    /* [LOGITS_ROWS]: logits copied from a device; NULL = the host can read the device's logits. */
    float *host_rows;
    float *scratch; /* Working memory of the samplers, one after the other. */
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
    const struct compute_ops *ops = engine->options.ops;
    if (engine->job->report_layers && ops->mark != NULL)
        ops->mark(engine->options.compute, layer + 1, layers_stored, engine);
    else if (engine->job->report_layers)
        layers_stored(engine, layer + 1);
    turns_pause(engine->options.turns);
}

struct draw { /* Rows to be sampled, divided into shares. */
    struct engine *engine;
    struct engine_sample *samples;
    uint32_t count;
    uint32_t shares;
    const float *logits;
};

static void draw_share(void *context, uint32_t share)
{
    const struct draw *draw = context;
    const struct engine *engine = draw->engine;
    float *scratch = engine->scratch + 2 * (size_t)engine->vocab * share;
    uint32_t end = draw->count * (share + 1) / draw->shares;
    for (uint32_t i = draw->count * share / draw->shares; i < end; i++) {
        struct engine_sample *sample = &draw->samples[i];
        sampler_draw(&sample->wanted.sampling, draw->logits + (size_t)i * engine->vocab,
                     engine->vocab, sample->wanted.position, sample->wanted.masked,
                     sample->wanted.masked_count, scratch, &sample->result);
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
        ops->lanes_run(engine->options.compute, draw.shares, draw_share, &draw);
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

/* Samples on the device that has the logits, except for rows that the device leaves to the host. */
static void sample_device(struct engine *engine, struct engine_sample *samples, uint32_t count,
                          const float *logits)
{
    struct compute_sample *wanted = engine->wanted;
    struct compute_sampled *found = engine->found;
    for (uint32_t i = 0; i < count; i++)
        wanted[i] = samples[i].wanted;
    engine->options.ops->sample(engine->options.compute, logits, engine->vocab, wanted, count,
                                found);
    for (uint32_t i = 0; i < count; i++) {
        if (found[i].undecided)
            sample_host(engine, &samples[i], 1,
                        logits_read(engine, logits + (size_t)i * engine->vocab, 1));
        else
            samples[i].result = found[i].sampled;
    }
}

/* A rank other than 0 takes part in computing the logits, but does not have them. */
static bool has_logits(const struct engine *engine)
{
    return engine->options.rank == 0;
}

static void sample_rows(struct engine *engine, struct engine_sample *samples, uint32_t count,
                        const float *logits)
{
    if (!has_logits(engine))
        return;
    if (engine->options.ops->sample != NULL && count > 0) {
        sample_device(engine, samples, count, logits);
        return;
    }
    for (uint32_t at = 0; at < count; at += LOGITS_ROWS) {
        uint32_t part = count - at < LOGITS_ROWS ? count - at : LOGITS_ROWS;
        const float *rows = logits + (size_t)at * engine->vocab;
        sample_host(engine, samples + at, part, logits_read(engine, rows, part));
    }
}

static void score_device(struct engine *engine, const uint32_t *ids, int32_t logprobs,
                         uint32_t count, const float *logits, struct sampled *results)
{
    for (uint32_t i = 0; i < count; i++)
        engine->wanted[i] = (struct compute_sample){.sampling = {.top_p = 1, .logprobs = logprobs},
                                                    .given = ids[i]};
    engine->options.ops->sample(engine->options.compute, logits, engine->vocab, engine->wanted,
                                count, engine->found);
    for (uint32_t i = 0; i < count; i++)
        results[i] = engine->found[i].sampled;
}

static void score_rows(struct engine *engine, const struct engine_score *score)
{
    uint32_t rows[LOGITS_ROWS_DEVICE];
    const float *logits;
    for (uint32_t at = 0, count; at < score->row_count; at += count) {
        uint32_t left = score->row_count - at;
        count = left < engine->logits_rows ? left : engine->logits_rows;
        for (uint32_t i = 0; i < count; i++)
            rows[i] = score->first_row + at + i;
        forward_logits(engine->forward, rows, count, &logits);
        if (!has_logits(engine))
            continue;
        if (engine->options.ops->sample != NULL) {
            score_device(engine, score->ids + at, score->logprobs, count, logits,
                         score->results + at);
            continue;
        }
        logits = logits_read(engine, logits, count);
        for (uint32_t i = 0; i < count; i++)
            sampler_score(logits + (size_t)i * engine->vocab, engine->vocab, score->ids[at + i],
                          score->logprobs, &score->results[at + i]);
    }
}

/* A device that has failed computes nothing more, and its latest results may be wrong, so the
 * process ends before it reports them. Its requests are resumed on other machines, as after any
 * other death of a process. */
static void check_device(const struct engine *engine)
{
    const struct compute_ops *ops = engine->options.ops;
    struct error error;
    if (ops->check == NULL || ops->check(engine->options.compute, &error) == ST_OK)
        return;
    log_error("the device has failed, this process ends: %s", error.text);
    _exit(EXIT_FAILURE);
}

static uint32_t sample_rows_of(const struct engine *engine, const struct engine_job *job,
                               uint32_t at, uint32_t rows[LOGITS_ROWS_DEVICE])
{
    uint32_t left = job->sample_count - at;
    uint32_t count = left < engine->logits_rows ? left : engine->logits_rows;
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
        .x = job->x,
        .batch = job->batch,
        .logits_rows = rows,
        .logits_count = count,
        .all_rows = job->score_count > 0 || job->sample_count > count,
        .logits_stay = true,
        .layer_done_self = engine,
    };
    /* Without a callback per layer, a device records the whole step and queues it at once. */
    if (job->report_layers || engine->options.turns != NULL)
        batch.layer_done = on_layer;
    const float *logits;
    forward_run(engine->forward, &batch, &engine->options.kv, &logits);
    sample_rows(engine, job->samples, count, logits);
    for (uint32_t at = count; at < job->sample_count; at += count) {
        count = sample_rows_of(engine, job, at, rows);
        forward_logits(engine->forward, rows, count, &logits);
        sample_rows(engine, job->samples + at, count, logits);
    }
    for (uint32_t i = 0; i < job->score_count; i++)
        score_rows(engine, &job->scores[i]);
    if (engine->options.ops->wait != NULL)
        engine->options.ops->wait(engine->options.compute);
    check_device(engine);
}

static void group_join(struct engine *engine)
{
    engine->group.status = engine->options.ops->group_join(
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
        job_run(engine, engine->job);
        atomic_store_explicit(&engine->done, true, memory_order_release);
        wake_loop(engine); /* before other processes get the cores, perhaps this one's */
        turns_end(engine->options.turns);
    }
}

static enum status check_attention(const struct engine_options *options, struct error *error)
{
    const struct model_hyper *h = model_hyper_of(options->model);
    const struct model_shard *shard = model_shard_in(options->model);
    const struct compute_kv kv = {
        .block_bytes = options->kv.block_bytes,
        .block_tokens = options->kv.block_tokens,
        .head_count = shard->kv_head_count,
        .head_dim = h->head_dim,
        .dtype = options->kv.dtype,
    };
    if (options->ops->attention_check == NULL)
        return ST_OK;
    return options->ops->attention_check(options->compute, &kv, shard->head_count, error);
}

enum status engine_open(const struct engine_options *options, struct engine **out,
                        struct error *error)
{
    enum status status = ST_NO_MEMORY;
    struct engine *engine = calloc(1, sizeof(*engine));
    if (engine == NULL)
        return error_set(error, status, "engine: out of memory");
    engine->options = *options;
    status = check_attention(options, error);
    if (status != ST_OK)
        goto undo_engine;
    engine->vocab = model_hyper_of(options->model)->vocab;
    engine->logits_rows = options->ops->sample != NULL ? LOGITS_ROWS_DEVICE : LOGITS_ROWS;
    status = forward_open(options->model, options->rows_max, engine->logits_rows, &engine->forward,
                          error);
    if (status != ST_OK)
        goto undo_engine;
    if (options->ops->lanes_max != NULL)
        engine->samplers = options->ops->lanes_max(options->compute);
    else
        engine->samplers = 1;
    engine->scratch = malloc(engine->samplers * 2 * (size_t)engine->vocab * sizeof(float));
    if (options->ops->memory_read != NULL)
        engine->host_rows = malloc((size_t)LOGITS_ROWS * engine->vocab * sizeof(float));
    engine->wanted = calloc(engine->logits_rows, sizeof(*engine->wanted));
    engine->found = calloc(engine->logits_rows, sizeof(*engine->found));
    engine->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (engine->scratch == NULL || engine->wanted == NULL || engine->found == NULL ||
        engine->fd < 0 || (options->ops->memory_read != NULL && engine->host_rows == NULL)) {
        status = error_set(error, ST_NO_MEMORY, "engine: out of memory or descriptors");
        goto undo_forward;
    }
    forward_prepare(engine->forward, &options->kv);
    status = options->ops->check != NULL ? options->ops->check(options->compute, error) : ST_OK;
    if (status != ST_OK)
        goto undo_forward;
    sem_init(&engine->started, 0, 0);
    int failed = pthread_create(&engine->thread, NULL, engine_main, engine);
    if (failed != 0) {
        status = error_set(error, ST_NO_RESOURCE, "engine: no thread: %s", strerror(failed));
        goto undo_started;
    }
    *out = engine;
    return ST_OK;

undo_started:
    sem_destroy(&engine->started);
undo_forward:
    if (engine->fd >= 0)
        close(engine->fd);
    free(engine->scratch);
    free(engine->host_rows);
    free(engine->wanted);
    free(engine->found);
    forward_close(engine->forward);
undo_engine:
    free(engine);
    return status;
}

void engine_close(struct engine *engine)
{
    if (engine == NULL)
        return;
    engine->stop = true; /* read after the semaphore, so after the job that may still run */
    sem_post(&engine->started);
    pthread_join(engine->thread, NULL);
    sem_destroy(&engine->started);
    close(engine->fd);
    free(engine->scratch);
    free(engine->host_rows);
    free(engine->wanted);
    free(engine->found);
    forward_close(engine->forward);
    free(engine);
}

void engine_start(struct engine *engine, struct engine_job *job)
{
    engine->job = job;
    atomic_store_explicit(&engine->layers, 0, memory_order_relaxed);
    atomic_store_explicit(&engine->done, false, memory_order_relaxed);
    turns_ask(engine->options.turns);
    sem_post(&engine->started);
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
    progress.layers = atomic_load_explicit(&engine->layers, memory_order_acquire);
    progress.done = atomic_load_explicit(&engine->done, memory_order_acquire);
    return progress;
}
