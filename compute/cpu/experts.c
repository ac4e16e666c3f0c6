/* experts: mixtures of experts on CPUs (compute/experts.h).
 *
 * A pair is a row and one of its experts. The pairs are sorted by expert; the pairs of one expert
 * are a run. Three parallel regions compute all experts of a layer:
 * 1. gate and up: a work item is a piece of one expert's gate and up for all rows of its run. The
 *    rows were copied next to each other, so that they form tiles. (A batch of one row is not
 *    copied: all runs share the row.)
 * 2. activation(gate) * up, quantised: a work item is some pairs.
 * 3. down: a work item is some columns of the result for all runs, one after the other. No two
 *    threads write the same element, and each row adds its experts in the order of their numbers.
 */
#include "compute/cpu/cpu.h"
#include "compute/cpu/routing.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define ITEMS_A_THREAD  32 /* Items of gate and up. */
#define DOWN_ITEMS      8  /* Items of down for each thread, at least. */
#define DOWN_GROUPS_MAX 8  /* Most groups of an item of down: the results stay in the cache. */
#define CHOOSE_ROWS     16 /* Rows of an item; fewer rows are not worth waking the workers. */
#define PAIRS_ITEM      4

struct compute_experts {
    struct compute_experts_options o; /* Its arrays are copies. */
    const struct compute_matrix **matrices;
};

/* The pairs of one expert. */
struct run {
    uint32_t expert; /* Index in the arrays of compute_experts_options. */
    uint32_t first;  /* Index of its first pair. */
    uint32_t rows;
    uint32_t first_tile;
    uint32_t tile_rows;
};

struct compute_experts_workspace {
    struct compute_experts_workspace_options o;
    uint32_t *ids;    /* [rows_max × used] */
    float *weights;   /* [rows_max × used] */
    uint32_t *counts; /* [experts]; rows of each expert, later the next free pair. */
    struct run *runs; /* [experts] */
    uint32_t run_count, pair_count;
    uint32_t *pair_runs;             /* [pairs] */
    uint32_t *pair_rows;             /* [pairs]; rows of the batch. */
    float *pair_weights;             /* [pairs] */
    struct compute_activations *in;  /* The rows of all runs. */
    struct compute_activations *ffn; /* Input of down. */
    float *gate, *up;                /* [pairs × ffn] */
};

/* One call of `run`. */
struct job {
    struct compute *c;
    const struct compute_experts *e;
    struct compute_experts_workspace *room;
    const float *router_product;
    const struct compute_activations *a;
    uint32_t row_count;
    bool add;
    float *y;
    bool copied;     /* False: the batch is one row, which all runs share. */
    uint32_t pieces; /* Items of each run in gate and up. */
    uint32_t groups; /* Groups of an item. */
};

/* ---- choosing and sorting ---- */

static void choose_item(void *context, uint32_t item, uint32_t thread)
{
    const struct job *job = context;
    const struct compute_routing *routing = &job->e->o.routing;
    const uint32_t end = (item + 1) * CHOOSE_ROWS;
    (void)thread;
    for (uint32_t row = item * CHOOSE_ROWS; row < end && row < job->row_count; row++)
        routing_choose(routing, job->router_product + (size_t)row * routing->experts,
                       job->room->ids + (size_t)row * routing->used,
                       job->room->weights + (size_t)row * routing->used);
}

/* Makes a run for each expert that has rows. */
static void runs_make(const struct job *job)
{
    struct compute_experts_workspace *room = job->room;
    const struct compute_experts_options *o = &job->e->o;
    const uint32_t chosen = job->row_count * o->routing.used;
    uint32_t tiles = 0;
    memset(room->counts, 0, o->count * sizeof(*room->counts));
    for (uint32_t i = 0; i < chosen; i++)
        if (room->ids[i] - o->first < o->count)
            room->counts[room->ids[i] - o->first]++;
    room->run_count = room->pair_count = 0;
    for (uint32_t e = 0; e < o->count; e++) {
        const uint32_t rows = room->counts[e];
        room->counts[e] = room->pair_count;
        if (rows == 0)
            continue;
        struct run *run = &room->runs[room->run_count++];
        *run = (struct run){e, room->pair_count, rows, tiles, cpu_tile_rows(rows)};
        tiles += (rows + run->tile_rows - 1) / run->tile_rows;
        room->pair_count += rows;
    }
}

