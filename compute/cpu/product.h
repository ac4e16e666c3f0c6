/* product: computes a struct kernels_product (kernels.h): weights W times rows of activations x. A
 * group has GROUP_ROWS rows of W; a tile has at most TILE_ROWS rows of x. A function of the
 * instruction set (product_tile) multiplies one group and one tile. product_write writes the
 * results to y or adds them. gemm_avx2.c and isa_portable.c call product_run; matmul.c calls
 * product_write for float weights; gemm_avx512.c and gemm_amx.c have their own loops, and call
 * neither of the two. Any thread may call the functions, which have no state and do not divide work
 * among threads. */
#ifndef COMPUTE_CPU_PRODUCT_H
#define COMPUTE_CPU_PRODUCT_H

#include "compute/cpu/layout.h"

#include <string.h>

/* Multiplies the tile of `rows` ≤ TILE_ROWS rows that begins at row `row` of x with one group:
 * out[r][n] is the result of row r of the tile and row n of the group. */
typedef void (*product_tile)(const struct kernels_product *p, const uint8_t *group, uint32_t row,
                             uint32_t rows, float out[TILE_ROWS][GROUP_ROWS]);

/* Returns the bytes of one group of the product's weights. */
static inline size_t product_group_bytes(const struct kernels_product *p)
{
    return layout_group_bytes(p->form, p->blocks);
}

/* Returns the number of tiles of the product. */
static inline uint32_t product_tiles(const struct kernels_product *p)
{
    return (p->rows + p->tile_rows - 1) / p->tile_rows;
}

/* Returns the index in p->tiles and p->second_planes of the first block of the tile that begins at
 * row `row`. */
static inline size_t product_tile_first(const struct kernels_product *p, uint32_t row)
{
    return (size_t)row / p->tile_rows * p->blocks;
}

/* The share of the next group that one of several passes over a group prefetches, line by line. So
 * memory is busy during all passes, not only during the first. */
struct product_spread {
    const uint8_t *at;
    uint32_t due; /* lines × shares. */
    uint32_t shares;
};

/* Begins share number `share` of `shares`. `form` = p->form; `group` points into p->weights. */
static inline __attribute__((always_inline)) struct product_spread
product_spread_begin(enum kernels_form form, const struct kernels_product *p, const uint8_t *group,
                     uint32_t share, uint32_t shares)
{
    const size_t bytes = layout_group_bytes(form, p->blocks);
    const uintptr_t next = (uintptr_t)group + bytes;
    const uint8_t *from = (const uint8_t *)(next < p->ahead_end ? next : next + p->ahead_jump);
    return (struct product_spread){from + bytes * share / shares / 64 * 64, 0, shares};
}

/* Prefetches the part of the share that belongs to `lines` of the group, into the L2 cache. */
static inline __attribute__((always_inline)) void product_spread_step(struct product_spread *spread,
                                                                      uint32_t lines)
{
    spread->due += lines;
    for (; spread->due >= spread->shares; spread->due -= spread->shares, spread->at += 64)
        __builtin_prefetch(spread->at, 0, 2);
}

/* Returns the second plane that belongs to p->tiles[i]; NULL = the activations are not refined. */
static inline const struct kernels_second_plane *
product_second_plane(const struct kernels_product *p, size_t i)
{
    return p->second_planes != NULL ? &p->second_planes[i] : NULL;
}

/* Returns true if a row of the tile, from `row` to row + rows - 1, has a second plane in `a`. */
static inline bool product_refined(const struct kernels_block *a, uint32_t row, uint32_t rows)
{
    uint64_t flags;
    static_assert(sizeof(flags) == sizeof(a->refined), "one flag a byte");
    memcpy(&flags, a->refined, sizeof(flags));
    return (flags >> 8 * row & (((uint64_t)1 << 8 * rows) - 1)) != 0;
}

/* Returns the scale of row r times the sum of the row's quants in 16 columns of block `a`: the
 * first 16 if `half` is 0, the last 16 if `half` is 1. */
static inline float product_half_sum(const struct kernels_block *a, uint32_t half, uint32_t r)
{
    const int32_t last = a->minus_sum[1][r];
    return a->scale[r] * (float)-(half == 0 ? a->minus_sum[0][r] - last : last);
}

/* Adds the bias to `out`, and then writes `out` to p->y or, if p->adds_to_y, adds `out` to p->y.
 * `out` has the results of rows [row, row + rows) of x and of group `group` of W, counted from the
 * first row and group of the product. Uses only y, y_stride, outputs, bias and adds_to_y of p. */
static inline void product_write(const struct kernels_product *p, uint32_t group, uint32_t row,
                                 uint32_t rows, float out[TILE_ROWS][GROUP_ROWS])
{
    uint32_t first = group * GROUP_ROWS;
    uint32_t count = p->outputs - first < GROUP_ROWS ? p->outputs - first : GROUP_ROWS;
    for (uint32_t r = 0; r < rows; r++) {
        float *y = p->y + (row + r) * p->y_stride + first;
        if (p->bias != NULL)
            for (uint32_t i = 0; i < count; i++)
                out[r][i] += p->bias[first + i];
        if (p->adds_to_y)
            for (uint32_t i = 0; i < count; i++)
                y[i] += out[r][i];
        else
            memcpy(y, out[r], count * sizeof(float));
    }
}

/* Computes the whole product, group by group. */
static inline void product_run(const struct kernels_product *p, product_tile tile_run)
{
    _Alignas(64) float out[TILE_ROWS][GROUP_ROWS];
    for (uint32_t g = 0; g < p->groups; g++) {
        const uint8_t *group = p->weights + g * product_group_bytes(p);
        for (uint32_t row = 0; row < p->rows; row += p->tile_rows) {
            uint32_t rows = p->rows - row < p->tile_rows ? p->rows - row : p->tile_rows;
            tile_run(p, group, row, rows, out);
            product_write(p, g, row, rows, out);
        }
    }
}

#endif
