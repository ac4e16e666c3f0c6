/* profile_device: see the header. It opens the device, and measures the points until the time is
 * over. */
#include "tools/profile/device.h"

#include "common/clock.h"
#include "common/device_name.h"
#include "common/memory.h"
#include "host/energy.h"
#include "model/file/hyper_groups.h"
#include "tools/profile/busy.h"
#include "tools/profile/points.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Cached tokens of the largest decode step: 32 sequences of 1024. */
#define DECODE_TOKENS_MAX 32768
#define KV_BYTES_MAX      ((uint64_t)2 << 30)
/* For a GPU: 64 sequences of 2048; fewer if its memory is too small. */
#define DECODE_TOKENS_MAX_GPU 131072
#define KV_BYTES_MAX_GPU      ((uint64_t)20 << 30)
#define DECODE_TOKENS_LEAST   1024
/* A visit measures a point for this time, but at least once and at most VISIT_MAX times. */
#define VISIT_US   30000
#define VISIT_MAX  12
#define ROUNDS_MIN 2
/* One round is enough if it took this share longer than all rounds should: the computer is busy. */
#define LATE_SHARE_MAX 0.25

/* What batches of one phase took. */
struct energy_sum {
    uint64_t uj;
    int64_t us;
};

struct measuring {
    const struct profile_device_options *options;
    struct profile_step *step;
    struct profile_busy beside;
    struct profile_ranks ranks;
    uint32_t plan_count;
    struct profile_plan plans[2]; /* Alone, and beside busy devices. */
    struct energy energy;
    struct energy_sum energy_sums[2][2]; /* [plan][0 = decode steps, 1 = prompts] */
    int64_t begin_us;
    double weight_done; /* Of this round. */
    double weight_all;
    uint32_t rounds_done;
    double round_seconds; /* Mean time of the finished rounds; 0 = none has finished. */
};

static double seconds_since(int64_t begin_us)
{
    return (double)(clock_now_us(&clock_system) - begin_us) * 1e-6;
}

static uint32_t rounds_min(const struct measuring *m)
{
    return m->options->quick ? 1 : ROUNDS_MIN;
}

static void on_loaded(void *self, uint32_t done, uint32_t of)
{
    const struct measuring *m = self;
    (void)done, (void)of;
    m->options->progress(m->options->self, "loading the model", 0, m->options->budget_seconds);
}

static void report(const struct measuring *m, const struct profile_point *point)
{
    char what[96];
    double used = seconds_since(m->begin_us), share = m->weight_done / m->weight_all;
    double rounds = m->rounds_done + share;
    double all = rounds > 0.05 ? used / rounds * rounds_min(m) : m->options->budget_seconds;
    all = all > m->options->budget_seconds ? all : m->options->budget_seconds;
    snprintf(what, sizeof(what), "%s of %u after %u tokens", point->prompt ? "prompt" : "step",
             point->rows, point->context);
    m->options->progress(m->options->self, what, used < all ? used / all : 1, all);
}

static void compute(struct profile_step *step, const struct profile_point *point,
                    struct profile_step_times *out)
{
    if (point->prompt)
        profile_step_prompt(step, point->rows, point->context, point->decodes, out);
    else
        profile_step_token(step, point->rows, point->context, out);
}

static void visit(struct measuring *m, uint32_t which, struct profile_point *point)
{
    struct energy_sum *sum = &m->energy_sums[which][point->prompt];
    struct profile_step_times unused = {0};
    report(m, point);
    const uint64_t begin_uj = energy_used_uj(&m->energy);
    const int64_t begin_us = clock_now_us(&clock_system);
    /* Run once without measuring: caches and clock speeds are still set by another point, and a GPU
     * chooses kernels for a new shape. */
    if (profile_point_weight(point) < 100 || device_name_gpu(m->options->device, NULL))
        compute(m->step, point, &unused);
    for (uint32_t i = 0; i < VISIT_MAX && point->sample_count < PROFILE_SAMPLES_MAX; i++) {
        compute(m->step, point, &point->samples[point->sample_count++]);
        if (clock_now_us(&clock_system) - begin_us > VISIT_US)
            break;
    }
    sum->uj += energy_used_uj(&m->energy) - begin_uj;
    sum->us += clock_now_us(&clock_system) - begin_us;
    m->weight_done += profile_point_weight(point);
}

static void visit_all(struct measuring *m, uint32_t point)
{
    visit(m, 0, &m->plans[0].points[point]);
    if (m->plan_count == 1)
        return;
    profile_busy_resume(&m->beside, !m->plans[1].points[point].prompt);
    visit(m, 1, &m->plans[1].points[point]);
    profile_busy_pause(&m->beside);
}

