/* isa_portable: plain C for every CPU; the other ISAs match it bit for bit. */
#include "compute/cpu/vector_portable.h"

#include "compute/cpu/attention.h"
#include "compute/cpu/gemm_float.h"
#include "compute/cpu/product.h"

static uint32_t quant_at(enum kernels_form form, const uint8_t *quants, uint32_t row, uint32_t col)
{
    const uint32_t g = col / 4, byte = row * 4 + col % 4;
    if (layout_bytes(form))
        return quants[layout_vector_offset(0, g) + byte];
    uint32_t quant = quants[layout_vector_offset(0, g % 4) + byte] >> g / 4 * 4 & 15u;
    if (layout_high_bits(form) == 1)
        quant |= (quants[layout_vector_offset(0, 4) + byte] >> g & 1u) << 4;
    if (layout_high_bits(form) == 2)
        quant |= (quants[layout_vector_offset(0, 4 + g / 4) + byte] >> g % 4 * 2 & 3u) << 4;
    return quant;
}

static float half_at(const uint8_t *halves, uint32_t i)
{
    uint16_t half;
    memcpy(&half, halves + (size_t)i * 2, sizeof(half));
    return half_from_f16(half);
}

/* One row of W in one block of 32 columns. */
struct weights {
    int32_t quants[32]; /* The offset is already subtracted. */
    float scale[2];     /* [1]: the minimum, or the scale of the last 16 columns. */
};

static void weights_unpack(enum kernels_form form, const uint8_t *group, uint32_t b, uint32_t n,
                           struct weights *w)
{
    const uint32_t panel = n / PANEL_ROWS, row = n % PANEL_ROWS;
    const uint8_t *block = group + layout_block_offset(form, b);
    const uint8_t *header = group + layout_header_offset(form, b);
    const uint8_t *quants = block + layout_vector_offset(panel, 0);
    const uint8_t *scales = block + layout_scales_offset(form, panel);
    for (uint32_t i = 0; i < 32; i++)
        w->quants[i] = (int32_t)quant_at(form, quants, row, i) - layout_offset(form);
    w->scale[1] = 0;
    for (uint32_t i = 0; i < layout_scales(form); i++) {
        if (!layout_super(form)) {
            w->scale[i] = half_at(scales, i * PANEL_ROWS + row);
            continue;
        }
        uint8_t byte = scales[i * PANEL_ROWS + row];
        float value = layout_halves(form) ? (float)(int8_t)byte : (float)byte;
        w->scale[i] = half_at(header + layout_units_offset(form, panel, i), row) * value;
    }
}

/* Computes the sums of the first and of the last 16 columns. */
static void dots(const struct weights *w, const int8_t *quants, int32_t acc[2])
{
    acc[0] = acc[1] = 0;
    for (uint32_t i = 0; i < 32; i++)
        acc[i / 16] += w->quants[i] * quants[i];
}

static float block_add(enum kernels_form form, const struct weights *w,
                       const struct kernels_block *a, const struct kernels_low *low, uint32_t r,
                       float f)
{
    int32_t acc[2], more[2];
    dots(w, a->quants[r], acc);
    if (a->refined[r]) {
        dots(w, low->quants[r], more);
        acc[0] = acc[0] * 256 + more[0];
        acc[1] = acc[1] * 256 + more[1];
    }
    if (layout_halves(form)) {
        f = fmaf((float)acc[0], w->scale[0] * a->scale[r], f);
        return fmaf((float)acc[1], w->scale[1] * a->scale[r], f);
    }
    f = fmaf((float)(acc[0] + acc[1]), w->scale[0] * a->scale[r], f);
    return layout_min(form) ? fmaf(w->scale[1], a->scaled_sum[r], f) : f;
}

static void tile_run(const struct kernels_product *p, const uint8_t *group, size_t first,
                     uint32_t rows, bool prefetch, float out[TILE_ROWS][GROUP_ROWS])
{
    (void)prefetch;
    memset(out, 0, sizeof(float[TILE_ROWS][GROUP_ROWS]));
    for (uint32_t b = 0; b < p->blocks; b++) {
        for (uint32_t n = 0; n < GROUP_ROWS; n++) {
            struct weights w;
            weights_unpack(p->form, group, b, n, &w);
            for (uint32_t r = 0; r < rows; r++)
                out[r][n] = block_add(p->form, &w, &p->tiles[first + b], product_low(p, first + b),
                                      r, out[r][n]);
        }
    }
}

static void gemm_quantised(const struct kernels_product *p)
{
    product_run(p, tile_run);
}

static const struct kernels_floats floats = {
    .name = "", .gemm = gemm_float, .rounded_bytes = 4, .round = round_bf16};

const struct kernels kernels_portable = {
    .name = "portable",
    .gemm_quantised = gemm_quantised,
    .floats = &floats,
    .quantise = rows_quantise,
    .norm = rows_norm,
    .silu_mul = rows_silu_mul,
    .gelu_mul = rows_gelu_mul,
    .rope = rows_rope,
    .store = attention_store,
    .attention = attention_run,
    .attention_part = attention_part,
    .attention_join = attention_join,
};
