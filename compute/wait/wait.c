/* wait: a backend that computes nothing but takes time. A layer of a batch with n rows lasts LAYER
 * + n * ROW from layer_begin on. Everything else takes no time, including the embedding, the
 * vocabulary and the shorter end of the last layer. Waits are sleeps: they occupy no core.
 *
 * A sleep ends somewhat late. The next layer's wait is shorter by the same time, so that a batch of
 * thirty layers is late by one such delay, not by thirty. Time that the engine itself needs between
 * two layers, or a late batch, is not compensated.
 *
 * The ranks of a group meet at the end of each layer's wait, so that the slowest rank determines
 * the time of all. Their sums and gathering take no time (such times must be included in LAYER and
 * ROW).
 *
 * Only logits are written, because nothing else is read. They select one fixed token for any
 * sampling (wait.h). */
#include "compute/wait/wait.h"

#include "common/clock.h"
#include "compute/host.h"
#include "compute/meeting.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#define NS_PER_S 1000000000ll

struct compute {
    struct wait_clock time;
    int64_t layer_ns;
    int64_t row_ns;
    int64_t late_ns;         /* How late the last wait ended. */
    struct meeting *meeting; /* The other ranks of this device's group; NULL = it is in no group. */
    char description[64];
};

struct compute_matrix {
    uint32_t rows;
};

struct compute_activations {
    char nothing;
};

struct compute_rope_table {
    char nothing;
};

static int64_t system_now_ns(void *self)
{
    (void)self;
    return clock_system_ns();
}

static void system_sleep_until_ns(void *self, int64_t at_ns)
{
    (void)self;
    static _Thread_local bool exact;
    if (!exact) /* The kernel delays a thread's timers by up to 50 us to save wake-ups. */
        prctl(PR_SET_TIMERSLACK, 1);
    exact = true;
    const struct timespec at = {.tv_sec = at_ns / NS_PER_S, .tv_nsec = at_ns % NS_PER_S};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        ;
}

void wait_clock_set(struct compute *c, const struct wait_clock *clock)
{
    c->time = *clock;
}

