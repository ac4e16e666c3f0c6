/* forward_open: allocates the workspace of a forward pass. See forward_state.h. */
#include "model/forward/forward_state.h"

#include "model/file/hyper_groups.h"

#include <inttypes.h>
#include <stdlib.h>

struct part {
    float **array; /* NULL ends a list. */
    size_t floats;
};

/* Places the parts one after the other from offset `at`, each on a cache line, and returns the end.
 * With memory NULL it only measures. */
static size_t lay(float *memory, size_t at, const struct part *parts)
{
    for (; parts->array != NULL; parts++) {
        if (memory != NULL)
            *parts->array = memory + at;
        at += (parts->floats + 15) / 16 * 16;
    }
    return at;
}

static size_t lay_keys(const struct model *m, struct forward_lane *lane, float *memory, size_t at)
{
    const size_t floats = (size_t)lane->slab_rows * forward_kv_width(m);
    const struct part keys[] = {
        {&lane->k, floats},
        {&lane->v, floats},
        {&lane->raw_queries, (size_t)lane->slab_rows * forward_raw_width(m)},
        {&lane->rotated_keys, (size_t)lane->slab_rows * m->hyper.latent.rotated},
        {NULL, 0}};
    return lay(memory, at, keys);
}

/* Returns true if a layer of the stage has no experts. */
static bool has_dense(const struct model *m)
{
    for (uint32_t i = 0; i < m->end_layer - m->first_layer; i++)
        if (m->layers[i].experts.router == NULL)
            return true;
    return false;
}

static size_t lay_gates(const struct model *m, struct forward_lane *lane, float *memory, size_t at)
{
    const uint32_t ffn = has_dense(m) ? m->shard.ffn_count : 0, shared = m->shard.shared_ffn_count;
    const size_t rows = lane->slab_rows, floats = rows * (ffn > shared ? ffn : shared);
    const struct part gates[] = {{&lane->gate, floats}, {&lane->up, floats}, {NULL, 0}};
    return lay(memory, at, gates);
}

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

uint32_t forward_lanes_rows(const struct forward *f)
{
    uint32_t rows = (f->lane_count - 1) * FORWARD_LANE_SLAB_ROWS;
    return rows < f->rows_max ? rows : f->rows_max;
}

static bool has_sum_biases(const struct model *m)
{
    bool any = false;
    for (uint32_t i = 0; i < m->end_layer - m->first_layer; i++)
        any = any || m->layers[i].attention_output_bias != NULL || m->layers[i].down_bias != NULL;
    return any;
}

static bool has_branch(const struct forward *f)
{
    const struct model_hyper *h = &f->m->hyper;
    return h->post_norms || h->residual_scale != 1 || forward_in_group(f) || has_sum_biases(f->m);
}

static bool has_logits(const struct forward *f)
{
    return model_has_last(f->m) && f->m->shard.rank == 0;
}

static bool has_part(const struct forward *f)
{
    return model_has_last(f->m) && forward_in_group(f);
}

/* Arrays that are never in use at the same time share memory. For the whole device these are: q, k
 * and v; then gate and up; then the logits. Lanes are not synchronised, so each has its own k, v,
 * gate and up behind q of the rows that lanes may share. The logits may overlap these, because the
 * lanes have ended before the device computes the logits. */
static size_t lay_all(struct forward *f, float *memory)
{
    const struct model_hyper *h = &f->m->hyper;
    const struct part kept[] = {
        {&f->own_residual, forward_stage_is_whole(f->m) ? (size_t)f->rows_max * h->hidden : 0},
        {&f->branch, has_branch(f) ? (size_t)f->rows_max * h->hidden : 0},
        {&f->tail_residual, (size_t)f->logits_max * h->hidden},
        {&f->tail_q, (size_t)f->logits_max * forward_q_width(f->m)},
        {&f->router_product, (size_t)f->lanes[0].slab_rows * h->experts.count},
        {&f->shared_product, h->experts.count > 0 ? f->lanes[0].slab_rows : 0},
        {NULL, 0},
    };
    const struct part queries[] = {{&f->q, (size_t)f->rows_max * forward_q_width(f->m)}, {NULL, 0}};
    const struct part logits[] = {
        {&f->logits, has_logits(f) ? (size_t)f->logits_max * h->vocab : 0},
        {&f->logits_part, has_part(f) ? (size_t)f->logits_max * f->m->shard.vocab_count : 0},
        {NULL, 0},
    };
    const size_t begin = lay(memory, 0, kept), queries_end = lay(memory, begin, queries);
    size_t end = max_size(lay_keys(f->m, &f->lanes[0], memory, queries_end),
                          lay_gates(f->m, &f->lanes[0], memory, begin));
    end = max_size(end, lay(memory, begin, logits));
    size_t at = begin + ((size_t)forward_lanes_rows(f) * forward_q_width(f->m) + 15) / 16 * 16;
    for (uint32_t i = 1; i < f->lane_count; i++)
        at = max_size(lay_keys(f->m, &f->lanes[i], memory, at),
                      lay_gates(f->m, &f->lanes[i], memory, at));
    return max_size(end, at);
}

