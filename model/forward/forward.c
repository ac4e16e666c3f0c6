/* forward: runs one transformer stage over one batch. The rows of the batch are divided among the
 * lanes. Every lane embeds its rows and stores K and V of the first layer. Then, layer by layer,
 * the lanes wait for each other (layer_done is called, and the transfer of this layer's KV overlaps
 * the rest of the layer), and each lane computes the rest of the layer and stores K and V of the
 * next one. At the end, the whole device computes the logits. The computation of a layer is in
 * forward_lane.c. */
#include "model/forward/forward_state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Estimated costs, used to divide rows among lanes. Attention of one row over one cached token
 * costs this many times as much as the multiplications with the same number of weights (for queries
 * and values). Attention is slower per operation, and a single row does not share the K and V that
 * it reads. Measured with one stream and with prompts, at depths 0 and 1024. */
#define ATTENTION_COST_PROMPT 2
#define ATTENTION_COST_DECODE 6

/* Asserts that the batch is valid: a caller's mistake here would write outside the cache. */
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
    assert(forward_stage_is_whole(f->m) || b->activations != NULL);
    assert(f->m->draft.token == NULL || b->draft_final_vectors != NULL);
    for (uint32_t i = 0; i < row && model_has_first(f->m); i++)
        assert(b->token_ids[i] < h->vocab);
    for (uint32_t i = 0; i < b->logits_count; i++)
        assert(b->logits_rows[i] < row && (i == 0 || b->logits_rows[i] > b->logits_rows[i - 1]));
    assert(layer_groups_count(&kv->groups) <= f->groups_max);
    assert(kv->block_bytes >= compute_kv_block_bytes(kv->block_tokens, f->m->shard.kv_head_count,
                                                     h->head_dim, kv->dtype));
}

/* ---- division of rows among lanes ---- */

/* Cost of a row: its products with the weights, and attention for each token before it. */
struct cost {
    double row;
    double token[2]; /* [1] applies to sequences with one row. */
    double window;   /* Tokens of the attention window. */
    double windowed; /* Share of layers with the window. */
};

static struct cost cost_of(const struct model *m)
{
    const struct model_hyper *h = &m->hyper;
    const double q = forward_q_width(m), kv = forward_kv_width(m);
    uint32_t windowed = 0;
    for (uint32_t i = m->first_layer; i < m->end_layer; i++)
        windowed += model_layer_window(h, i) != 0;
    return (struct cost){
        .window = h->window,
        .windowed = (double)windowed / (m->end_layer - m->first_layer),
        .row = h->hidden * (2 * q + 2 * kv + 3.0 * model_ffn_rows_used(h)),
        .token = {ATTENTION_COST_PROMPT * 2 * q, ATTENTION_COST_DECODE * 2 * q},
    };
}

/* Cost of the first `rows` rows of a sequence. */
static double sequence_cost(const struct cost *cost, const struct compute_sequence *s,
                            uint32_t rows)
{
    const double all = s->first_position + (rows + 1) / 2.0;
    const double tokens = all > cost->window ? all - cost->windowed * (all - cost->window) : all;
    return rows * (cost->row + cost->token[s->row_count == 1] * tokens);
}

/* Returns the most rows, from the batch's first row on, that cost no more than `most`. */
static uint32_t rows_within(const struct cost *cost, const struct compute_batch *batch, double most)
{
    uint32_t i = 0;
    for (; i + 1 < batch->sequence_count; i++) {
        const struct compute_sequence *s = &batch->sequences[i];
        double all = sequence_cost(cost, s, s->row_count);
        if (all > most)
            break;
        most -= all;
    }
    const struct compute_sequence *s = &batch->sequences[i];
    uint32_t low = 0, high = s->row_count;
    while (low < high) {
        uint32_t middle = high - (high - low) / 2;
        if (sequence_cost(cost, s, middle) <= most)
            low = middle;
        else
            high = middle - 1;
    }
    return s->first_row + low;
}

