/* profile_stamps: see the header. */
#include "tools/profile/stamps.h"

#include "common/clock.h"
#include "common/random.h"
#include "compute/cpu/routing.h"

struct profile_stamps_state profile_stamps_state;

static void stamp_now(uint32_t number)
{
    struct profile_stamp *stamp = &profile_stamps_state.stamps[number];
    stamp->end_ns = clock_system_ns();
    stamp->waited_us =
        profile_stamps_state.has_own_memory ? 0 : profile_delay_us(profile_stamps_state.core_waits);
    stamp->begin_ns = profile_stamps_state.has_own_memory ? stamp->end_ns : clock_system_ns();
}

void profile_stamp_add(void)
{
    stamp_now(profile_stamps_state.stamp_count++);
}

/* Runs on a thread of the device. */
static void stamp_reached(void *self, uint32_t number)
{
    (void)self;
    stamp_now(number);
}

/* Sets a stamp for the time when all work queued so far is done. */
static void stamp_queue(struct compute *c, uint32_t number)
{
    if (profile_stamps_state.has_own_memory)
        profile_stamps_state.base->mark(c, number, stamp_reached, NULL);
    else
        stamp_now(number);
}

static enum status timed_matrix_open(struct compute *c, const struct compute_source *source,
                                     struct compute_matrix **out)
{
    enum status status = profile_stamps_state.base->matrix_open(c, source, out);
    if (status != ST_OK)
        return status;
    size_t bytes = profile_stamps_state.base->matrix_bytes(*out);
    if (bytes == 0) /* The device keeps no weights; use the size in the file. */
        bytes = (uint64_t)source->rows * source->cols / compute_type_block_elements(source->type) *
                compute_type_block_bytes(source->type);
    if (profile_stamps_state.end_count < profile_stamps_state.ends_wanted) {
        profile_stamps_state.ends[profile_stamps_state.end_count] = *out;
        profile_stamps_state.end_bytes[profile_stamps_state.end_count++] = bytes;
        return status;
    }
    profile_stamps_state.bytes += bytes;
    profile_stamps_state.layer_kind =
        random_at(profile_stamps_state.layer_kind,
                  ((uint64_t)source->type << 60) ^ ((uint64_t)source->rows << 32) ^ source->cols);
    return status;
}

/* Takes a stamp for the first thread that arrives: the lanes reach the embedding and the vocabulary
 * one after the other. */
static bool stamp_take(uint32_t number)
{
    uint32_t expected = number;
    return atomic_compare_exchange_strong(&profile_stamps_state.stamp_count, &expected, number + 1);
}

/* True for the first call of a layer. The lanes begin a layer together, and call again for each
 * chunk of their rows. */
static bool layer_comes(const struct compute_matrix *q)
{
    const struct compute_matrix *before = atomic_load(&profile_stamps_state.layer);
    return before != q && atomic_compare_exchange_strong(&profile_stamps_state.layer, &before, q);
}

static void timed_embed(struct compute *c, const struct compute_matrix *m, const uint32_t *ids,
                        uint32_t count, float *y)
{
    if (!profile_stamps_state.no_inner_stamps && !profile_stamps_state.is_wait_backend &&
        stamp_take(PROFILE_STAMP_EMBED))
        stamp_now(PROFILE_STAMP_EMBED);
    profile_stamps_state.embed_count++;
    profile_stamps_state.base->embed(c, m, ids, count, y);
}

static bool timed_step_begin(struct compute *c, const struct compute_step *step)
{
    struct compute_step timed = *step;
    timed.is_unrecordable = timed.is_unrecordable || !profile_stamps_state.no_inner_stamps;
    return profile_stamps_state.base->steps->begin(c, &timed);
}

/* Called by the backend that only waits; it waits here, before the layer's operations. */
static void timed_layer_begin(struct compute *c, uint32_t row_count)
{
    if (profile_stamps_state.stamp_count == PROFILE_STAMP_EMBED)
        profile_stamp_add();
    profile_stamp_add();
    profile_stamps_state.base->layer_begin(c, row_count);
}

/* A layer's stamp is at its q, k and v matrices. So the norm before them counts for the previous
 * layer, and the final norm for the last one. */
