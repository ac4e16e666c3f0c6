/* forward_lane: computes one layer for some rows: norm, q k v, RoPE and storing into the cache;
 * then attention, output projection, norm, feed-forward. Since rows are independent:
 * - The matrix parts run in slabs of rows, so that a slab's wide activations stay in the CPU
 *   cache from one matrix to the next.
 * - After K and V of the last layer are stored, only rows whose logits are wanted are computed (the
 *   "tail"): for a prompt of 2048 tokens that is one row of the last layer instead of 2048. */
#include "model/forward/adapters.h"
#include "model/forward/forward_state.h"

#include <assert.h>

/* Returns rows rows[0..count) of `batch` as a batch. Neighbours of one sequence stay together. */
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
            .adapter = s->adapter,
            .blocks = s->blocks,
            .group_stride = s->group_stride,
        };
    }
    return (struct compute_batch){
        .row_count = count, .sequence_count = used, .sequences = sequences};
}

static uint32_t slab_at(const struct forward_lane *lane, uint32_t first, uint32_t row_count)
{
    uint32_t slabs = (row_count + lane->slab_rows - 1) / lane->slab_rows;
    uint32_t rows = (row_count + slabs - 1) / slabs;
    rows = (rows + FORWARD_SLAB_STEP - 1) / FORWARD_SLAB_STEP * FORWARD_SLAB_STEP;
    rows = rows < lane->slab_rows ? rows : lane->slab_rows;
    return row_count - first < rows ? row_count - first : rows;
}

struct compute_batch forward_batch_rows(const struct compute_batch *batch, uint32_t first,
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
            .adapter = s->adapter,
            .blocks = s->blocks,
            .group_stride = s->group_stride,
        };
    }
    return (struct compute_batch){
        .row_count = count, .sequence_count = used, .sequences = sequences};
}

void forward_lane_groups(const struct forward *f, struct forward_lane *lane)
{
    const struct compute_batch *batch = &lane->batch;
    for (uint32_t group = 1; group < layer_groups_count(&f->groups); group++) {
        struct compute_sequence *to = lane->group_sequences + (size_t)(group - 1) * f->rows_max;
        for (uint32_t i = 0; i < batch->sequence_count; i++) {
            to[i] = batch->sequences[i];
            to[i].blocks += (size_t)group * to[i].group_stride;
        }
    }
}

/* Returns the lane's rows with the block tables of a layer. Each group's sequences have an address
 * of their own: a GPU recognises by it the sequences whose tables it has. */
static struct compute_batch layer_batch(const struct forward *f, const struct forward_lane *lane,
                                        const struct forward_layer *layer)
{
    struct compute_batch batch = lane->batch;
    if (layer->group > 0)
        batch.sequences = lane->group_sequences + (size_t)(layer->group - 1) * f->rows_max;
    return batch;
}

/* Returns the layer's rotary embedding; NULL = the layer rotates nothing. */
static struct compute_rope_table *layer_rope(const struct model *m,
                                             const struct forward_layer *layer)
{
    const uint8_t bits = m->hyper.layer_bits[m->first_layer + layer->index];
    if ((bits & MODEL_LAYER_UNROTATED) != 0)
        return NULL;
    return (bits & MODEL_LAYER_LOCAL_BASE) != 0 ? m->local_rope : m->rope;
}

/* Normalises rows of x into lane->hidden, as the family does. weight NULL = not at all. */
static void lane_norm(const struct forward *f, const struct forward_lane *lane, const float *x,
                      const uint32_t *rows, uint32_t count, const float *weight, const float *bias)
{
    const struct model_hyper *h = &f->m->hyper;
    if (h->layer_norms && weight != NULL)
        f->m->ops->layer_norm(lane->compute, x, rows, count, h->hidden, weight, bias,
                              h->norm_epsilon, lane->hidden);
    else
        f->m->ops->norm(lane->compute, x, rows, count, h->hidden, weight, h->norm_epsilon,
                        lane->hidden);
}

