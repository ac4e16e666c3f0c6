/* isa_avx512: AVX-512 with VNNI. The integer GEMM holds 6 rows × 2 panels in registers: per block,
 * a panel's quants are unpacked once and meet 4 broadcast activation bytes per vpdpbusd, all exact;
 * then two fp32 fma per output. It reads W once per tile of 6 rows, asking 15 KB ahead: the figures
 * are in docs. */
#include "compute/cpu/vector_avx512.h"

#include "compute/cpu/attention.h"
#include "compute/cpu/layout.h"

#define AHEAD_BYTES (15 * 1024)

/* Vector g of a panel's quants as unsigned bytes: g = 0 … 7, four columns each. */
INLINE __m512i panel_quants(bool nibbles, const uint8_t *panel, uint32_t g)
{
    if (!nibbles)
        return _mm512_load_si512(panel + (size_t)g * 64);
    __m512i packed = _mm512_load_si512(panel + (size_t)(g % 4) * 64);
    if (g >= 4)
        packed = _mm512_srli_epi16(packed, 4);
    return _mm512_and_si512(packed, _mm512_set1_epi8(15));
}

INLINE vec panel_f16(const uint8_t *p)
{
    return v_load_f16((const uint16_t *)p);
}

INLINE __m512i dot(__m512i sum, __m512i w, const int8_t *quants)
{
    int32_t four;
    memcpy(&four, quants, sizeof(four));
    return _mm512_dpbusd_epi32(sum, w, _mm512_set1_epi32(four));
}

/* One panel of one block: f[r] gets its two fma. All parameters but pointers are constants. */
INLINE void panel_block(enum kernels_form form, const uint8_t *block, uint32_t panel,
                        const struct kernels_block *a, uint32_t rows, vec *f)
{
    const bool nibbles = layout_nibbles(form);
    const uint8_t *quants = block + panel * layout_quants_bytes(form);
    const uint8_t *scales = block + layout_scales_offset(form, panel);
    const int32_t offset = layout_offset(form);
    const bool halves = form == FORM_BYTE_F32_HALF;
    __m512i acc[2][TILE_ROWS];

    for (uint32_t r = 0; r < rows; r++) {
        acc[0][r] = acc[1][r] = _mm512_setzero_si512();
        if (halves) {
            acc[0][r] = _mm512_set1_epi32(-offset * a->sum[0][r]);
            acc[1][r] = _mm512_set1_epi32(-offset * a->sum[1][r]);
        } else if (offset != 0) {
            acc[0][r] = _mm512_set1_epi32(-offset * (a->sum[0][r] + a->sum[1][r]));
        }
    }
    /* Few rows: two chains per row, for the latency; the sum of integers has no order. */
    const bool split = halves || rows <= 2;
#pragma GCC unroll 8
    for (uint32_t g = 0; g < 8; g++) {
        __m512i w = panel_quants(nibbles, quants, g);
#pragma GCC unroll 6
        for (uint32_t r = 0; r < rows; r++) {
            uint32_t chain = split && g >= 4;
            acc[chain][r] = dot(acc[chain][r], w, a->quants[r] + g * 4);
        }
    }
    if (halves) {
        vec first = v_load((const float *)scales), last = v_load((const float *)scales + 16);
#pragma GCC unroll 6
        for (uint32_t r = 0; r < rows; r++) {
            vec s = v_set(a->scale[r]);
            f[r] = v_fma(_mm512_cvtepi32_ps(acc[0][r]), v_mul(first, s), f[r]);
            f[r] = v_fma(_mm512_cvtepi32_ps(acc[1][r]), v_mul(last, s), f[r]);
        }
        return;
    }
    const bool wide = layout_scales_wide(form), min = layout_min(form);
    vec d = wide ? v_load((const float *)scales) : panel_f16(scales), m = v_zero();
    if (min)
        m = wide ? v_load((const float *)scales + 16) : panel_f16(scales + 32);
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
        __m512i sum = split ? _mm512_add_epi32(acc[0][r], acc[1][r]) : acc[0][r];
        f[r] = v_fma(_mm512_cvtepi32_ps(sum), v_mul(d, v_set(a->scale[r])), f[r]);
        if (min)
            f[r] = v_fma(m, v_set(a->scaled_sum[r]), f[r]);
    }
}

