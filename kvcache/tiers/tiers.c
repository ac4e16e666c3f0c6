/* tiers: see the header. Each tier has a mutex for its queues and its state. A job is in one place
 * at a time: in a queue, with the thread, or in the list of ended jobs. */
#include "kvcache/tiers/tiers.h"

#include "common/clock.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define STORE_US      5000000  /* Deadline for storing one span. */
#define TRY_US        2000000  /* Deadline for opening a tier, and for trying it again. */
#define NOTE_EVERY_US 60000000 /* Time between two notes about damage, or about refusals. */

struct queue {
    struct tier_job *first;
    struct tier_job **last;
};

enum state { TIER_OPENING, TIER_WORKS, TIER_UNREACHABLE, TIER_OFF };

struct note {
    bool wanted;
    enum status status;
    struct error error;
};

struct tier {
    struct tiers *tiers;
    struct tier_backend *backend;
    uint32_t index;
    pthread_t thread;
    bool started;    /* The thread was started. */
    uint8_t *record; /* The thread's. */
    bool open;       /* The thread's: the backend is open. */
    int64_t noted_damage_us;
    int64_t noted_refusal_us;

    pthread_mutex_t mutex; /* Guards the members below. */
    pthread_cond_t changed;
    struct queue urgent; /* TIER_FIND and TIER_LOAD. */
    struct queue stores; /* TIER_STORE and TIER_PROBE. */
    struct queue ended;
    uint32_t job_count; /* Jobs from tiers_submit to `ended`. */
    enum state state;
    struct note note;
    bool stop;
};

struct tiers {
    struct tiers_options options;
    size_t record_bytes;
    int fd;
    struct tier tiers[TIER_KIND_COUNT];
};

/* ---- queues ---- */

static void queue_add(struct queue *queue, struct tier_job *job)
{
    job->next = NULL;
    if (queue->first == NULL)
        queue->last = &queue->first;
    *queue->last = job;
    queue->last = &job->next;
}

static struct tier_job *queue_take(struct queue *queue)
{
    struct tier_job *job = queue->first;
    if (job != NULL)
        queue->first = job->next;
    return job;
}

static void wake(const struct tiers *tiers)
{
    const uint64_t one = 1;
    ssize_t written = write(tiers->fd, &one, sizeof(one));
    assert(written == sizeof(one) || errno == EAGAIN);
}

/* ---- the thread ---- */

static const uint8_t *key_of(const struct tier *t)
{
    return t->tiers->options.encrypted ? t->tiers->options.key : NULL;
}

static void note_set(struct tier *t, enum status status, const struct error *error)
{
    pthread_mutex_lock(&t->mutex);
    /* The reason why a tier is off is not replaced by a later note. */
    if (!t->note.wanted || t->state != TIER_OFF)
        t->note = (struct note){.wanted = true, .status = status, .error = *error};
    pthread_mutex_unlock(&t->mutex);
    wake(t->tiers);
}

static void state_set(struct tier *t, enum state state)
{
    pthread_mutex_lock(&t->mutex);
    t->state = state;
    pthread_mutex_unlock(&t->mutex);
}

/* Only the thread changes the state. */
static enum state state_of(const struct tier *t)
{
    return t->state;
}

/* Records that the tier works. remark: see tier_backend_ops.open. */
static void works_note(struct tier *t, const struct error *remark)
{
    state_set(t, TIER_WORKS);
    note_set(t, ST_OK, remark);
}

/* Records the result of a call of the backend: makes a note if the tier works again, has just
 * become unreachable, is off, or has a damaged record. */
static void result_note(struct tier *t, enum status status, const struct error *error)
{
    const struct error none = {0};
    const enum state state = state_of(t);
    const int64_t now_us = clock_now_us(&clock_system);
    switch (status) {
    case ST_OK:
    case ST_NOT_FOUND:
    case ST_NO_RESOURCE:
        if (state != TIER_WORKS)
            works_note(t, &none);
        return;
    case ST_INVALID:
        if (t->noted_damage_us != 0 && now_us - t->noted_damage_us < NOTE_EVERY_US)
            return;
        t->noted_damage_us = now_us;
        note_set(t, status, error);
        return;
    case ST_UNREACHABLE:
    case ST_TIMED_OUT:
        if (state == TIER_UNREACHABLE)
            return;
        state_set(t, TIER_UNREACHABLE);
        note_set(t, status, error);
        return;
    default:
        note_set(t, status, error);
        state_set(t, TIER_OFF);
        return;
    }
}

