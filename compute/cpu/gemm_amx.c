/* gemm_amx: the integer GEMM with tile registers (AMX), for products of many rows with forms that
 * have one scale per 32 columns. A strip has STRIP_ROWS rows of activations. For each block, one
 * tile instruction makes the exact sums of a strip and a panel: 16 × 16 sums of 32 products. The
 * sums pass through memory (the L1 cache) to vector registers, which scale and add them as
 * gemm_avx512.c does, so results have the same bits.
 *
 * What limits the kernel, measured on an Intel server CPU at 3.1 GHz:
 *
 * - For about 300 cycles after a tile instruction, the core runs 512-bit multiplications, fma and
 *   conversions on one pipe instead of two. Additions still run on both. So a sum becomes fp32
 *   without a conversion: each tile of sums begins with SUM_BIAS, the bits of the float 1.5 * 2^23.
 *   The bits of SUM_BIAS + n are those of the float 1.5 * 2^23 + n for |n| < 2^22, and the
 *   subtraction of 1.5 * 2^23 is exact.
 * - Storing a tile takes the other pipe for 16 cycles, and a tile's sums are complete 52 cycles
 *   after the instruction starts. So while block b is scaled, the sums of block b + 1 are stored
 *   and those of block b + 2 are made, in alternating tiles.
 *
 * Q4_1 then takes 60 cycles for 16 × 16 × 32 products (W and activations in the L1 cache), Q8_0
 * 48. */
#include "compute/cpu/panel_avx512.h"

#define STRIP_ROWS KERNELS_STRIP_ROWS
#define SUM_BIAS   0x4b400000

/* A panel's block as a tile register reads it. The quants have no offset. */
struct panel_block {
    _Alignas(64) int8_t quants[8][64];
    float scale[PANEL_ROWS];
    float min[PANEL_ROWS]; /* Only if the form has minima. */
};

/* The tile registers, for blocks with even and with odd numbers: the sums, the sums of the second
 * plane, rows of activations, weights. The assembler needs the numbers as text. */
#define SUMS_EVEN "0"
#define SUMS_ODD  "1"
#define LOW_EVEN  "2"
#define LOW_ODD   "3"
#define ROWS_EVEN "4"
#define ROWS_ODD  "5"
#define W_EVEN    "6"
#define W_ODD     "7"

#define TILE_LOAD(tile, at, stride)                                                                \
    do {                                                                                           \
        const size_t step = (stride);                                                              \
        __asm__ volatile("tileloadd (%0,%1,1), %%tmm" tile ::"r"(at), "r"(step) : "memory");       \
    } while (0)
#define TILE_STORE(tile, at)                                                                       \
    do {                                                                                           \
        const size_t step = 64;                                                                    \
        __asm__ volatile("tilestored %%tmm" tile ", (%0,%1,1)" ::"r"(at), "r"(step) : "memory");   \
    } while (0)
#define TILE_ZERO(tile) __asm__ volatile("tilezero %%tmm" tile ::)
#define TILE_DOTS(sums, rows, w)                                                                   \
    __asm__ volatile("tdpbssd %%tmm" w ", %%tmm" rows ", %%tmm" sums ::)