static void pairs_sort(const struct job *job)
{
    struct compute_experts_workspace *room = job->room;
    const struct compute_experts_options *o = &job->e->o;
    runs_make(job);
    for (uint32_t i = 0; i < job->row_count * o->routing.used; i++) {
        const uint32_t expert = room->ids[i] - o->first;
        if (expert >= o->count)
            continue; /* Another rank has it. */
        const uint32_t pair = room->counts[expert]++;
        room->pair_rows[pair] = i / o->routing.used;
        room->pair_weights[pair] = room->weights[i];
    }
    for (uint32_t i = 0; i < room->run_count; i++)
        for (uint32_t k = 0; k < room->runs[i].rows; k++)
            room->pair_runs[room->runs[i].first + k] = i;
}

/* ---- the rows of a run ---- */

/* Returns the part of `a` that has a run's rows, as activations of their own. */
static struct compute_activations run_rows(const struct compute_activations *a,
                                           const struct run *run)
{
    struct compute_activations rows = *a;
    const size_t block = (size_t)run->first_tile * (a->cols / 32);
    rows.tile_rows = run->tile_rows;
    rows.strips = NULL; /* Runs do not begin with a strip. */
    rows.strip_planes = NULL;
    rows.floats += (size_t)run->first * a->cols;
    if (rows.rounded != NULL)
        rows.rounded += run->first * a->rounded_stride;
    if (rows.blocks != NULL)
        rows.blocks += block;
    if (rows.second_planes != NULL)
        rows.second_planes += block;
    return rows;
}

/* Copies one row's part of a tile's block. */
static void block_copy(const struct kernels_block *from, uint32_t r, struct kernels_block *to,
                       uint32_t row)
{
    memcpy(to->quants[row], from->quants[r], sizeof(to->quants[row]));
    to->scale[row] = from->scale[r];
    to->scaled_sum[row] = from->scaled_sum[r];
    to->minus_sum[0][row] = from->minus_sum[0][r];
    to->minus_sum[1][row] = from->minus_sum[1][r];
    to->refined[row] = from->refined[r];
}

static void row_copy(const struct compute_activations *from, uint32_t r,
                     const struct compute_activations *to, uint32_t row)
{
    if ((to->needs & COMPUTE_NEEDS_F32) != 0)
        memcpy(to->floats + (size_t)row * to->cols, from->floats + (size_t)r * to->cols,
               to->cols * sizeof(float));
    if (to->rounded != NULL)
        memcpy(to->rounded + row * to->rounded_stride, from->rounded + r * from->rounded_stride,
               to->rounded_stride);
    if (to->blocks == NULL)
        return;
    const size_t source = cpu_activation_block(from, r, 0),
                 target = cpu_activation_block(to, row, 0);
    const uint32_t in = r % from->tile_rows, out = row % to->tile_rows;
    for (uint32_t b = 0; b < to->cols / 32; b++) {
        block_copy(&from->blocks[source + b], in, &to->blocks[target + b], out);
        if (to->second_planes != NULL && from->blocks[source + b].refined[in] != 0)
            memcpy(to->second_planes[target + b].quants[out],
                   from->second_planes[source + b].quants[in], 32);
    }
}

static void copy_item(void *context, uint32_t item, uint32_t thread)
{
    const struct job *job = context;
    const struct compute_experts_workspace *room = job->room;
    const uint32_t end = (item + 1) * PAIRS_ITEM;
    (void)thread;
    for (uint32_t pair = item * PAIRS_ITEM; pair < end && pair < room->pair_count; pair++) {
        const struct run *run = &room->runs[room->pair_runs[pair]];
        const struct compute_activations rows = run_rows(room->in, run);
        row_copy(job->a, room->pair_rows[pair], &rows, pair - run->first);
    }
}

/* ---- the products ---- */