/* Makes the input of a draft layer from the embeddings x of the lane's rows. */
static void draft_input(struct forward *f, const struct forward_lane *lane, float *x)
{
    const struct model_draft *w = &f->m->draft;
    const struct compute_ops *ops = f->m->ops;
    const size_t hidden = f->m->hyper.hidden;
    const float *finals = f->draft_final_vectors + lane->first_row * hidden, *bias = NULL;
    const struct compute_matrix *token = w->token;
    for (uint32_t first = 0, count; first < lane->batch.row_count; first += count) {
        count = slab_at(lane, first, lane->batch.row_count);
        float *part = x + first * hidden;
        lane_norm(f, lane, part, NULL, count, w->token_norm, NULL);
        ops->matmul(lane->compute, &token, &bias, 1, lane->hidden, count, &part);
        lane_norm(f, lane, finals + first * hidden, NULL, count, w->final_norm, NULL);
        ops->matmul_add(lane->compute, w->final, lane->hidden, count, part);
    }
}

void forward_lane_embed(struct forward *f, const struct forward_lane *lane)
{
    const struct model *m = f->m;
    const struct model_hyper *h = &m->hyper;
    const uint32_t rows = lane->batch.row_count;
    float *x = f->residual + (size_t)lane->first_row * h->hidden;
    m->ops->embed(lane->compute, m->embedding, f->token_ids + lane->first_row, rows, x);
    if (forward_in_group(f))
        m->ops->group->sum(lane->compute, (size_t)rows * h->hidden, x);
    if (h->embedding_scale != 1)
        m->ops->scale(lane->compute, h->embedding_scale, (size_t)rows * h->hidden, x);
    if (m->draft.token != NULL)
        draft_input(f, lane, x);
}

/* Normalises q and k: each head, or all heads as one vector. */
static void qk_norm(const struct forward *f, const struct forward_lane *lane,
                    const struct model_layer *w, uint32_t row_count, float *q, float *k)
{
    const struct model_hyper *h = &f->m->hyper;
    const struct model_shard *own = &f->m->shard;
    const struct compute_ops *ops = f->m->ops;
    const bool whole = h->qk_norms == FAMILY_QK_WHOLE;
    if (h->qk_norms == FAMILY_QK_NONE)
        return;
    if (whole && forward_in_group(f)) {
        forward_group_qk_norm(f, lane->compute, w, row_count, q, k);
        return;
    }
    const uint32_t q_dim = (whole ? own->head_count : 1) * h->head_dim;
    const uint32_t k_dim = (whole ? own->kv_head_count : 1) * h->head_dim;
    ops->head_norm(lane->compute, w->q_norm, h->norm_epsilon, row_count,
                   whole ? 1 : own->head_count, q_dim, q);
    ops->head_norm(lane->compute, w->k_norm, h->norm_epsilon, row_count,
                   whole ? 1 : own->kv_head_count, k_dim, k);
}

void forward_lane_qkv(struct forward *f, struct forward_lane *lane,
                      const struct forward_layer *layer)
{
    const struct model_hyper *h = &f->m->hyper;
    const struct compute_ops *ops = f->m->ops;
    struct compute *c = lane->compute;
    const struct model_layer *w = layer->weights;
    const struct compute_matrix *const matrices[] = {w->q, w->k, w->v};
    const float *const biases[] = {w->q_bias, w->k_bias, w->v_bias};
    const uint32_t heads = f->m->shard.head_count;
    const float *lane_x = f->residual + (size_t)lane->first_row * h->hidden;
    float *lane_q = f->q + (size_t)lane->first_row * forward_q_width(f->m);
    const struct compute_batch batch = layer_batch(f, lane, layer);
    for (uint32_t first = 0, count; first < lane->batch.row_count; first += count) {
        count = slab_at(lane, first, lane->batch.row_count);
        float *q = lane_q + (size_t)first * forward_q_width(f->m);
        float *const results[] = {q, lane->k, lane->v};
        struct compute_batch part = batch;
        if (count < part.row_count)
            part = forward_batch_rows(&batch, first, count, lane->part_sequences);
        lane_norm(f, lane, lane_x + (size_t)first * h->hidden, NULL, count, w->attention_norm,
                  w->attention_norm_bias);
        if (h->latent.rank != 0) {
            forward_latent_qkv(f, lane, layer, layer_rope(f->m, layer), &part, q);
            continue;
        }
        ops->matmul(c, matrices, biases, 3, lane->hidden, count, results);
        for (int i = 0; i < 3; i++)
            adapters_add(f, lane, w, (enum adapter_matrix)(ADAPTER_Q + i), &part, lane->hidden,
                         results[i]);
        qk_norm(f, lane, w, count, q, lane->k);
        ops->rope_store(c, layer_rope(f->m, layer), &part, &layer->kv, heads, q, lane->k, lane->v);
    }
}

