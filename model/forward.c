/* forward: one transformer stage over one batch: the workspace, and the order of things. After the
 * rows of a batch have been shared among the lanes, every lane embeds its rows and stores K and V
 * of the first layer; then, layer by layer, the lanes meet (layer_done: the transfer of this layer
 * overlaps the rest of it) and each goes on with the rest of the layer, and with K and V of the
 * next one. What a layer is: forward_lane.c. */
#include "model/forward_state.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

/* Of one row, a cached token costs as much as this share of its products with as many weights as
 * attention multiplies (for queries and values): attention is slower per operation, and rows of
 * their own read K and V for nobody else. Measured: one stream and prompts, depth 0 and 1024. */
#define ATTENTION_COST_PROMPT 2
#define ATTENTION_COST_DECODE 6

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

static size_t lay_keys(const struct model_hyper *h, struct forward_lane *lane, float *memory,
                       size_t at)
{
    const size_t floats = (size_t)lane->chunk_rows * forward_kv_width(h);
    const struct part keys[] = {{&lane->k, floats}, {&lane->v, floats}, {NULL, 0}};
    return lay(memory, at, keys);
}

static size_t lay_gates(const struct model_hyper *h, struct forward_lane *lane, float *memory,
                        size_t at)
{
    const size_t floats = (size_t)lane->chunk_rows * h->ffn;
    const struct part gates[] = {{&lane->gate, floats}, {&lane->up, floats}, {NULL, 0}};
    return lay(memory, at, gates);
}

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Rows of a batch that may be shared by lanes. */
static uint32_t lanes_rows(const struct forward *f)
{
    uint32_t rows = (f->lane_count - 1) * FORWARD_LANE_CHUNK_ROWS;
    return rows < f->rows_max ? rows : f->rows_max;
}

/* What is never in use at the same time lies in the same place. Of the whole device: q, k and v,
 * then gate and up, then the logits. Of the lanes, who are not in step: behind q of their rows,
 * what each has; and, for they meet before the first of them, the logits. */
static size_t lay_all(struct forward *f, float *memory)
{
    const struct model_hyper *h = &f->m->hyper;
    const struct part kept[] = {
        {&f->own_x, stage_is_whole(f->m) ? (size_t)f->rows_max * h->hidden : 0},
        {&f->branch, h->post_norms ? (size_t)f->rows_max * h->hidden : 0},
        {&f->tail_x, (size_t)f->logits_max * h->hidden},
        {&f->tail_q, (size_t)f->logits_max * forward_q_width(h)},
        {NULL, 0},
    };
    const struct part queries[] = {{&f->q, (size_t)f->rows_max * forward_q_width(h)}, {NULL, 0}};
    const struct part logits[] = {
        {&f->logits, model_has_last(f->m) ? (size_t)f->logits_max * h->vocab : 0}, {NULL, 0}};
    const size_t begin = lay(memory, 0, kept), queries_end = lay(memory, begin, queries);
    size_t end = max_size(lay_keys(h, &f->lanes[0], memory, queries_end),
                          lay_gates(h, &f->lanes[0], memory, begin));
    end = max_size(end, lay(memory, begin, logits));
    size_t at = begin + ((size_t)lanes_rows(f) * forward_q_width(h) + 15) / 16 * 16;
    for (uint32_t i = 1; i < f->lane_count; i++)
        at =
            max_size(lay_keys(h, &f->lanes[i], memory, at), lay_gates(h, &f->lanes[i], memory, at));
    return max_size(end, at);
}

static enum status take_memory(struct forward *f)
{
    enum status status = f->m->ops->memory_take(f->m->compute, lay_all(f, NULL), &f->memory);
    if (status != ST_OK)
        return status;
    lay_all(f, f->memory);
    if (!f->m->hyper.post_norms)
        f->branch = NULL;
    if (f->m->ops->memory_read == NULL || !model_has_last(f->m))
        return ST_OK;
    f->host_logits = malloc((size_t)f->logits_max * f->m->hyper.vocab * sizeof(float));
    return f->host_logits != NULL ? ST_OK : ST_NO_MEMORY;
}

/* What the activations of each kind are multiplied with. */
struct needs {
    unsigned hidden;
    unsigned heads;
    unsigned ffn;
};

