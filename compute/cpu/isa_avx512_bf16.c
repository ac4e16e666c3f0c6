/* isa_avx512_bf16: the float products for CPUs with AVX512_BF16. BF16 uses vdpbf16ps, two columns
 * at a time and twice as fast as fp32; F32 and F16 are as in isa_avx512.c. */
#include "compute/cpu/vector_avx512.h"

#include "compute/cpu/gemm_float.h"

/* Adds the products of the high halves first, then those of the low halves; each addition rounds.
 */
INLINE vec dot_pairs(__m512i w, __m512i x, vec f)
{
    return _mm512_dpbf16_ps(f, (__m512bh)w, (__m512bh)x);
}

INLINE void dot_tile(const struct kernels_float *p, uint32_t rows, float out[TILE_ROWS][GROUP_ROWS])
{
    const uint8_t *weights = p->group + (size_t)p->first_col * layout_float_column_bytes(FORM_BF16);
    const uint32_t *x = p->x; /* Pairs. */
    const size_t stride = p->x_stride;
    vec f[TILE_ROWS][2];
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
        f[r][0] = p->continues_sum ? v_load(out[r]) : v_zero();
        f[r][1] = p->continues_sum ? v_load(out[r] + PANEL_ROWS) : v_zero();
    }
    for (uint32_t k = p->first_col / 2; k < (p->end_col + 1) / 2; k++, weights += 128) {
        if (p->prefetch) {
            v_prefetch(weights + FLOAT_AHEAD_BYTES);
            v_prefetch(weights + FLOAT_AHEAD_BYTES + 64);
        }
        __m512i first = _mm512_load_si512(weights), second = _mm512_load_si512(weights + 64);
#pragma GCC unroll 6
        for (uint32_t r = 0; r < rows; r++) {
            __m512i pair = _mm512_set1_epi32((int)x[r * stride + k]);
            f[r][0] = dot_pairs(first, pair, f[r][0]);
            f[r][1] = dot_pairs(second, pair, f[r][1]);
        }
    }
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
        v_store(out[r], f[r][0]);
        v_store(out[r] + PANEL_ROWS, f[r][1]);
    }
}

static void dot(const struct kernels_float *p, float out[TILE_ROWS][GROUP_ROWS])
{
    switch (p->rows) {
    case 1:
        dot_tile(p, 1, out);
        break;
    case 2:
        dot_tile(p, 2, out);
        break;
    case 3:
        dot_tile(p, 3, out);
        break;
    case 4:
        dot_tile(p, 4, out);
        break;
    case 5:
        dot_tile(p, 5, out);
        break;
    case 6:
        dot_tile(p, 6, out);
        break;
    }
}

static void gemm(const struct kernels_float *p, float out[TILE_ROWS][GROUP_ROWS])
{
    if (p->form == FORM_F32)
        gemm_f32(p, out);
    else if (p->form == FORM_F16)
        gemm_f16(p, out);
    else
        dot(p, out);
}

/* Rounds pairs into the weights' order: the first column in the high half. */
static void round_pairs(const float *x, uint32_t count, void *rounded)
{
    uint32_t *out = rounded;
    for (uint32_t i = 0; i < count / 2; i++)
        out[i] = (uint32_t)half_to_bf16(x[2 * i]) << 16 | half_to_bf16(x[2 * i + 1]);
    if (count % 2 != 0)
        out[count / 2] = (uint32_t)half_to_bf16(x[count - 1]) << 16;
}

#define PROBE_COLS 64

/* Returns a number of 8 bits near 2^exponent, from a fixed sequence. */
static float probe_value(uint32_t *state, int exponent)
{
    *state = *state * 1664525u + 1013904223u;
    uint32_t bits = (uint32_t)(127 + exponent + (int)(*state >> 8 & 7)) << 23;
    return half_bits_float(bits | (*state & 0x80000000u) | (*state >> 9 & 0x7f0000u));
}

/* Compares with the definition: the order of the two additions, what each rounds, and what becomes
 * 0. */
static bool probe(int exponent)
{
    _Alignas(64) uint16_t weights[PROBE_COLS * GROUP_ROWS];
    _Alignas(64) float x[2][TILE_ROWS][PROBE_COLS], out[2][TILE_ROWS][GROUP_ROWS];
    uint32_t state = 1;
    for (uint32_t i = 0; i < PROBE_COLS * GROUP_ROWS; i++)
        weights[i] = half_to_bf16(probe_value(&state, exponent));
    for (uint32_t r = 0; r < TILE_ROWS; r++) {
        float row[PROBE_COLS];
        for (uint32_t k = 0; k < PROBE_COLS; k++)
            row[k] = probe_value(&state, exponent);
        round_bf16(row, PROBE_COLS, x[0][r]);
        round_pairs(row, PROBE_COLS, x[1][r]);
    }
    struct kernels_float p = {.form = FORM_BF16,
                              .group = (const uint8_t *)weights,
                              .x = x[0],
                              .x_stride = PROBE_COLS,
                              .end_col = PROBE_COLS,
                              .rows = TILE_ROWS};
    gemm_float(&p, out[0]);
    p.x = x[1];
    dot(&p, out[1]);
    return memcmp(out[0], out[1], sizeof(out[0])) == 0;
}

bool kernels_avx512_bf16_rounds(void)
{
    return probe(-4) && probe(-66); /* Sums near 1, and near the least normal numbers. */
}

const struct kernels_floats kernels_floats_avx512_bf16 = {
    .name = "bf16", .gemm = gemm, .rounded_bytes = 2, .round = round_pairs};