static void timed_matmul(struct compute *c, const struct compute_matrix *const *matrices,
                         const float *const *biases, uint32_t count,
                         const struct compute_activations *a, uint32_t row_count, float *const *y)
{
    /* The vocabulary can be computed in several pieces. */
    const uint32_t vocabulary = PROFILE_STAMP_LAYERS + profile_stamps_state.layer_count;
    if (count == 3 && !profile_stamps_state.is_wait_backend &&
        !profile_stamps_state.no_inner_stamps && layer_comes(matrices[0]))
        stamp_queue(c, profile_stamps_state.stamp_count++);
    for (uint32_t i = 0;
         i < profile_stamps_state.end_count && count == 1 && !profile_stamps_state.no_inner_stamps;
         i++)
        if (matrices[0] == profile_stamps_state.ends[i] && stamp_take(vocabulary))
            stamp_queue(c, vocabulary);
    profile_stamps_state.base->matmul(c, matrices, biases, count, a, row_count, y);
}

static enum status timed_experts_open(struct compute *c,
                                      const struct compute_experts_options *options,
                                      struct compute_experts **out)
{
    const struct compute_ops *base = profile_stamps_state.base;
    enum status status = base->experts->open(c, options, out);
    if (status != ST_OK || profile_stamps_state.routing_count == LIMIT_LAYERS)
        return status;
    profile_stamps_state.expert_bytes = base->matrix_bytes(options->gate[0]) +
                                        base->matrix_bytes(options->up[0]) +
                                        base->matrix_bytes(options->down[0]);
    profile_stamps_state.routings[profile_stamps_state.routing_count++] =
        (struct profile_routing){.experts = *out, .routing = options->routing};
    return status;
}

/* Adds the number of experts that the rows choose together. */
static void chosen_add(const struct compute_routing *routing, const float *router_product,
                       uint32_t row_count)
{
    uint32_t ids[COMPUTE_EXPERTS_USED_MAX];
    float weights[COMPUTE_EXPERTS_USED_MAX];
    bool chosen[COMPUTE_EXPERTS_MAX] = {false};
    for (uint32_t row = 0; row < row_count; row++) {
        routing_choose(routing, router_product + (size_t)row * routing->experts, ids, weights);
        for (uint32_t i = 0; i < routing->used; i++) {
            profile_stamps_state.chosen += !chosen[ids[i]];
            chosen[ids[i]] = true;
        }
    }
    profile_stamps_state.experts_layers++;
}

static void timed_experts_run(struct compute *c, const struct compute_experts *e,
                              struct compute_experts_workspace *workspace,
                              const float *router_product, const struct compute_activations *a,
                              uint32_t row_count, bool add, float *y)
{
    for (uint32_t i = 0;
         profile_stamps_state.counts_experts && i < profile_stamps_state.routing_count; i++)
        if (profile_stamps_state.routings[i].experts == e)
            chosen_add(&profile_stamps_state.routings[i].routing, router_product, row_count);
    profile_stamps_state.base->experts->run(c, e, workspace, router_product, a, row_count, add, y);
}

void profile_stamps_set(struct compute *c)
{
    profile_stamps_state.ops = *profile_stamps_state.base;
    profile_stamps_state.ops.matrix_open = timed_matrix_open;
    profile_stamps_state.ops.embed = timed_embed;
    profile_stamps_state.is_wait_backend = profile_stamps_state.base == &compute_wait;
    if (profile_stamps_state.is_wait_backend)
        profile_stamps_state.ops.layer_begin = timed_layer_begin;
    profile_stamps_state.ops.matmul = timed_matmul;
    profile_stamps_state.has_own_memory = profile_stamps_state.base->device_memory(c) != NULL;
    if (profile_stamps_state.base->experts != NULL) {
        profile_stamps_state.experts = *profile_stamps_state.base->experts;
        profile_stamps_state.experts.open = timed_experts_open;
        profile_stamps_state.experts.run = timed_experts_run;
        profile_stamps_state.ops.experts = &profile_stamps_state.experts;
    }
    profile_stamps_state.no_inner_stamps = true; /* No stamps while the device is being prepared. */
    if (profile_stamps_state.base->steps != NULL) {
        profile_stamps_state.steps = *profile_stamps_state.base->steps;
        profile_stamps_state.steps.begin = timed_step_begin;
        profile_stamps_state.ops.steps = &profile_stamps_state.steps;
    }
}