static struct needs needs_of(const struct model *m)
{
    const struct compute_ops *ops = m->ops;
    struct needs needs = {.hidden = model_has_last(m) ? ops->matrix_needs(m->output) : 0};
    for (uint32_t i = 0; i < m->last_layer - m->first_layer; i++) {
        const struct model_layer *layer = &m->layers[i];
        needs.hidden |=
            ops->matrix_needs(layer->q) | ops->matrix_needs(layer->k) | ops->matrix_needs(layer->v);
        needs.hidden |= ops->matrix_needs(layer->gate) | ops->matrix_needs(layer->up);
        needs.heads |= ops->matrix_needs(layer->attention_output);
        needs.ffn |= ops->matrix_needs(layer->down);
    }
    return needs;
}

static enum status open_activations(struct forward *f, struct forward_lane *lane,
                                    const struct needs *needs)
{
    const struct model_hyper *h = &f->m->hyper;
    const struct compute_ops *ops = f->m->ops;
    struct compute *c = lane->compute;
    uint32_t hidden_rows = lane->chunk_rows > f->logits_max ? lane->chunk_rows : f->logits_max;
    /* Rounding costs most of all in blocks with an outlier, and attention's result has few
     * (docs/numbers.md). */
    enum status status = ops->activations_open(c, hidden_rows, h->hidden,
                                               needs->hidden | COMPUTE_REFINED, &lane->hidden);
    const uint32_t rows = lane == f->lanes ? f->rows_max : lanes_rows(f);
    if (status == ST_OK)
        status = ops->activations_open(c, rows, forward_q_width(h), needs->heads, &lane->heads);
    if (status == ST_OK)
        status = ops->activations_open(c, lane->chunk_rows, h->ffn, needs->ffn | COMPUTE_REFINED,
                                       &lane->ffn);
    return status;
}

static enum status open_lane(struct forward *f, struct forward_lane *lane,
                             const struct needs *needs)
{
    lane->sequences = calloc(f->rows_max, sizeof(*lane->sequences));
    lane->tail_sequences = calloc(f->logits_max, sizeof(*lane->tail_sequences));
    lane->tail_rows = calloc(f->logits_max, sizeof(*lane->tail_rows));
    lane->part_sequences = calloc(lane->chunk_rows, sizeof(*lane->part_sequences));
    if (lane->sequences == NULL || lane->tail_sequences == NULL || lane->tail_rows == NULL ||
        lane->part_sequences == NULL)
        return ST_NO_MEMORY;
    return open_activations(f, lane, needs);
}

/* One lane for the device as a whole, and one for each of its own. */
static enum status open_lanes(struct forward *f)
{
    const struct compute_ops *ops = f->m->ops;
    const uint32_t own = ops->lanes_max != NULL ? ops->lanes_max(f->m->compute) : 1;
    const struct needs needs = needs_of(f->m);
    f->lane_count = own > 1 ? 1 + own : 1;
    f->lanes = calloc(f->lane_count, sizeof(f->lanes[0]));
    if (f->lanes == NULL)
        return ST_NO_MEMORY;
    for (uint32_t i = 0; i < f->lane_count; i++) {
        struct forward_lane *lane = &f->lanes[i];
        uint32_t rows = i == 0 ? FORWARD_CHUNK_ROWS : FORWARD_LANE_CHUNK_ROWS;
        if (ops->chunk_rows != NULL)
            rows = ops->chunk_rows(f->m->compute, f->rows_max);
        lane->compute = i == 0 ? f->m->compute : ops->lane(f->m->compute, i - 1);
        lane->chunk_rows = f->rows_max < rows ? f->rows_max : rows;
    }
    enum status status = take_memory(f);
    for (uint32_t i = 0; i < f->lane_count && status == ST_OK; i++)
        status = open_lane(f, &f->lanes[i], &needs);
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
    enum status status = open_lanes(f);
    if (status != ST_OK) {
        forward_close(f);
        return error_set(error, status,
                         "workspace for %" PRIu32 " rows and %" PRIu32 " logit rows: %s", rows_max,
                         logits_max, status_name(status));
    }
    *out = f;
    return ST_OK;
}

