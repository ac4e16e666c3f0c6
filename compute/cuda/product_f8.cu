/* product_f8: products of many rows with E4M3 weights on 8-bit tensor cores, fp32 sums: y (+)=
 * scales · (a as E4M3) · Wᵀ. The method depends on the device and on the weights' scales:
 *
 * - Scales per row (or for the whole matrix): activations have one scale per row. On 9.0 cuBLASLt
 *   applies both vectors of scales (OUTER_VEC). On other devices from 8.9 on, the product goes to
 *   scratch memory unscaled, and a kernel of ours scales it.
 * - Scales per 128 × 128 block: activations have a scale per 128 columns. Only on 9.0 (BLK128x128
 *   with VEC128), where the number of rows must be a multiple of 4: up to 3 last rows go to
 *   cuda_gemv.
 *
 * Weights for which no method applies, or for which cuBLASLt has no kernel, are dequantised to bf16
 * like other types. A row's activations do not depend on other rows. They are quantised once for
 * all matrices that read them. Fast accumulation stays off, because it keeps sums in less than
 * fp32. */
#include "compute/cuda/backend.cuh"

#include <cstdlib>

static enum cuda_f8_form form_of(const struct compute *c, const struct cuda_weights *w)
{
    if (w->type != COMPUTE_F8_E4M3 || w->cols % 16 != 0 || w->rows % 16 != 0)
        return CUDA_F8_NONE;
    if (w->scale_shift == 0)
        return c->f8_forms[CUDA_F8_ROWS]    ? CUDA_F8_ROWS
               : c->f8_forms[CUDA_F8_PLAIN] ? CUDA_F8_PLAIN
                                            : CUDA_F8_NONE;
    if (w->scale_first != 0 || w->cols % 128 != 0 || !c->f8_forms[CUDA_F8_BLOCKS])
        return CUDA_F8_NONE;
    return CUDA_F8_BLOCKS;
}

bool cuda_f8_takes(const struct compute *c, const struct cuda_weights *w)
{
    return form_of(c, w) != CUDA_F8_NONE;
}

void cuda_f8_probe(struct compute *c)
{
    for (int form = CUDA_F8_PLAIN; form < CUDA_F8_FORM_COUNT; form++)
        c->f8_forms[form] = !c->exact && !c->f8_off && c->capability >= 89 &&
                            cuda_gemm_probe(c, (enum cuda_f8_form)form);
}

static void quantize(struct compute *c, const struct compute_activations *a, uint32_t rows,
                     bool groups)
{
    struct compute_f8 *f8 = a->f8;
    if (f8->rows == rows && f8->groups == groups)
        return;
    if (groups)
        cuda_quantize_groups(c->stream, a->bf16, rows, a->cols, rows, f8->values, f8->scales);
    else
        cuda_quantize_rows(c->stream, a->bf16, rows, a->cols, f8->values, f8->scales);
    f8->rows = rows;
    f8->groups = groups;
}

/* Multiplies `rows` rows, into y or (unscaled) into scratch memory. */
static bool multiply(struct compute *c, const struct cuda_weights *w,
                     const struct compute_activations *a, enum cuda_f8_form form, uint32_t rows,
                     bool add, float *y)
{
    struct cuda_gemm_work work = {};
    work.type = CUDA_R_8F_E4M3;
    work.y_type = CUDA_R_32F;
    work.w[0] = w->quants;
    work.w_row_bytes = w->row_bytes;
    work.a = a->f8->values;
    work.rows = rows;
    work.n = w->rows;
    work.k = w->cols;
    work.add = add;
    work.y[0] = y;
    work.form = form;
    work.w_scales = (const float *)w->scales;
    work.a_scales = a->f8->scales;
    return cuda_gemm(c, &work);
}

bool cuda_product_f8(struct compute *c, const struct compute_matrix *m,
                     const struct compute_activations *a, uint32_t rows, bool add, float *y)
{
    const struct cuda_weights *w = &m->weights;
    const enum cuda_f8_form form = form_of(c, w);
    if (form == CUDA_F8_NONE || a->f8 == NULL)
        return false;
    if (form == CUDA_F8_PLAIN) {
        if (!cuda_grow(c, &c->f8_scratch, &c->f8_scratch_bytes,
                       (size_t)rows * w->rows * sizeof(float), "products"))
            return true;
        quantize(c, a, rows, false);
        if (!multiply(c, w, a, form, rows, false, (float *)c->f8_scratch))
            return false;
        cuda_scale_product(c->stream, (const float *)c->f8_scratch, a->f8->scales,
                           (const float *)w->scales, rows, w->rows, add, y);
        return true;
    }
    const uint32_t most = form == CUDA_F8_BLOCKS ? rows / 4 * 4 : rows;
    quantize(c, a, most, form == CUDA_F8_BLOCKS);
    if (!multiply(c, w, a, form, most, add, y))
        return false;
    if (most < rows)
        cuda_gemv(c->stream, w, a->bf16 + (size_t)most * a->cols, NULL, rows - most, add,
                  y + (size_t)most * w->rows);
    return true;
}

struct compute_f8 *cuda_f8_open(struct compute *c, uint32_t rows_max, uint32_t cols)
{
    const size_t groups = (cols + 127) / 128, values = ((size_t)rows_max * cols + 255) / 256 * 256;
    struct compute_f8 *f8 = (struct compute_f8 *)calloc(1, sizeof(*f8));
    if (f8 == NULL)
        return NULL;
    f8->values = (uint8_t *)cuda_take(c, values + groups * rows_max * sizeof(float), true);
    f8->scales = (float *)(f8->values + values);
    if (f8->values != NULL)
        return f8;
    free(f8);
    return NULL;
}

void cuda_f8_close(struct compute *c, struct compute_f8 *f8)
{
    if (f8 != NULL)
        cuda_give(c, f8->values);
    free(f8);
}
