/* forward: one transformer stage over one batch. A layer is: norm, q k v, RoPE and store into the
 * cache (then layer_done: the transfer of this layer overlaps the rest of it), attention, output
 * projection, norm, feed-forward. Everything per row is independent of the other rows, so rows may
 * be worked on in any grouping without a change of bits. Two liberties are taken from that:
 * - The matrix parts run in chunks of rows, so that a chunk's wide activations stay in the cache
 * between one matrix and the next.
 * - After K and V of the last layer are stored, only rows whose logits are wanted go on (the
 * "tail"): for a prompt of 2048 tokens that is one row of the last layer instead of 2048. */
#include "model/model.h"
#include "model/weights.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* Rows per chunk: large enough that each weight read pays for many rows, small enough that gate and
 * up of a chunk stay in L2 or L3. */
#define FORWARD_CHUNK_ROWS 252
/* Chunks are of one size, so that none is left over that reads all the weights for a few rows; but
 * for the last, whole tiles of every backend. */
#define FORWARD_CHUNK_STEP 12

struct forward {
    const struct model *m;
    uint32_t rows_max;
    uint32_t logits_max;
    uint32_t chunk_rows;
    float *memory; /* all of the arrays below, one piece */
    float *own_x;  /* [rows_max × hidden]: the residual stream of a whole model */
    float *x;      /* of the batch that ran last: that, or what the stage was given */
    float *tail_x; /* [logits_max × hidden] */
    float *tail_q;
    /* What follows takes turns in the same memory: q, k and v are done with when attention is, gate
     * and up when the layer is. */
    float *q; /* [rows_max × q width] */
    float *k; /* [chunk_rows × kv width]: a chunk's go into the cache before the next one's come */
    float *v;
    float *branch; /* [rows_max × hidden]: what a block adds, before its post norm; only then */
    float *gate;   /* [chunk_rows × ffn] */
    float *up;
    float *logits; /* [logits_max × vocab] */
    struct compute_activations
        *hidden;                       /* normalised rows: input of q k v, gate up and vocabulary */
    struct compute_activations *heads; /* attention's result: input of its output projection */
    struct compute_activations *ffn;   /* input of down */
    struct compute_sequence *tail_sequences; /* [logits_max] */
    struct compute_sequence *part_sequences; /* [chunk_rows] */
    uint32_t
        scored_rows; /* rows of x that forward_logits may use: the batch's if all_rows, else 0 */
};

static uint32_t q_width(const struct model_hyper *h)
{
    return h->head_count * h->head_dim;
}

static uint32_t kv_width(const struct model_hyper *h)
{
    return h->kv_head_count * h->head_dim;
}

struct part {
    float **array; /* NULL ends a list */
    size_t floats;
};

/* Lays the parts one after the other from offset `at`, each on a cache line, and returns the end.
 * Without memory it only measures. */
static size_t lay(float *memory, size_t at, const struct part *parts)
{
    for (; parts->array != NULL; parts++) {
        if (memory != NULL)
            *parts->array = memory + at;
        at += (parts->floats + 15) / 16 * 16;
    }
    return at;
}

static bool stage_is_whole(const struct model *m)
{
    return model_has_first(m) && model_has_last(m);
}

static size_t lay_all(struct forward *f, float *memory)
{
    const struct model_hyper *h = &f->m->hyper;
    const struct part kept[] = {
        {&f->own_x, stage_is_whole(f->m) ? (size_t)f->rows_max * h->hidden : 0},
        {&f->branch, h->post_norms ? (size_t)f->rows_max * h->hidden : 0},
        {&f->tail_x, (size_t)f->logits_max * h->hidden},
        {&f->tail_q, (size_t)f->logits_max * q_width(h)},
        {NULL, 0},
    };
    const struct part turns[][4] = {
        {{&f->q, (size_t)f->rows_max * q_width(h)},
         {&f->k, (size_t)f->chunk_rows * kv_width(h)},
         {&f->v, (size_t)f->chunk_rows * kv_width(h)}},
        {{&f->gate, (size_t)f->chunk_rows * h->ffn}, {&f->up, (size_t)f->chunk_rows * h->ffn}},
        {{&f->logits, (size_t)f->logits_max * h->vocab}},
    };
    size_t begin = lay(memory, 0, kept);
    size_t end = begin;
    for (size_t i = 0; i < sizeof(turns) / sizeof(turns[0]); i++) {
        size_t after = lay(memory, begin, turns[i]);
        end = after > end ? after : end;
    }
    return end;
}

