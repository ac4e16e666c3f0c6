/* gemm_avx2: the integer GEMM for AVX2. In a pass, a panel of W (two vectors of 8 rows) is
 * multiplied with several rows of x at once, so that a vector of quants is unpacked once for these
 * rows.
 *
 * This file is compiled twice. gemm_avx2: products of unsigned and signed bytes use vpmaddubsw,
 * whose 16-bit sums saturate: they are widened before they can (run_max). gemm_avx_vnni (GEMM_VNNI
 * is defined): vpdpbusd adds four products to 32 bits, exactly, in one instruction instead of
 * three; its quants are unsigned, so signed ones get 128 added. */
#include "compute/cpu/vector_avx2.h"

#include "compute/cpu/product.h"

#define INLINE static inline __attribute__((always_inline))

#define AHEAD_BYTES (8 * 1024)

struct shape {
    enum kernels_form form;
    uint32_t row;        /* First row of the pass in the tile. */
    uint32_t rows;       /* Rows of the pass. */
    const int8_t *codes; /* Of the product. */
    float factor;        /* Of the product. */
};

/* Position of a panel in a block; `quants` points to its bytes of vector 0. */
struct panel_position {
    const uint8_t *header;
    const uint8_t *block;
    const uint8_t *quants;
    uint32_t panel;
};

/* A tile of up to ALONE_ROWS rows is one pass per panel. Larger tiles are two passes, the first of
 * FIRST_ROWS rows: the sums of more rows do not fit in the registers. */
#define FIRST_ROWS 3
#ifdef GEMM_VNNI
#define GEMM_NAME  gemm_avx_vnni
#define ALONE_ROWS 3
#else
#define GEMM_NAME  gemm_avx2
#define ALONE_ROWS 4
#endif

/* Returns true if a vector of quants is unpacked to signed bytes. */
INLINE bool is_signed(enum kernels_form form)
{
#ifdef GEMM_VNNI
    (void)form;
    return false;
#else
    return layout_is_bytes(form) || layout_has_codes(form);
#endif
}

/* The number that half_quants adds to each weight. */
INLINE int32_t quants_offset(enum kernels_form form)
{
    return is_signed(form) ? 0 : layout_has_codes(form) ? 128 : layout_quant_offset(form);
}

#ifndef GEMM_VNNI
/* How many sums of two products fit in 16 bits. A sum is at most 2 * 127 * the greatest quant: for
 * 3: 8 × 762; for 15: 8 × 3810; for 31: 4 × 7874; for 63: 2 × 16002; for Q8_0's |-128|: 1 × 32512;
 * for the greatest code of a 4-bit form, 127: 1 × 32258, of MXFP4, 12: 8 × 3048, of a 3-bit form,
 * 43: 2 × 10922. */
INLINE uint32_t run_max(enum kernels_form form)
{
    if (layout_has_codes(form))
        return form == FORM_CODE_BF16 ? 8 : layout_two_bits(form) ? 2 : 1;
    if (layout_is_bytes(form))
        return 1;
    /* A run ends with the columns that share a scale. */
    return (layout_has_halves(form) && layout_high_bits(form) == 0 ? 4u : 8u) >>
           layout_high_bits(form);
}
#endif

INLINE __m256i half_load(const uint8_t *quants, uint32_t vector, uint32_t half)
{
    return _mm256_load_si256(
        (const __m256i *)(quants + layout_vector_offset(0, vector) + half * 32));
}

/* Moves bit `from` of each byte, and the bits above it, to bit `to`; bits of other bytes may
 * follow.
 */
INLINE __m256i bits_move(__m256i v, uint32_t from, uint32_t to)
{
    return from < to   ? _mm256_slli_epi16(v, (int)(to - from))
           : from > to ? _mm256_srli_epi16(v, (int)(from - to))
                       : v;
}

/* The high bits of vector g, at their place in the quants. */
INLINE __m256i half_high(enum kernels_form form, const uint8_t *quants, uint32_t g, uint32_t half)
{
    const uint32_t low = layout_low_vectors(form); /* Also the bits below the high bits. */
    const bool two = layout_high_bits(form) == 2;
    __m256i high = half_load(quants, two ? low + g / 4 : low, half);
    high = bits_move(high, two ? g % 4 * 2 : g, low);
    return _mm256_and_si256(high, _mm256_set1_epi8((char)((two ? 3 : 1) << low)));
}