static void close_lane(struct forward *f, struct forward_lane *lane)
{
    const struct compute_ops *ops = f->m->ops;
    if (lane->ffn != NULL)
        ops->activations_close(lane->compute, lane->ffn);
    if (lane->heads != NULL)
        ops->activations_close(lane->compute, lane->heads);
    if (lane->hidden != NULL)
        ops->activations_close(lane->compute, lane->hidden);
    free(lane->sequences);
    free(lane->tail_sequences);
    free(lane->tail_rows);
    free(lane->part_sequences);
}

void forward_close(struct forward *f)
{
    if (f == NULL)
        return;
    for (uint32_t i = 0; i < f->lane_count && f->lanes != NULL; i++)
        close_lane(f, &f->lanes[i]);
    if (f->memory != NULL)
        f->m->ops->memory_free(f->m->compute, f->memory);
    free(f->lanes);
    free(f->host_logits);
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

/* ---- which rows each lane has ---- */

/* What a row costs: its products with the weights, and attention over each token before it. */
struct cost {
    double row;
    double token[2]; /* [of a sequence with one row] */
};

static struct cost cost_of(const struct model *m)
{
    const struct model_hyper *h = &m->hyper;
    const double q = forward_q_width(h), kv = forward_kv_width(h);
    return (struct cost){
        .row = h->hidden * (2 * q + 2 * kv + 3.0 * h->ffn),
        .token = {ATTENTION_COST_PROMPT * 2 * q, ATTENTION_COST_DECODE * 2 * q},
    };
}

/* Of the first `rows` rows of a sequence. */
static double sequence_cost(const struct cost *cost, const struct compute_sequence *s,
                            uint32_t rows)
{
    const double mean_tokens = s->first_position + (rows + 1) / 2.0;
    return rows * (cost->row + cost->token[s->row_count == 1] * mean_tokens);
}

/* The most rows from the batch's first one on that cost no more than `most`. */
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
    lane->batch = forward_part(&batch->batch, first, end - first, lane->sequences);
    lane->logits_first = 0;
    while (lane->logits_first < batch->logits_count &&
           batch->logits_rows[lane->logits_first] < first)
        lane->logits_first++;
    lane->logits_count = 0;
    while (lane->logits_first + lane->logits_count < batch->logits_count &&
           batch->logits_rows[lane->logits_first + lane->logits_count] < end)
        lane->logits_count++;
}

/* Shares of about equal cost, whole rows each; some may be empty. */
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
        /* Half a row more: the boundary goes to the nearest. */
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
    bool tail; /* of the last layer, only the rows whose logits are wanted */
    /* A step ends the layer before, whose K and V are stored, and stores those of the next one.
     * weights NULL: there is none, at the beginning (token ids are embedded) or the end. Neither:
     * what is left are the logits. */
    struct forward_layer before;
    struct forward_layer next;
};

/* What a lane does between two meetings. */
static void pass_step(void *context, uint32_t i)
{
    const struct pass *pass = context;
    struct forward *f = pass->f;
    struct forward_lane *lane = &pass->lanes[i];
    const struct forward_batch *batch = pass->batch;
    const bool first = pass->before.weights == NULL, last = pass->next.weights == NULL;
    if (lane->batch.row_count == 0)
        return;
    if (first && last) {
        forward_lane_logits(f, lane, batch, pass->tail);
        return;
    }
    if (!first)
        forward_lane_rest(f, lane, &pass->before, batch, last && pass->tail);
    else if (model_has_first(f->m))
        forward_lane_embed(f, lane, batch);
    if (!last)
        forward_lane_qkv(f, lane, &pass->next);
}

static void pass_run(struct pass *pass)
{
    const struct model *m = pass->f->m;
    if (pass->lane_count == 1)
        pass_step(pass, 0);
    else
        m->ops->lanes_run(m->compute, pass->lane_count, pass_step, pass);
}

static struct forward_layer layer_at(const struct model *m, const struct model_kv *kv, uint32_t i)
{
    struct forward_layer layer = {.index = i, .weights = &m->layers[i]};
    layer.kv = (struct compute_kv){
        .base = (uint8_t *)kv->base + (size_t)i * kv->layer_stride_bytes,
        .block_bytes = kv->block_bytes,
        .block_tokens = kv->block_tokens,
        .head_count = m->hyper.kv_head_count,
        .head_dim = m->hyper.head_dim,
        .dtype = kv->dtype,
    };
    return layer;
}

