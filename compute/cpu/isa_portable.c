/* isa_portable: plain C for every CPU; the other ISAs match it bit for bit. */
#include "compute/cpu/vector_portable.h"

#include "compute/cpu/attention.h"
#include "compute/cpu/gemm_float.h"
#include "compute/cpu/product.h"
#include "compute/cpu/unpack.h"

/* Computes the sums of the first and of the last 16 columns. */
static void dots(const struct unpacked *w, const int8_t *quants, int32_t acc[2])
{
    acc[0] = acc[1] = 0;
    for (uint32_t i = 0; i < 32; i++)
        acc[i / 16] += w->values[i] * quants[i];
}

static float block_add(enum kernels_form form, const struct unpacked *w,
                       const struct kernels_block *a, const struct kernels_second_plane *low,
                       uint32_t r, float f)
{
    int32_t acc[2], more[2];
    dots(w, a->quants[r], acc);
    if (a->refined[r]) {
        dots(w, low->quants[r], more);
        acc[0] = acc[0] * 256 + more[0];
        acc[1] = acc[1] * 256 + more[1];
    }
    if (!layout_has_halves(form)) {
        f = fmaf((float)(acc[0] + acc[1]), w->scale[0] * a->scale[r], f);
        return layout_has_min(form) ? fmaf(w->min[0], a->scaled_sum[r], f) : f;
    }
    for (uint32_t half = 0; half < 2; half++) {
        f = fmaf((float)acc[half], w->scale[half] * a->scale[r], f);
        if (layout_has_min(form))
            f = fmaf(w->min[half], product_half_sum(a, half, r), f);
    }
    return f;
}

static void tile_run(const struct kernels_product *p, const uint8_t *group, uint32_t row,
                     uint32_t rows, float out[TILE_ROWS][GROUP_ROWS])
{
    const size_t first = product_tile_first(p, row);
    memset(out, 0, sizeof(float[TILE_ROWS][GROUP_ROWS]));
    for (uint32_t b = 0; b < p->blocks; b++) {
        for (uint32_t n = 0; n < GROUP_ROWS; n++) {
            struct unpacked w;
            unpack_row(p->form, p->codes, p->factor, group, b, n, &w);
            for (uint32_t r = 0; r < rows; r++)
                out[r][n] = block_add(p->form, &w, &p->tiles[first + b],
                                      product_second_plane(p, first + b), r, out[r][n]);
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
    .layer_norm = rows_layer_norm,
    .squares = rows_squares,
    .weigh = rows_weigh,
    .silu_mul = rows_silu_mul,
    .gelu_mul = rows_gelu_mul,
    .gelu_erf_mul = rows_gelu_erf_mul,
    .cap = rows_cap,
    .rope = rows_rope,
    .store = attention_store,
    .attention = attention_run,
    .attention_part = attention_part,
    .attention_join = attention_join,
};
