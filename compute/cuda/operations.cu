/* operations: the operations of struct compute_ops on rows: their inputs and outputs, and one
 * launch each (kernels.cuh). Nothing waits. */
#include "compute/cuda/backend.cuh"

extern "C" {
#include "common/fixed_math.h"
}

#include <cstdlib>
#include <cstring>

/* ---- memory on the device between launches ---- */

static enum status activations_open(struct compute *c, uint32_t rows_max, uint32_t cols,
                                    unsigned needs, struct compute_activations **out)
{
    struct compute_activations *a = (struct compute_activations *)calloc(1, sizeof(*a));
    const size_t count = (size_t)rows_max * cols;
    if (a == NULL)
        return ST_NO_MEMORY;
    a->rows_max = rows_max;
    a->cols = cols;
    const bool f32 = c->exact || (needs & COMPUTE_NEEDS_F32) != 0;
    const bool bf16 = !c->exact && (needs & (COMPUTE_NEEDS_BF16 | COMPUTE_NEEDS_Q8)) != 0;
    if (f32)
        a->f32 = (float *)cuda_take(c, count * sizeof(float), true);
    if (bf16 || !f32)
        a->bf16 = (__nv_bfloat16 *)cuda_take(c, count * sizeof(__nv_bfloat16), true);
    const bool f8 =
        bf16 && (needs & COMPUTE_NEEDS_F8) != 0 && cols % 16 == 0 && cuda_f8_supported(c);
    if (f8)
        a->f8 = cuda_f8_open(c, rows_max, cols);
    if ((f32 && a->f32 == NULL) || ((bf16 || !f32) && a->bf16 == NULL) || (f8 && a->f8 == NULL)) {
        cuda_f8_close(c, a->f8);
        cuda_give(c, a->f32);
        cuda_give(c, a->bf16);
        free(a);
        return c->failed ? ST_IO : ST_NO_MEMORY;
    }
    *out = a;
    return ST_OK;
}

static void activations_close(struct compute *c, struct compute_activations *a)
{
    cuda_steps_forget(c);
    cuda_f8_close(c, a->f8);
    cuda_give(c, a->f32);
    cuda_give(c, a->bf16);
    free(a);
}

static enum status rope_open(struct compute *c, const struct compute_rope *rope,
                             struct compute_rope_table **out)
{
    const uint32_t half = rope->dim / 2;
    const size_t bytes = (size_t)rope->positions_max * rope->dim * sizeof(float);
    struct compute_rope_table *table = (struct compute_rope_table *)calloc(1, sizeof(*table));
    float *host = (float *)malloc(bytes);
    float *values = (float *)cuda_take(c, bytes, false);
    if (table == NULL || host == NULL || values == NULL) {
        free(table);
        free(host);
        cuda_give(c, values);
        return c->failed ? ST_IO : ST_NO_MEMORY;
    }
    const double amplitude = rope->amplitude != 0 ? (double)rope->amplitude : 1;
    for (uint32_t i = 0; i < half; i++) {
        double frequency =
            fixed_pow((double)rope->freq_base, -2.0 * i / rope->dim) * (double)rope->freq_scale;
        if (rope->factors != NULL)
            frequency /= (double)rope->factors[i];
        for (uint32_t p = 0; p < rope->positions_max; p++) {
            float *row = host + (size_t)p * rope->dim;
            double sine, cosine;
            fixed_sine_cosine(p * frequency, &sine, &cosine);
            row[i] = (float)(amplitude * cosine);
            row[half + i] = (float)(amplitude * sine);
        }
    }
    cuda_write(c, values, host, bytes);
    free(host);
    *table = {rope->dim, rope->neox, rope->positions_max, values};
    *out = table;
    return ST_OK;
}

static void rope_close(struct compute *c, struct compute_rope_table *table)
{
    if (table == NULL)
        return;
    cuda_steps_forget(c);
    cuda_give(c, table->values);
    free(table);
}

/* ---- launches ---- */

static void embed(struct compute *c, const struct compute_matrix *m, const uint32_t *ids,
                  uint32_t count, float *y)
{
    const uint32_t *numbers = cuda_enter(c) ? cuda_step_numbers(c, ids, count) : NULL;
    if (numbers == NULL)
        return;
    cuda_embed(c->stream, &m->weights, numbers, count, y);
    cuda_launched(c, "embedding");
}

