/* gemm_float: products of W in F32, F16 and BF16 with a tile of rows. isa_portable.c, isa_avx2.c
 * and isa_avx512.c include this header after their vector header, and put gemm_float and round_bf16
 * into their kernels_floats (kernels.h). isa_avx512_bf16.c includes this header too, but has its
 * own product and rounding for BF16; kernels_avx512_bf16_rounds compares both products. Any thread
 * may call the functions, which have no state.
 *
 * An output is one chain of fma over the columns in order. A product may therefore be split between
 * columns (in BF16 between pairs of columns): `out` keeps the sum of the columns before the split.
 * matmul.c, not this header, multiplies by the scales of F8_E4M3 weights, adds the bias, and writes
 * to y. */
#ifndef COMPUTE_CPU_GEMM_FLOAT_H
#define COMPUTE_CPU_GEMM_FLOAT_H

#include "compute/cpu/kernels.h"
#include "compute/cpu/layout.h"
#include "compute/half.h"

#include <string.h>

#ifndef INLINE
#define INLINE static inline __attribute__((always_inline))
#endif

#define FLOAT_AHEAD_BYTES (12 * 1024) /* Distance at which weights are prefetched. */

/* Loads the weights of a panel's 16 rows in one column. For BF16, `columns` is a pair of columns,
 * and `second` (0 or 1) selects the column. */
INLINE vec load_weights(enum kernels_form form, const uint8_t *columns, uint32_t panel,
                        uint32_t second)
{
    if (form == FORM_F32)
        return v_load((const float *)columns + panel * PANEL_ROWS);
    const uint16_t *halves = (const uint16_t *)columns;
    if (form == FORM_F16)
        return v_load_f16(halves + panel * PANEL_ROWS);
    halves += panel * 2 * PANEL_ROWS;
    return second != 0 ? v_load_bf16_low(halves) : v_load_bf16_high(halves);
}

/* Adds the products of columns [p->first_col, p->end_col) to the sums f. `rows` and `panels` are
 * constants in each call. */
INLINE void float_columns(const struct kernels_float *p, enum kernels_form form,
                          const uint8_t *weights, const float *x, uint32_t rows, uint32_t panels,
                          bool prefetch, vec f[TILE_ROWS][2])
{
    const uint32_t step = layout_float_step(form), bytes = layout_float_column_bytes(form) * step;
    const size_t stride = p->x_stride;
    for (uint32_t k = p->first_col; k < p->end_col; k += step, weights += bytes) {
        if (prefetch)
            for (uint32_t i = 0; i < bytes; i += 64)
                v_prefetch(weights + FLOAT_AHEAD_BYTES + i);
#pragma GCC unroll 2
        for (uint32_t s = 0; s < step; s++) {
            vec w[2];
#pragma GCC unroll 2
            for (uint32_t i = 0; i < panels; i++)
                w[i] = load_weights(form, weights, i, s);
#pragma GCC unroll 6
            for (uint32_t r = 0; r < rows; r++) {
                vec value = v_set(x[r * stride + k + s]);
#pragma GCC unroll 2
                for (uint32_t i = 0; i < panels; i++)
                    f[r][i] = form == FORM_BF16 ? v_fma_flush(w[i], value, f[r][i])
                                                : v_fma(w[i], value, f[r][i]);
            }
        }
    }
}

/* Multiplies `rows` rows of the tile from `row` on with `panels` panels from `panel` on. */
INLINE void float_tile(const struct kernels_float *p, enum kernels_form form, uint32_t row,
                       uint32_t rows, uint32_t panel, uint32_t panels, bool prefetch,
                       float out[TILE_ROWS][GROUP_ROWS])
{
    const uint32_t panel_bytes = PANEL_ROWS * (form == FORM_F32 || form == FORM_BF16 ? 4 : 2);
    const uint8_t *weights = p->group + (size_t)p->first_col * layout_float_column_bytes(form);
    vec f[TILE_ROWS][2];
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (uint32_t i = 0; i < panels; i++)
            f[r][i] = p->continues_sum ? v_load(&out[row + r][(panel + i) * PANEL_ROWS]) : v_zero();
    float_columns(p, form, weights + panel * panel_bytes, (const float *)p->x + row * p->x_stride,
                  rows, panels, prefetch, f);
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (uint32_t i = 0; i < panels; i++)
            v_store(&out[row + r][(panel + i) * PANEL_ROWS], f[r][i]);
}

/* Multiplies `rows` rows from `row` on with both panels. Up to GEMM_TWO_PANEL_ROWS rows are
 * multiplied with both panels at once, so that enough independent fma chains keep the CPU busy.
 * More rows are multiplied with one panel after the other, so that the sums fit into the
 * registers. */
INLINE void float_rows(const struct kernels_float *p, enum kernels_form form, uint32_t row,
                       uint32_t rows, float out[TILE_ROWS][GROUP_ROWS])
{
    const uint32_t panels = rows <= GEMM_TWO_PANEL_ROWS ? 2 : 1;
    for (uint32_t panel = 0; panel < 2; panel += panels)
        float_tile(p, form, row, rows, panel, panels, p->prefetch && panel == 0, out);
}

INLINE void float_form(const struct kernels_float *p, enum kernels_form form,
                       float out[TILE_ROWS][GROUP_ROWS])
{
#if GEMM_ROWS == 1
    for (uint32_t row = 0; row < p->rows; row++)
        float_rows(p, form, row, 1, out);
#else
    switch (p->rows) {
    case 1:
        float_rows(p, form, 0, 1, out);
        break;
    case 2:
        float_rows(p, form, 0, 2, out);
        break;
    case 3:
        float_rows(p, form, 0, 3, out);
        break;
    case 4:
        float_rows(p, form, 0, 4, out);
        break;
    case 5:
        float_rows(p, form, 0, 5, out);
        break;
    case 6:
        float_rows(p, form, 0, 6, out);
        break;
    }
#endif
}

static void gemm_f32(const struct kernels_float *p, float out[TILE_ROWS][GROUP_ROWS])
{
    float_form(p, FORM_F32, out);
}

static void gemm_f16(const struct kernels_float *p, float out[TILE_ROWS][GROUP_ROWS])
{
    float_form(p, FORM_F16, out);
}

/* Not inlined, so that the compiler moves no fma across v_flush_begin and v_flush_end. */
static __attribute__((noinline)) void gemm_bf16(const struct kernels_float *p,
                                                float out[TILE_ROWS][GROUP_ROWS])
{
    float_form(p, FORM_BF16, out);
}

static void gemm_float(const struct kernels_float *p, float out[TILE_ROWS][GROUP_ROWS])
{
    if (p->form == FORM_F32) {
        gemm_f32(p, out);
    } else if (p->form == FORM_F16) {
        gemm_f16(p, out);
    } else {
        uint32_t mode = v_flush_begin();
        gemm_bf16(p, out);
        v_flush_end(mode);
    }
}

/* kernels_floats.round: rounds x to bfloat16 but writes the values as fp32, in column order, with a
 * zero at the end if `count` is odd. */
static void round_bf16(const float *x, uint32_t count, void *rounded)
{
    float *out = rounded;
    for (uint32_t i = 0; i < count; i++)
        out[i] = half_from_bf16(half_to_bf16(x[i]));
    if (count % 2 != 0)
        out[count] = 0;
}

#endif