/* Multiplies groups [first, end) of gate and up, numbered through both, with a run's rows. */
static void gate_up_item(void *context, uint32_t item, uint32_t thread)
{
    const struct job *job = context;
    const struct compute_experts_options *o = &job->e->o;
    const struct run *run = &job->room->runs[item / job->pieces];
    const struct compute_activations rows = job->copied ? run_rows(job->room->in, run) : *job->a;
    const struct compute_matrix *const matrices[] = {o->gate[run->expert], o->up[run->expert]};
    const float *const biases[] = {o->gate_bias, o->up_bias};
    float *const results[] = {job->room->gate, job->room->up};
    const uint32_t each = matrices[0]->groups;
    uint32_t group = item % job->pieces * job->groups, end = group + job->groups;
    (void)thread;
    end = end < 2 * each ? end : 2 * each;
    while (group < end) {
        const uint32_t k = group >= each, first = group - k * each;
        const uint32_t last = end - k * each < each ? end - k * each : each;
        const struct cpu_part part = {
            .matrix = matrices[k],
            .first_group = first,
            .groups = last - first,
            .bias = biases[k] != NULL ? biases[k] + (size_t)run->expert * o->ffn : NULL,
            .a = &rows,
            .row_count = run->rows,
            .y = results[k] + (size_t)run->first * o->ffn + first * GROUP_ROWS,
            .y_stride = o->ffn,
        };
        cpu_matmul_part(job->c, &part);
        group += part.groups;
    }
}

/* Changes gate and up so that silu(gate) * up is the result for a `limit` above 0 (struct
 * compute_gate). */
static void gate_limit(const struct compute_gate *kind, uint32_t cols, float *gate, float *up)
{
    const float limit = kind->limit, alpha = kind->alpha;
    for (uint32_t i = 0; i < cols; i++) {
        const float g = gate[i] > limit ? limit : gate[i];
        const float u = up[i] > limit ? limit : up[i] < -limit ? -limit : up[i];
        gate[i] = g * alpha;
        up[i] = (u + 1) / alpha;
    }
}

static void act_item(void *context, uint32_t item, uint32_t thread)
{
    const struct job *job = context;
    const struct compute_experts_options *o = &job->e->o;
    const struct compute_experts_workspace *room = job->room;
    const uint32_t end = (item + 1) * PAIRS_ITEM;
    for (uint32_t pair = item * PAIRS_ITEM; pair < end && pair < room->pair_count; pair++) {
        const struct run *run = &room->runs[room->pair_runs[pair]];
        const struct compute_activations rows = run_rows(room->ffn, run);
        const uint32_t row = pair - run->first;
        float *gate = room->gate + (size_t)pair * o->ffn, *up = room->up + (size_t)pair * o->ffn;
        float *out = (rows.needs & COMPUTE_NEEDS_F32) != 0 ? rows.floats + (size_t)row * o->ffn
                                                           : job->c->scratch[thread].data;
        if (o->gate_kind.limit > 0)
            gate_limit(&o->gate_kind, o->ffn, gate, up);
        cpu_gate_mul_row(job->c, o->gate_kind.activation, gate, up, o->ffn, out);
        cpu_activations_finish(job->c, &rows, row, out);
    }
}

/* y += weight * out, row by row. */
static void add_weighted(const struct job *job, const struct run *run, const float *out,
                         uint32_t first, uint32_t cols)
{
    const struct compute_experts_workspace *room = job->room;
    for (uint32_t i = 0; i < run->rows; i++, out += cols) {
        const uint32_t pair = run->first + i;
        const float weight = room->pair_weights[pair];
        float *restrict y = job->y + (size_t)room->pair_rows[pair] * job->e->o.hidden + first;
        for (uint32_t k = 0; k < cols; k++)
            y[k] += weight * out[k];
    }
}

/* Adds the results of a run, some rows at a time: as many as scratch memory has room for. */
static void down_run(const struct job *job, uint32_t index, uint32_t first, uint32_t groups,
                     float *out)
{
    const struct compute_experts_options *o = &job->e->o;
    const struct run *run = &job->room->runs[index];
    const bool last = index + 1 == job->room->run_count;
    const struct compute_matrix *m = o->down[run->expert];
    const struct compute_matrix *after = last ? m : o->down[run[1].expert];
    const uint32_t columns = groups * GROUP_ROWS, left = o->hidden - first * GROUP_ROWS;
    const uint32_t cols = left < columns ? left : columns;
    const uint32_t chunk = CPU_CHUNK_TILES * run->tile_rows;
    for (uint32_t row = 0; row < run->rows; row += chunk) {
        struct run piece = *run;
        piece.first += row;
        piece.first_tile += row / run->tile_rows;
        piece.rows = run->rows - row < chunk ? run->rows - row : chunk;
        const struct compute_activations rows = run_rows(job->room->ffn, &piece);
        const struct cpu_part part = {
            .matrix = m,
            .first_group = first,
            .groups = groups,
            .bias = o->down_bias != NULL ? o->down_bias + (size_t)run->expert * o->hidden : NULL,
            .a = &rows,
            .row_count = piece.rows,
            .y = out,
            .y_stride = cols,
            .next = last ? NULL : after->data + first * after->group_bytes,
        };
        cpu_matmul_part(job->c, &part);
        add_weighted(job, &piece, out, first * GROUP_ROWS, cols);
    }
}

