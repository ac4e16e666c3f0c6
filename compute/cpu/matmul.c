/* matmul: divides y = W · x among the workers and over the caches. A work item is a run of groups
 * of W (32 rows each) times a chunk of rows of x that stays in the L2 cache. Within an item, each
 * group is multiplied with the chunk's tiles one after the other. The first tile prefetches
 * weights, where that pays (cpu.c); with few tiles, each prefetches its share (product.h). */
#include "compute/cpu/cpu.h"
#include "compute/cpu/product.h"
#include "compute/types.h"

#include <assert.h>
#include <string.h>

#define CHUNK_BYTES (384u * 1024u) /* Bytes of activations: well inside a 1 MiB L2 cache. */
/* Chunks of products with strips are up to 3 steps of 8 tiles, which are 3 strips: at most 144
 * rows, inside the 2 MiB L2 cache that all CPUs with AMX have. */
#define STRIPS_STEP_TILES  8u
#define STRIPS_STEPS_MAX   3u
#define STRIPS_CHUNK_BYTES (1024u * 1024u)
/* Bytes of a group of a float form: inside the L2 cache as well. */
#define FLOAT_PIECE_BYTES (128u * 1024u)
#define ITEMS_A_THREAD    32 /* The imbalance at the end is then about 2 %. */
#define MATRICES_MAX      4

static_assert(STRIPS_STEP_TILES * TILE_ROWS % KERNELS_STRIP_ROWS == 0, "whole strips");

struct matmul {
    const struct kernels *kernels;
    const struct kernels_floats *floats;
    bool prefetch;
    const struct compute_activations *a;
    uint32_t row_count;
    uint32_t count; /* Number of matrices. */
    const struct compute_matrix *matrices[MATRICES_MAX];
    const float *biases[MATRICES_MAX];
    float *y[MATRICES_MAX];
    bool add;        /* y += instead of y =. */
    bool strips;     /* All products are made by kernels.gemm_strips. */
    uint32_t groups; /* Groups of all matrices. */
    uint32_t item_groups;
    uint32_t chunk_items; /* Items of one chunk of rows. */
    uint32_t chunk_tiles;
    const struct cpu_weights_ahead *ahead; /* [threads] */
};

/* Returns where block number `block` of columns that share scales ends. */
static uint32_t block_end(const struct compute_matrix *m, uint32_t block)
{
    const uint32_t rest = m->scales != NULL ? m->cols - m->scale_first : 0;
    if (rest == 0 || rest / m->scale_cols < block)
        return m->cols;
    return m->scale_first + block * m->scale_cols;
}

/* sums (+)= one such block's products times its scales. */
static void scale_rows(const struct compute_matrix *m, uint32_t group, uint32_t block,
                       uint32_t rows, float products[][GROUP_ROWS], float sums[][GROUP_ROWS])
{
    const float *scales = m->scales + ((size_t)group * m->scale_blocks + block) * GROUP_ROWS;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < GROUP_ROWS; i++) {
            float product = products[r][i] * scales[i];
            sums[r][i] = block == 0 ? product : sums[r][i] + product;
        }
}

/* Multiplies one group of a float form. Wide matrices are processed in pieces of columns that stay
 * in the cache; the sums so far are kept in `out`. */
static void float_run(const struct matmul *job, const struct compute_matrix *m,
                      const struct kernels_product *p, uint32_t first_group, uint32_t group,
                      uint32_t first_row)
{
    const struct compute_activations *a = job->a;
    const uint32_t piece = FLOAT_PIECE_BYTES / layout_float_column_bytes(m->form);
    const size_t stride = m->form == FORM_BF16 ? a->rounded_stride : a->cols * sizeof(float);
    const uint8_t *x =
        (m->form == FORM_BF16 ? a->rounded : (const uint8_t *)a->floats) + first_row * stride;
    _Alignas(64) float out[CPU_CHUNK_TILES][TILE_ROWS][GROUP_ROWS];
    float sums[CPU_CHUNK_TILES][TILE_ROWS][GROUP_ROWS];
    struct kernels_float f = {.form = m->form,
                              .group = p->weights + group * m->group_bytes,
                              .x_stride = stride / sizeof(float)};
    uint32_t row, block, end;
    for (block = 0, end = 0; end < m->cols; block++) {
        f.first_col = end;
        end = block_end(m, block);
        for (f.continues_sum = false; f.first_col < end;
             f.first_col = f.end_col, f.continues_sum = true) {
            f.end_col = end - f.first_col > piece ? f.first_col + piece : end;
            for (row = 0; row < p->rows; row += f.rows) {
                f.rows = p->rows - row < TILE_ROWS ? p->rows - row : TILE_ROWS;
                f.x = x + row * stride;
                f.prefetch = p->prefetch && row == 0;
                job->floats->gemm(&f, out[row / TILE_ROWS]);
            }
        }
        if (m->scales != NULL)
            scale_rows(m, first_group + group, block, p->rows, out[0], sums[0]);
    }
    for (row = 0; row < p->rows; row += f.rows) {
        f.rows = p->rows - row < TILE_ROWS ? p->rows - row : TILE_ROWS;
        product_write(p, group, row, f.rows, (m->scales != NULL ? sums : out)[row / TILE_ROWS]);
    }
}

