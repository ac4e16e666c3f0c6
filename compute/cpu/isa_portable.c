/* isa_portable: plain C, for every CPU; the reference of the other ISAs bit for bit. */
#include "compute/cpu/vector_portable.h"

#include "compute/cpu/attention.h"
#include "compute/cpu/gemm_float.h"
#include "compute/cpu/product.h"

static uint32_t quant_at(enum kernels_form form, const uint8_t *quants, uint32_t row, uint32_t col)
{
    if (!layout_nibbles(form))
        return quants[layout_vector_offset(0, col / 4) + row * 4 + col % 4];
    uint32_t packed = quants[layout_vector_offset(0, col % 16 / 4) + row * 4 + col % 4];
    return col < 16 ? packed & 15u : packed >> 4;
}

static float scale_at(enum kernels_form form, const uint8_t *scales, uint32_t i)
{
    float value;
    uint16_t half;
    if (layout_scales_wide(form)) {
        memcpy(&value, scales + (size_t)i * 4, sizeof(value));
        return value;
    }
    memcpy(&half, scales + (size_t)i * 2, sizeof(half));
    return half_from_f16(half);
}

/* One row of W in one block of 32 columns. */
struct weights {
    int32_t quants[32]; /* offset taken off */
    float scale[2];     /* second: the minimum, or the scale of the last 16 */
};

static void weights_unpack(enum kernels_form form, const uint8_t *block, uint32_t n,
                           struct weights *w)
{
    uint32_t panel = n / PANEL_ROWS, row = n % PANEL_ROWS;
    const uint8_t *quants = block + layout_vector_offset(panel, 0);
    const uint8_t *scales = block + layout_scales_offset(form, panel);
    for (uint32_t i = 0; i < 32; i++)
        w->quants[i] = (int32_t)quant_at(form, quants, row, i) - layout_offset(form);
    w->scale[0] = scale_at(form, scales, row);
    w->scale[1] = 0;
    if (layout_min(form) || form == FORM_BYTE_F32_HALF)
        w->scale[1] = scale_at(form, scales, PANEL_ROWS + row);
}

/* Sums of the first and the last 16 columns. */
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
    if (form == FORM_BYTE_F32_HALF) {
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
    for (uint32_t b = 0; b < p->blocks; b++, group += layout_block_bytes(p->form)) {
        for (uint32_t n = 0; n < GROUP_ROWS; n++) {
            struct weights w;
            weights_unpack(p->form, group, n, &w);
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
    .rope = rows_rope,
    .store = attention_store,
    .attention = attention_run,
};