/* Makes a note that the backend stores nothing now, if there was none for a while. */
static void refusal_note(struct tier *t, const struct error *error)
{
    const int64_t now_us = clock_now_us(&clock_system);
    if (t->noted_refusal_us != 0 && now_us - t->noted_refusal_us < NOTE_EVERY_US)
        return;
    t->noted_refusal_us = now_us;
    note_set(t, ST_NO_RESOURCE, error);
}

static bool is_cancelled(const struct tier_job *job)
{
    return atomic_load_explicit(&job->cancelled, memory_order_relaxed);
}

static const struct layer_groups *groups_of(const struct tier *t)
{
    return &t->tiers->options.arena.groups;
}

static void names_make(const struct tier *t, struct tier_job *job)
{
    const struct tiers_options *options = &t->tiers->options;
    tier_names_make(&options->identity, key_of(t), job->salt, job->tokens,
                    options->arena.block_tokens, job->end, job->record_names);
    for (uint32_t group = 1; group < layer_groups_count(groups_of(t)); group++)
        for (uint32_t span = 0; span < job->end; span++)
            job->record_names[(size_t)group * job->end + span] =
                tier_name_of_group(&job->record_names[span], group);
}

static const struct digest *name_of(const struct tier_job *job, uint32_t group, uint32_t span)
{
    return &job->record_names[(size_t)group * job->end + span];
}

/* Returns true if the job concerns the record of the span in the group. */
static bool is_concerned(const struct tier *t, const struct tier_job *job, uint32_t group,
                         uint32_t span)
{
    return span >= job->window_first || !layer_groups_windowed(groups_of(t), group);
}

/* Returns the end of the run of spans from `first` on, up to `end`, that the backend has in the
 * group; `first` after an error. */
static uint32_t run_find(struct tier *t, const struct tier_job *job, uint32_t group, uint32_t first,
                         uint32_t end, int64_t deadline_us)
{
    struct error error = {0};
    uint32_t count = 0;
    if (first >= end)
        return end;
    const enum status status = t->backend->ops->stored_count(
        t->backend, name_of(job, group, first), end - first, deadline_us, &count, &error);
    result_note(t, status, &error);
    return first + (status == ST_OK ? count : 0);
}

/* Returns up to which span the backend has all records that the job concerns. */
static uint32_t stored_find(struct tier *t, struct tier_job *job, int64_t deadline_us)
{
    uint32_t end = job->end;
    for (uint32_t group = 0; group < layer_groups_count(groups_of(t)); group++) {
        const bool whole = is_concerned(t, job, group, job->first);
        const uint32_t first = whole ? job->first : job->window_first;
        job->stored[group] = run_find(t, job, group, first, job->end, deadline_us);
        if (job->stored[group] < end)
            end = job->stored[group];
    }
    return end;
}

/* Returns the end of the longest prefix of the spans that can be loaded: the backend has them in
 * all groups without a window, and in groups with a window those that the tokens after the end
 * read. */
static uint32_t loadable_find(struct tier *t, const struct tier_job *job)
{
    const struct layer_groups *groups = groups_of(t);
    const uint32_t count = layer_groups_count(groups),
                   tokens = t->tiers->options.arena.block_tokens;
    uint32_t end = job->end, group;
    for (group = 0; group < count; group++)
        if (!layer_groups_windowed(groups, group))
            end = run_find(t, job, group, job->first, end, job->deadline_us);
    for (group = 0; group < count && end > job->first && t->state == TIER_WORKS;) {
        const uint32_t read = layer_groups_window_first(groups, tokens, end * tokens);
        const uint32_t first = read > job->first ? read : job->first;
        uint32_t run = end;
        if (layer_groups_windowed(groups, group))
            run = run_find(t, job, group, first, end, job->deadline_us);
        group = run < end ? 0 : group + 1; /* no end after the gap is possible */
        end = run;
    }
    return group == count ? end : job->first;
}

/* Removes a damaged record and those of the spans after it: they are of no use without it, and may
 * be damaged, too. They will be stored again. */
static void damaged_drop(struct tier *t, struct tier_job *job, uint32_t damaged)
{
    job->damaged++;
    for (uint32_t group = 0; group < layer_groups_count(groups_of(t)); group++) {
        struct error error = {0};
        enum status status = ST_OK;
        for (uint32_t span = damaged; span < job->end && status == ST_OK; span++)
            if (is_concerned(t, job, group, span))
                status = t->backend->ops->drop(t->backend, name_of(job, group, span),
                                               job->deadline_us, &error);
        if (status != ST_OK)
            result_note(t, status, &error);
    }
}