/* Makes the sums of block `block` in the tiles of `parity`, EVEN or ODD. */
#define SUMS_MAKE(parity, refined, w, a, low, block)                                               \
    do {                                                                                           \
        const uint32_t made = (block);                                                             \
        TILE_LOAD(SUMS_##parity, sum_bias, 64);                                                    \
        TILE_LOAD(ROWS_##parity, (a)[made].quants, 32);                                            \
        TILE_LOAD(W_##parity, (w)[made].quants, 64);                                               \
        TILE_DOTS(SUMS_##parity, ROWS_##parity, W_##parity);                                       \
        (refined) = strip_refined(&(a)[made]);                                                     \
        if (__builtin_expect(refined, 0)) {                                                        \
            TILE_ZERO(LOW_##parity);                                                               \
            TILE_LOAD(ROWS_##parity, (low)[made].quants, 32);                                      \
            TILE_DOTS(LOW_##parity, ROWS_##parity, W_##parity);                                    \
        }                                                                                          \
    } while (0)

/* Stores the tiles that SUMS_MAKE has made. */
#define SUMS_STORE(parity, refined, sums)                                                          \
    do {                                                                                           \
        TILE_STORE(SUMS_##parity, (sums).high);                                                    \
        if (__builtin_expect(refined, 0))                                                          \
            TILE_STORE(LOW_##parity, (sums).low);                                                  \
    } while (0)

#define BIAS_4 SUM_BIAS, SUM_BIAS, SUM_BIAS, SUM_BIAS
#define BIAS_ROW                                                                                   \
    {                                                                                              \
        BIAS_4, BIAS_4, BIAS_4, BIAS_4                                                             \
    }
#define BIAS_ROWS_4 BIAS_ROW, BIAS_ROW, BIAS_ROW, BIAS_ROW

static const _Alignas(64) int32_t sum_bias[STRIP_ROWS][PANEL_ROWS] = {BIAS_ROWS_4, BIAS_ROWS_4,
                                                                      BIAS_ROWS_4, BIAS_ROWS_4};

/* The sizes of the tile registers, in the format of the instruction ldtilecfg. */
struct tile_sizes {
    uint8_t palette;
    uint8_t reserved[15];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

static_assert(sizeof(struct tile_sizes) == 64, "the format of ldtilecfg");

static const struct tile_sizes tile_sizes = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 32, 32, 64, 64},
    .rows = {STRIP_ROWS, STRIP_ROWS, STRIP_ROWS, STRIP_ROWS, STRIP_ROWS, STRIP_ROWS, 8, 8},
};

INLINE void panels_unpack(enum kernels_form form, const struct kernels_product *p, uint32_t group,
                          struct panel_block *out)
{
    const struct shape s = {form, false, 0, false, codes_load(form, p), p->factor};
    const __m512i offset = _mm512_set1_epi8((char)quants_offset(form));
    const uint8_t *weights = p->weights + group * layout_group_bytes(form, p->blocks);
    for (uint32_t b = 0; b < p->blocks; b++) {
        const uint8_t *block = weights + layout_block_offset(form, b);
        const uint8_t *header = weights + layout_header_offset(form, b);
#pragma GCC unroll 2
        for (uint32_t panel = 0; panel < 2; panel++) {
            struct panel_block *to = out + panel * p->blocks + b;
#pragma GCC unroll 8
            for (uint32_t g = 0; g < 8; g++)
                _mm512_store_si512(to->quants[g],
                                   _mm512_sub_epi8(panel_quants(s, block, panel, g), offset));
            v_store(to->scale, panel_scales(s, header, block, panel, 0));
            if (layout_has_min(form))
                v_store(to->min, panel_minima(s, header, block, panel, 0));
        }
    }
}

/* Returns true if some row of the strip has a second plane in this block. */
INLINE bool strip_refined(const struct kernels_strip *a)
{
    const __m512i shift = _mm512_loadu_si512(a->shift);
    return _mm512_test_epi32_mask(shift, shift) != 0;
}

/* Returns the sums of a row as fp32. refined: `low` has the sums of the second plane. */
INLINE vec sums_float(bool refined, const int32_t sums[PANEL_ROWS], const int32_t low[PANEL_ROWS],
                      int32_t shift)
{
    const __m512i bias = _mm512_set1_epi32(SUM_BIAS), sum = _mm512_load_si512(sums);
    if (!refined)
        return v_sub(_mm512_castsi512_ps(sum), _mm512_castsi512_ps(bias));
    const __m512i high = _mm512_sllv_epi32(_mm512_sub_epi32(sum, bias), _mm512_set1_epi32(shift));
    return _mm512_cvtepi32_ps(_mm512_add_epi32(high, _mm512_load_si512(low)));
}

/* The sums of a strip and a panel in one block. */
struct sums {
    _Alignas(64) int32_t high[STRIP_ROWS][PANEL_ROWS]; /* With SUM_BIAS. */
    int32_t low[STRIP_ROWS][PANEL_ROWS];               /* Of the second plane, if there is one. */
};

/* Scales the sums of a block and adds them to f. */
INLINE void sums_add(bool min, bool refined, const struct panel_block *w,
                     const struct kernels_strip *a, const struct sums *sums, vec f[STRIP_ROWS])
{
    const vec scale = v_load(w->scale), minimum = min ? v_load(w->min) : v_zero();
#pragma GCC unroll 16
    for (uint32_t r = 0; r < STRIP_ROWS; r++) {
        const vec sum = sums_float(refined, sums->high[r], sums->low[r], a->shift[r]);
        f[r] = v_fma(sum, v_mul(scale, v_set(a->scale[r])), f[r]);
        if (min)
            f[r] = v_fma(minimum, v_set(a->scaled_sum[r]), f[r]);
    }
}

INLINE void block_add(bool min, bool refined, const struct panel_block *w,
                      const struct kernels_strip *a, const struct sums *sums, vec f[STRIP_ROWS])
{
    if (__builtin_expect(refined, 0)) {
        forget_loads();
        sums_add(min, true, w, a, sums, f);
    } else {
        forget_loads();
        sums_add(min, false, w, a, sums, f);
    }
}

/* Multiplies one panel with the strip that begins at `row`. `output`: the panel's first row of W.
 * The last blocks are made again, instead of blocks after the end. */
INLINE void strip_run(bool min, const struct kernels_product *p, const struct panel_block *w,
                      struct product_spread spread, uint32_t lines, uint32_t output, uint32_t row)
{
    const uint32_t last = p->blocks - 1;
    const size_t first = (size_t)row / STRIP_ROWS * p->blocks;
    const struct kernels_strip *a = p->strips + first;
    const struct kernels_strip_plane *low = p->strip_planes + (p->strip_planes != NULL ? first : 0);
    const uint32_t rows = p->rows - row < STRIP_ROWS ? p->rows - row : STRIP_ROWS;
    float *y = p->y + row * p->y_stride + output;
    struct sums even, odd;
    bool even_refined, odd_refined, refined;
    vec f[STRIP_ROWS];
    uint32_t b;
    for (uint32_t r = 0; r < rows; r++)
        __builtin_prefetch(y + r * p->y_stride, 1);
#pragma GCC unroll 16
    for (uint32_t r = 0; r < STRIP_ROWS; r++)
        f[r] = v_zero();
    SUMS_MAKE(EVEN, even_refined, w, a, low, 0);
    SUMS_MAKE(ODD, odd_refined, w, a, low, last > 0);
    SUMS_STORE(EVEN, even_refined, even);
    for (b = 0; b < last; b += 2) {
        refined = even_refined;
        SUMS_MAKE(EVEN, even_refined, w, a, low, b + 2 < last ? b + 2 : last);
        SUMS_STORE(ODD, odd_refined, odd);
        product_spread_step(&spread, 2 * lines);
        block_add(min, refined, w + b, a + b, &even, f);
        refined = odd_refined;
        SUMS_MAKE(ODD, odd_refined, w, a, low, b + 3 < last ? b + 3 : last);
        SUMS_STORE(EVEN, even_refined, even);
        block_add(min, refined, w + b + 1, a + b + 1, &odd, f);
    }
    if (b == last)
        block_add(min, even_refined, w + b, a + b, &even, f);
    const uint32_t left = p->outputs > output ? p->outputs - output : 0;
    const uint32_t lanes = left < PANEL_ROWS ? left : PANEL_ROWS;
#pragma GCC unroll 16
    for (uint32_t r = 0; r < STRIP_ROWS; r++)
        if (r < rows)
            result_write(p, output, lanes, p->y + (row + r) * p->y_stride, f[r]);
}

/* Multiplies a group with all strips. Each strip prefetches its share of the next group. */
INLINE void group_run(bool min, const struct kernels_product *p, const struct panel_block *w,
                      uint32_t group)
{
    const uint32_t strips = (p->rows + STRIP_ROWS - 1) / STRIP_ROWS;
    const uint32_t lines = p->prefetch_shares ? layout_block_bytes(p->form) / 64 : 0;
    const uint8_t *packed = p->weights + group * layout_group_bytes(p->form, p->blocks);
    for (uint32_t i = 0; i < 2 * strips; i++)
        strip_run(min, p, w + (size_t)(i % 2) * p->blocks,
                  product_spread_begin(p->form, p, packed, i, 2 * strips), lines,
                  group * GROUP_ROWS + i % 2 * PANEL_ROWS, i / 2 * STRIP_ROWS);
}

static __attribute__((noinline)) void group_run_plain(const struct kernels_product *p,
                                                      const struct panel_block *w, uint32_t group)
{
    group_run(false, p, w, group);
}

static __attribute__((noinline)) void group_run_min(const struct kernels_product *p,
                                                    const struct panel_block *w, uint32_t group)
{
    group_run(true, p, w, group);
}

INLINE void groups_run(enum kernels_form form, const struct kernels_product *p)
{
    struct panel_block *weights =
        __builtin_alloca_with_align(2 * p->blocks * sizeof(struct panel_block), 8 * 64);
    __asm__ volatile("ldtilecfg %0" ::"m"(tile_sizes));
    for (uint32_t group = 0; group < p->groups; group++) {
        panels_unpack(form, p, group, weights);
        if (layout_has_min(form))
            group_run_min(p, weights, group);
        else
            group_run_plain(p, weights, group);
    }
    /* Without this, other code would run slower, and signals would save 8 KiB more. */
    __asm__ volatile("tilerelease" ::: "memory");
}

#define GEMM_FORM(name, form)                                                                      \
    static void gemm_##name(const struct kernels_product *p)                                       \
    {                                                                                              \
        groups_run(form, p);                                                                       \
    }

LAYOUT_FORMS_ONE_SCALE(GEMM_FORM)

#define GEMM_ENTRY(name, form) [form] = gemm_##name,

void gemm_amx(const struct kernels_product *p)
{
    static void (*const forms[FORM_QUANTISED_COUNT])(const struct kernels_product *) = {
        LAYOUT_FORMS_ONE_SCALE(GEMM_ENTRY)};
    forms[p->form](p);
}
