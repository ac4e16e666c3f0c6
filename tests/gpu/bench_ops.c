/* bench_ops: see the header. When operations are timed, results are wrong: an operation that adds
 * to its output runs several times. */
#include "tests/gpu/bench_ops.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define REPEATS 8

enum kind {
    KIND_EMBED,
    KIND_NORM,
    KIND_QKV,
    KIND_ROPE_STORE,
    KIND_ATTENTION,
    KIND_ATTENTION_OUTPUT,
    KIND_GATE_UP,
    KIND_GATED,
    KIND_DOWN,
    KIND_VOCABULARY,
    KIND_OTHER,
    KINDS
};

static const char *const names[KINDS] = {
    "embed",   "norm",  "qkv",  "rope_store", "attention", "attention_output",
    "gate_up", "gated", "down", "vocabulary", "other"};

static const struct compute_ops *base;
static struct compute_ops wrapped;
static struct compute_steps_ops wrapped_steps;
static bool timing;
static double times_us[KINDS];
static uint32_t calls[KINDS];

static double now_us(struct compute *c)
{
    struct timespec now;
    base->wait(c);
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* Runs `call` once, or REPEATS times if operations are timed. */
#define TIMED(c, kind, call)                                                                       \
    do {                                                                                           \
        const double begin = timing ? now_us(c) : 0;                                               \
        for (int i = 0; i < (timing ? REPEATS : 1); i++)                                           \
            call;                                                                                  \
        if (timing) {                                                                              \
            times_us[kind] += (now_us(c) - begin) / REPEATS;                                       \
            calls[kind]++;                                                                         \
        }                                                                                          \
    } while (0)

static void embed(struct compute *c, const struct compute_matrix *m, const uint32_t *ids,
                  uint32_t count, float *y)
{
    TIMED(c, KIND_EMBED, base->embed(c, m, ids, count, y));
}

static void gather(struct compute *c, const float *x, const uint32_t *rows, uint32_t count,
                   uint32_t cols, float *y)
{
    TIMED(c, KIND_OTHER, base->gather(c, x, rows, count, cols, y));
}

static void norm(struct compute *c, const float *x, const uint32_t *rows_in, uint32_t row_count,
                 uint32_t cols, const float *weight, float epsilon, struct compute_activations *a)
{
    TIMED(c, KIND_NORM, base->norm(c, x, rows_in, row_count, cols, weight, epsilon, a));
}

static void matmul(struct compute *c, const struct compute_matrix *const *matrices,
                   const float *const *biases, uint32_t count, const struct compute_activations *a,
                   uint32_t row_count, float *const *y)
{
    const enum kind kind = count == 3 ? KIND_QKV : count == 2 ? KIND_GATE_UP : KIND_VOCABULARY;
    TIMED(c, kind, base->matmul(c, matrices, biases, count, a, row_count, y));
}

static void matmul_add(struct compute *c, const struct compute_matrix *m,
                       const struct compute_activations *a, uint32_t row_count, float *x)
{
    const enum kind kind =
        calls[KIND_ATTENTION_OUTPUT] > calls[KIND_DOWN] ? KIND_DOWN : KIND_ATTENTION_OUTPUT;
    TIMED(c, kind, base->matmul_add(c, m, a, row_count, x));
}

static void rope_store(struct compute *c, struct compute_rope_table *rope,
                       const struct compute_batch *batch, const struct compute_kv *kv,
                       uint32_t head_count, float *q, float *k, const float *v)
{
    TIMED(c, KIND_ROPE_STORE, base->rope_store(c, rope, batch, kv, head_count, q, k, v));
}

static void attention(struct compute *c, const struct compute_batch *batch,
                      const struct compute_kv *kv, uint32_t head_count,
                      const struct compute_attention *parameters, const float *q,
                      struct compute_activations *a)
{
    TIMED(c, KIND_ATTENTION, base->attention(c, batch, kv, head_count, parameters, q, a));
}

static void gate_mul(struct compute *c, enum compute_activation activation, const float *gate,
                     const float *up, uint32_t row_count, uint32_t cols,
                     struct compute_activations *a)
{
    TIMED(c, KIND_GATED, base->gate_mul(c, activation, gate, up, row_count, cols, a));
}

/* Steps are never recorded: each launch is separate. */
static bool step_begin(struct compute *c, const struct compute_step *step)
{
    struct compute_step plain = *step;
    plain.is_unrecordable = plain.is_unrecordable || timing;
    return base->steps->begin(c, &plain);
}

const struct compute_ops *bench_ops_wrap(const struct compute_ops *ops)
{
    base = ops;
    wrapped = *ops;
    wrapped.embed = embed;
    wrapped.gather = gather;
    wrapped.norm = norm;
    wrapped.matmul = matmul;
    wrapped.matmul_add = matmul_add;
    wrapped.rope_store = rope_store;
    wrapped.attention = attention;
    wrapped.gate_mul = gate_mul;
    if (ops->steps != NULL) {
        wrapped_steps = *ops->steps;
        wrapped_steps.begin = step_begin;
        wrapped.steps = &wrapped_steps;
    }
    return &wrapped;
}

void bench_ops_begin(void)
{
    memset(times_us, 0, sizeof(times_us));
    memset(calls, 0, sizeof(calls));
    timing = true;
}

void bench_ops_end(const char *name)
{
    timing = false;
    for (int i = 0; i < KINDS; i++)
        if (calls[i] > 0)
            printf("op %s %s us %.1f calls %u\n", name, names[i], times_us[i], calls[i]);
}
