/* matmul: splits y = W · x among the workers and over the caches. An item is a run of groups of W
 * (32 rows each) times a chunk of rows of x that stays in the L2 cache; inside, each group meets
 * the chunk's tiles one after the other, and only the first asks for the weights ahead, where that
 * pays (cpu.c). */
#include "compute/cpu/cpu.h"

#include <assert.h>
#include <string.h>

#define CHUNK_TILES    21             /* 126 rows: measured best for 576 to 1536 columns */
#define CHUNK_BYTES    (384u * 1024u) /* of activations: well inside a 1 MiB L2 */
#define ITEMS_A_THREAD 32             /* the last items' imbalance is then some 2 % */
#define MATRICES_MAX   4

struct matmul {
    const struct kernels *kernels;
    bool prefetch;
    const struct compute_activations *a;
    uint32_t row_count;
    uint32_t count; /* matrices */
    const struct compute_matrix *matrices[MATRICES_MAX];
    const float *biases[MATRICES_MAX];
    float *y[MATRICES_MAX];
    bool add;        /* y += instead of y = */
    uint32_t groups; /* of all matrices */
    uint32_t item_groups;
    uint32_t chunk_items; /* items of one chunk of rows */
    uint32_t chunk_tiles;
};

/* The two planes of each row become one. */
static void planes_fold(uint32_t rows, float (*out)[GROUP_ROWS])
{
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < GROUP_ROWS; i++)
            out[r][i] = out[2 * r][i] + out[2 * r + 1][i];
}

static void rows_write(const struct matmul *job, uint32_t k, uint32_t first_col, uint32_t row,
                       uint32_t rows, float (*out)[GROUP_ROWS])
{
    const struct compute_matrix *m = job->matrices[k];
    uint32_t cols = m->rows - first_col < GROUP_ROWS ? m->rows - first_col : GROUP_ROWS;
    const float *bias = job->biases[k];
    for (uint32_t r = 0; r < rows; r++) {
        float *y = job->y[k] + (size_t)(row + r) * m->rows + first_col;
        if (bias != NULL)
            for (uint32_t i = 0; i < cols; i++)
                out[r][i] += bias[first_col + i];
        if (job->add)
            for (uint32_t i = 0; i < cols; i++)
                y[i] += out[r][i];
        else
            memcpy(y, out[r], cols * sizeof(float));
    }
}

static void group_run(const struct matmul *job, uint32_t k, uint32_t group, uint32_t first_tile,
                      uint32_t last_tile)
{
    const struct compute_matrix *m = job->matrices[k];
    const struct compute_activations *a = job->a;
    const uint8_t *weights = m->data + group * m->group_bytes;
    _Alignas(64) float out[TILE_ROWS][GROUP_ROWS];
    uint32_t tile_rows = TILE_ROWS / a->planes;
    for (uint32_t tile = first_tile; tile < last_tile; tile++) {
        uint32_t row = tile * tile_rows;
        uint32_t rows = job->row_count - row < tile_rows ? job->row_count - row : tile_rows;
        if (m->form < FORM_QUANTISED_COUNT) {
            job->kernels->gemm_quantised(
                m->form, weights, m->cols / 32, cpu_activation_block(a, row * a->planes, 0),
                rows * a->planes, job->prefetch && tile == first_tile, out);
            if (a->planes == 2)
                planes_fold(rows, out);
        } else
            job->kernels->gemm_float(m->form, weights, m->cols, a->floats + (size_t)row * a->cols,
                                     rows, out);
        rows_write(job, k, group * GROUP_ROWS, row, rows, out);
    }
}

static void matmul_item(void *context, uint32_t item, uint32_t thread)
{
    (void)thread;
    const struct matmul *job = context;
    uint32_t first_tile = item / job->chunk_items * job->chunk_tiles;
    uint32_t last_tile = first_tile + job->chunk_tiles;
    uint32_t tile_rows = TILE_ROWS / job->a->planes;
    uint32_t tiles = (job->row_count + tile_rows - 1) / tile_rows;
    if (last_tile > tiles)
        last_tile = tiles;
    uint32_t group = item % job->chunk_items * job->item_groups;
    uint32_t end = group + job->item_groups < job->groups ? group + job->item_groups : job->groups;
    uint32_t k = 0, base = 0; /* group `base` is matrix k's first */
    for (; group < end; group++) {
        while (group - base >= job->matrices[k]->groups)
            base += job->matrices[k++]->groups;
        group_run(job, k, group - base, first_tile, last_tile);
    }
}

static void matmul_run(struct compute *c, struct matmul *job)
{
    const struct compute_activations *a = job->a;
    assert(job->row_count <= a->rows_max && job->count >= 1 && job->count <= MATRICES_MAX);
    for (uint32_t k = 0; k < job->count; k++) {
        assert(job->matrices[k]->cols == a->cols);
        assert((cpu_matrix_needs(job->matrices[k]) & ~a->needs) == 0);
        job->groups += job->matrices[k]->groups;
    }
    if (job->row_count == 0)
        return;
    job->prefetch = c->prefetch;
    uint32_t tile_rows = TILE_ROWS / a->planes;
    uint32_t tiles = (job->row_count + tile_rows - 1) / tile_rows;
    uint32_t tile_bytes = (uint32_t)sizeof(struct kernels_block) * (a->cols / 32);
    if ((a->needs & COMPUTE_NEEDS_F32) != 0)
        tile_bytes += TILE_ROWS * a->cols * (uint32_t)sizeof(float);
    uint32_t most = CHUNK_BYTES / (tile_bytes + 1);
    most = most < 2 ? 2 : most > CHUNK_TILES ? CHUNK_TILES : most;
    uint32_t chunks = (tiles + most - 1) / most;
    job->chunk_tiles = (tiles + chunks - 1) / chunks; /* equal chunks: no small last one */
    chunks = (tiles + job->chunk_tiles - 1) / job->chunk_tiles;
    uint32_t items = workers_threads(c->workers) * ITEMS_A_THREAD / chunks;
    items = items == 0 ? 1 : items > job->groups ? job->groups : items;
    job->item_groups = (job->groups + items - 1) / items;
    job->chunk_items = (job->groups + job->item_groups - 1) / job->item_groups;
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