static enum status take_memory(struct forward *f)
{
    enum status status = f->m->ops->memory_allocate(f->m->compute, lay_all(f, NULL), &f->memory);
    if (status != ST_OK)
        return status;
    lay_all(f, f->memory);
    if (!has_branch(f))
        f->branch = NULL;
    if (!has_logits(f))
        f->logits = NULL;
    if (f->m->ops->device_memory(f->m->compute) == NULL || !has_logits(f))
        return ST_OK;
    f->host_logits = malloc((size_t)f->logits_max * f->m->hyper.vocab * sizeof(float));
    return f->host_logits != NULL ? ST_OK : ST_NO_MEMORY;
}

/* The forms that each kind of activations must have (enum compute_needs). */
struct needs {
    unsigned hidden;
    unsigned heads;
    unsigned ffn;
    unsigned low;
    unsigned shared;
    unsigned experts_in, experts_ffn; /* struct compute_experts_workspace_options */
};

static void needs_experts(const struct model *m, const struct model_layer_experts *e,
                          struct needs *needs)
{
    const struct compute_ops *ops = m->ops;
    const uint32_t count = m->shard.expert_count;
    needs->hidden |= ops->matrix_needs(e->router);
    for (uint32_t i = 0; i < 2 * count; i++)
        needs->experts_in |= ops->matrix_needs(e->matrices[i]);
    for (uint32_t i = 2 * count; i < 3 * count; i++)
        needs->experts_ffn |= ops->matrix_needs(e->matrices[i]);
    needs->hidden |= needs->experts_in;
    if (e->shared_gate == NULL)
        return;
    needs->hidden |= ops->matrix_needs(e->shared_gate) | ops->matrix_needs(e->shared_up);
    needs->shared |= ops->matrix_needs(e->shared_down);
}

static unsigned matrix_needs(const struct model *m, const struct compute_matrix *matrix)
{
    return matrix != NULL ? m->ops->matrix_needs(matrix) : 0;
}

static struct needs needs_of(const struct model *m)
{
    const struct compute_ops *ops = m->ops;
    struct needs needs = {.hidden = model_has_last(m) ? ops->matrix_needs(m->output) : 0};
    needs.hidden |= matrix_needs(m, m->draft.token) | matrix_needs(m, m->draft.final);
    for (uint32_t i = 0; i < m->end_layer - m->first_layer; i++) {
        const struct model_layer *layer = &m->layers[i];
        needs.hidden |=
            matrix_needs(m, layer->q) | matrix_needs(m, layer->k) | matrix_needs(m, layer->v);
        needs.hidden |= matrix_needs(m, layer->latent.q_a) |
                        matrix_needs(m, layer->latent.rotated_key) |
                        matrix_needs(m, layer->latent.latent);
        needs.low |= matrix_needs(m, layer->latent.q_b);
        needs.heads |= ops->matrix_needs(layer->attention_output);
        if (layer->experts.router != NULL) {
            needs_experts(m, &layer->experts, &needs);
            continue;
        }
        needs.hidden |= matrix_needs(m, layer->gate) | ops->matrix_needs(layer->up);
        needs.ffn |= ops->matrix_needs(layer->down);
    }
    if (m->adapter_count > 0) {
        needs.hidden |= COMPUTE_NEEDS_F32;
        needs.heads |= COMPUTE_NEEDS_F32;
        needs.ffn |= needs.ffn != 0 ? COMPUTE_NEEDS_F32 : 0;
    }
    return needs;
}

static enum status open_room(struct forward *f, struct forward_lane *lane,
                             const struct needs *needs)
{
    const struct model_hyper *h = &f->m->hyper;
    const struct compute_experts_workspace_options options = {
        .rows_max = lane->slab_rows,
        .experts = h->experts.count,
        .used = h->experts.used,
        .hidden = h->hidden,
        .ffn = h->experts.ffn,
        .needs_gate_up = needs->experts_in | COMPUTE_NEEDS_REFINED,
        .needs_down = needs->experts_ffn | COMPUTE_NEEDS_REFINED,
    };
    return f->m->ops->experts->workspace_open(lane->compute, &options, &lane->experts_workspace);
}

