/* gemm_avx512: the integer GEMM for AVX-512 with VNNI. A tile of 6 rows × 2 panels is in registers.
 * Per block, a panel's quants are unpacked once and multiplied with 4 broadcast activation bytes
 * per vpdpbusd, all exact; then there are two fp32 fma per output. Per block and 6 rows of Q4_1
 * that is 96 vpdpbusd and 36 multiplications and fma on two pipes: 66 cycles, which it reaches (Zen
 * 5, W in the L1 cache). A refined block takes 96 vpdpbusd more, into the same sums. If
 * kernels_product.unpack is set, a group is unpacked to bytes once, for all tiles (struct
 * unpacked).
 *
 * The order of the text is the order of the instructions: the file is compiled without gcc's second
 * scheduling pass (meson.build), whose order takes 71 cycles. */
#include "compute/cpu/panel_avx512.h"

/* Far enough ahead for memory, and no more of the L1 cache than needed. */
#define AHEAD_BYTES (8 * 1024)

/* With one row there is so little work per byte that loads of several blocks are in flight at once
 * and out of order. The hardware prefetcher then works less well than with six rows (20 and 27 GB/s
 * on Zen 4). Prefetching the next block in order helps it. */
#define NEAR_BYTES 1024

/* -offset * Σ quants of the activations, by shifting: offsets are powers of two. */
INLINE __m512i offset_sum(enum kernels_form form, const struct kernels_block *a, uint32_t half,
                          uint32_t r)
{
    const unsigned shift = (unsigned)__builtin_ctz(quants_offset(form));
    __m512i sum = _mm512_set1_epi32(a->minus_sum[half][r]);
    if (layout_has_halves(form) && half == 0)
        sum = _mm512_sub_epi32(sum, _mm512_set1_epi32(a->minus_sum[1][r]));
    return _mm512_slli_epi32(sum, shift);
}

/* All ones if the row has a second plane in this block. */
INLINE __mmask16 row_refined(const struct kernels_block *a, uint32_t r)
{
    return (__mmask16)-a->refined[r];
}

/* Adds vectors [first, last) of a block's quants times one plane: of h for all rows, or of l for
 * the refined rows. */
INLINE void dots_add(struct shape s, const uint8_t *block, const struct kernels_block *a,
                     const int8_t plane[TILE_ROWS][32], bool low, uint32_t first, uint32_t last,
                     __m512i acc[2][TILE_ROWS])
{
#pragma GCC unroll 8
    for (uint32_t g = first; g < last; g++) {
        __m512i w[2] = {panel_quants(s, block, 0, g), panel_quants(s, block, 1, g)};
#pragma GCC unroll 6
        for (uint32_t r = 0; r < s.rows; r++) {
            int32_t four;
            memcpy(&four, plane[r] + (size_t)g * 4, sizeof(four));
            __m512i bytes =
                low ? _mm512_maskz_set1_epi32(row_refined(a, r), four) : _mm512_set1_epi32(four);
            acc[0][r] = _mm512_dpbusd_epi32(acc[0][r], w[0], bytes);
            acc[1][r] = _mm512_dpbusd_epi32(acc[1][r], w[1], bytes);
        }
    }
}

INLINE void sums_zero(struct shape s, __m512i acc[2][TILE_ROWS])
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < s.rows; r++)
        acc[0][r] = acc[1][r] = _mm512_setzero_si512();
}

/* Adds the second plane's products; acc already has the first plane's. */
INLINE void second_plane_add(struct shape s, const uint8_t *block, const struct kernels_block *a,
                             const struct kernels_second_plane *low, uint32_t first, uint32_t last,
                             __m512i acc[2][TILE_ROWS])
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < s.rows; r++) {
        const __mmask16 mask = row_refined(a, r);
        acc[0][r] = _mm512_mask_slli_epi32(acc[0][r], mask, acc[0][r], 8);
        acc[1][r] = _mm512_mask_slli_epi32(acc[1][r], mask, acc[1][r], 8);
    }
    forget_loads();
    dots_add(s, block, a, low->quants, true, first, last, acc);
}