static void down_item(void *context, uint32_t item, uint32_t thread)
{
    const struct job *job = context;
    const uint32_t hidden = job->e->o.hidden, all = (hidden + GROUP_ROWS - 1) / GROUP_ROWS;
    const uint32_t first = item * job->groups;
    const uint32_t groups = all - first < job->groups ? all - first : job->groups;
    const uint32_t col = first * GROUP_ROWS;
    const uint32_t cols = hidden - col < groups * GROUP_ROWS ? hidden - col : groups * GROUP_ROWS;
    for (uint32_t row = 0; row < job->row_count && !job->add; row++)
        memset(job->y + (size_t)row * hidden + col, 0, cols * sizeof(float));
    for (uint32_t i = 0; i < job->room->run_count; i++)
        down_run(job, i, first, groups, job->c->scratch[thread].data);
}

static uint32_t up_to(uint32_t count, uint32_t part)
{
    return (count + part - 1) / part;
}

static void products_run(struct job *job)
{
    const struct compute_experts_workspace *room = job->room;
    const uint32_t threads = workers_threads(job->c->workers);
    if (room->run_count > 0) {
        const uint32_t groups = 2 * job->e->o.gate[0]->groups;
        job->pieces = up_to(threads * ITEMS_A_THREAD, room->run_count);
        job->groups = up_to(groups, job->pieces < groups ? job->pieces : groups);
        job->pieces = up_to(groups, job->groups);
        workers_run(job->c->workers, gate_up_item, job, room->run_count * job->pieces);
        workers_run(job->c->workers, act_item, job, up_to(room->pair_count, PAIRS_ITEM));
    }
    const uint32_t groups = up_to(job->e->o.hidden, GROUP_ROWS);
    job->groups = groups / (threads * DOWN_ITEMS);
    job->groups = job->groups == 0                ? 1
                  : job->groups > DOWN_GROUPS_MAX ? DOWN_GROUPS_MAX
                                                  : job->groups;
    workers_run(job->c->workers, down_item, job, up_to(groups, job->groups));
}

static void experts_run(struct compute *c, const struct compute_experts *e,
                        struct compute_experts_workspace *room, const float *router_product,
                        const struct compute_activations *a, uint32_t row_count, bool add, float *y)
{
    struct job job = {.c = c,
                      .e = e,
                      .room = room,
                      .router_product = router_product,
                      .a = a,
                      .row_count = row_count,
                      .add = add,
                      .y = y,
                      .copied = row_count > 1};
    assert(row_count <= room->o.rows_max && e->o.routing.used <= room->o.used);
    assert(e->o.routing.experts <= room->o.experts && a->cols == e->o.hidden);
    if (row_count == 0)
        return;
    workers_run(c->workers, choose_item, &job, up_to(row_count, CHOOSE_ROWS));
    pairs_sort(&job);
    if (job.copied)
        workers_run(c->workers, copy_item, &job, up_to(room->pair_count, PAIRS_ITEM));
    products_run(&job);
    c->last_product =
        NULL; /* The next product cannot tell which weights these threads read last. */
}

struct row_gates {
    const float *gates;
    uint32_t row_count, cols;
    float *x;
};

static void row_gate_item(void *context, uint32_t item, uint32_t thread)
{
    const struct row_gates *job = context;
    const uint32_t end = (item + 1) * CHOOSE_ROWS;
    (void)thread;
    for (uint32_t row = item * CHOOSE_ROWS; row < end && row < job->row_count; row++) {
        const float factor = routing_sigmoid(job->gates[row]);
        for (uint32_t i = 0; i < job->cols; i++)
            job->x[(size_t)row * job->cols + i] *= factor;
    }
}