static void pass_lanes(struct pass *pass)
{
    struct forward *f = pass->f;
    const struct forward_batch *batch = pass->batch;
    const struct compute_ops *ops = f->m->ops;
    const uint32_t rows = batch->batch.row_count;
    const uint32_t count =
        rows <= lanes_rows(f) && f->lane_count > 1 ? ops->lanes_pick(f->m->compute, rows) : 1;
    pass->lane_count = count;
    pass->lanes = count > 1 ? f->lanes + 1 : f->lanes;
    if (count > 1) {
        lanes_share(f, batch, pass->lanes, count);
        return;
    }
    struct forward_lane *lane = pass->lanes;
    lane->first_row = lane->logits_first = 0;
    lane->batch = batch->batch;
    lane->logits_count = batch->logits_count;
}

/* True: the device has taken the whole pass from a recording. */
static bool step_begin(const struct forward *f, const struct forward_batch *batch,
                       const struct model_kv *kv)
{
    const struct compute_ops *ops = f->m->ops;
    if (ops->step_begin == NULL)
        return false;
    const struct compute_step step = {
        .owner = f,
        .batch = batch->batch,
        .token_ids = model_has_first(f->m) ? batch->token_ids : NULL,
        .logits_rows = batch->logits_rows,
        .logits_count = model_has_last(f->m) ? batch->logits_count : 0,
        .all_rows = batch->all_rows,
        .watched = batch->layer_done != NULL,
        .x = f->x,
        .kv_base = kv->base,
        .block_tokens = kv->block_tokens,
    };
    return ops->step_begin(f->m->compute, &step);
}

static void pass_all(struct pass *pass, const struct model_kv *kv)
{
    const struct model *m = pass->f->m;
    const struct forward_batch *batch = pass->batch;
    const uint32_t layers = m->last_layer - m->first_layer;
    pass_lanes(pass);
    for (uint32_t i = 0; i < layers; i++) {
        if (m->ops->layer_begin != NULL)
            m->ops->layer_begin(m->compute, batch->batch.row_count);
        pass->next = layer_at(m, kv, i);
        pass_run(pass);
        pass->before = pass->next;
        if (batch->layer_done != NULL)
            batch->layer_done(batch->layer_done_self, m->first_layer + i);
    }
    pass->next.weights = NULL;
    if (pass->tail && batch->logits_count == 0)
        return;
    pass_run(pass);
    pass->before.weights = NULL;
    if (model_has_last(m) && batch->logits_count > 0)
        pass_run(pass);
}

/* The rows' logits where the host reads them, or where they are. */
static void logits_take(struct forward *f, uint32_t count, const float **logits_out)
{
    const struct compute_ops *ops = f->m->ops;
    const size_t bytes = (size_t)count * f->m->hyper.vocab * sizeof(float);
    *logits_out = f->logits;
    if (f->host_logits == NULL || f->logits_stay)
        return;
    *logits_out = f->host_logits;
    if (count > 0)
        ops->memory_read(f->m->compute, f->host_logits, f->logits, bytes);
}

void forward_run(struct forward *f, const struct forward_batch *batch, const struct model_kv *kv,
                 const float **logits_out)
{
    const struct model *m = f->m;
    const uint32_t rows = batch->batch.row_count;
    check_batch(f, batch, kv);
    f->x = stage_is_whole(m) ? f->own_x : batch->x;
    f->logits_stay = batch->logits_stay;
    f->scored_rows = batch->all_rows && model_has_last(m) ? rows : 0;
    *logits_out = NULL;
    struct pass pass = {.f = f, .batch = batch};
    pass.tail = model_has_last(m) && !batch->all_rows && batch->logits_count < rows;
    if (!step_begin(f, batch, kv))
        pass_all(&pass, kv);
    if (m->ops->step_end != NULL)
        m->ops->step_end(m->compute);
    if (model_has_last(m))
        logits_take(f, batch->logits_count, logits_out);
}

void forward_logits(struct forward *f, const uint32_t *rows, uint32_t count,
                    const float **logits_out)
{
    assert(count > 0 && count <= f->logits_max);
    for (uint32_t i = 0; i < count; i++)
        assert(rows[i] < f->scored_rows);
    forward_vocabulary(f, &f->lanes[0], f->x, rows, count, f->logits);
    logits_take(f, count, logits_out);
}
