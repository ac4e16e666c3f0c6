/* low_rank: y += B · A · x in fp32 for each row whose sequence has an adapter. Up to TILE rows with
 * one adapter are computed together, so that its matrices are read once for them. The order of each
 * row's sums depends only on the number of columns and the rank, so its bits do not depend on the
 * batch. */
#include "compute/cpu/cpu.h"

#include "common/widest.h"
#include "compute/low_rank.h"

#include <assert.h>

#define LANES 16
#define TILE  4  /* Most rows of a tile. */
#define TILES 64 /* Tiles that the workers get at once. */

/* LANES numbers at any address of a float. */
typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float))));

/* The matrices of all layers are larger than the CPU's own caches. Numbers are fetched while this
 * many earlier groups of `width` ranks, or of `width` blocks of columns, are computed. */
#define AHEAD 3

#define INLINE static inline __attribute__((always_inline))

/* Rows of a batch that have the same adapter. */
struct tile {
    const struct compute_low_rank *matrices;
    uint32_t rows[TILE];
    uint32_t count;
};

struct low_rank_job {
    const struct compute_activations *a;
    uint32_t y_cols;
    float *y;
    struct tile tiles[TILES];
    uint32_t tile_count;
};

/* What one tile reads and writes. */
struct operands {
    const float *x[TILE];
    float *y[TILE];
    float factors[TILE][COMPUTE_LOW_RANK_MAX]; /* A · x. */
};

/* factors[r] = A[r] · x for `ranks` ranks, from `first` on, and `count` rows. Each sum has LANES
 * parts. */
INLINE void down_block(struct operands *o, uint32_t count, const float *down, uint32_t first,
                       uint32_t ranks, uint32_t cols)
{
    const uint32_t whole = cols / LANES * LANES;
    lanes sums[TILE][TILE] = {{{0}}};
    float totals[TILE][TILE] = {{0}};
    down += (size_t)first * cols;
    for (uint32_t i = 0; i < whole; i += LANES) {
        for (uint32_t r = 0; r < ranks; r++)
            __builtin_prefetch(down + (size_t)(r + AHEAD * ranks) * cols + i, 0, 2);
        for (uint32_t k = 0; k < count; k++)
            for (uint32_t r = 0; r < ranks; r++)
                sums[k][r] +=
                    *(const lanes *)(down + (size_t)r * cols + i) * *(const lanes *)(o->x[k] + i);
    }
    for (uint32_t k = 0; k < count; k++)
        for (uint32_t r = 0; r < ranks; r++)
            for (uint32_t i = whole; i < cols; i++)
                sums[k][r][0] += down[(size_t)r * cols + i] * o->x[k][i];
    for (uint32_t j = 0; j < LANES; j++)
        for (uint32_t k = 0; k < count; k++)
            for (uint32_t r = 0; r < ranks; r++)
                totals[k][r] += sums[k][r][j];
    for (uint32_t k = 0; k < count; k++)
        for (uint32_t r = 0; r < ranks; r++)
            o->factors[k][first + r] = totals[k][r];
}

/* Adds all ranks to `blocks` times LANES elements of `count` rows of y. */
INLINE void up_block(struct operands *o, uint32_t count, const float *up, uint32_t rank,
                     uint32_t first, uint32_t blocks, uint32_t rows)
{
    lanes sums[TILE][TILE];
    up += first;
    for (uint32_t k = 0; k < count; k++)
        for (uint32_t b = 0; b < blocks; b++)
            sums[k][b] = *(const lanes *)(o->y[k] + first + b * LANES);
    for (uint32_t r = 0; r < rank; r++) {
        for (uint32_t b = 0; b < blocks; b++)
            __builtin_prefetch(up + (size_t)r * rows + (b + AHEAD * blocks) * LANES, 0, 2);
        for (uint32_t k = 0; k < count; k++)
            for (uint32_t b = 0; b < blocks; b++)
                sums[k][b] +=
                    o->factors[k][r] * *(const lanes *)(up + (size_t)r * rows + b * LANES);
    }
    for (uint32_t k = 0; k < count; k++)
        for (uint32_t b = 0; b < blocks; b++)
            *(lanes *)(o->y[k] + first + b * LANES) = sums[k][b];
}