/* Rows from 8 * half on of vector g of the quants: signed bytes (is_signed), or unsigned bytes. */
INLINE __m256i half_quants(struct shape s, const uint8_t *quants, uint32_t g, uint32_t half)
{
    const enum kernels_form form = s.form;
    const __m256i sign = _mm256_set1_epi8((char)0x80);
    __m256i packed;
    if (layout_is_bytes(form)) {
        packed = half_load(quants, g, half);
        return is_signed(form) ? _mm256_xor_si256(packed, sign) : packed;
    }
    if (layout_two_bits(form))
        packed = _mm256_and_si256(bits_move(half_load(quants, g / 4, half), g % 4 * 2, 0),
                                  _mm256_set1_epi8(3));
    else
        packed = _mm256_and_si256(bits_move(half_load(quants, g % 4, half), g / 4 * 4, 0),
                                  _mm256_set1_epi8(15));
    if (layout_high_bits(form) != 0)
        packed = _mm256_or_si256(packed, half_high(form, quants, g, half));
    if (!layout_has_codes(form))
        return packed;
    __m256i codes = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)s.codes));
    if (!is_signed(form))
        codes = _mm256_xor_si256(codes, sign);
    return _mm256_shuffle_epi8(codes, packed);
}

/* Columns from 4 g on of row r of a plane: 0 in the second plane if the row has none. */
INLINE __m256i four_quants(const struct kernels_block *a, const struct kernels_second_plane *low,
                           uint32_t r, uint32_t g)
{
    int32_t four;
    memcpy(&four, (low != NULL ? low->quants : a->quants)[r] + (size_t)g * 4, sizeof(four));
    return _mm256_set1_epi32(low != NULL ? four & -(int32_t)a->refined[r] : four);
}

/* Adds vector g of the quants, w, times the activations x to acc. `pairs` keeps 16-bit sums from one
 * vector to the next, without VNNI. */
INLINE void dot_add(enum kernels_form form, uint32_t g, __m256i w, __m256i x, __m256i *pairs,
                    __m256i *acc)
{
#ifdef GEMM_VNNI
    (void)form, (void)g, (void)pairs;
    *acc = _mm256_dpbusd_avx_epi32(*acc, w, x);
#else
    const uint32_t run = run_max(form);
    /* Signs are moved to the activations, so that no pair saturates. */
    __m256i two = is_signed(form) ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
                                  : _mm256_maddubs_epi16(w, x);
    *pairs = g % run == 0 ? two : _mm256_add_epi16(*pairs, two);
    if (g % run == run - 1)
        *acc = _mm256_add_epi32(*acc, _mm256_madd_epi16(*pairs, _mm256_set1_epi16(1)));
#endif
}

/* Adds vectors [first, last) of the quants times one plane to acc: the second plane if `low` is not
 * NULL. */
INLINE void dots_add(struct shape s, const uint8_t *quants, const struct kernels_block *a,
                     const struct kernels_second_plane *low, uint32_t first, uint32_t last,
                     __m256i acc[TILE_ROWS][2])
{
    __m256i pairs[TILE_ROWS][2];
#pragma GCC unroll 8
    for (uint32_t g = first; g < last; g++) {
        __m256i w[2] = {half_quants(s, quants, g, 0), half_quants(s, quants, g, 1)};
#pragma GCC unroll 6
        for (uint32_t r = 0; r < s.rows; r++) {
            __m256i x = four_quants(a, low, s.row + r, g);
#pragma GCC unroll 2
            for (uint32_t half = 0; half < 2; half++)
                dot_add(s.form, g, w[half], x, &pairs[r][half], &acc[r][half]);
        }
    }
}

/* Adds the second plane's products; acc already has the first plane's. All rows of the pass have a
 * second plane, of zeros for rows without one: an outlier is usually in the same columns of all
 * rows, so rows one by one would unpack the quants several times (prompts were 0.83 to 0.91 times
 * as fast). */
INLINE void second_plane_add(struct shape s, const uint8_t *quants, const struct kernels_block *a,
                             const struct kernels_second_plane *low, uint32_t first, uint32_t last,
                             __m256i acc[TILE_ROWS][2])
{
#pragma GCC unroll 6
    for (uint32_t r = 0; r < s.rows; r++) {
        const __m128i shift = _mm_cvtsi32_si128(8 * a->refined[s.row + r]);
        acc[r][0] = _mm256_sll_epi32(acc[r][0], shift);
        acc[r][1] = _mm256_sll_epi32(acc[r][1], shift);
    }
    /* Unpack the quants again: keeping them from the first plane would fill the stack. */
    __asm__ volatile("" ::: "memory");
    dots_add(s, quants, a, low, first, last, acc);
}