static enum status take_memory(struct forward *f)
{
    enum status status = f->m->ops->memory_take(f->m->compute, lay_all(f, NULL), &f->memory);
    if (status == ST_OK)
        lay_all(f, f->memory);
    return status;
}

static enum status open_activations(struct forward *f)
{
    const struct model *m = f->m;
    const struct model_hyper *h = &m->hyper;
    const struct compute_ops *ops = m->ops;
    unsigned hidden = model_has_last(m) ? ops->matrix_needs(m->output) : 0;
    unsigned heads = 0;
    unsigned ffn = 0;
    for (uint32_t i = 0; i < m->last_layer - m->first_layer; i++) {
        const struct model_layer *layer = &m->layers[i];
        hidden |=
            ops->matrix_needs(layer->q) | ops->matrix_needs(layer->k) | ops->matrix_needs(layer->v);
        hidden |= ops->matrix_needs(layer->gate) | ops->matrix_needs(layer->up);
        heads |= ops->matrix_needs(layer->attention_output);
        ffn |= ops->matrix_needs(layer->down);
    }
    uint32_t hidden_rows = f->chunk_rows > f->logits_max ? f->chunk_rows : f->logits_max;
    /* Rounding costs most of all in blocks with an outlier, and attention's result has few
     * (docs/numbers.md). */
    enum status status = ops->activations_open(m->compute, hidden_rows, h->hidden,
                                               hidden | COMPUTE_REFINED, &f->hidden);
    if (status == ST_OK)
        status = ops->activations_open(m->compute, f->rows_max, q_width(h), heads, &f->heads);
    if (status == ST_OK)
        status = ops->activations_open(m->compute, f->chunk_rows, h->ffn, ffn | COMPUTE_REFINED,
                                       &f->ffn);
    return status;
}