static void gather(struct compute *c, const float *x, const uint32_t *rows, uint32_t count,
                   uint32_t cols, float *y)
{
    const uint32_t *numbers = cuda_enter(c) ? cuda_step_numbers(c, rows, count) : NULL;
    if (numbers == NULL)
        return;
    cuda_gather(c->stream, x, numbers, count, cols, y);
    cuda_launched(c, "gathering rows");
}

static void norm(struct compute *c, const float *x, const uint32_t *rows_in, uint32_t row_count,
                 uint32_t cols, const float *weight, float epsilon, struct compute_activations *a)
{
    if (!cuda_enter(c))
        return;
    const uint32_t *numbers = NULL;
    if (rows_in != NULL && (numbers = cuda_step_numbers(c, rows_in, row_count)) == NULL)
        return;
    cuda_f8_stale(a);
    cuda_norm(c->stream, x, numbers, row_count, cols, weight, epsilon, a->bf16, a->f32);
    cuda_launched(c, "norm");
}

static void layer_norm(struct compute *c, const float *x, const uint32_t *rows_in,
                       uint32_t row_count, uint32_t cols, const float *weight, const float *bias,
                       float epsilon, struct compute_activations *a)
{
    if (!cuda_enter(c))
        return;
    const uint32_t *numbers = NULL;
    if (rows_in != NULL && (numbers = cuda_step_numbers(c, rows_in, row_count)) == NULL)
        return;
    cuda_f8_stale(a);
    cuda_layer_norm(c->stream, x, numbers, row_count, cols, weight, bias, epsilon, a->bf16, a->f32);
    cuda_launched(c, "LayerNorm");
}

static bool reads_f32(const struct compute *c, const struct compute_matrix *m)
{
    return c->exact || m->weights.type == COMPUTE_F32;
}

/* Computes them in one launch, because each alone may be too small for the device. */
static void matmul_few(struct compute *c, const struct compute_matrix *const *matrices,
                       const float *const *biases, uint32_t count,
                       const struct compute_activations *a, uint32_t row_count, float *const *y)
{
    const struct cuda_weights *weights[CUDA_GEMV_SET];
    for (uint32_t i = 0; i < count; i++)
        weights[i] = &matrices[i]->weights;
    cuda_gemv_set(c->stream, weights, biases, count, a->bf16,
                  reads_f32(c, matrices[0]) ? a->f32 : NULL, row_count, false, y);
    cuda_launched(c, "products");
}

static void matmul(struct compute *c, const struct compute_matrix *const *matrices,
                   const float *const *biases, uint32_t count, const struct compute_activations *a,
                   uint32_t row_count, float *const *y)
{
    bool alike = count <= CUDA_GEMV_SET;
    for (uint32_t i = 1; i < count; i++)
        alike = alike && reads_f32(c, matrices[i]) == reads_f32(c, matrices[0]);
    if (row_count <= CUDA_GEMV_ROWS && alike && cuda_enter(c)) {
        matmul_few(c, matrices, biases, count, a, row_count, y);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!cuda_enter(c))
            return;
        if (i + 1 < count && cuda_product_pair(c, matrices + i, a, row_count, y + i))
            i++;
        else
            cuda_product(c, matrices[i], a, row_count, false, y[i]);
    }
    for (uint32_t i = 0; i < count && biases != NULL; i++) {
        if (biases[i] == NULL || !cuda_enter(c))
            continue;
        cuda_bias_add(c->stream, biases[i], row_count, matrices[i]->weights.rows, y[i]);
        cuda_launched(c, "bias");
    }
}

static void matmul_add(struct compute *c, const struct compute_matrix *m,
                       const struct compute_activations *a, uint32_t row_count, float *x)
{
    if (cuda_enter(c))
        cuda_product(c, m, a, row_count, true, x);
}

static void low_rank(struct compute *c, const struct compute_low_ranks *ranks,
                     const struct compute_batch *batch, const struct compute_activations *a,
                     float *y)
{
    const struct cuda_sequences *s = cuda_enter(c) ? cuda_step_batch(c, batch, 0) : NULL;
    if (s == NULL || s->adapted == 0)
        return;
    const size_t bytes = (size_t)s->rows * ranks->rank_max * sizeof(float);
    if (!cuda_grow(c, &c->low_rank_scratch, &c->low_rank_scratch_bytes, bytes, "adapters"))
        return;
    cuda_low_rank(c->stream, s, ranks, a->f32, a->cols, (float *)c->low_rank_scratch, y);
    cuda_launched(c, "adapters");
}