/* Where the rows of a lane are during the rest of a layer: in the batch, or in the tail. */
struct rows {
    const struct compute_batch *batch;
    const float *q;
    float *x;
    float *branch; /* See struct forward. */
};

void forward_branch_add(const struct forward *f, struct compute *c, uint32_t row_count,
                        const float *post_norm, float *branch, float *x)
{
    const struct model_hyper *h = &f->m->hyper;
    if (forward_in_group(f))
        forward_group_add(f, c, row_count, post_norm, branch, x);
    else if (post_norm != NULL)
        f->m->ops->norm_add(c, branch, row_count, h->hidden, post_norm, h->norm_epsilon, x);
    else
        f->m->ops->scale_add(c, h->residual_scale, (size_t)row_count * h->hidden, branch, x);
}

/* A product of a layer whose result is added to the layer's input. */
struct product {
    const struct compute_matrix *matrix;
    const float *bias; /* NULL = none. */
    enum adapter_matrix adapter;
    const float *post_norm;
};

/* x += W · a + bias, or the RMSNorm of this sum; with several ranks, of the sum over the ranks. */
static void add_product(struct forward *f, struct forward_lane *lane, const struct model_layer *w,
                        const struct product *product, const struct compute_activations *a,
                        const struct compute_batch *batch, float *branch, float *x)
{
    const struct compute_ops *ops = f->m->ops;
    struct compute *c = lane->compute;
    const struct compute_matrix *matrix = product->matrix;
    const uint32_t row_count = batch->row_count;
    if (branch == NULL) {
        ops->matmul_add(c, matrix, a, row_count, x);
        adapters_add(f, lane, w, product->adapter, batch, a, x);
        return;
    }
    const struct compute_matrix *const matrices[] = {matrix};
    const float *const biases[] = {product->bias};
    float *const results[] = {branch};
    ops->matmul(c, matrices, biases, 1, a, row_count, results);
    adapters_add(f, lane, w, product->adapter, batch, a, branch);
    forward_branch_add(f, c, row_count, product->post_norm, branch, x);
}

static void feed_forward(struct forward *f, struct forward_lane *lane, const struct model_layer *w,
                         const struct rows *rows)
{
    const struct model_hyper *h = &f->m->hyper;
    const struct compute_ops *ops = f->m->ops;
    struct compute *c = lane->compute;
    /* Without a gate, only the second of each. */
    const struct compute_matrix *const matrices[] = {w->gate, w->up};
    const float *const biases[] = {w->gate_bias, w->up_bias};
    float *const results[] = {lane->gate, lane->up};
    const uint32_t first_matrix = h->plain_ffn ? 1 : 0;
    const struct product down = {w->down, w->down_bias, ADAPTER_DOWN, w->ffn_post_norm};
    const uint32_t row_count = rows->batch->row_count;
    for (uint32_t first = 0, count; first < row_count; first += count) {
        count = slab_at(lane, first, row_count);
        float *x = rows->x + (size_t)first * h->hidden;
        if (w->experts.router != NULL) {
            forward_lane_experts(f, lane, w, count, rows->branch, x);
            continue;
        }
        struct compute_batch part = *rows->batch;
        if (count < row_count)
            part = forward_batch_rows(rows->batch, first, count, lane->part_sequences);
        lane_norm(f, lane, x, NULL, count, w->ffn_norm, w->ffn_norm_bias);
        ops->matmul(c, matrices + first_matrix, biases + first_matrix, 2 - first_matrix,
                    lane->hidden, count, results + first_matrix);
        adapters_add(f, lane, w, ADAPTER_GATE, &part, lane->hidden, lane->gate);
        adapters_add(f, lane, w, ADAPTER_UP, &part, lane->hidden, lane->up);
        ops->gate_mul(c, h->activation, h->plain_ffn ? lane->up : lane->gate,
                      h->plain_ffn ? NULL : lane->up, count, f->m->shard.ffn_count, lane->ffn);
        add_product(f, lane, w, &down, lane->ffn, &part, rows->branch, x);
    }
}

