/* isa_avx512: AVX-512 with VNNI. The integer GEMM holds 6 rows × 2 panels in registers: per block,
 * a panel's quants are unpacked once and meet 4 broadcast activation bytes per vpdpbusd, all exact;
 * then two fp32 fma per output. With W in the first cache it runs at the bound of the pipes: 133
 * cycles per block and 6 rows of Q4_1 on Zen 4, for 96 vpdpbusd and 36 multiplications and fma, one
 * a cycle. */
#include "compute/cpu/vector_avx512.h"

#include "compute/cpu/attention.h"
#include "compute/cpu/layout.h"

#define AHEAD_BYTES (15 * 1024)

/* One row of bytes is so little work that loads of several blocks are under way at once, and out of
 * order: the hardware's prefetcher then follows less well than with six rows (20 and 27 GB/s on Zen
 * 4). Asking for the next block in order helps it. */
#define NEAR_BYTES 1024

/* Vector g of a panel's quants as unsigned bytes: g = 0 … 7, four columns each. */
INLINE __m512i panel_quants(bool nibbles, const uint8_t *block, uint32_t panel, uint32_t g)
{
    if (!nibbles)
        return _mm512_load_si512(block + layout_vector_offset(panel, g));
    __m512i packed = _mm512_load_si512(block + layout_vector_offset(panel, g % 4));
    if (g >= 4)
        packed = _mm512_srli_epi16(packed, 4);
    return _mm512_and_si512(packed, _mm512_set1_epi8(15));
}

INLINE vec panel_scales(enum kernels_form form, const uint8_t *block, uint32_t panel, uint32_t i)
{
    const uint8_t *scales = block + layout_scales_offset(form, panel);
    if (layout_scales_wide(form))
        return v_load((const float *)scales + i * PANEL_ROWS);
    return v_load_f16((const uint16_t *)scales + i * PANEL_ROWS);
}

/* Sums of one block, or of its half, and what they are scaled by. */
INLINE void sums_start(enum kernels_form form, const struct kernels_block *a, uint32_t half,
                       uint32_t rows, __m512i acc[2][TILE_ROWS])
{
    const int32_t offset = layout_offset(form);
    const bool halves = form == FORM_BYTE_F32_HALF;
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
        int32_t sum = halves ? a->sum[half][r] : a->sum[0][r] + a->sum[1][r];
        acc[0][r] = offset == 0 ? _mm512_setzero_si512() : _mm512_set1_epi32(-offset * sum);
        acc[1][r] = acc[0][r];
    }
}

INLINE void sums_finish(enum kernels_form form, const uint8_t *block, const struct kernels_block *a,
                        uint32_t half, uint32_t rows, __m512i acc[2][TILE_ROWS],
                        vec f[2][TILE_ROWS])
{
#pragma GCC unroll 2
    for (uint32_t panel = 0; panel < 2; panel++) {
        vec d = panel_scales(form, block, panel, half), m = v_zero();
        if (layout_min(form))
            m = panel_scales(form, block, panel, 1);
#pragma GCC unroll 6
        for (uint32_t r = 0; r < rows; r++) {
            vec p = v_mul(d, v_set(a->scale[r]));
            f[panel][r] = v_fma(_mm512_cvtepi32_ps(acc[panel][r]), p, f[panel][r]);
            if (layout_min(form))
                f[panel][r] = v_fma(m, v_set(a->scaled_sum[r]), f[panel][r]);
        }
    }
}

/* One block of both panels; `form` and `rows` are constants. In registers: 12 sums, 12 results, a
 * vector of quants per panel and the broadcast bytes, which both panels share. */
INLINE void block_add(enum kernels_form form, const uint8_t *block, const struct kernels_block *a,
                      uint32_t rows, vec f[2][TILE_ROWS])
{
    const bool nibbles = layout_nibbles(form), halves = form == FORM_BYTE_F32_HALF;
    /* Few rows: two chains per row, for the latency; the sum of integers has no order. */
    const bool split = !halves && rows <= 2;
    __m512i acc[2][TILE_ROWS], more[2][TILE_ROWS];
    sums_start(form, a, 0, rows, acc);
    if (split)
        sums_start(FORM_NIBBLE_F16_MIN, a, 0, rows, more);
#pragma GCC unroll 8
    for (uint32_t g = 0; g < 8; g++) {
        if (halves && g == 4) {
            sums_finish(form, block, a, 0, rows, acc, f);
            sums_start(form, a, 1, rows, acc);
        }
        __m512i w[2] = {panel_quants(nibbles, block, 0, g), panel_quants(nibbles, block, 1, g)};
#pragma GCC unroll 6
        for (uint32_t r = 0; r < rows; r++) {
            __m512i *sums = split && g >= 4 ? &more[0][0] : &acc[0][0];
            int32_t four;
            memcpy(&four, a->quants[r] + (size_t)g * 4, sizeof(four));
            __m512i bytes = _mm512_set1_epi32(four);
            sums[r] = _mm512_dpbusd_epi32(sums[r], w[0], bytes);
            sums[TILE_ROWS + r] = _mm512_dpbusd_epi32(sums[TILE_ROWS + r], w[1], bytes);
        }
    }
#pragma GCC unroll 2
    for (uint32_t r = 0; split && r < rows; r++) {
        acc[0][r] = _mm512_add_epi32(acc[0][r], more[0][r]);
        acc[1][r] = _mm512_add_epi32(acc[1][r], more[1][r]);
    }
    sums_finish(form, block, a, halves, rows, acc, f);
}

INLINE void gemm_tile(enum kernels_form form, const uint8_t *group, uint32_t blocks,
                      const struct kernels_block *tile, uint32_t rows, bool prefetch,
                      float out[TILE_ROWS][GROUP_ROWS])
{
    const size_t block_bytes = layout_block_bytes(form);
    const bool near = !layout_nibbles(form) && rows == 1;
    vec f[2][TILE_ROWS];
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
        f[0][r] = f[1][r] = v_zero();
    for (uint32_t b = 0; b < blocks; b++, group += block_bytes, tile++) {
#pragma GCC unroll 20
        for (size_t i = 0; i < block_bytes; i += 64)
            if (prefetch)
                v_prefetch(group + AHEAD_BYTES + i);
            else if (near)
                v_prefetch_l2(group + NEAR_BYTES + i);
        block_add(form, group, tile, rows, f);
    }
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++) {
        v_store(out[r], f[0][r]);
        v_store(out[r] + PANEL_ROWS, f[1][r]);
    }
}

#define GEMM_ROWS_CASE(form, n)                                                                    \
    case n:                                                                                        \
        gemm_tile(form, group, blocks, tile, n, prefetch, out);                                    \
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