/* True if there is time for another round. */
static bool more_rounds(const struct measuring *m)
{
    double left = m->options->budget_seconds - seconds_since(m->begin_us);
    if (m->rounds_done < rounds_min(m))
        return m->rounds_done == 0 || left > -m->options->budget_seconds * LATE_SHARE_MAX;
    return left > m->round_seconds;
}

static void measure(struct measuring *m)
{
    const struct profile_plan *plan = &m->plans[0];
    for (uint32_t i = 0; i < plan->point_count; i++)
        m->weight_all += m->plan_count * profile_point_weight(&plan->points[i]);
    int64_t begin_us = clock_now_us(&clock_system);
    struct error ignored; /* After an error of the device, the caller asks again. */
    while (more_rounds(m) && profile_step_check(m->step, &ignored) == ST_OK) {
        m->weight_done = 0;
        for (uint32_t i = 0; i < plan->point_count; i++)
            visit_all(m, i);
        m->rounds_done++;
        m->round_seconds = seconds_since(begin_us) / m->rounds_done;
        if (plan->points[plan->point_count - 1].sample_count == PROFILE_SAMPLES_MAX)
            return;
    }
}

static void describe_model(const struct measuring *m, struct profile *p)
{
    const struct model_hyper *h = profile_step_hyper(m->step);
    const struct profile_step_weights *weights = profile_step_weights(m->step);
    snprintf(p->model.name, sizeof(p->model.name), "%s", h->name);
    p->model.metadata_hash = model_file_metadata_hash(m->options->file);
    p->model.layer_count = h->layer_count;
    p->model.hidden = h->hidden;
    p->model.vocab = h->vocab;
    memcpy(p->model.layer_weight_bytes, weights->layer_bytes, sizeof(weights->layer_bytes));
    p->model.embedding_bytes = weights->embedding_bytes;
    p->model.vocabulary_bytes = weights->vocabulary_bytes;
    p->model.tied = weights->tied;
    p->model.kv_bytes_per_token =
        h->kv_head_count * compute_kv_token_bytes(h->head_dim, profile_step_kv_dtype(m->step));
    p->model.vocabulary_layers = model_vocabulary_layers(h);
    p->model.kv_copied = h->latent.rank != 0;
    p->model.groups = model_layer_groups(h);
    p->model.boundary_bytes_per_token = h->hidden * sizeof(float);
}

/* Counts the experts that the decode steps of the plan choose. */
static void describe_experts(const struct measuring *m, struct profile *p)
{
    const struct profile_plan *plan = &m->plans[0];
    const struct model_experts *experts = &profile_step_hyper(m->step)->experts;
    struct profile_experts *out = &p->model.experts;
    const uint64_t bytes = profile_step_weights(m->step)->expert_bytes;
    if (experts->count == 0 || bytes == 0)
        return;
    *out = (struct profile_experts){.count = experts->count, .used = experts->used, .bytes = bytes};
    for (uint32_t i = 0; i < plan->batch_count; i++) {
        double chosen = profile_step_experts(m->step, plan->batches[i], plan->token_contexts[0]);
        if (chosen == 0)
            return;
        out->rows[out->row_count] = plan->batches[i];
        out->chosen[out->row_count] =
            i > 0 ? fmax(chosen, out->chosen[out->row_count - 1]) : chosen;
        out->row_count++;
    }
}

/* Names the device: "cpu-2", "cpu-2-tp2" with two ranks, or "cpu-2+1" beside one busy device. If
 * the name is taken, "host/cpu-2", so that profiles of several hosts can be merged. A GPU has no
 * number of threads: "cuda:0". */
static enum status name_device(const struct measuring *m, const struct profile *p,
                               struct profile_device *d, struct error *error)
{
    char more[16] = "";
    if (m->options->ranks > 1)
        snprintf(more, sizeof(more), "-tp%u", m->options->ranks);
    if (d->busy_devices > 0)
        snprintf(more, sizeof(more), "+%u", d->busy_devices);
    for (int with_host = 0; with_host < 2; with_host++) {
        char threads[16] = "";
        bool taken = false;
        if (!device_name_gpu(m->options->device, NULL))
            snprintf(threads, sizeof(threads), "-%u", m->options->threads);
        snprintf(d->name, sizeof(d->name), "%.*s%s%.12s%s%s", with_host ? 12 : 0, m->options->host,
                 with_host ? "/" : "", m->options->device, threads, more);
        for (uint32_t i = 0; i < p->device_count; i++)
            taken = taken || strcmp(p->devices[i].name, d->name) == 0;
        if (!taken)
            return ST_OK;
    }
    return error_set(error, ST_INVALID, "device \"%s\": the profile already has one", d->name);
}