enum status forward_open(const struct model *m, uint32_t rows_max, uint32_t logits_max,
                         struct forward **out, struct error *error)
{
    if (rows_max == 0 || logits_max == 0)
        return error_set(error, ST_INVALID,
                         "a batch of up to %" PRIu32 " rows and %" PRIu32
                         " logit rows, want 1 or more",
                         rows_max, logits_max);
    struct forward *f = calloc(1, sizeof(*f));
    if (f == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for a forward pass");
    f->m = m;
    f->rows_max = rows_max;
    f->logits_max = logits_max;
    f->chunk_rows = rows_max < FORWARD_CHUNK_ROWS ? rows_max : FORWARD_CHUNK_ROWS;
    f->tail_sequences = calloc(logits_max, sizeof(*f->tail_sequences));
    f->part_sequences = calloc(f->chunk_rows, sizeof(*f->part_sequences));
    enum status status =
        f->tail_sequences == NULL || f->part_sequences == NULL ? ST_NO_MEMORY : take_memory(f);
    if (status == ST_OK)
        status = open_activations(f);
    if (status != ST_OK) {
        forward_close(f);
        return error_set(error, status,
                         "workspace for %" PRIu32 " rows and %" PRIu32 " logit rows: %s", rows_max,
                         logits_max, status_name(status));
    }
    *out = f;
    return ST_OK;
}

void forward_close(struct forward *f)
{
    if (f == NULL)
        return;
    const struct compute_ops *ops = f->m->ops;
    struct compute *c = f->m->compute;
    if (f->ffn != NULL)
        ops->activations_close(c, f->ffn);
    if (f->heads != NULL)
        ops->activations_close(c, f->heads);
    if (f->hidden != NULL)
        ops->activations_close(c, f->hidden);
    if (f->memory != NULL)
        ops->memory_free(c, f->memory);
    free(f->tail_sequences);
    free(f->part_sequences);
    free(f);
}

/* A programmer's mistake here would write outside the cache: it must not get further. */
static void check_batch(const struct forward *f, const struct forward_batch *b,
                        const struct model_kv *kv)
{
    const struct model_hyper *h = &f->m->hyper;
    uint32_t row = 0;
    assert(b->batch.row_count > 0 && b->batch.row_count <= f->rows_max);
    assert(b->logits_count <= f->logits_max);
    for (uint32_t i = 0; i < b->batch.sequence_count; i++) {
        const struct compute_sequence *s = &b->batch.sequences[i];
        assert(s->first_row == row && s->row_count > 0 && s->blocks != NULL);
        assert((uint64_t)s->first_position + s->row_count <= f->m->context_tokens_max);
        row += s->row_count;
    }
    assert(row == b->batch.row_count);
    assert(stage_is_whole(f->m) || b->x != NULL);
    for (uint32_t i = 0; i < row && model_has_first(f->m); i++)
        assert(b->token_ids[i] < h->vocab);
    for (uint32_t i = 0; i < b->logits_count; i++)
        assert(b->logits_rows[i] < row && (i == 0 || b->logits_rows[i] > b->logits_rows[i - 1]));
    assert(kv->block_bytes >=
           compute_kv_block_bytes(kv->block_tokens, h->kv_head_count, h->head_dim, kv->dtype));
}

/* The rows rows[0..count) of `batch` as a batch of their own. Neighbours of one sequence stay
 * together. */
static struct compute_batch tail_batch(const struct compute_batch *batch, const uint32_t *rows,
                                       uint32_t count, struct compute_sequence *sequences)
{
    uint32_t used = 0;
    uint32_t source = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct compute_sequence *s = &batch->sequences[source];
        while (rows[i] >= s->first_row + s->row_count)
            s = &batch->sequences[++source];
        uint32_t position = s->first_position + (rows[i] - s->first_row);
        struct compute_sequence *before = used > 0 ? &sequences[used - 1] : NULL;
        if (before != NULL && i > 0 && rows[i - 1] >= s->first_row &&
            position == before->first_position + before->row_count) {
            before->row_count++;
            continue;
        }
        sequences[used++] = (struct compute_sequence){
            .first_row = i,
            .row_count = 1,
            .first_position = position,
            .blocks = s->blocks,
        };
    }
    return (struct compute_batch){
        .row_count = count, .sequence_count = used, .sequences = sequences};
}

static uint32_t chunk_at(const struct forward *f, uint32_t first, uint32_t row_count)
{
    uint32_t chunks = (row_count + f->chunk_rows - 1) / f->chunk_rows;
    uint32_t rows = (row_count + chunks - 1) / chunks;
    rows = (rows + FORWARD_CHUNK_STEP - 1) / FORWARD_CHUNK_STEP * FORWARD_CHUNK_STEP;
    rows = rows < f->chunk_rows ? rows : f->chunk_rows;
    return row_count - first < rows ? row_count - first : rows;
}

/* Rows [first, first + count) of `batch` as a batch of their own. */
static struct compute_batch part_batch(const struct compute_batch *batch, uint32_t first,
                                       uint32_t count, struct compute_sequence *sequences)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < batch->sequence_count; i++) {
        const struct compute_sequence *s = &batch->sequences[i];
        uint32_t begin = s->first_row > first ? s->first_row : first;
        uint32_t end = s->first_row + s->row_count;
        end = end < first + count ? end : first + count;
        if (begin >= end)
            continue;
        sequences[used++] = (struct compute_sequence){
            .first_row = begin - first,
            .row_count = end - begin,
            .first_position = s->first_position + (begin - s->first_row),
            .blocks = s->blocks,
        };
    }
    return (struct compute_batch){
        .row_count = count, .sequence_count = used, .sequences = sequences};
}