/* Multiplies `p->groups` groups of m from group `first` on with rows of job->a from first_row on. p
 * has everything except the activations. */
static void product_multiply(const struct matmul *job, const struct compute_matrix *m,
                             struct kernels_product *p, uint32_t first, uint32_t first_row)
{
    if (m->form < FORM_QUANTISED_COUNT) {
        size_t block = cpu_activation_block(job->a, first_row, 0);
        p->codes = types_codes(m->type);
        p->factor = types_scale_factor(m->type);
        p->tile_rows = job->a->tile_rows;
        p->unpack = p->rows >= m->way.unpack_rows;
        p->tiles = job->a->blocks + block;
        p->second_planes = job->a->second_planes != NULL ? job->a->second_planes + block : NULL;
        if (job->strips) {
            const size_t strip = (size_t)first_row / KERNELS_STRIP_ROWS * p->blocks;
            p->strips = job->a->strips + strip;
            p->strip_planes = job->a->strip_planes != NULL ? job->a->strip_planes + strip : NULL;
            job->kernels->gemm_strips(p);
        } else
            job->kernels->gemm_quantised(p);
        return;
    }
    for (uint32_t g = 0; g < p->groups; g++)
        float_run(job, m, p, first, g, first_row);
}

/* Multiplies groups [first, first + groups) of matrix k with rows [first_row, last_row). */
static void groups_run(const struct matmul *job, uint32_t k, uint32_t first, uint32_t groups,
                       uint32_t first_row, uint32_t last_row, const struct cpu_weights_ahead *ahead)
{
    const struct compute_matrix *m = job->matrices[k];
    uint32_t output = first * GROUP_ROWS, left = m->rows - output;
    struct kernels_product p = {
        .form = m->form,
        .weights = m->data + first * m->group_bytes,
        .groups = groups,
        .blocks = m->cols / 32,
        .prefetch = job->prefetch,
        .prefetch_shares = true,
        .ahead_end = ahead->end,
        .ahead_jump = ahead->next - ahead->end,
        .rows = last_row - first_row,
        .outputs = left < groups * GROUP_ROWS ? left : groups * GROUP_ROWS,
        .bias = job->biases[k] != NULL ? job->biases[k] + output : NULL,
        .adds_to_y = job->add,
        .y = job->y[k] + (size_t)first_row * m->rows + output,
        .y_stride = m->rows,
    };
    product_multiply(job, m, &p, first, first_row);
}

void cpu_matmul_part(const struct compute *c, const struct cpu_part *part)
{
    const struct compute_matrix *m = part->matrix;
    const uint32_t output = part->first_group * GROUP_ROWS, left = m->rows - output;
    const struct matmul job = {.kernels = c->kernels, .floats = c->floats, .a = part->a};
    struct kernels_product p = {
        .form = m->form,
        .weights = m->data + part->first_group * m->group_bytes,
        .groups = part->groups,
        .blocks = m->cols / 32,
        .prefetch = c->prefetch,
        .prefetch_shares = true,
        .ahead_end = (uintptr_t)m->data + (part->first_group + part->groups) * m->group_bytes,
        .outputs = left < part->groups * GROUP_ROWS ? left : part->groups * GROUP_ROWS,
        .bias = part->bias != NULL ? part->bias + output : NULL,
        .y_stride = part->y_stride,
    };
    if (part->next != NULL)
        p.ahead_jump = (uintptr_t)part->next - p.ahead_end;
    const uint32_t chunk_rows = CPU_CHUNK_TILES * part->a->tile_rows;
    for (uint32_t row = 0; row < part->row_count; row += p.rows) {
        p.rows = part->row_count - row < chunk_rows ? part->row_count - row : chunk_rows;
        p.y = part->y + row * part->y_stride;
        product_multiply(&job, m, &p, part->first_group, row);
        p.prefetch = p.prefetch_shares = false; /* The weights are in the cache. */
    }
}