static enum status describe_device(const struct measuring *m, struct profile_device *d)
{
    const struct profile_step_weights *weights = profile_step_weights(m->step);
    const struct model_hyper *h = profile_step_hyper(m->step);
    const uint32_t layers = h->layer_count;
    snprintf(d->kind, sizeof(d->kind), "%.31s", m->options->device);
    char ranks[24] = "";
    if (m->options->ranks > 1)
        snprintf(ranks, sizeof(ranks), "%u ranks, each ", m->options->ranks);
    snprintf(d->description, sizeof(d->description), "%s%s", ranks, profile_step_describe(m->step));
    snprintf(d->host, sizeof(d->host), "%s", m->options->host);
    d->threads = m->options->threads;
    d->ranks = m->options->ranks;
    d->memory_bytes = profile_step_memory_bytes(m->step);
    d->layer_count = 1;
    for (uint32_t i = 1; i < layers; i++)
        if (weights->layer_kinds[i] != weights->layer_kinds[0] ||
            model_layer_window(h, i) != model_layer_window(h, 0))
            d->layer_count = layers;
    d->layers = calloc(d->layer_count, sizeof(*d->layers));
    return d->layers != NULL ? ST_OK : ST_NO_MEMORY;
}

/* Returns the cached tokens that fit half of the available memory, at most those of the largest
 * step. */
static uint32_t decode_tokens_max(const struct model_hyper *h, bool quick, bool gpu)
{
    uint64_t available = 0;
    uint64_t token_bytes = (uint64_t)h->layer_count * h->kv_head_count *
                           compute_kv_token_bytes(h->head_dim, COMPUTE_KV_I16);
    uint64_t bytes = gpu ? KV_BYTES_MAX_GPU : KV_BYTES_MAX;
    if (!gpu && memory_available("", &available) == ST_OK && available / 2 < bytes)
        bytes = available / 2;
    uint64_t tokens = bytes / token_bytes;
    uint64_t most = quick ? 1024 : gpu ? DECODE_TOKENS_MAX_GPU : DECODE_TOKENS_MAX;
    return (uint32_t)(tokens < most ? tokens : most);
}

static enum status open_step_with(struct measuring *m, const struct model_hyper *hyper,
                                  uint32_t decode_tokens, bool gpu, struct error *error)
{
    uint32_t context_tokens =
        hyper->context_tokens < LIMIT_CONTEXT_TOKENS ? hyper->context_tokens : LIMIT_CONTEXT_TOKENS;
    const enum profile_plan_kind kind = m->options->quick ? PROFILE_PLAN_QUICK
                                        : gpu             ? PROFILE_PLAN_GPU
                                                          : PROFILE_PLAN_CPU;
    for (uint32_t i = 0; i < m->plan_count; i++) {
        profile_plan_done(&m->plans[i]);
        if (profile_plan_open(context_tokens, decode_tokens, kind, &m->plans[i]) != ST_OK)
            return error_set(error, ST_NO_MEMORY, "out of memory");
    }
    const struct profile_plan *plan = &m->plans[0];
    const uint32_t tokens = plan->tokens[plan->token_count - 1];
    const uint32_t batch = plan->batches[plan->batch_count - 1];
    const struct profile_step_options options = {
        .file = m->options->file,
        .device = m->options->device,
        .threads = m->options->threads / m->options->ranks,
        .ranks = &m->ranks,
        .rows_max = tokens + batch,
        .sequences_max = batch,
        .prompt_tokens_max = tokens + plan->prompt_contexts[plan->prompt_context_count - 1],
        .decode_tokens_max = decode_tokens,
        .progress = on_loaded,
        .self = m,
    };
    const struct profile_order order = {.kind = PROFILE_OPEN,
                                        .rows_max = options.rows_max,
                                        .sequences_max = options.sequences_max,
                                        .prompt_tokens_max = options.prompt_tokens_max,
                                        .decode_tokens_max = options.decode_tokens_max};
    enum status status = profile_ranks_order(&m->ranks, &order, error);
    return status == ST_OK ? profile_step_open(&options, &m->step, error) : status;
}