static void rope_store(struct compute *c, struct compute_rope_table *rope,
                       const struct compute_batch *batch, const struct compute_kv *kv,
                       uint32_t head_count, float *q, float *k, const float *v)
{
    const struct cuda_sequences *s =
        cuda_enter(c) ? cuda_step_batch(c, batch, kv->block_tokens) : NULL;
    if (s == NULL)
        return;
    cuda_rope_store(c->stream, rope != NULL ? rope->values : NULL, rope != NULL ? rope->dim : 0,
                    rope != NULL && rope->neox, s, kv, head_count, q, k, v);
    cuda_launched(c, "rotation and storing of K and V");
}

static enum status attention_check(struct compute *c, const struct compute_kv *kv,
                                   uint32_t head_count, struct error *error)
{
    if (cuda_enter(c) && cuda_attention_takes(kv, head_count))
        return ST_OK;
    if (kv->latent != 0)
        return error_set(error, ST_UNSUPPORTED,
                         "cuda:%d has no attention over latent vectors of %u + %u values in blocks "
                         "of %u tokens: want up to 64 + 512, and a device whose thread blocks can "
                         "have 100 KB of shared memory",
                         c->device, 2 * kv->head_dim - kv->latent, kv->latent, kv->block_tokens);
    return error_set(error, ST_UNSUPPORTED,
                     "cuda:%d has no attention for %u heads over %u of %u dimensions in blocks of "
                     "%u tokens",
                     c->device, head_count, kv->head_count, kv->head_dim, kv->block_tokens);
}

static void attention(struct compute *c, const struct compute_batch *batch,
                      const struct compute_kv *kv, uint32_t head_count,
                      const struct compute_attention *parameters, const float *q,
                      struct compute_activations *a)
{
    const struct cuda_sequences *s =
        cuda_enter(c) ? cuda_step_batch(c, batch, kv->block_tokens) : NULL;
    if (s == NULL || !cuda_grow(c, &c->attention_scratch, &c->attention_scratch_bytes,
                                cuda_attention_scratch(s, kv, head_count), "attention"))
        return;
    cuda_f8_stale(a);
    cuda_attention(c->stream, s, kv, head_count, parameters, q, c->attention_scratch, a->bf16,
                   a->f32);
    cuda_launched(c, "attention");
}

/* ---- latent attention ---- */

static void join(struct compute *c, const float *weight, float epsilon, uint32_t row_count,
                 uint32_t own_cols, uint32_t cols, const float *own, const float *latent, float *k)
{
    if (!cuda_enter(c))
        return;
    cuda_latent_join(c->stream, weight, epsilon, row_count, own_cols, cols, own, latent, k);
    cuda_launched(c, "latent vectors");
}

static struct cuda_latent_product product_of(const struct compute_matrix *m, uint32_t head_count,
                                             uint32_t row_count)
{
    struct cuda_latent_product product = {};
    product.w = (const float *)m->weights.quants;
    product.w_row = m->weights.row_bytes / sizeof(float);
    product.heads = head_count;
    product.outputs = m->weights.rows / head_count;
    product.cols = m->weights.cols;
    product.rows = row_count;
    return product;
}

static void absorb(struct compute *c, const struct compute_matrix *m, uint32_t head_count,
                   uint32_t rotated, uint32_t row_count, const float *x, float *q)
{
    if (!cuda_enter(c))
        return;
    struct cuda_latent_product product = product_of(m, head_count, row_count);
    product.x = x;
    product.x_width = product.cols + rotated;
    product.out_f32 = q;
    cuda_latent_multiply(c->stream, &product);
    cuda_launched(c, "absorbed queries");
}

static void expand(struct compute *c, const struct compute_matrix *m, uint32_t head_count,
                   uint32_t row_count, const struct compute_activations *x,
                   struct compute_activations *a)
{
    if (!cuda_enter(c))
        return;
    struct cuda_latent_product product = product_of(m, head_count, row_count);
    product.x = x->f32;
    product.x_width = product.cols;
    product.out = a->bf16;
    product.out_f32 = a->f32;
    cuda_f8_stale(a);
    cuda_latent_multiply(c->stream, &product);
    cuda_launched(c, "results of heads");
}

static const struct compute_latent_ops latent_ops = {join, absorb, expand};

static void gate_mul(struct compute *c, enum compute_activation activation, const float *gate,
                     const float *up, uint32_t row_count, uint32_t cols,
                     struct compute_activations *a)
{
    if (!cuda_enter(c))
        return;
    cuda_f8_stale(a);
    cuda_gated(c->stream, activation, gate, up, row_count, cols, a->bf16, a->f32);
    cuda_launched(c, "gate");
}