/* Computes `count` rows. `width`: ranks, or blocks of columns, that are computed together. */
INLINE void tile_rows(const struct compute_low_rank *l, struct operands *o, uint32_t count,
                      uint32_t width, uint32_t cols, uint32_t rows)
{
    uint32_t first = 0;
    for (; first + width <= l->rank; first += width)
        down_block(o, count, l->down, first, width, cols);
    for (; first < l->rank; first++)
        down_block(o, count, l->down, first, 1, cols);
    for (first = 0; first + width * LANES <= rows; first += width * LANES)
        up_block(o, count, l->up, l->rank, first, width, rows);
    for (; first + LANES <= rows; first += LANES)
        up_block(o, count, l->up, l->rank, first, 1, rows);
    for (; first < rows; first++)
        for (uint32_t k = 0; k < count; k++)
            for (uint32_t r = 0; r < l->rank; r++)
                o->y[k][first] += o->factors[k][r] * l->up[(size_t)r * rows + first];
}

/* `count` times `width` sums are kept in registers: 8 of AVX-512. */
WIDEST static void tile_add(const struct compute_low_rank *l, struct operands *o, uint32_t count,
                            uint32_t cols, uint32_t rows)
{
    switch (count) {
    case 1:
        tile_rows(l, o, 1, 4, cols, rows);
        break;
    case 2:
        tile_rows(l, o, 2, 4, cols, rows);
        break;
    case 3:
        tile_rows(l, o, 3, 2, cols, rows);
        break;
    default:
        tile_rows(l, o, 4, 2, cols, rows);
        break;
    }
}

static void low_rank_item(void *context, uint32_t item, uint32_t thread)
{
    (void)thread;
    const struct low_rank_job *job = context;
    const struct tile *tile = &job->tiles[item];
    struct operands o;
    for (uint32_t k = 0; k < tile->count; k++) {
        o.x[k] = job->a->floats + (size_t)tile->rows[k] * job->a->cols;
        o.y[k] = job->y + (size_t)tile->rows[k] * job->y_cols;
    }
    tile_add(tile->matrices, &o, tile->count, job->a->cols, job->y_cols);
}

static void tiles_run(struct compute *c, struct low_rank_job *job)
{
    if (job->tile_count > 0)
        workers_run(c->workers, low_rank_item, job, job->tile_count);
    job->tile_count = 0;
}

/* Returns the batch's lowest adapter above `adapter`, and its number of rows; 0 = none. */
static uint32_t next_adapter(const struct compute_batch *batch, uint32_t adapter,
                             uint32_t *rows_out)
{
    uint32_t next = 0;
    *rows_out = 0;
    for (uint32_t i = 0; i < batch->sequence_count; i++) {
        const struct compute_sequence *s = &batch->sequences[i];
        if (s->adapter <= adapter || (next != 0 && s->adapter > next))
            continue;
        *rows_out = (s->adapter == next ? *rows_out : 0) + s->row_count;
        next = s->adapter;
    }
    return next;
}

/* Computes the rows of one adapter, in tiles of up to `tile_rows_max` rows. */
static void adapter_run(struct compute *c, struct low_rank_job *job,
                        const struct compute_batch *batch, uint32_t adapter,
                        const struct compute_low_rank *matrices, uint32_t tile_rows_max)
{
    struct tile *tile = NULL;
    for (uint32_t i = 0; i < batch->sequence_count; i++) {
        const struct compute_sequence *s = &batch->sequences[i];
        for (uint32_t k = 0; s->adapter == adapter && k < s->row_count; k++) {
            if (tile == NULL || tile->count == tile_rows_max) {
                if (job->tile_count == TILES)
                    tiles_run(c, job);
                tile = &job->tiles[job->tile_count++];
                *tile = (struct tile){.matrices = matrices};
            }
            tile->rows[tile->count++] = s->first_row + k;
        }
    }
}

void cpu_low_rank(struct compute *c, const struct compute_low_ranks *ranks,
                  const struct compute_batch *batch, const struct compute_activations *a, float *y)
{
    assert((a->needs & COMPUTE_NEEDS_F32) != 0);
    const uint32_t threads = workers_threads(c->workers);
    struct low_rank_job job = {.a = a, .y_cols = ranks->rows, .y = y};
    uint32_t rows;
    for (uint32_t adapter = next_adapter(batch, 0, &rows); adapter != 0;
         adapter = next_adapter(batch, adapter, &rows)) {
        const struct compute_low_rank *matrices = &ranks->by_adapter[adapter - 1];
        const uint32_t each = (rows + threads - 1) / threads; /* Every thread gets rows. */
        if (matrices->rank > 0)
            adapter_run(c, &job, batch, adapter, matrices, each < TILE ? each : TILE);
    }
    tiles_run(c, &job);
}