INLINE void gemm_tile(enum kernels_form form, const uint8_t *group, uint32_t blocks,
                      const struct kernels_block *tile, uint32_t rows, bool prefetch,
                      float out[TILE_ROWS][GROUP_ROWS])
{
    const size_t block_bytes = layout_block_bytes(form);
    vec f[2][TILE_ROWS];
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
        f[0][r] = f[1][r] = v_zero();
    for (uint32_t b = 0; b < blocks; b++, group += block_bytes, tile++) {
        if (prefetch)
#pragma GCC unroll 20
            for (size_t i = 0; i < block_bytes; i += 64)
                v_prefetch(group + AHEAD_BYTES + i);
        panel_block(form, group, 0, tile, rows, f[0]);
        panel_block(form, group, 1, tile, rows, f[1]);
    }
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
        v_store(out[r], f[0][r]);
        v_store(out[r] + PANEL_ROWS, f[1][r]);
    }
}

#define GEMM_ROWS_CASE(form, n)                                                                    \
    case n:                                                                                        \
        if (prefetch)                                                                              \
            gemm_tile(form, group, blocks, tile, n, true, out);                                    \
        else                                                                                       \
            gemm_tile(form, group, blocks, tile, n, false, out);                                   \
        break

/* One function per form, one tile per number of rows. */
#define GEMM_FORM(name, form)                                                                      \
    static void name(const uint8_t *group, uint32_t blocks, const struct kernels_block *tile,      \
                     uint32_t rows, bool prefetch, float out[TILE_ROWS][GROUP_ROWS])               \
    {                                                                                              \
        switch (rows) {                                                                            \
            GEMM_ROWS_CASE(form, 1);                                                               \
            GEMM_ROWS_CASE(form, 2);                                                               \
            GEMM_ROWS_CASE(form, 3);                                                               \
            GEMM_ROWS_CASE(form, 4);                                                               \
            GEMM_ROWS_CASE(form, 5);                                                               \
            GEMM_ROWS_CASE(form, 6);                                                               \
        }                                                                                          \
    }

GEMM_FORM(gemm_q4_0, FORM_NIBBLE_F16)
GEMM_FORM(gemm_q4_1, FORM_NIBBLE_F16_MIN)
GEMM_FORM(gemm_q4_k, FORM_NIBBLE_F32_MIN)
GEMM_FORM(gemm_q8_0, FORM_BYTE_F16)
GEMM_FORM(gemm_q5_k, FORM_BYTE_F32_MIN)
GEMM_FORM(gemm_q6_k, FORM_BYTE_F32_HALF)

static void gemm_quantised(enum kernels_form form, const uint8_t *group, uint32_t blocks,
                           const struct kernels_block *tile, uint32_t rows, bool prefetch,
                           float out[TILE_ROWS][GROUP_ROWS])
{
    static void (*const forms[FORM_QUANTISED_COUNT])(const uint8_t *, uint32_t,
                                                     const struct kernels_block *, uint32_t, bool,
                                                     float[TILE_ROWS][GROUP_ROWS]) = {
        [FORM_NIBBLE_F16] = gemm_q4_0,     [FORM_NIBBLE_F16_MIN] = gemm_q4_1,
        [FORM_NIBBLE_F32_MIN] = gemm_q4_k, [FORM_BYTE_F16] = gemm_q8_0,
        [FORM_BYTE_F32_MIN] = gemm_q5_k,   [FORM_BYTE_F32_HALF] = gemm_q6_k,
    };
    forms[form](group, blocks, tile, rows, prefetch, out);
}

const struct kernels kernels_avx512 = {
    .name = "avx512-vnni",
    .gemm_quantised = gemm_quantised,
    .gemm_float = rows_gemm_float,
    .quantise = rows_quantise,
    .norm = rows_norm,
    .silu_mul = rows_silu_mul,
    .rope = rows_rope,
    .store = rows_store,
    .attention = attention_run,
};
