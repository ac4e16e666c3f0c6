/* experts_ops: struct compute_experts_ops of a GPU: what a layer's experts and a batch's room are
 * on the device, and the launches (experts.cu). Nothing waits after the model has been loaded. */
#include "compute/cuda/backend.cuh"

#include <cstdlib>

/* Most rows of one launch: a grid has up to 65,535 blocks in y. */
#define LAUNCH_PAIRS_MAX 65535u

struct compute_experts {
    struct compute_experts_options o; /* The arrays of matrices are not used after opening. */
    enum compute_type type, down_type;
    struct cuda_weights *weights; /* [3][count] in device memory. */
};

struct compute_experts_workspace {
    uint32_t rows_max, used;
    bool f32; /* What is between the products is fp32. */
    uint32_t *ids;
    float *weights;
    __nv_bfloat16 *activated;
    float *activated_f32;
};

static void experts_close(struct compute *c, struct compute_experts *e)
{
    if (e == NULL)
        return;
    cuda_steps_forget(c);
    cuda_give(c, e->weights);
    free(e);
}

/* Writes the weights of `count` matrices. False: they are not of one type. */
static bool weights_of(struct compute *c, const struct compute_matrix *const *matrices,
                       uint32_t count, struct cuda_weights *out)
{
    for (uint32_t i = count; i-- > 0;) {
        out[i] = matrices[i]->weights;
        if (out[i].type != matrices[0]->weights.type)
            return false;
        cuda_matrix_settled(c, matrices[i]); /* A copy for tensor cores would not be used. */
    }
    return true;
}

static enum status experts_open(struct compute *c, const struct compute_experts_options *o,
                                struct compute_experts **out)
{
    const size_t count = o->count, bytes = 3 * count * sizeof(struct cuda_weights);
    struct compute_experts *e = (struct compute_experts *)calloc(1, sizeof(*e));
    struct cuda_weights *host = (struct cuda_weights *)calloc(3 * count, sizeof(*host));
    enum status status = e != NULL && host != NULL ? ST_OK : ST_NO_MEMORY;
    if (status == ST_OK && !cuda_enter(c))
        status = ST_IO;
    if (status == ST_OK &&
        (!weights_of(c, o->down, o->count, host + 2 * count) ||
         !weights_of(c, o->up, o->count, host + count) || !weights_of(c, o->gate, o->count, host) ||
         host[0].type != host[count].type))
        status = ST_UNSUPPORTED;
    if (status == ST_OK) {
        e->weights = (struct cuda_weights *)cuda_take(c, bytes, false);
        status = e->weights != NULL ? ST_OK : c->failed ? ST_IO : ST_NO_MEMORY;
    }
    if (status == ST_OK) {
        e->o = *o;
        e->type = host[0].type;
        e->down_type = host[2 * count].type;
        cuda_write(c, e->weights, host, bytes);
        *out = e;
    } else {
        free(e);
    }
    free(host);
    return status;
}

static void workspace_close(struct compute *c, struct compute_experts_workspace *room)
{
    if (room == NULL)
        return;
    cuda_steps_forget(c);
    cuda_give(c, room->ids);
    cuda_give(c, room->weights);
    cuda_give(c, room->activated);
    cuda_give(c, room->activated_f32);
    free(room);
}

static enum status workspace_open(struct compute *c,
                                  const struct compute_experts_workspace_options *o,
                                  struct compute_experts_workspace **out)
{
    const size_t pairs = (size_t)o->rows_max * o->used;
    struct compute_experts_workspace *room =
        (struct compute_experts_workspace *)calloc(1, sizeof(*room));
    if (room == NULL)
        return ST_NO_MEMORY;
    room->rows_max = o->rows_max;
    room->used = o->used;
    room->f32 = c->exact || (o->needs_down & COMPUTE_NEEDS_F32) != 0;
    room->ids = (uint32_t *)cuda_take(c, pairs * sizeof(uint32_t), true);
    room->weights = (float *)cuda_take(c, pairs * sizeof(float), true);
    if (room->f32)
        room->activated_f32 = (float *)cuda_take(c, pairs * o->ffn * sizeof(float), true);
    else
        room->activated =
            (__nv_bfloat16 *)cuda_take(c, pairs * o->ffn * sizeof(__nv_bfloat16), true);
    if (room->ids == NULL || room->weights == NULL ||
        (room->activated_f32 == NULL && room->activated == NULL)) {
        workspace_close(c, room);
        return c->failed ? ST_IO : ST_NO_MEMORY;
    }
    *out = room;
    return ST_OK;
}

/* Computes `rows` rows from row `first` on. */
static void part_run(struct compute *c, const struct compute_experts *e,
                     const struct compute_experts_workspace *room,
                     const struct compute_activations *a, uint32_t first, uint32_t rows, bool add,
                     float *y)
{
    const struct compute_experts_options *o = &e->o;
    const size_t pair = (size_t)first * o->routing.used;
    struct cuda_experts part = {};
    part.kind = o->gate_kind;
    part.first = o->first;
    part.count = o->count;
    part.used = o->routing.used;
    part.hidden = o->hidden;
    part.ffn = o->ffn;
    part.gate = e->weights;
    part.up = e->weights + o->count;
    part.down = e->weights + 2 * (size_t)o->count;
    part.gate_bias = o->gate_bias;
    part.up_bias = o->up_bias;
    part.down_bias = o->down_bias;
    part.ids = room->ids + pair;
    part.weights = room->weights + pair;
    part.activated = room->activated != NULL ? room->activated + pair * o->ffn : NULL;
    part.activated_f32 = room->activated_f32 != NULL ? room->activated_f32 + pair * o->ffn : NULL;
    const bool f32 = c->exact || e->type == COMPUTE_F32;
    const size_t input = (size_t)first * o->hidden;
    cuda_experts_run(c->stream, &part, e->type, e->down_type, f32 ? NULL : a->bf16 + input,
                     f32 ? a->f32 + input : NULL, rows, add, y + input);
    cuda_launched(c, "experts");
}

static void experts_run(struct compute *c, const struct compute_experts *e,
                        struct compute_experts_workspace *room, const float *router_product,
                        const struct compute_activations *a, uint32_t row_count, bool add, float *y)
{
    const uint32_t rows_max = LAUNCH_PAIRS_MAX / e->o.routing.used;
    if (!cuda_enter(c))
        return;
    cuda_experts_choose(c->stream, &e->o.routing, router_product, row_count, room->ids,
                        room->weights);
    cuda_launched(c, "choice of experts");
    for (uint32_t first = 0, rows; first < row_count; first += rows) {
        rows = row_count - first < rows_max ? row_count - first : rows_max;
        part_run(c, e, room, a, first, rows, add, y);
    }
}

static void row_gate(struct compute *c, const float *gates, uint32_t row_count, uint32_t cols,
                     float *x)
{
    if (!cuda_enter(c))
        return;
    cuda_row_gate(c->stream, gates, row_count, cols, x);
    cuda_launched(c, "gate of shared experts");
}

const struct compute_experts_ops cuda_experts_ops = {experts_open,    experts_close, workspace_open,
                                                     workspace_close, experts_run,   row_gate};
