#include "tests/gpu/attention_cpu.h"

#include "compute/cpu/cpu.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static float *copy(const float *from, size_t count)
{
    float *to = malloc(count * sizeof(*to));
    assert(to != NULL);
    return memcpy(to, from, count * sizeof(*to));
}

void attention_cpu_run(const struct compute_batch *batch, const struct compute_kv *kv,
                       uint32_t head_count, const struct compute_attention *parameters,
                       const float *q, const float *k, const float *v, float *out)
{
    const struct compute_ops *ops = &compute_cpu;
    const size_t q_cols = (size_t)head_count * compute_kv_key_dim(kv), rows = batch->row_count;
    const size_t k_cols = (size_t)kv->head_count * compute_kv_key_dim(kv);
    const size_t cols = (size_t)head_count * compute_kv_value_dim(kv);
    const struct compute_options options = {.threads = 1, .isa = COMPUTE_ISA_PORTABLE};
    struct compute_activations *a = NULL;
    struct compute *c = NULL;
    enum status status = ops->open(&options, &c, NULL);
    assert(status == ST_OK);
    status = ops->activations_open(c, (uint32_t)rows, (uint32_t)cols, COMPUTE_NEEDS_F32, &a);
    assert(status == ST_OK);
    float *queries = copy(q, rows * q_cols), *keys = copy(k, rows * k_cols);
    ops->rope_store(c, NULL, batch, kv, head_count, queries, keys, v);
    ops->attention(c, batch, kv, head_count, parameters, queries, a);
    memcpy(out, a->floats, rows * cols * sizeof(*out));
    free(queries);
    free(keys);
    ops->activations_close(c, a);
    ops->close(c);
}