static void cap(struct compute *c, float cap, size_t count, float *x)
{
    if (!cuda_enter(c))
        return;
    cuda_cap(c->stream, cap, count, x);
    cuda_launched(c, "cap");
}

static void scale(struct compute *c, float factor, size_t count, float *x)
{
    if (!cuda_enter(c))
        return;
    cuda_scale(c->stream, factor, count, x);
    cuda_launched(c, "scale");
}

static void scale_add(struct compute *c, float factor, size_t count, const float *y, float *x)
{
    if (!cuda_enter(c))
        return;
    cuda_scale_add(c->stream, factor, count, y, x);
    cuda_launched(c, "scaled sum");
}

static void head_norm(struct compute *c, const float *weight, float epsilon, uint32_t row_count,
                      uint32_t head_count, uint32_t head_dim, float *x)
{
    if (!cuda_enter(c))
        return;
    cuda_head_norm(c->stream, weight, epsilon, row_count, head_count, head_dim, x);
    cuda_launched(c, "norm of heads");
}

static void norm_add(struct compute *c, const float *y, uint32_t row_count, uint32_t cols,
                     const float *weight, float epsilon, float *x)
{
    if (!cuda_enter(c))
        return;
    cuda_norm_add(c->stream, y, row_count, cols, weight, epsilon, x);
    cuda_launched(c, "norm");
}

/* Copies the edits to the device, if there are any. Behind them is room for the logits' values. */
static bool edits_copy(struct compute *c, const struct compute_edit *edits, uint32_t count)
{
    const size_t bytes = count * sizeof(*edits);
    return count == 0 ||
           (cuda_grow(c, &c->edits, &c->edits_bytes, bytes + count * sizeof(float),
                      "edits of logits") &&
            cuda_good(c, cudaMemcpyAsync(c->edits, edits, bytes, cudaMemcpyHostToDevice, c->stream),
                      "edits of logits"));
}

/* Samples on the device, where the logits are: a few bytes are copied instead of rows of the
 * vocabulary. The kernel reads and writes pinned memory. */
static void sample(struct compute *c, float *logits, uint32_t vocab,
                   const struct compute_sample *samples, uint32_t count,
                   const struct compute_edit *edits, uint32_t edit_count,
                   struct compute_sampled *sampled_out)
{
    /* If the device has failed, the engine finds out afterwards. */
    memset(sampled_out, 0, count * sizeof(*sampled_out));
    if (!cuda_enter(c))
        return;
    memcpy(c->samples, samples, count * sizeof(*samples));
    if (!edits_copy(c, edits, edit_count))
        return;
    struct compute_edit *copied = (struct compute_edit *)c->edits;
    cuda_sample(c->stream, logits, vocab, c->samples, count, copied, (float *)(copied + edit_count),
                c->sampled);
    if (!cuda_launched(c, "sampling") ||
        !cuda_good(c, cudaStreamSynchronize(c->stream), "an operation before sampling"))
        return;
    memcpy(sampled_out, c->sampled, count * sizeof(*sampled_out));
}

/* Kernels need no announcement. */
static void layer_begin(struct compute *c, uint32_t row_count)
{
    (void)c, (void)row_count;
}

static const struct compute_sampling_ops sampling_ops = {sample};

void cuda_operations_set(struct compute_ops *ops)
{
    ops->matrix_open = cuda_matrix_open;
    ops->matrix_close = cuda_matrix_close;
    ops->matrix_needs = cuda_matrix_needs;
    ops->matrix_bytes = cuda_matrix_bytes;
    ops->activations_open = activations_open;
    ops->activations_close = activations_close;
    ops->rope_open = rope_open;
    ops->rope_close = rope_close;
    ops->embed = embed;
    ops->gather = gather;
    ops->norm = norm;
    ops->layer_norm = layer_norm;
    ops->matmul = matmul;
    ops->matmul_add = matmul_add;
    ops->low_rank = low_rank;
    ops->rope_store = rope_store;
    ops->attention = attention;
    ops->attention_check = attention_check;
    ops->gate_mul = gate_mul;
    ops->cap = cap;
    ops->scale = scale;
    ops->scale_add = scale_add;
    ops->head_norm = head_norm;
    ops->norm_add = norm_add;
    ops->layer_begin = layer_begin;
    ops->latent = &latent_ops;
    ops->sampling = &sampling_ops;
    ops->whole_batches = true; /* Chunks would only make products smaller. */
}