static kv_block_id block_of(const struct tier_job *job, uint32_t group, uint32_t span)
{
    return job->blocks[(size_t)group * job->stride + span - job->blocks_first];
}

/* Returns true if the record was loaded. */
static bool record_load(struct tier *t, struct tier_job *job, uint32_t group, uint32_t span)
{
    const struct tiers_options *options = &t->tiers->options;
    const struct digest *name = name_of(job, group, span);
    struct error error = {0};
    enum status status =
        t->backend->ops->get(t->backend, name, t->record, job->deadline_us, &error);
    if (status == ST_OK) {
        status = tier_record_open(key_of(t), name, t->record, t->tiers->record_bytes, &error);
        if (status != ST_OK)
            error_prefix(&error, "tier %s", tier_kind_name(t->backend->ops->kind));
    }
    result_note(t, status, &error);
    if (status == ST_INVALID)
        damaged_drop(t, job, span);
    if (status == ST_OK)
        tier_record_payload_get(t->record, &options->arena, options->region, group,
                                block_of(job, group, span));
    return status == ST_OK;
}

/* Returns true if the span was loaded. */
static bool span_load(struct tier *t, struct tier_job *job, uint32_t span)
{
    bool loaded = true;
    for (uint32_t group = 0; group < layer_groups_count(groups_of(t)) && loaded; group++)
        if (is_concerned(t, job, group, span))
            loaded = record_load(t, job, group, span);
    return loaded;
}

static void load_run(struct tier *t, struct tier_job *job)
{
    uint32_t span = job->first;
    while (span < job->end && !is_cancelled(job) &&
           clock_now_us(&clock_system) < job->deadline_us && span_load(t, job, span))
        span++;
    job->count = span - job->first;
}

static enum status record_store(struct tier *t, struct tier_job *job, uint32_t group, uint32_t span)
{
    const struct tiers_options *options = &t->tiers->options;
    const struct digest *name = name_of(job, group, span);
    struct error error = {0};
    tier_record_payload_set(t->record, &options->arena, options->region, group,
                            block_of(job, group, span));
    enum status status =
        tier_record_seal(key_of(t), name, t->record, t->tiers->record_bytes, &error);
    if (status == ST_OK)
        status = t->backend->ops->put(t->backend, name, t->record,
                                      clock_now_us(&clock_system) + STORE_US, &error);
    result_note(t, status, &error);
    if (status == ST_NO_RESOURCE)
        refusal_note(t, &error);
    job->written += status == ST_OK ? 1 : 0;
    return status;
}

/* Stores the next span. Returns true if the job has ended. */
static bool store_step(struct tier *t, struct tier_job *job)
{
    enum status status = ST_OK;
    if (is_cancelled(job) || t->state != TIER_WORKS || job->at == job->end) {
        job->dropped += job->end - job->at;
        return true;
    }
    const uint32_t span = job->at++;
    for (uint32_t group = 0; group < layer_groups_count(groups_of(t)) && status == ST_OK; group++)
        if (is_concerned(t, job, group, span) && span >= job->stored[group])
            status = record_store(t, job, group, span);
    job->dropped += status == ST_OK ? 0 : 1;
    return job->at == job->end;
}

/* Begins a TIER_STORE: skips the spans that are stored already. */
static void store_begin(struct tier *t, struct tier_job *job)
{
    names_make(t, job);
    job->begun = true;
    job->at = job->first;
    if (t->state == TIER_WORKS && !is_cancelled(job))
        job->at = stored_find(t, job, clock_now_us(&clock_system) + STORE_US);
}

/* Does a part of the job. Returns true if the job has ended. */
static bool job_step(struct tier *t, struct tier_job *job)
{
    bool ended = true;
    if (job->kind == TIER_STORE && !job->begun)
        store_begin(t, job);
    if (job->kind == TIER_STORE) {
        ended = store_step(t, job);
    } else if (!is_cancelled(job) && t->state == TIER_WORKS) {
        names_make(t, job);
        if (job->kind == TIER_FIND)
            job->count = loadable_find(t, job) - job->first;
        else if (job->kind == TIER_PROBE)
            job->count = stored_find(t, job, clock_now_us(&clock_system) + STORE_US) - job->first;
        else
            load_run(t, job);
    }
    return ended;
}