static void lane_take(struct forward_lane *lane, const struct forward_batch *batch, uint32_t first,
                      uint32_t end)
{
    lane->first_row = first;
    lane->batch = forward_batch_rows(&batch->batch, first, end - first, lane->sequences);
    lane->logits_first = 0;
    while (lane->logits_first < batch->logits_count &&
           batch->logits_rows[lane->logits_first] < first)
        lane->logits_first++;
    lane->logits_count = 0;
    while (lane->logits_first + lane->logits_count < batch->logits_count &&
           batch->logits_rows[lane->logits_first + lane->logits_count] < end)
        lane->logits_count++;
}

/* Gives the lanes shares of about equal cost, in whole rows; some shares may be empty. */
static void lanes_share(struct forward *f, const struct forward_batch *batch,
                        struct forward_lane *lanes, uint32_t count)
{
    const struct compute_batch *rows = &batch->batch;
    const struct cost cost = cost_of(f->m);
    double all = 0;
    for (uint32_t i = 0; i < rows->sequence_count; i++)
        all += sequence_cost(&cost, &rows->sequences[i], rows->sequences[i].row_count);
    uint32_t first = 0;
    for (uint32_t i = 0; i < count; i++) {
        /* Half a row is added so that the boundary is at the nearest row. */
        double most = all * (i + 1) / count + cost.row / 2;
        uint32_t end = i + 1 == count ? rows->row_count : rows_within(&cost, rows, most);
        end = end < first ? first : end;
        lane_take(&lanes[i], batch, first, end);
        first = end;
    }
}

/* ---- a pass ---- */

struct pass {
    struct forward *f;
    const struct forward_batch *batch;
    struct forward_lane *lanes;
    uint32_t lane_count;
    bool is_timed; /* The device chose lane_count, and wants to know when the pass ends. */
    bool tail;     /* The last layer is computed only for rows whose logits are wanted. */
    /* A step computes the rest of layer `before`, whose K and V are stored, and stores K and V of
     * layer `next`. weights NULL = no such layer: no `before` at the beginning (token ids are
     * embedded), no `next` at the end. */
    struct forward_layer before;
    struct forward_layer next;
};

/* What a lane does between two points at which the lanes wait for each other. */
static void pass_step(void *context, uint32_t i)
{
    const struct pass *pass = context;
    struct forward *f = pass->f;
    struct forward_lane *lane = &pass->lanes[i];
    const struct forward_batch *batch = pass->batch;
    const bool first = pass->before.weights == NULL, last = pass->next.weights == NULL;
    if (lane->batch.row_count == 0)
        return;
    if (!first)
        forward_lane_finish(f, lane, &pass->before, batch, last && pass->tail);
    else if (model_has_first(f->m))
        forward_lane_embed(f, lane);
    if (!last)
        forward_lane_qkv(f, lane, &pass->next);
}

static void pass_run(struct pass *pass)
{
    const struct model *m = pass->f->m;
    if (pass->lane_count == 1)
        pass_step(pass, 0);
    else
        m->ops->lanes->run(m->compute, pass->lane_count, pass_step, pass);
}

/* The whole device computes the logits, also after lanes: the rows with logits may all be in one
 * lane, and each lane would read the whole vocabulary. */
static void pass_logits(const struct pass *pass)
{
    struct forward *f = pass->f;
    const struct forward_batch *batch = pass->batch;
    if (pass->tail)
        forward_vocabulary(f, &f->lanes[0], f->tail_residual, NULL, batch->logits_count, f->logits);
    else
        forward_vocabulary(f, &f->lanes[0], f->residual, batch->logits_rows, batch->logits_count,
                           f->logits);
}

static struct forward_layer layer_at(const struct model *m, const struct model_kv *kv, uint32_t i)
{
    struct forward_layer layer = {.index = i,
                                  .group = layer_groups_group_of(&kv->groups, m->first_layer + i),
                                  .weights = &m->layers[i]};
    const size_t row =
        layer_groups_layer_rows(&kv->groups, m->first_layer, m->first_layer + i + 1) - 1;
    layer.kv = (struct compute_kv){
        .base = (uint8_t *)kv->base + row * kv->layer_stride_bytes,
        .block_bytes = kv->block_bytes,
        .block_tokens = kv->block_tokens,
        .head_count = m->shard.kv_head_count,
        .head_dim = m->hyper.head_dim,
        .dtype = kv->dtype,
        .latent = m->hyper.latent.rank,
    };
    return layer;
}