static enum status open_activations(struct forward *f, struct forward_lane *lane,
                                    const struct needs *needs)
{
    const struct model_hyper *h = &f->m->hyper;
    const struct compute_ops *ops = f->m->ops;
    struct compute *c = lane->compute;
    const bool is_device = lane == f->lanes; /* It also computes the logits. */
    const uint32_t hidden_rows =
        is_device && f->logits_max > lane->slab_rows ? f->logits_max : lane->slab_rows;
    /* `hidden` and `ffn` are refined: rounding costs most accuracy in blocks with an outlier.
     * Attention's result has few outliers (docs/numbers.md). */
    enum status status = ops->activations_open(
        c, hidden_rows, h->hidden, needs->hidden | COMPUTE_NEEDS_REFINED, &lane->hidden);
    const uint32_t rows = is_device ? f->rows_max : forward_lanes_rows(f);
    if (status == ST_OK)
        status =
            ops->activations_open(c, rows, forward_heads_width(f->m), needs->heads, &lane->heads);
    if (status == ST_OK && h->latent.rank != 0)
        status = ops->activations_open(c, rows, f->m->shard.head_count * h->latent.rank,
                                       COMPUTE_NEEDS_F32, &lane->value_latent);
    if (status == ST_OK && h->latent.q_rank != 0)
        status = ops->activations_open(c, lane->slab_rows, h->latent.q_rank,
                                       needs->low | COMPUTE_NEEDS_REFINED, &lane->query_latent);
    if (status == ST_OK && needs->ffn != 0)
        status = ops->activations_open(c, lane->slab_rows, f->m->shard.ffn_count,
                                       needs->ffn | COMPUTE_NEEDS_REFINED, &lane->ffn);
    if (status == ST_OK && needs->shared != 0)
        status = ops->activations_open(c, lane->slab_rows, f->m->shard.shared_ffn_count,
                                       needs->shared | COMPUTE_NEEDS_REFINED, &lane->shared);
    return status == ST_OK && needs->experts_in != 0 ? open_room(f, lane, needs) : status;
}

static enum status open_lane(struct forward *f, struct forward_lane *lane,
                             const struct needs *needs)
{
    lane->sequences = calloc(f->rows_max, sizeof(*lane->sequences));
    lane->tail_sequences = calloc(f->logits_max, sizeof(*lane->tail_sequences));
    lane->tail_rows = calloc(f->logits_max, sizeof(*lane->tail_rows));
    lane->part_sequences = calloc(lane->slab_rows, sizeof(*lane->part_sequences));
    const size_t groups = f->groups_max;
    if (groups > 1)
        lane->group_sequences = calloc((groups - 1) * f->rows_max, sizeof(*lane->group_sequences));
    if (lane->sequences == NULL || lane->tail_sequences == NULL || lane->tail_rows == NULL ||
        lane->part_sequences == NULL || (groups > 1 && lane->group_sequences == NULL))
        return ST_NO_MEMORY;
    return open_activations(f, lane, needs);
}

/* Opens one lane for the whole device, and one for each of the device's lanes. */
static enum status open_lanes(struct forward *f)
{
    const struct compute_ops *ops = f->m->ops;
    /* Not with several ranks: the lanes' sums over the ranks would run one after the other. Not
     * with experts: each lane would read the weights of the experts of its rows for even fewer
     * rows. */
    const bool lanes = !forward_in_group(f) && f->m->hyper.experts.count == 0;
    const uint32_t own = lanes ? compute_lanes_count(ops, f->m->compute) : 1;
    const struct needs needs = needs_of(f->m);
    f->lane_count = own > 1 ? 1 + own : 1;
    f->lanes = calloc(f->lane_count, sizeof(f->lanes[0]));
    if (f->lanes == NULL)
        return ST_NO_MEMORY;
    for (uint32_t i = 0; i < f->lane_count; i++) {
        struct forward_lane *lane = &f->lanes[i];
        const uint32_t rows = f->m->hyper.experts.count > 0 ? FORWARD_EXPERTS_SLAB_ROWS
                              : i == 0                      ? FORWARD_SLAB_ROWS
                                                            : FORWARD_LANE_SLAB_ROWS;
        lane->compute = i == 0 ? f->m->compute : ops->lanes->lane(f->m->compute, i - 1);
        lane->slab_rows = ops->whole_batches || f->rows_max < rows ? f->rows_max : rows;
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
    f->tail_rows = calloc(logits_max, sizeof(f->tail_rows[0]));
    const struct layer_groups groups = model_layer_groups(&m->hyper);
    f->groups_max = layer_groups_count(&groups);
    enum status status = f->tail_rows != NULL ? forward_group_open(f, error) : ST_NO_MEMORY;
    if (status == ST_OK)
        status = open_lanes(f);
    if (status == ST_OK)
        status = forward_finals_open(f);
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
    if (lane->experts_workspace != NULL)
        ops->experts->workspace_close(lane->compute, lane->experts_workspace);
    if (lane->shared != NULL)
        ops->activations_close(lane->compute, lane->shared);
    if (lane->ffn != NULL)
        ops->activations_close(lane->compute, lane->ffn);
    if (lane->heads != NULL)
        ops->activations_close(lane->compute, lane->heads);
    if (lane->query_latent != NULL)
        ops->activations_close(lane->compute, lane->query_latent);
    if (lane->value_latent != NULL)
        ops->activations_close(lane->compute, lane->value_latent);
    if (lane->hidden != NULL)
        ops->activations_close(lane->compute, lane->hidden);
    free(lane->sequences);
    free(lane->group_sequences);
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
    free(f->host_norm);
    free(f->host_row);
    free(f->slice_ids);
    free(f->tail_rows);
    free(f);
}