/* Opens the backend, or asks an open backend whether it works again. */
static void backend_try(struct tier *t)
{
    const struct digest *identity = &t->tiers->options.identity;
    const int64_t deadline_us = clock_now_us(&clock_system) + TRY_US;
    struct error error = {0};
    uint32_t count;
    enum status status;
    if (t->open) {
        status =
            t->backend->ops->stored_count(t->backend, identity, 1, deadline_us, &count, &error);
    } else {
        status = t->backend->ops->open(t->backend, identity, t->tiers->record_bytes, deadline_us,
                                       &error);
        t->open = status == ST_OK;
        if (status == ST_OK) {
            works_note(t, &error);
            return;
        }
        if (status == ST_INVALID) /* Not a damaged record: the tier's settings are wrong. */
            status = ST_UNSUPPORTED;
    }
    result_note(t, status, &error);
}

/* Waits until there is a job, the thread shall stop, or the tier shall be tried again. Requires the
 * mutex. */
static void thread_wait(struct tier *t)
{
    struct timespec until;
    if (t->state == TIER_WORKS || t->state == TIER_OFF) {
        pthread_cond_wait(&t->changed, &t->mutex);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += TIER_RETRY_US / 1000000;
    pthread_cond_timedwait(&t->changed, &t->mutex, &until);
}

static void *tier_main(void *self)
{
    struct tier *t = self;
    int64_t try_us = 0;
    pthread_setname_np(pthread_self(), "kv-tier");
    pthread_mutex_lock(&t->mutex);
    while (!t->stop) {
        const bool tries = t->state == TIER_OPENING || t->state == TIER_UNREACHABLE;
        if (tries && clock_now_us(&clock_system) >= try_us) {
            pthread_mutex_unlock(&t->mutex);
            backend_try(t);
            try_us = clock_now_us(&clock_system) + TIER_RETRY_US;
            pthread_mutex_lock(&t->mutex);
            continue;
        }
        const bool urgent = t->urgent.first != NULL;
        struct tier_job *job = urgent ? queue_take(&t->urgent) : t->stores.first;
        if (job == NULL) {
            thread_wait(t);
            continue;
        }
        pthread_mutex_unlock(&t->mutex);
        const bool ended = job_step(t, job);
        if (t->state == TIER_UNREACHABLE)
            try_us = clock_now_us(&clock_system) + TIER_RETRY_US;
        pthread_mutex_lock(&t->mutex);
        if (!ended)
            continue;
        if (!urgent)
            queue_take(&t->stores);
        queue_add(&t->ended, job);
        wake(t->tiers);
    }
    pthread_mutex_unlock(&t->mutex);
    return NULL;
}

/* ---- opening and closing ---- */

static enum status tier_start(struct tiers *tiers, uint32_t index, struct error *error)
{
    struct tier *t = &tiers->tiers[index];
    pthread_condattr_t monotonic;
    t->tiers = tiers;
    t->index = index;
    t->record = malloc(tiers->record_bytes);
    if (t->record == NULL)
        return error_set(error, ST_NO_MEMORY, "KV tiers: out of memory");
    pthread_mutex_init(&t->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&t->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    const int failed = pthread_create(&t->thread, NULL, tier_main, t);
    if (failed != 0)
        return error_set(error, ST_NO_RESOURCE, "KV tiers: no thread: %s", strerror(failed));
    t->started = true;
    return ST_OK;
}

enum status tiers_open(const struct tiers_options *options, struct tiers **out, struct error *error)
{
    struct tiers *tiers = calloc(1, sizeof(*tiers));
    enum status status = ST_OK;
    if (tiers == NULL) {
        for (uint32_t i = 0; i < options->count; i++)
            options->backends[i]->ops->close(options->backends[i]);
        return error_set(error, ST_NO_MEMORY, "KV tiers: out of memory");
    }
    tiers->options = *options;
    tiers->record_bytes = tier_record_bytes(&options->arena);
    for (uint32_t i = 0; i < options->count; i++)
        tiers->tiers[i].backend = options->backends[i];
    tiers->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (tiers->fd < 0)
        status = error_set(error, ST_NO_RESOURCE, "KV tiers: eventfd: %s", strerror(errno));
    for (uint32_t i = 0; i < options->count && status == ST_OK; i++)
        status = tier_start(tiers, i, error);
    if (status != ST_OK) {
        tiers_close(tiers);
        return status;
    }
    *out = tiers;
    return ST_OK;
}

static void job_end(struct tier_job *job)
{
    free(job->record_names);
    job->record_names = NULL;
    job->ended(job->self, job);
}

/* Ends the thread. After that, the tier takes no jobs. */
static void tier_stop(struct tier *t)
{
    if (!t->started)
        return;
    pthread_mutex_lock(&t->mutex);
    t->stop = true;
    pthread_cond_signal(&t->changed);
    pthread_mutex_unlock(&t->mutex);
    pthread_join(t->thread, NULL);
    state_set(t, TIER_OFF);
}

static void tier_jobs_end(struct tier *t)
{
    struct tier_job *job;
    while ((job = queue_take(&t->ended)) != NULL || (job = queue_take(&t->urgent)) != NULL)
        job_end(job);
    while ((job = queue_take(&t->stores)) != NULL) {
        if (job->kind == TIER_STORE)
            job->dropped += job->end - (job->begun ? job->at : job->first);
        job_end(job);
    }
}

static void tier_close(struct tier *t)
{
    if (t->record != NULL) { /* tier_start has made the mutex. */
        pthread_mutex_destroy(&t->mutex);
        pthread_cond_destroy(&t->changed);
    }
    free(t->record);
    t->backend->ops->close(t->backend);
}

void tiers_close(struct tiers *tiers)
{
    if (tiers == NULL)
        return;
    for (uint32_t i = 0; i < tiers->options.count; i++)
        tier_stop(&tiers->tiers[i]);
    /* `ended` may ask for the state of any tier. */
    for (uint32_t i = 0; i < tiers->options.count; i++)
        tier_jobs_end(&tiers->tiers[i]);
    for (uint32_t i = 0; i < tiers->options.count; i++)
        tier_close(&tiers->tiers[i]);
    if (tiers->fd >= 0)
        close(tiers->fd);
    secret_wipe(tiers->options.key, sizeof(tiers->options.key));
    free(tiers);
}

/* ---- the event loop's side ---- */

int tiers_fd(const struct tiers *tiers)
{
    return tiers->fd;
}

bool tiers_progress(struct tiers *tiers)
{
    uint64_t count;
    bool any = false;
    if (tiers == NULL || read(tiers->fd, &count, sizeof(count)) <= 0)
        return false;
    for (uint32_t i = 0; i < tiers->options.count; i++) {
        struct tier *t = &tiers->tiers[i];
        pthread_mutex_lock(&t->mutex);
        const struct note note = t->note;
        struct tier_job *job = t->ended.first;
        t->note.wanted = false;
        t->ended.first = NULL;
        for (const struct tier_job *at = job; at != NULL; at = at->next)
            t->job_count--;
        pthread_mutex_unlock(&t->mutex);
        if (note.wanted)
            tiers->options.state_changed(tiers->options.self, i, note.status, note.error.text);
        while (job != NULL) {
            struct tier_job *next = job->next;
            job_end(job);
            job = next;
            any = true;
        }
    }
    return any;
}

bool tiers_submit(struct tiers *tiers, struct tier_job *job)
{
    struct tier *t = &tiers->tiers[job->tier];
    assert(job->first < job->end && job->tier < tiers->options.count);
    job->record_names = calloc((size_t)layer_groups_count(&tiers->options.arena.groups) * job->end,
                               sizeof(job->record_names[0]));
    if (job->record_names == NULL)
        return false;
    job->count = job->written = job->dropped = job->damaged = job->at = 0;
    job->begun = false;
    memset(job->stored, 0, sizeof(job->stored));
    atomic_init(&job->cancelled, false);
    const bool stores = job->kind == TIER_STORE || job->kind == TIER_PROBE;
    pthread_mutex_lock(&t->mutex);
    const bool serves = t->state == TIER_WORKS || (t->state == TIER_OPENING && !stores);
    const bool taken = serves && t->job_count < TIER_JOBS_MAX;
    if (taken) {
        t->job_count++;
        queue_add(stores ? &t->stores : &t->urgent, job);
        pthread_cond_signal(&t->changed);
    }
    pthread_mutex_unlock(&t->mutex);
    if (!taken) {
        free(job->record_names);
        job->record_names = NULL;
    }
    return taken;
}

void tiers_job_cancel(struct tier_job *job)
{
    atomic_store_explicit(&job->cancelled, true, memory_order_relaxed);
}

bool tiers_works(const struct tiers *tiers, uint32_t tier)
{
    struct tier *t = (struct tier *)(uintptr_t)&tiers->tiers[tier];
    pthread_mutex_lock(&t->mutex);
    const bool works = t->state == TIER_WORKS;
    pthread_mutex_unlock(&t->mutex);
    return works;
}

const struct tier_backend_ops *tiers_ops(const struct tiers *tiers, uint32_t tier)
{
    return tiers->tiers[tier].backend->ops;
}