static void pass_lanes(struct pass *pass)
{
    struct forward *f = pass->f;
    const struct forward_batch *batch = pass->batch;
    const struct compute_ops *ops = f->m->ops;
    const uint32_t rows = batch->batch.row_count;
    pass->is_timed = rows <= forward_lanes_rows(f) && f->lane_count > 1;
    const uint32_t count = pass->is_timed ? ops->lanes->pick(f->m->compute, rows) : 1;
    pass->lane_count = count;
    pass->lanes = count > 1 ? f->lanes + 1 : f->lanes;
    if (count > 1) {
        lanes_share(f, batch, pass->lanes, count);
        for (uint32_t i = 0; i < count; i++)
            forward_lane_groups(f, &pass->lanes[i]);
        return;
    }
    struct forward_lane *lane = pass->lanes;
    lane->first_row = lane->logits_first = 0;
    lane->batch = batch->batch;
    lane->logits_count = batch->logits_count;
    forward_lane_groups(f, lane);
}

static struct compute_step step_of(const struct forward *f, const struct forward_batch *batch,
                                   const struct model_kv *kv)
{
    return (struct compute_step){
        .owner = f,
        .batch = batch->batch,
        .token_ids = f->token_ids,
        .logits_rows = batch->logits_rows,
        .logits_count = model_has_last(f->m) ? batch->logits_count : 0,
        .all_rows = batch->all_rows,
        /* A recording knows the block tables of one layer group. */
        .is_unrecordable = batch->layer_done != NULL || layer_groups_count(&kv->groups) > 1,
        .residual = f->residual,
        .kv_base = kv->base,
        .block_tokens = kv->block_tokens,
    };
}

static bool is_abandoned(const struct forward *f, const struct forward_batch *batch)
{
    return batch->abandon != NULL && f->m->ops->steps == NULL && !forward_in_group(f) &&
           atomic_load_explicit(batch->abandon, memory_order_relaxed);
}

/* Returns false if the pass was abandoned. */
static bool pass_all(struct pass *pass, const struct model_kv *kv)
{
    const struct model *m = pass->f->m;
    const struct forward_batch *batch = pass->batch;
    const uint32_t layers = m->end_layer - m->first_layer;
    pass_lanes(pass);
    for (uint32_t i = 0; i < layers; i++) {
        if (is_abandoned(pass->f, batch))
            return false;
        m->ops->layer_begin(m->compute, batch->batch.row_count);
        pass->next = layer_at(m, kv, i);
        pass_run(pass);
        pass->before = pass->next;
        if (batch->layer_done != NULL)
            batch->layer_done(batch->layer_done_self, m->first_layer + i);
    }
    pass->next.weights = NULL;
    if (pass->tail && batch->logits_count == 0)
        return true;
    pass_run(pass);
    pass->before.weights = NULL;
    if (model_has_last(m) && batch->logits_count > 0)
        pass_logits(pass);
    return true;
}

/* Returns the batch with as many rows as the device prefers (compute_steps_ops.padded_rows). */
static struct forward_batch pad(const struct forward *f, const struct forward_batch *batch,
                                const struct model_kv *kv)
{
    const struct compute_step step = step_of(f, batch, kv);
    struct forward_batch padded = *batch;
    uint32_t most = f->rows_max;
    if (step.logits_count > 0)
        most = most < f->logits_max ? most : f->logits_max;
    padded.batch.row_count = f->m->ops->steps->padded_rows(f->m->compute, &step, most);
    if (batch->logits_count == batch->batch.row_count)
        padded.logits_count = padded.batch.row_count;
    return padded;
}

/* A pass on a device that records steps: it may queue the whole pass from a recording. */
static void pass_run_recordable(struct pass *pass, const struct model_kv *kv,
                                uint32_t context_tokens_max)
{
    const struct compute_steps_ops *steps = pass->f->m->ops->steps;
    struct compute *c = pass->f->m->compute;
    struct compute_step step = step_of(pass->f, pass->batch, kv);
    step.context_tokens_max = context_tokens_max;
    if (!steps->begin(c, &step))
        pass_all(pass, kv);
    steps->end(c);
}