static struct compute_rope_table *layer_rope(const struct model *m, const struct model_layer *layer)
{
    const uint32_t period = m->hyper.local_period;
    const uint32_t number = m->first_layer + (uint32_t)(layer - m->layers) + 1;
    return period != 0 && number % period != 0 ? m->local_rope : m->rope;
}

/* q of all rows, rotated; k and v of all rows into the cache. */
static void project_qkv(struct forward *f, const struct model_layer *layer,
                        const struct compute_batch *batch, const struct compute_kv *kv)
{
    const struct model_hyper *h = &f->m->hyper;
    const struct compute_ops *ops = f->m->ops;
    struct compute *c = f->m->compute;
    const struct compute_matrix *const matrices[] = {layer->q, layer->k, layer->v};
    const float *const biases[] = {layer->q_bias, layer->k_bias, layer->v_bias};
    for (uint32_t first = 0, count; first < batch->row_count; first += count) {
        count = chunk_at(f, first, batch->row_count);
        float *q = f->q + (size_t)first * q_width(h);
        float *const results[] = {q, f->k, f->v};
        struct compute_batch part = part_batch(batch, first, count, f->part_sequences);
        ops->norm(c, f->x + (size_t)first * h->hidden, NULL, count, h->hidden,
                  layer->attention_norm, h->norm_epsilon, f->hidden);
        ops->matmul(c, matrices, biases, 3, f->hidden, count, results);
        if (layer->q_norm != NULL) {
            ops->head_norm(c, layer->q_norm, h->norm_epsilon, count, h->head_count, h->head_dim, q);
            ops->head_norm(c, layer->k_norm, h->norm_epsilon, count, h->kv_head_count, h->head_dim,
                           f->k);
        }
        ops->rope_store(c, layer_rope(f->m, layer), &part, kv, h->head_count, q, f->k, f->v);
    }
}

/* x += W · a, or its norm. */
static void add_product(struct forward *f, const struct compute_matrix *matrix,
                        const struct compute_activations *a, uint32_t row_count,
                        const float *post_norm, float *x)
{
    const struct model_hyper *h = &f->m->hyper;
    const struct compute_ops *ops = f->m->ops;
    struct compute *c = f->m->compute;
    if (post_norm == NULL) {
        ops->matmul_add(c, matrix, a, row_count, x);
        return;
    }
    const struct compute_matrix *const matrices[] = {matrix};
    float *const results[] = {f->branch};
    ops->matmul(c, matrices, NULL, 1, a, row_count, results);
    ops->norm_add(c, f->branch, row_count, h->hidden, post_norm, h->norm_epsilon, x);
}

static void feed_forward(struct forward *f, const struct model_layer *layer, uint32_t row_count,
                         float *x)
{
    const struct model_hyper *h = &f->m->hyper;
    const struct compute_ops *ops = f->m->ops;
    struct compute *c = f->m->compute;
    const struct compute_matrix *const matrices[] = {layer->gate, layer->up};
    float *const results[] = {f->gate, f->up};
    for (uint32_t first = 0, count; first < row_count; first += count) {
        count = chunk_at(f, first, row_count);
        float *rows = x + (size_t)first * h->hidden;
        ops->norm(c, rows, NULL, count, h->hidden, layer->ffn_norm, h->norm_epsilon, f->hidden);
        ops->matmul(c, matrices, NULL, 2, f->hidden, count, results);
        (h->gelu ? ops->gelu_mul : ops->silu_mul)(c, f->gate, f->up, count, h->ffn, f->ffn);
        add_product(f, layer->down, f->ffn, count, layer->ffn_post_norm, rows);
    }
}

/* From attention to the end of the layer, for the rows of `batch`. */
static void finish_layer(struct forward *f, const struct model_layer *layer,
                         const struct compute_batch *batch, const struct compute_kv *kv,
                         const float *q, float *x)
{
    const struct model_hyper *h = &f->m->hyper;
    const struct compute_ops *ops = f->m->ops;
    struct compute *c = f->m->compute;
    ops->attention(c, batch, kv, h->head_count, h->attention_scale, q, f->heads);
    add_product(f, layer->attention_output, f->heads, batch->row_count, layer->attention_post_norm,
                x);
    feed_forward(f, layer, batch->row_count, x);
}