INLINE void sums_make(struct shape s, const uint8_t *quants, const struct kernels_block *a,
                      const struct kernels_second_plane *low, uint32_t part,
                      __m256i acc[TILE_ROWS][2])
{
    const bool halves = layout_has_halves(s.form);
    const uint32_t first = halves ? part * 4 : 0, last = halves ? first + 4 : 8;
    const int32_t offset = quants_offset(s.form);
#pragma GCC unroll 6
    for (uint32_t r = 0; r < s.rows; r++)
        acc[r][0] = acc[r][1] = _mm256_setzero_si256();
    dots_add(s, quants, a, NULL, first, last, acc);
    if (__builtin_expect(low != NULL, 0))
        second_plane_add(s, quants, a, low, first, last, acc);
    if (offset == 0)
        return;
#pragma GCC unroll 6
    for (uint32_t r = 0; r < s.rows; r++) {
        int32_t minus = a->minus_sum[part][s.row + r];
        if (halves && part == 0)
            minus -= a->minus_sum[1][s.row + r];
        acc[r][0] = _mm256_add_epi32(acc[r][0], _mm256_set1_epi32(offset * minus));
        acc[r][1] = _mm256_add_epi32(acc[r][1], _mm256_set1_epi32(offset * minus));
    }
}

/* Numbers of 16 bits of the panel's rows from 8 * half on. */
INLINE __m256 half_floats(enum kernels_form form, const uint8_t *numbers, uint32_t half)
{
    const __m128i eight = _mm_loadu_si128((const __m128i *)(numbers + half * 16));
    if (form == FORM_CODE_BF16)
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(eight), 16));
    return _mm256_cvtph_ps(eight);
}

INLINE __m256 half_units(struct shape s, const struct panel_position *at, uint32_t i, uint32_t half)
{
    __m256 units =
        half_floats(s.form, at->header + layout_units_offset(s.form, at->panel, i), half);
    return layout_has_codes(s.form) ? _mm256_mul_ps(units, _mm256_set1_ps(s.factor)) : units;
}

/* Scales of part `part` of the columns. */
INLINE __m256 half_scales(struct shape s, const struct panel_position *at, uint32_t part,
                          uint32_t half)
{
    const uint8_t *scales = at->block + layout_scales_offset(s.form, at->panel);
    if (!layout_two_level(s.form))
        return half_floats(s.form, scales, half);
    __m128i bytes = _mm_loadl_epi64((const __m128i *)(scales + part * PANEL_ROWS + half * 8));
    if (layout_has_halves(s.form) && layout_has_min(s.form))
        bytes = _mm_and_si128(bytes, _mm_set1_epi8(15));
    __m256i values =
        layout_scales_signed(s.form) ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes);
    return _mm256_mul_ps(half_units(s, at, 0, half), _mm256_cvtepi32_ps(values));
}

/* Minima of part `part` of the columns. */
INLINE __m256 half_minima(struct shape s, const struct panel_position *at, uint32_t part,
                          uint32_t half)
{
    const uint8_t *scales = at->block + layout_scales_offset(s.form, at->panel);
    if (!layout_two_level(s.form))
        return half_floats(s.form, scales + (size_t)PANEL_ROWS * 2, half);
    const bool halves = layout_has_halves(s.form);
    __m256i values = _mm256_cvtepu8_epi32(
        _mm_loadl_epi64((const __m128i *)(scales + (halves ? part : 1) * PANEL_ROWS + half * 8)));
    if (halves)
        values = _mm256_srli_epi32(values, 4);
    return _mm256_mul_ps(half_units(s, at, 1, half), _mm256_cvtepi32_ps(values));
}

/* Adds one block. `low` is NULL if no row of the pass has a second plane. */
INLINE void block_add(struct shape s, const struct panel_position *at,
                      const struct kernels_block *a, const struct kernels_second_plane *low,
                      __m256 f[TILE_ROWS][2])
{
    const uint32_t parts = layout_has_halves(s.form) ? 2 : 1;
#pragma GCC unroll 2
    for (uint32_t part = 0; part < parts; part++) {
        __m256i acc[TILE_ROWS][2];
        sums_make(s, at->quants, a, low, part, acc);
#pragma GCC unroll 2
        for (uint32_t half = 0; half < 2; half++) {
            __m256 d = half_scales(s, at, part, half), m = _mm256_setzero_ps();
            if (layout_has_min(s.form))
                m = half_minima(s, at, part, half);
#pragma GCC unroll 6
            for (uint32_t r = 0; r < s.rows; r++) {
                __m256 p = _mm256_mul_ps(d, _mm256_set1_ps(a->scale[s.row + r]));
                f[r][half] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc[r][half]), p, f[r][half]);
                if (!layout_has_min(s.form))
                    continue;
                const float sum = layout_has_halves(s.form) ? product_half_sum(a, part, s.row + r)
                                                            : a->scaled_sum[s.row + r];
                f[r][half] = _mm256_fmadd_ps(m, _mm256_set1_ps(sum), f[r][half]);
            }
        }
    }
}

/* What a pass prefetches: a share of the next group, or the weights that follow, or nothing. */
struct ahead {
    bool shared;
    bool whole;
    struct product_spread spread;
};