/* Computes the sums of one block, or of half a block. */
INLINE void sums_make(struct shape s, const uint8_t *block, const struct kernels_block *a,
                      const struct kernels_second_plane *low, uint32_t half,
                      __m512i acc[2][TILE_ROWS])
{
    const bool halves = layout_has_halves(s.form), offset = quants_offset(s.form) != 0;
    const uint32_t first = halves ? half * 4 : 0, last = halves ? first + 4 : 8;
    sums_zero(s, acc);
    if (offset && !s.refined)
#pragma GCC unroll 6
        for (uint32_t r = 0; r < s.rows; r++)
            acc[0][r] = acc[1][r] = offset_sum(s.form, a, half, r);
    if (s.rows > 2 || halves || s.refined) {
        dots_add(s, block, a, a->quants, false, first, last, acc);
    } else {
        /* Few rows: two chains per row hide the latency; integer sums do not depend on the order.
         */
        __m512i more[2][TILE_ROWS];
        sums_zero(s, more);
        dots_add(s, block, a, a->quants, false, 0, 4, acc);
        dots_add(s, block, a, a->quants, false, 4, 8, more);
#pragma GCC unroll 2
        for (uint32_t r = 0; r < s.rows; r++) {
            acc[0][r] = _mm512_add_epi32(acc[0][r], more[0][r]);
            acc[1][r] = _mm512_add_epi32(acc[1][r], more[1][r]);
        }
    }
    if (!s.refined)
        return;
    second_plane_add(s, block, a, low, first, last, acc);
    if (offset)
#pragma GCC unroll 6
        for (uint32_t r = 0; r < s.rows; r++) {
            acc[0][r] = _mm512_add_epi32(acc[0][r], offset_sum(s.form, a, half, r));
            acc[1][r] = _mm512_add_epi32(acc[1][r], offset_sum(s.form, a, half, r));
        }
}

/* Adds one block of both panels; `s` is constant. In registers are 12 sums, 12 results, one vector
 * of quants per panel, and the broadcast bytes, which both panels share. */
INLINE void block_add(struct shape s, const uint8_t *header, const uint8_t *block,
                      const struct kernels_block *a, const struct kernels_second_plane *low,
                      vec f[2][TILE_ROWS])
{
    const uint32_t halves = layout_has_halves(s.form) ? 2 : 1;
#pragma GCC unroll 2
    for (uint32_t half = 0; half < halves; half++) {
        __m512i acc[2][TILE_ROWS];
        sums_make(s, block, a, low, half, acc);
#pragma GCC unroll 2
        for (uint32_t panel = 0; panel < 2; panel++) {
            vec d = panel_scales(s, header, block, panel, half), m = v_zero();
            if (layout_has_min(s.form))
                m = panel_minima(s, header, block, panel, half);
#pragma GCC unroll 6
            for (uint32_t r = 0; r < s.rows; r++) {
                vec p = v_mul(d, v_set(a->scale[r]));
                f[panel][r] = v_fma(_mm512_cvtepi32_ps(acc[panel][r]), p, f[panel][r]);
                if (layout_has_min(s.form))
                    f[panel][r] =
                        v_fma(m,
                              v_set(layout_has_halves(s.form) ? product_half_sum(a, half, r)
                                                              : a->scaled_sum[r]),
                              f[panel][r]);
            }
        }
    }
}

/* Adds a block, which is multiplied with block `at` of p->tiles. Few blocks have a refined row. */
INLINE void block_multiply(struct shape plain, const struct kernels_product *p,
                           const uint8_t *header, const uint8_t *block, size_t at,
                           vec f[2][TILE_ROWS])
{
    const struct kernels_block *a = p->tiles + at;
    struct shape refined = plain;
    refined.refined = true;
    if (__builtin_expect(product_refined(a, 0, plain.rows), 0)) {
        forget_loads();
        block_add(refined, header, block, a, p->second_planes + at, f);
    } else
        block_add(plain, header, block, a, NULL, f);
}

INLINE void tile_write(struct shape s, const struct kernels_product *p, uint32_t group,
                       uint32_t row, vec f[2][TILE_ROWS])
{
    uint32_t first = group * GROUP_ROWS, left = p->outputs - first;
    uint32_t lanes[2] = {left < PANEL_ROWS ? left : PANEL_ROWS, left < PANEL_ROWS ? 0
                                                                : left < 2 * PANEL_ROWS
                                                                    ? left - PANEL_ROWS
                                                                    : PANEL_ROWS};
    float *y = p->y + row * p->y_stride;
#pragma GCC unroll 6
    for (uint32_t r = 0; r < s.rows; r++, y += p->y_stride) {
        result_write(p, first, lanes[0], y, f[0][r]);
        result_write(p, first + PANEL_ROWS, lanes[1], y, f[1][r]);
    }
}

/* Returns the address to prefetch while `block` is in use. */
INLINE const uint8_t *block_ahead(const struct kernels_product *p, const uint8_t *block)
{
    uintptr_t from = (uintptr_t)block + AHEAD_BYTES;
    return (const uint8_t *)(from < p->ahead_end ? from : from + p->ahead_jump);
}