static void matmul_item(void *context, uint32_t item, uint32_t thread)
{
    const struct matmul *job = context;
    const struct cpu_weights_ahead past = {.end = 0}, *ahead = &job->ahead[thread];
    if (item < ahead->first_item || item >= ahead->end_item)
        ahead = &past; /* The item was taken from another thread's share. */
    const uint32_t chunk_rows = job->chunk_tiles * job->a->tile_rows;
    uint32_t row = item / job->chunk_items * chunk_rows, last_row = row + chunk_rows;
    if (last_row > job->row_count)
        last_row = job->row_count;
    uint32_t group = item % job->chunk_items * job->item_groups;
    uint32_t end = group + job->item_groups < job->groups ? group + job->item_groups : job->groups;
    uint32_t k = 0, base = 0; /* Group `base` is the first of matrix k. */
    while (group < end) {
        while (group - base >= job->matrices[k]->groups)
            base += job->matrices[k++]->groups;
        uint32_t last =
            base + job->matrices[k]->groups < end ? base + job->matrices[k]->groups : end;
        groups_run(job, k, group - base, last - group, row, last_row, ahead);
        group = last;
    }
}

/* Bytes of activations that one tile brings into the cache; float forms use pieces of the columns.
 */
static uint32_t tile_bytes(const struct compute_activations *a)
{
    const uint32_t narrow = FLOAT_PIECE_BYTES / layout_float_column_bytes(FORM_F32);
    const uint32_t half = FLOAT_PIECE_BYTES / layout_float_column_bytes(FORM_BF16);
    uint32_t bytes = 0;
    if ((a->needs & COMPUTE_NEEDS_Q8) != 0)
        bytes += (uint32_t)sizeof(struct kernels_block) * (a->cols / 32);
    if ((a->needs & COMPUTE_NEEDS_F32) != 0)
        bytes += TILE_ROWS * (a->cols < narrow ? a->cols : narrow) * (uint32_t)sizeof(float);
    if ((a->needs & COMPUTE_NEEDS_BF16) != 0)
        bytes += TILE_ROWS * (a->cols < half ? a->cols : half) * (uint32_t)sizeof(uint16_t);
    return bytes;
}

/* Address where the weights of item `item` begin. */
static uintptr_t item_begin(const struct matmul *job, uint32_t item)
{
    uint32_t group = item % job->chunk_items * job->item_groups, k = 0;
    while (group >= job->matrices[k]->groups)
        group -= job->matrices[k++]->groups;
    return (uintptr_t)job->matrices[k]->data + group * job->matrices[k]->group_bytes;
}

static uintptr_t item_end(const struct matmul *job, uint32_t item)
{
    uint32_t end = (item % job->chunk_items + 1) * job->item_groups, k = 0;
    end = end < job->groups ? end : job->groups;
    while (end > job->matrices[k]->groups)
        end -= job->matrices[k++]->groups;
    return (uintptr_t)job->matrices[k]->data + end * job->matrices[k]->group_bytes;
}

/* The products of a pass follow each other in the same order every time, so each thread prefetches
 * the beginning of its next share at the end of its current one. The weights that follow in memory
 * belong to another thread, and lines in another core's cache are further away than memory. */
static void ahead_make(struct compute *c, const struct matmul *job, uint32_t items)
{
    const struct compute_matrix *before = c->last_product;
    const uint32_t threads = workers_threads(c->workers);
    for (uint32_t i = 0; i < threads; i++) {
        struct cpu_weights_ahead *ahead = &c->ahead[i];
        ahead->first_item = workers_share(c->workers, items, i);
        ahead->end_item = workers_share(c->workers, items, i + 1);
        if (ahead->first_item == ahead->end_item)
            continue;
        ahead->end = item_end(job, ahead->end_item - 1);
        ahead->next = job->matrices[0]->next[c->ahead_base + i];
        if (ahead->next == 0)
            ahead->next = ahead->end;
        uintptr_t begin = item_begin(job, ahead->first_item);
        if (before != NULL && before->next[c->ahead_base + i] != begin)
            before->next[c->ahead_base + i] = begin; /* Lanes have separate entries. */
    }
    c->last_product = job->matrices[0];
}