static void experts_row_gate(struct compute *c, const float *gates, uint32_t row_count,
                             uint32_t cols, float *x)
{
    struct row_gates job = {gates, row_count, cols, x};
    workers_run(c->workers, row_gate_item, &job, up_to(row_count, CHOOSE_ROWS));
}

/* ---- opening and closing ---- */

static void experts_close(struct compute *c, struct compute_experts *e)
{
    (void)c;
    if (e == NULL)
        return;
    free(e->matrices);
    free(e);
}

static enum status experts_open(struct compute *c, const struct compute_experts_options *o,
                                struct compute_experts **out)
{
    const size_t count = o->count;
    assert(o->routing.experts <= COMPUTE_EXPERTS_MAX && count > 0);
    assert(o->routing.used <= COMPUTE_EXPERTS_USED_MAX && o->routing.used <= o->routing.experts);
    struct compute_experts *e = calloc(1, sizeof(*e));
    if (e == NULL)
        return ST_NO_MEMORY;
    e->o = *o;
    e->matrices = calloc(3 * count, sizeof(*e->matrices));
    if (e->matrices == NULL) {
        experts_close(c, e);
        return ST_NO_MEMORY;
    }
    memcpy(e->matrices, o->gate, count * sizeof(*o->gate));
    memcpy(e->matrices + count, o->up, count * sizeof(*o->up));
    memcpy(e->matrices + 2 * count, o->down, count * sizeof(*o->down));
    e->o.gate = e->matrices;
    e->o.up = e->matrices + count;
    e->o.down = e->matrices + 2 * count;
    *out = e;
    return ST_OK;
}

static void workspace_close(struct compute *c, struct compute_experts_workspace *room)
{
    if (room == NULL)
        return;
    cpu_activations_close(c, room->in);
    cpu_activations_close(c, room->ffn);
    free(room->ids);
    free(room->weights);
    free(room->counts);
    free(room->runs);
    free(room->pair_runs);
    free(room->pair_rows);
    free(room->pair_weights);
    free(room->gate);
    free(room->up);
    free(room);
}

static enum status workspace_open(struct compute *c,
                                  const struct compute_experts_workspace_options *o,
                                  struct compute_experts_workspace **out)
{
    const size_t pairs = (size_t)o->rows_max * o->used;
    /* Each run begins with a new tile. */
    const size_t runs = pairs < o->experts ? pairs : o->experts;
    const uint32_t tiled = (uint32_t)(pairs + runs * (TILE_ROWS - 1));
    struct compute_experts_workspace *room = calloc(1, sizeof(*room));
    if (room == NULL)
        return ST_NO_MEMORY;
    room->o = *o;
    room->ids = calloc(pairs, sizeof(*room->ids));
    room->weights = calloc(pairs, sizeof(*room->weights));
    room->counts = calloc(o->experts, sizeof(*room->counts));
    room->runs = calloc(o->experts, sizeof(*room->runs));
    room->pair_runs = calloc(pairs, sizeof(*room->pair_runs));
    room->pair_rows = calloc(pairs, sizeof(*room->pair_rows));
    room->pair_weights = calloc(pairs, sizeof(*room->pair_weights));
    room->gate = cpu_memory_allocate(pairs * o->ffn * sizeof(float));
    room->up = cpu_memory_allocate(pairs * o->ffn * sizeof(float));
    bool there = room->ids != NULL && room->weights != NULL && room->counts != NULL &&
                 room->runs != NULL && room->pair_runs != NULL && room->pair_rows != NULL &&
                 room->pair_weights != NULL && room->gate != NULL && room->up != NULL;
    const size_t scratch = (size_t)CPU_CHUNK_TILES * TILE_ROWS * DOWN_GROUPS_MAX * GROUP_ROWS;
    if (!there || cpu_scratch_grow(c, scratch) != ST_OK ||
        cpu_activations_open(c, tiled, o->hidden, o->needs_gate_up, &room->in) != ST_OK ||
        cpu_activations_open(c, tiled, o->ffn, o->needs_down, &room->ffn) != ST_OK) {
        workspace_close(c, room);
        return ST_NO_MEMORY;
    }
    *out = room;
    return ST_OK;
}

const struct compute_experts_ops cpu_experts = {
    .open = experts_open,
    .close = experts_close,
    .workspace_open = workspace_open,
    .workspace_close = workspace_close,
    .run = experts_run,
    .row_gate = experts_row_gate,
};