/* Copies the lane's rows whose logits are wanted next to each other. */
static struct compute_batch tail_take(struct forward *f, struct forward_lane *lane,
                                      const struct forward_batch *batch, struct rows *rows)
{
    const struct model_hyper *h = &f->m->hyper;
    const struct compute_ops *ops = f->m->ops;
    const size_t first = lane->logits_first, q_width = forward_q_width(f->m);
    float *q = f->tail_q + first * q_width;
    for (uint32_t i = 0; i < lane->logits_count; i++)
        lane->tail_rows[i] = batch->logits_rows[first + i] - lane->first_row;
    ops->gather(lane->compute, rows->x, lane->tail_rows, lane->logits_count, h->hidden,
                f->tail_residual + first * h->hidden);
    ops->gather(lane->compute, rows->q, lane->tail_rows, lane->logits_count, (uint32_t)q_width, q);
    rows->q = q;
    rows->x = f->tail_residual + first * h->hidden;
    return tail_batch(rows->batch, lane->tail_rows, lane->logits_count, lane->tail_sequences);
}

void forward_lane_finish(struct forward *f, struct forward_lane *lane,
                         const struct forward_layer *layer, const struct forward_batch *batch,
                         bool tail)
{
    const struct model_hyper *h = &f->m->hyper;
    const struct model_layer *w = layer->weights;
    const size_t first = lane->first_row;
    const struct compute_batch all_rows = layer_batch(f, lane, layer);
    struct compute_batch tail_rows;
    struct rows rows = {
        .batch = &all_rows,
        .q = f->q + first * forward_q_width(f->m),
        .x = f->residual + first * h->hidden,
        .branch = f->branch != NULL ? f->branch + first * h->hidden : NULL,
    };
    if (tail && lane->logits_count == 0)
        return;
    if (tail) {
        tail_rows = tail_take(f, lane, batch, &rows);
        rows.batch = &tail_rows;
    }
    const struct compute_attention how = {
        .scale = h->attention_scale,
        .window = model_layer_window(h, f->m->first_layer + layer->index),
        .cap = h->attention_cap,
        .sinks = w->sinks,
    };
    f->m->ops->attention(lane->compute, rows.batch, &layer->kv, f->m->shard.head_count, &how,
                         rows.q, h->latent.rank != 0 ? lane->value_latent : lane->heads);
    if (h->latent.rank != 0)
        forward_latent_output(f, lane, layer, rows.batch->row_count);
    const struct product output = {w->attention_output, w->attention_output_bias, ADAPTER_OUTPUT,
                                   w->attention_post_norm};
    if (h->parallel)
        feed_forward(f, lane, w, &rows); /* It reads x without the output of attention. */
    add_product(f, lane, w, &output, lane->heads, rows.batch, rows.branch, rows.x);
    if (!h->parallel)
        feed_forward(f, lane, w, &rows);
}

void forward_vocabulary(const struct forward *f, const struct forward_lane *lane, const float *x,
                        const uint32_t *rows, uint32_t count, float *logits)
{
    const struct model *m = f->m;
    const struct model_hyper *h = &m->hyper;
    const struct compute_matrix *const matrices[] = {m->output};
    const float *const biases[] = {m->output_bias};
    float *const results[] = {forward_in_group(f) ? f->logits_part : logits};
    lane_norm(f, lane, x, rows, count, m->output_norm, m->output_norm_bias);
    m->ops->matmul(lane->compute, matrices, biases, 1, lane->hidden, count, results);
    if (h->logits_cap != 0)
        m->ops->cap(lane->compute, h->logits_cap, (size_t)count * m->shard.vocab_count, results[0]);
    if (forward_in_group(f))
        forward_group_logits(f, lane->compute, count, f->logits_part, logits);
}