/* With few tiles, each tile prefetches its share of the next group, line by line, so that memory is
 * busy all the time and not only during the first tile of each group: a block times 9 rows takes 56
 * instead of 73 ns in Q4_1, and 50 instead of 74 in Q8_0 (one Zen 4 core, weights in memory). With
 * many tiles that would be one line in some of the blocks, which is not worth the checks (prompts
 * lose 1 %). */
#define SPREAD_TILES 8

INLINE void tile_run(enum kernels_form form, uint32_t rows, const struct kernels_product *p,
                     uint32_t group, uint32_t row)
{
    const __m512i codes = codes_load(form, p);
    const struct shape plain = {form, false, rows, false, codes, p->factor};
    const size_t block_bytes = layout_block_bytes(form);
    const uint32_t tiles = product_tiles(p);
    const bool shared = p->prefetch_shares && tiles > 1 && tiles <= SPREAD_TILES;
    const bool ahead = p->prefetch && row == 0, near = layout_is_bytes(form) && rows == 1;
    const uint8_t *block = p->weights + group * layout_group_bytes(form, p->blocks);
    const uint8_t *header = block;
    struct product_spread spread = product_spread_begin(form, p, block, row / p->tile_rows, tiles);
    const size_t first = product_tile_first(p, row);
    vec f[2][TILE_ROWS];
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
        f[0][r] = f[1][r] = v_zero();
    for (uint32_t b = 0; b < p->blocks; b++, block += block_bytes) {
        if (layout_two_level(form) && b % LAYOUT_HEADER_BLOCKS == 0) {
            header = block;
            block += layout_header_bytes(form);
        }
        if (shared)
            product_spread_step(&spread, (uint32_t)(block_bytes / 64));
        else if (ahead) {
            const uint8_t *from = block_ahead(p, block);
#pragma GCC unroll 20
            for (size_t i = 0; i < block_bytes; i += 64)
                v_prefetch(from + i);
        } else if (near)
#pragma GCC unroll 20
            for (size_t i = 0; i < block_bytes; i += 64)
                v_prefetch_l2(block + NEAR_BYTES + i);
        block_multiply(plain, p, header, block, first + b, f);
    }
    tile_write(plain, p, group, row, f);
}

INLINE void group_unpack(enum kernels_form form, const struct kernels_product *p, uint32_t group,
                         struct unpacked *out)
{
    const struct shape s = {form, false, 0, false, codes_load(form, p), p->factor};
    const __m512i more =
        _mm512_set1_epi8((char)(quants_offset(unpacked_form(form)) - quants_offset(form)));
    const uint8_t *weights = p->weights + group * layout_group_bytes(form, p->blocks);
    const uint32_t halves = layout_has_halves(form) ? 2 : 1;
    for (uint32_t b = 0; b < p->blocks; b++, out++) {
        const uint8_t *block = weights + layout_block_offset(form, b);
        const uint8_t *header = weights + layout_header_offset(form, b);
#pragma GCC unroll 2
        for (uint32_t panel = 0; panel < 2; panel++) {
#pragma GCC unroll 8
            for (uint32_t g = 0; g < 8; g++)
                _mm512_store_si512(out->quants[g][panel],
                                   _mm512_add_epi8(panel_quants(s, block, panel, g), more));
#pragma GCC unroll 2
            for (uint32_t half = 0; half < halves; half++) {
                v_store(out->scale[half][panel], panel_scales(s, header, block, panel, half));
                if (layout_has_min(form))
                    v_store(out->min[half][panel], panel_minima(s, header, block, panel, half));
            }
        }
    }
}

/* Multiplies an unpacked group with one tile. Each tile prefetches its share of the next group. */
INLINE void unpacked_tile_run(enum kernels_form form, uint32_t rows,
                              const struct kernels_product *p, const struct unpacked *weights,
                              struct product_spread spread, uint32_t block_lines, uint32_t group,
                              uint32_t row)
{
    const struct shape plain = {form, true, rows, false, _mm512_setzero_si512(), 1};
    const size_t first = product_tile_first(p, row);
    vec f[2][TILE_ROWS];
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; r++)
        f[0][r] = f[1][r] = v_zero();
    for (uint32_t b = 0; b < p->blocks; b++) {
        const uint8_t *block = (const uint8_t *)&weights[b];
        product_spread_step(&spread, block_lines);
        block_multiply(plain, p, NULL, block, first + b, f);
    }
    tile_write(plain, p, group, row, f);
}