/* Multiplies rows [s.row, s.row + s.rows) of the tile whose blocks begin at `first` with one panel
 * of a group. */
INLINE void panel_run(struct shape s, const struct kernels_product *p, const uint8_t *group,
                      size_t first, uint32_t panel, struct ahead ahead,
                      float out[TILE_ROWS][GROUP_ROWS])
{
    const size_t block_bytes = layout_block_bytes(s.form);
    struct panel_position at = {.block = group, .panel = panel};
    __m256 f[TILE_ROWS][2];
#pragma GCC unroll 6
    for (uint32_t r = 0; r < s.rows; r++)
        f[r][0] = f[r][1] = _mm256_setzero_ps();
    for (uint32_t b = 0; b < p->blocks; b++, at.block += block_bytes) {
        const struct kernels_block *a = &p->tiles[first + b];
        const bool refined = product_refined(a, s.row, s.rows);
        if (layout_two_level(s.form) && b % LAYOUT_HEADER_BLOCKS == 0) {
            at.header = at.block;
            at.block += layout_header_bytes(s.form);
        }
        at.quants = at.block + layout_vector_offset(panel, 0);
        if (ahead.shared)
            product_spread_step(&ahead.spread, (uint32_t)(block_bytes / 64));
        else if (ahead.whole)
            for (size_t i = 0; i < block_bytes; i += 64)
                v_prefetch(at.block + AHEAD_BYTES + i);
        block_add(s, &at, a, refined ? &p->second_planes[first + b] : NULL, f);
    }
#pragma GCC unroll 6
    for (uint32_t r = 0; r < s.rows; r++) {
        _mm256_storeu_ps(out[s.row + r] + panel * PANEL_ROWS, f[r][0]);
        _mm256_storeu_ps(out[s.row + r] + panel * PANEL_ROWS + 8, f[r][1]);
    }
}

/* With few passes over a group, each prefetches its share of the next group: a product of 8 rows
 * then takes 0.7 times as long (one Zen 3 core, weights in memory, which the hardware alone reads
 * during the first two passes only). With many passes, that would be one line in some of the
 * blocks, which is not worth the checks. */
#define SPREAD_PASSES 64

INLINE void tile_run(enum kernels_form form, uint32_t rows, const struct kernels_product *p,
                     const uint8_t *group, uint32_t row, float out[TILE_ROWS][GROUP_ROWS])
{
    const uint32_t some = rows <= ALONE_ROWS ? rows : FIRST_ROWS, passes = rows > some ? 4 : 2;
    const uint32_t shares = passes * product_tiles(p);
    uint32_t share = row / p->tile_rows * passes;
    const size_t first = product_tile_first(p, row);
    const bool whole = p->prefetch && row == 0;
    struct ahead ahead = {.shared = p->prefetch_shares && shares <= SPREAD_PASSES &&
                                    !(whole && rows == p->rows)};
    for (uint32_t panel = 0; panel < 2; panel++, share += passes / 2) {
        ahead.whole = whole && panel == 0;
        ahead.spread = product_spread_begin(form, p, group, share, shares);
        panel_run((struct shape){form, 0, some, p->codes, p->factor}, p, group, first, panel, ahead,
                  out);
        if (rows == some)
            continue;
        ahead.whole = false;
        ahead.spread = product_spread_begin(form, p, group, share + 1, shares);
        panel_run((struct shape){form, some, rows - some, p->codes, p->factor}, p, group, first,
                  panel, ahead, out);
    }
}

#define TILE_CASE(form, n)                                                                         \
    case n:                                                                                        \
        tile_run(form, n, p, group, row, out);                                                     \
        break

/* One function per form, with one tile for each number of rows. */
#define GEMM_FORM(name, form)                                                                      \
    static void gemm_##name(const struct kernels_product *p, const uint8_t *group, uint32_t row,   \
                            uint32_t rows, float out[TILE_ROWS][GROUP_ROWS])                       \
    {                                                                                              \
        switch (rows) {                                                                            \
            TILE_CASE(form, 1);                                                                    \
            TILE_CASE(form, 2);                                                                    \
            TILE_CASE(form, 3);                                                                    \
            TILE_CASE(form, 4);                                                                    \
            TILE_CASE(form, 5);                                                                    \
            TILE_CASE(form, 6);                                                                    \
        }                                                                                          \
    }

LAYOUT_FORMS(GEMM_FORM)

#define GEMM_ENTRY(name, form) [form] = gemm_##name,

void GEMM_NAME(const struct kernels_product *p)
{
    static const product_tile tiles[FORM_QUANTISED_COUNT] = {LAYOUT_FORMS(GEMM_ENTRY)};
    product_run(p, tiles[p->form]);
}