static enum status wait_open(const struct compute_options *options, struct compute **out,
                             struct error *error)
{
    struct compute *c = calloc(1, sizeof(*c));
    if (c == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for the waiting backend");
    c->time = (struct wait_clock){.now_ns = system_now_ns, .sleep_until_ns = system_sleep_until_ns};
    c->layer_ns = options->wait_layer_ns;
    c->row_ns = options->wait_row_ns;
    snprintf(c->description, sizeof(c->description), "waits of %g us a layer and %g us a row",
             (double)c->layer_ns * 1e-3, (double)c->row_ns * 1e-3);
    *out = c;
    return ST_OK;
}

static void wait_close(struct compute *c)
{
    if (c != NULL)
        meeting_leave(c->meeting);
    free(c);
}

static const char *wait_describe(const struct compute *c)
{
    return c->description;
}

static void wait_layer_begin(struct compute *c, uint32_t row_count)
{
    int64_t late_ns = c->late_ns < WAIT_CREDIT_NS_MAX ? c->late_ns : WAIT_CREDIT_NS_MAX;
    int64_t now_ns = c->time.now_ns(c->time.self);
    int64_t due_ns = now_ns - late_ns + c->layer_ns + row_count * c->row_ns;
    if (due_ns > now_ns) {
        c->time.sleep_until_ns(c->time.self, due_ns);
        now_ns = c->time.now_ns(c->time.self);
    }
    if (c->meeting != NULL && meeting_exchange(c->meeting))
        now_ns = c->time.now_ns(c->time.self);
    c->late_ns = now_ns - due_ns;
}

static enum status wait_matrix_open(struct compute *c, const struct compute_source *source,
                                    struct compute_matrix **out)
{
    struct compute_matrix *m = malloc(sizeof(*m));
    (void)c;
    if (m == NULL)
        return ST_NO_MEMORY;
    m->rows = source->rows;
    *out = m;
    return ST_OK;
}

static void wait_matrix_close(struct compute *c, struct compute_matrix *m)
{
    (void)c;
    free(m);
}

static unsigned wait_matrix_needs(const struct compute_matrix *m)
{
    (void)m;
    return COMPUTE_NEEDS_F32;
}

static size_t wait_matrix_bytes(const struct compute_matrix *m)
{
    (void)m;
    return 0;
}

static enum status wait_activations_open(struct compute *c, uint32_t rows_max, uint32_t cols,
                                         unsigned needs, struct compute_activations **out)
{
    (void)c, (void)rows_max, (void)cols, (void)needs;
    *out = calloc(1, sizeof(**out));
    return *out != NULL ? ST_OK : ST_NO_MEMORY;
}

static void wait_activations_close(struct compute *c, struct compute_activations *a)
{
    (void)c;
    free(a);
}

static enum status wait_rope_open(struct compute *c, const struct compute_rope *rope,
                                  struct compute_rope_table **out)
{
    (void)c, (void)rope;
    *out = calloc(1, sizeof(**out));
    return *out != NULL ? ST_OK : ST_NO_MEMORY;
}

static void wait_rope_close(struct compute *c, struct compute_rope_table *table)
{
    (void)c;
    free(table);
}

static void wait_embed(struct compute *c, const struct compute_matrix *m, const uint32_t *ids,
                       uint32_t count, float *y)
{
    (void)c, (void)m, (void)ids, (void)count, (void)y;
}

static void wait_gather(struct compute *c, const float *x, const uint32_t *rows, uint32_t count,
                        uint32_t cols, float *y)
{
    (void)c, (void)x, (void)rows, (void)count, (void)cols, (void)y;
}

static void wait_layer_norm(struct compute *c, const float *x, const uint32_t *rows_in,
                            uint32_t row_count, uint32_t cols, const float *weight,
                            const float *bias, float epsilon, struct compute_activations *a)
{
    (void)c, (void)x, (void)rows_in, (void)row_count, (void)cols, (void)weight, (void)bias;
    (void)epsilon, (void)a;
}

static void wait_norm(struct compute *c, const float *x, const uint32_t *rows_in,
                      uint32_t row_count, uint32_t cols, const float *weight, float epsilon,
                      struct compute_activations *a)
{
    (void)c, (void)x, (void)rows_in, (void)row_count, (void)cols, (void)weight, (void)epsilon;
    (void)a;
}

/* A single matrix is the output projection (or, in models with post norms, what a block adds, for
 * which these values are as good as zeros). Several matrices belong to a layer; the logits use the
 * same memory later, so it must stay zero. */
static void wait_matmul(struct compute *c, const struct compute_matrix *const *matrices,
                        const float *const *biases, uint32_t count,
                        const struct compute_activations *a, uint32_t row_count, float *const *y)
{
    (void)c, (void)biases, (void)a;
    if (count != 1)
        return;
    const uint32_t vocab = matrices[0]->rows;
    for (uint32_t row = 0; row < row_count; row++)
        y[0][(size_t)row * vocab + WAIT_TOKEN(vocab)] = WAIT_LOGIT;
}

static void wait_matmul_add(struct compute *c, const struct compute_matrix *m,
                            const struct compute_activations *a, uint32_t row_count, float *x)
{
    (void)c, (void)m, (void)a, (void)row_count, (void)x;
}

static void wait_rope_store(struct compute *c, struct compute_rope_table *rope,
                            const struct compute_batch *batch, const struct compute_kv *kv,
                            uint32_t head_count, float *q, float *k, const float *v)
{
    (void)c, (void)rope, (void)batch, (void)kv, (void)head_count, (void)q, (void)k, (void)v;
}

static void wait_attention(struct compute *c, const struct compute_batch *batch,
                           const struct compute_kv *kv, uint32_t head_count,
                           const struct compute_attention *parameters, const float *q,
                           struct compute_activations *a)
{
    (void)c, (void)batch, (void)kv, (void)head_count, (void)parameters, (void)q, (void)a;
}

static void wait_gate(struct compute *c, enum compute_activation activation, const float *gate,
                      const float *up, uint32_t row_count, uint32_t cols,
                      struct compute_activations *a)
{
    (void)c, (void)activation, (void)gate, (void)up, (void)row_count, (void)cols, (void)a;
}

static void wait_scale(struct compute *c, float factor, size_t count, float *x)
{
    (void)c, (void)factor, (void)count, (void)x;
}

static void wait_scale_add(struct compute *c, float factor, size_t count, const float *y, float *x)
{
    (void)c, (void)factor, (void)count, (void)y, (void)x;
}

static void wait_head_norm(struct compute *c, const float *weight, float epsilon,
                           uint32_t row_count, uint32_t head_count, uint32_t head_dim, float *x)
{
    (void)c, (void)weight, (void)epsilon, (void)row_count, (void)head_count, (void)head_dim;
    (void)x;
}

static void wait_norm_add(struct compute *c, const float *y, uint32_t row_count, uint32_t cols,
                          const float *weight, float epsilon, float *x)
{
    (void)c, (void)y, (void)row_count, (void)cols, (void)weight, (void)epsilon, (void)x;
}

struct compute_experts {
    char nothing;
};

struct compute_experts_workspace {
    char nothing;
};

static enum status wait_experts_open(struct compute *c,
                                     const struct compute_experts_options *options,
                                     struct compute_experts **out)
{
    (void)c, (void)options;
    *out = calloc(1, sizeof(**out));
    return *out != NULL ? ST_OK : ST_NO_MEMORY;
}

static void wait_experts_close(struct compute *c, struct compute_experts *e)
{
    (void)c;
    free(e);
}

static enum status wait_room_open(struct compute *c,
                                  const struct compute_experts_workspace_options *options,
                                  struct compute_experts_workspace **out)
{
    (void)c, (void)options;
    *out = calloc(1, sizeof(**out));
    return *out != NULL ? ST_OK : ST_NO_MEMORY;
}

static void wait_room_close(struct compute *c, struct compute_experts_workspace *room)
{
    (void)c;
    free(room);
}

static void wait_experts_run(struct compute *c, const struct compute_experts *e,
                             struct compute_experts_workspace *room, const float *router_product,
                             const struct compute_activations *a, uint32_t row_count, bool add,
                             float *y)
{
    (void)c, (void)e, (void)room, (void)router_product, (void)a, (void)row_count, (void)add,
        (void)y;
}

static void wait_row_gate(struct compute *c, const float *gates, uint32_t row_count, uint32_t cols,
                          float *x)
{
    (void)c, (void)gates, (void)row_count, (void)cols, (void)x;
}

static const struct compute_experts_ops wait_experts = {
    .open = wait_experts_open,
    .close = wait_experts_close,
    .workspace_open = wait_room_open,
    .workspace_close = wait_room_close,
    .run = wait_experts_run,
    .row_gate = wait_row_gate,
};

static enum status wait_group_make(struct compute *c, uint8_t id_out[COMPUTE_GROUP_ID_BYTES],
                                   struct error *error)
{
    return meeting_make(&c->meeting, id_out, error);
}

static enum status wait_group_join(struct compute *c, const uint8_t id[COMPUTE_GROUP_ID_BYTES],
                                   uint32_t rank, uint32_t ranks, uint32_t timeout_ms,
                                   struct error *error)
{
    return meeting_join(&c->meeting, id, rank, ranks, timeout_ms, error);
}

/* The ranks have met at the end of the layer's wait. */
static void wait_group_sum(struct compute *c, size_t count, float *y)
{
    (void)c, (void)count, (void)y;
}

static void wait_group_add(struct compute *c, size_t count, float *y, float *x)
{
    (void)c, (void)count, (void)y, (void)x;
}

static void wait_group_norm(struct compute *c, const struct compute_group_norm *norms,
                            uint32_t count, float epsilon, uint32_t row_count)
{
    (void)c, (void)norms, (void)count, (void)epsilon, (void)row_count;
}

/* Writes what a single rank would have written. */
static void wait_group_gather(struct compute *c, uint32_t row_count, const float *part,
                              const uint32_t *counts, float *all)
{
    uint32_t vocab = 0;
    (void)part;
    if (meeting_rank(c->meeting) != 0)
        return;
    for (uint32_t rank = 0; rank < meeting_ranks(c->meeting); rank++)
        vocab += counts[rank];
    for (uint32_t row = 0; row < row_count; row++)
        all[(size_t)row * vocab + WAIT_TOKEN(vocab)] = WAIT_LOGIT;
}

static enum status wait_check(struct compute *c, struct error *error)
{
    return meeting_check(c->meeting, error);
}

static const struct compute_group_ops wait_group = {
    .id_make = wait_group_make,
    .join = wait_group_join,
    .sum = wait_group_sum,
    .sum_add = wait_group_add,
    .norm = wait_group_norm,
    .gather = wait_group_gather,
};

const struct compute_ops compute_wait = {
    .name = "wait",
    .open = wait_open,
    .close = wait_close,
    .describe = wait_describe,
    .device_memory = host_device_memory,
    .memory_allocate = host_memory_allocate,
    .memory_free = host_memory_free,
    .memory_write = host_memory_copy,
    .memory_read = host_memory_copy,
    .mark = host_mark,
    .wait = host_wait,
    .check = wait_check,
    .matrix_open = wait_matrix_open,
    .matrix_close = wait_matrix_close,
    .matrix_needs = wait_matrix_needs,
    .matrix_bytes = wait_matrix_bytes,
    .activations_open = wait_activations_open,
    .activations_close = wait_activations_close,
    .rope_open = wait_rope_open,
    .rope_close = wait_rope_close,
    .attention_check = host_attention_check,
    .layer_begin = wait_layer_begin,
    .embed = wait_embed,
    .gather = wait_gather,
    .norm = wait_norm,
    .layer_norm = wait_layer_norm,
    .matmul = wait_matmul,
    .matmul_add = wait_matmul_add,
    .rope_store = wait_rope_store,
    .attention = wait_attention,
    .gate_mul = wait_gate,
    .cap = wait_scale,
    .scale = wait_scale,
    .scale_add = wait_scale_add,
    .head_norm = wait_head_norm,
    .norm_add = wait_norm_add,
    .group = &wait_group,
    .experts = &wait_experts,
};