static void project_vocabulary(struct forward *f, const float *x, const uint32_t *rows,
                               uint32_t count)
{
    const struct model *m = f->m;
    const struct model_hyper *h = &m->hyper;
    const struct compute_matrix *const matrices[] = {m->output};
    float *const results[] = {f->logits};
    m->ops->norm(m->compute, x, rows, count, h->hidden, m->output_norm, h->norm_epsilon, f->hidden);
    m->ops->matmul(m->compute, matrices, NULL, 1, f->hidden, count, results);
}

static void embed(struct forward *f, const struct forward_batch *batch)
{
    const struct model *m = f->m;
    const struct model_hyper *h = &m->hyper;
    const uint32_t rows = batch->batch.row_count;
    m->ops->embed(m->compute, m->embedding, batch->token_ids, rows, f->x);
    if (h->embedding_scale != 1)
        m->ops->scale(m->compute, h->embedding_scale, (size_t)rows * h->hidden, f->x);
}

void forward_run(struct forward *f, const struct forward_batch *batch, const struct model_kv *kv,
                 const float **logits_out)
{
    const struct model *m = f->m;
    const struct model_hyper *h = &m->hyper;
    const struct compute_ops *ops = m->ops;
    struct compute *c = m->compute;
    check_batch(f, batch, kv);
    struct compute_batch rows = batch->batch;
    const uint32_t *logits_rows = batch->logits_rows;
    const float *q = f->q;
    float *x = stage_is_whole(m) ? f->own_x : batch->x;
    struct compute_kv layer_kv = {
        .block_bytes = kv->block_bytes,
        .block_tokens = kv->block_tokens,
        .head_count = h->kv_head_count,
        .head_dim = h->head_dim,
        .dtype = kv->dtype,
    };
    f->x = x;
    f->scored_rows = batch->all_rows && model_has_last(m) ? rows.row_count : 0;
    *logits_out = model_has_last(m) ? f->logits : NULL;
    if (model_has_first(m))
        embed(f, batch);
    for (uint32_t i = 0; i < m->last_layer - m->first_layer; i++) {
        const struct model_layer *layer = &m->layers[i];
        layer_kv.base = (uint8_t *)kv->base + (size_t)i * kv->layer_stride_bytes;
        if (ops->layer_begin != NULL)
            ops->layer_begin(c, rows.row_count);
        project_qkv(f, layer, &rows, &layer_kv);
        if (batch->layer_done != NULL)
            batch->layer_done(batch->layer_done_self, m->first_layer + i);
        bool last = m->first_layer + i + 1 == h->layer_count;
        if (last && !batch->all_rows && batch->logits_count == 0)
            return;
        if (last && !batch->all_rows && batch->logits_count < rows.row_count) {
            ops->gather(c, f->x, logits_rows, batch->logits_count, h->hidden, f->tail_x);
            ops->gather(c, f->q, logits_rows, batch->logits_count, q_width(h), f->tail_q);
            rows = tail_batch(&batch->batch, logits_rows, batch->logits_count, f->tail_sequences);
            logits_rows = NULL;
            x = f->tail_x;
            q = f->tail_q;
        }
        finish_layer(f, layer, &rows, &layer_kv, q, x);
    }
    if (model_has_last(m) && batch->logits_count > 0)
        project_vocabulary(f, x, logits_rows, batch->logits_count);
}

void forward_logits(struct forward *f, const uint32_t *rows, uint32_t count,
                    const float **logits_out)
{
    assert(count > 0 && count <= f->logits_max);
    for (uint32_t i = 0; i < count; i++)
        assert(rows[i] < f->scored_rows);
    project_vocabulary(f, f->x, rows, count);
    *logits_out = f->logits;
}