INLINE uint32_t tile_rows_at(const struct kernels_product *p, uint32_t row)
{
    return p->rows - row < p->tile_rows ? p->rows - row : p->tile_rows;
}

/* Most blocks of a group that is unpacked: 768 KiB on the stack. */
#define UNPACKED_BLOCKS_MAX 512

/* One function per kind of unpacked group; in it, one tile per number of rows. */
#define UNPACKED_CASE(form, n)                                                                     \
    case n:                                                                                        \
        unpacked_tile_run(form, n, p, weights, spread, lines, group, row);                         \
        break

#define UNPACKED(name, form)                                                                       \
    static void name(const struct kernels_product *p, const struct unpacked *weights,              \
                     struct product_spread spread, uint32_t lines, uint32_t group, uint32_t row)   \
    {                                                                                              \
        switch (tile_rows_at(p, row)) {                                                            \
            UNPACKED_CASE(form, 1);                                                                \
            UNPACKED_CASE(form, 2);                                                                \
            UNPACKED_CASE(form, 3);                                                                \
            UNPACKED_CASE(form, 4);                                                                \
            UNPACKED_CASE(form, 5);                                                                \
        default:                                                                                   \
            unpacked_tile_run(form, 6, p, weights, spread, lines, group, row);                     \
        }                                                                                          \
    }

UNPACKED(unpacked_plain, FORM_BYTE_F16)
UNPACKED(unpacked_min, FORM_NIBBLE_F16_MIN)
UNPACKED(unpacked_halves, FORM_THREE_SUPER)
UNPACKED(unpacked_halves_min, FORM_TWO_SUPER)

INLINE void groups_run_unpacked(enum kernels_form form, const struct kernels_product *p)
{
    static void (*const kinds[FORM_QUANTISED_COUNT])(const struct kernels_product *,
                                                     const struct unpacked *, struct product_spread,
                                                     uint32_t, uint32_t, uint32_t) = {
        [FORM_BYTE_F16] = unpacked_plain,
        [FORM_NIBBLE_F16_MIN] = unpacked_min,
        [FORM_THREE_SUPER] = unpacked_halves,
        [FORM_TWO_SUPER] = unpacked_halves_min,
    };
    const uint32_t tiles = product_tiles(p);
    const uint32_t lines = p->prefetch_shares ? layout_block_bytes(form) / 64 : 0;
    struct unpacked *weights =
        __builtin_alloca_with_align(p->blocks * sizeof(struct unpacked), 8 * 64);
    for (uint32_t group = 0; group < p->groups; group++) {
        const uint8_t *packed = p->weights + group * layout_group_bytes(form, p->blocks);
        group_unpack(form, p, group, weights);
        for (uint32_t row = 0; row < p->rows; row += p->tile_rows)
            kinds[unpacked_form(form)](
                p, weights, product_spread_begin(form, p, packed, row / p->tile_rows, tiles), lines,
                group, row);
    }
}

#define TILE_CASE(form, n)                                                                         \
    case n:                                                                                        \
        tile_run(form, n, p, group, row);                                                          \
        break

/* One function per form; in it, one tile per number of rows. */
#define GEMM_FORM(name, form)                                                                      \
    static void gemm_##name(const struct kernels_product *p)                                       \
    {                                                                                              \
        if (p->unpack && p->blocks <= UNPACKED_BLOCKS_MAX) {                                       \
            groups_run_unpacked(form, p);                                                          \
            return;                                                                                \
        }                                                                                          \
        for (uint32_t group = 0; group < p->groups; group++)                                       \
            for (uint32_t row = 0; row < p->rows; row += p->tile_rows)                             \
                switch (tile_rows_at(p, row)) {                                                    \
                    TILE_CASE(form, 1);                                                            \
                    TILE_CASE(form, 2);                                                            \
                    TILE_CASE(form, 3);                                                            \
                    TILE_CASE(form, 4);                                                            \
                    TILE_CASE(form, 5);                                                            \
                default:                                                                           \
                    tile_run(form, 6, p, group, row);                                              \
                }                                                                                  \
    }

LAYOUT_FORMS(GEMM_FORM)

#define GEMM_ENTRY(name, form) [form] = gemm_##name,

void gemm_avx512(const struct kernels_product *p)
{
    static void (*const forms[FORM_QUANTISED_COUNT])(const struct kernels_product *) = {
        LAYOUT_FORMS(GEMM_ENTRY)};
    forms[p->form](p);
}