/* Returns true if all matrices are multiplied with strips, which the activations have. */
static bool strips_fit(const struct matmul *job)
{
    const struct compute_activations *a = job->a;
    if (a->strips == NULL || a->few || a->tile_rows != TILE_ROWS)
        return false;
    for (uint32_t k = 0; k < job->count; k++)
        if (!job->matrices[k]->way.strips)
            return false;
    return true;
}

/* Returns how many tiles the chunks have: all the same, without a small last chunk. */
static uint32_t chunk_tiles(const struct compute_activations *a, uint32_t tiles)
{
    uint32_t most = CHUNK_BYTES / (tile_bytes(a) + 1);
    most = most < 2 ? 2 : most > CPU_CHUNK_TILES ? CPU_CHUNK_TILES : most;
    const uint32_t chunks = (tiles + most - 1) / most;
    return (tiles + chunks - 1) / chunks;
}

/* Returns the same for products with strips: a multiple of STRIPS_STEP_TILES. */
static uint32_t strips_chunk_tiles(const struct compute_activations *a, uint32_t tiles)
{
    const size_t step_bytes = (size_t)STRIPS_STEP_TILES * TILE_ROWS / KERNELS_STRIP_ROWS *
                              (a->cols / 32) * sizeof(struct kernels_strip);
    uint32_t steps = (uint32_t)(STRIPS_CHUNK_BYTES / (step_bytes + 1));
    steps = steps < 1 ? 1 : steps > STRIPS_STEPS_MAX ? STRIPS_STEPS_MAX : steps;
    const uint32_t most = steps * STRIPS_STEP_TILES, chunks = (tiles + most - 1) / most;
    const uint32_t even = (tiles + chunks - 1) / chunks;
    return (even + STRIPS_STEP_TILES - 1) / STRIPS_STEP_TILES * STRIPS_STEP_TILES;
}

static void matmul_run(struct compute *c, struct matmul *job)
{
    const struct compute_activations *a = job->a;
    assert(job->row_count <= a->rows_max && job->count >= 1 && job->count <= MATRICES_MAX);
    for (uint32_t k = 0; k < job->count; k++) {
        assert(job->matrices[k]->cols == a->cols);
        assert((cpu_matrix_needs(job->matrices[k]) & ~(a->needs | COMPUTE_NEEDS_STRIPS)) == 0);
        job->groups += job->matrices[k]->groups;
    }
    job->strips = strips_fit(job);
    if (job->row_count == 0)
        return;
    job->floats = c->floats;
    job->prefetch = c->prefetch;
    uint32_t tiles = (job->row_count + a->tile_rows - 1) / a->tile_rows;
    job->chunk_tiles = job->strips ? strips_chunk_tiles(a, tiles) : chunk_tiles(a, tiles);
    uint32_t chunks = (tiles + job->chunk_tiles - 1) / job->chunk_tiles;
    uint32_t items = workers_threads(c->workers) * ITEMS_A_THREAD / chunks;
    items = items == 0 ? 1 : items > job->groups ? job->groups : items;
    job->item_groups = (job->groups + items - 1) / items;
    job->chunk_items = (job->groups + job->item_groups - 1) / job->item_groups;
    job->ahead = c->ahead;
    ahead_make(c, job, job->chunk_items * chunks);
    workers_run(c->workers, matmul_item, job, job->chunk_items * chunks);
}

void cpu_matmul(struct compute *c, const struct compute_matrix *const *matrices,
                const float *const *biases, uint32_t count, const struct compute_activations *a,
                uint32_t row_count, float *const *y)
{
    assert(count <= MATRICES_MAX);
    struct matmul job = {.kernels = c->kernels, .a = a, .row_count = row_count, .count = count};
    for (uint32_t k = 0; k < count; k++) {
        job.matrices[k] = matrices[k];
        job.biases[k] = biases != NULL ? biases[k] : NULL;
        job.y[k] = y[k];
    }
    matmul_run(c, &job);
}

void cpu_matmul_add(struct compute *c, const struct compute_matrix *m,
                    const struct compute_activations *a, uint32_t row_count, float *x)
{
    struct matmul job = {.kernels = c->kernels, .a = a, .row_count = row_count, .count = 1};
    job.matrices[0] = m;
    job.y[0] = x;
    job.add = true;
    matmul_run(c, &job);
}