/* A rank other than 0: opens the device as rank 0 does, and computes the same batches. */
static void rank_run(void *self, struct profile_ranks *ranks)
{
    static struct profile_step_times unused;
    const struct profile_device_options *o = self;
    struct profile_step *step = NULL;
    struct profile_order order;
    struct error error;
    for (profile_ranks_order_take(ranks, &order);; profile_ranks_order_take(ranks, &order)) {
        const struct profile_step_options options = {.file = o->file,
                                                     .device = o->device,
                                                     .threads = o->threads / o->ranks,
                                                     .ranks = ranks,
                                                     .rows_max = order.rows_max,
                                                     .sequences_max = order.sequences_max,
                                                     .prompt_tokens_max = order.prompt_tokens_max,
                                                     .decode_tokens_max = order.decode_tokens_max};
        if (order.kind == PROFILE_PROMPT)
            profile_step_prompt(step, order.rows, order.context, order.decodes, &unused);
        else if (order.kind == PROFILE_TOKEN)
            profile_step_token(step, order.rows, order.context, &unused);
        else if (profile_step_open(&options, &step, &error) != ST_OK)
            break;
    }
    fprintf(stderr, "cleave profile: rank %u: %s\n", ranks->rank, error.text);
    _exit(1);
}

/* Opens the device. The free memory of a GPU is known only when the weights are loaded, so this
 * retries with fewer tokens. */
static enum status open_step(struct measuring *m, struct error *error)
{
    const bool gpu = device_name_gpu(m->options->device, NULL);
    struct model_hyper hyper;
    enum status status = model_hyper_read(m->options->file, &hyper, error);
    if (status != ST_OK)
        return status;
    uint32_t tokens = decode_tokens_max(&hyper, m->options->quick, gpu);
    status = open_step_with(m, &hyper, tokens, gpu, error);
    while (gpu && status == ST_NO_MEMORY && tokens > DECODE_TOKENS_LEAST) {
        tokens /= 4;
        status = open_step_with(m, &hyper, tokens, gpu, error);
    }
    return status;
}

static double mean_w(const struct energy_sum *sum)
{
    return sum->us > 0 ? (double)sum->uj / (double)sum->us : 0;
}

static enum status device_add(struct measuring *m, uint32_t which, struct profile *p,
                              struct error *error)
{
    struct profile_device *d = &p->devices[p->device_count];
    d->busy_devices = which == 0 ? 0 : m->options->busy_devices;
    enum status status = name_device(m, p, d, error);
    if (status != ST_OK)
        return status;
    if (describe_device(m, d) != ST_OK)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    d->prompt_w = mean_w(&m->energy_sums[which][true]);
    d->token_w = mean_w(&m->energy_sums[which][false]);
    p->device_count++;
    return profile_points_conclude(&m->plans[which], p, d) == ST_OK
               ? ST_OK
               : error_set(error, ST_NO_MEMORY, "out of memory");
}

static enum status devices_measure(struct measuring *m, struct profile *p, struct error *error)
{
    const struct profile_device_options *o = m->options;
    enum status status =
        profile_busy_start(o->file, o->device, o->threads, o->busy_devices, &m->beside, error);
    profile_busy_pause(&m->beside);
    if (status == ST_OK)
        status = profile_ranks_start(o->ranks, rank_run, (void *)o, &m->ranks, error);
    if (status == ST_OK)
        status = open_step(m, error);
    if (status != ST_OK)
        return status;
    if (p->device_count == 0) {
        describe_model(m, p);
        describe_experts(m, p);
    }
    measure(m);
    status = profile_step_check(m->step, error);
    for (uint32_t i = 0; i < m->plan_count && status == ST_OK; i++)
        status = device_add(m, i, p, error);
    return status;
}

enum status profile_device_measure(const struct profile_device_options *options, struct profile *p,
                                   struct error *error)
{
    struct measuring m = {.options = options,
                          .plan_count = options->busy_devices > 0 ? 2 : 1,
                          .begin_us = clock_now_us(&clock_system)};
    struct profile_device unnamed = {.busy_devices = 0};
    if (strcmp(options->device, "cpu") == 0)
        energy_open(options->energy_folder, &m.energy);
    else if (options->ranks == 1 && device_name_gpu(options->device, NULL))
        energy_open_gpu(options->device, &m.energy);
    /* Fail before the measurement, not after it. */
    enum status status =
        p->device_count + m.plan_count <= PROFILE_DEVICES_MAX
            ? name_device(&m, p, &unnamed, error)
            : error_set(error, ST_TOO_LARGE, "more than %d devices", PROFILE_DEVICES_MAX);
    if (status == ST_OK)
        status = devices_measure(&m, p, error);
    energy_close(&m.energy);
    profile_busy_stop(&m.beside);
    profile_ranks_stop(&m.ranks);
    profile_step_close(m.step);
    for (uint32_t i = 0; i < m.plan_count; i++)
        profile_plan_done(&m.plans[i]);
    return status;
}