/* Makes the logits available to the host, or returns their device address. */
static void logits_take(struct forward *f, uint32_t count, const float **logits_out)
{
    const struct compute_ops *ops = f->m->ops;
    const size_t bytes = (size_t)count * f->m->hyper.vocab * sizeof(float);
    *logits_out = f->logits; /* NULL except at rank 0 of a group. */
    if (f->host_logits == NULL || f->logits_stay)
        return;
    *logits_out = f->host_logits;
    if (count > 0)
        ops->memory_read(f->m->compute, f->host_logits, f->logits, bytes);
}

bool forward_run(struct forward *f, const struct forward_batch *batch, const struct model_kv *kv,
                 const float **logits_out)
{
    const struct model *m = f->m;
    const uint32_t rows = batch->batch.row_count;
    check_batch(f, batch, kv);
    f->groups = kv->groups;
    f->residual = forward_stage_is_whole(m) ? f->own_residual : batch->activations;
    f->token_ids = !model_has_first(m)   ? NULL
                   : forward_in_group(f) ? forward_group_ids(f, batch)
                                         : batch->token_ids;
    f->draft_final_vectors = batch->draft_final_vectors;
    f->logits_stay = batch->logits_stay;
    f->complete_rows = batch->all_rows && model_has_last(m) ? rows : 0;
    *logits_out = NULL;
    struct pass pass = {.f = f, .batch = batch};
    pass.tail = model_has_last(m) && !batch->all_rows && batch->logits_count < rows;
    f->tail_count = pass.tail ? batch->logits_count : 0;
    for (uint32_t i = 0; i < f->tail_count; i++)
        f->tail_rows[i] = batch->logits_rows[i];
    if (m->ops->steps != NULL) {
        const struct forward_batch padded = pad(f, batch, kv);
        pass.batch = &padded;
        pass_run_recordable(&pass, kv, 0);
    } else if (!pass_all(&pass, kv)) {
        return false;
    }
    if (pass.is_timed)
        m->ops->lanes->done(m->compute);
    if (model_has_last(m))
        logits_take(f, batch->logits_count, logits_out);
    return true;
}

void forward_logits(struct forward *f, const uint32_t *rows, uint32_t count,
                    const float **logits_out)
{
    assert(count > 0 && count <= f->logits_max);
    for (uint32_t i = 0; i < count; i++)
        assert(rows[i] < f->complete_rows);
    forward_vocabulary(f, &f->lanes[0], f->residual, rows, count, f->logits);
    logits_take(f, count, logits_out);
}

/* Runs a step of padding rows only. numbers: [2][rows], zeros and the row numbers. */
static void run_padding(struct forward *f, const struct model_kv *kv, uint32_t rows,
                        uint32_t tokens, const uint32_t *numbers)
{
    const struct compute_sequence none = {.row_count = 0};
    const struct forward_batch batch = {
        .token_ids = numbers,
        .batch = {.row_count = rows, .sequences = &none},
        .logits_rows = numbers + rows,
        .logits_count = rows,
    };
    f->residual = f->own_residual;
    f->groups = kv->groups;
    f->token_ids = numbers;
    struct pass pass = {.f = f, .batch = &batch};
    pass_run_recordable(&pass, kv, tokens);
}

void forward_prepare(struct forward *f, const struct model_kv *kv)
{
    const struct model *m = f->m;
    const struct compute_steps_ops *steps = m->ops->steps;
    uint32_t rows, tokens, most = f->rows_max < f->logits_max ? f->rows_max : f->logits_max;
    if (steps == NULL)
        return;
    steps->prepare(m->compute);
    /* Nothing is recorded for ranks of a group (they would have to agree on the steps), for a stage
     * (its activations may have another address later), and for several layer groups (step_of). */
    if (!forward_stage_is_whole(m) || forward_in_group(f) || layer_groups_count(&kv->groups) > 1)
        return;
    uint32_t *numbers = calloc(2 * (size_t)most, sizeof(*numbers));
    for (uint32_t i = 0;
         numbers != NULL &&
         steps->next_shape(m->compute, i, most, m->context_tokens_max, &rows, &tokens);
         i++) {
        for (uint32_t row = 0; row < rows; row++)
            numbers[rows + row] = row;
        memset(numbers, 0, rows * sizeof(*numbers));
        run_padding(f, kv, rows, tokens, numbers);
        run_padding(f, kv, rows, tokens, numbers);
    }
    free(numbers);
}
