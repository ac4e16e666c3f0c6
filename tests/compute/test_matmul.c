/* Goal: y = W · x has the bits that compute/cpu/kernels.h defines, for every weight type,
 * instruction set, number of rows and threads, and any odd shape; embedding rows are exactly the
 * dequantised ones. Method: a plain reference of the definition, written here with
 * types_group_unpack only, compared bit for bit; and, in case the definition is wrong, fp64 sums of
 * the dequantised weights within the quantisation error. */
#include "fixture.h"

static const enum compute_isa isas[] = {COMPUTE_ISA_PORTABLE, COMPUTE_ISA_AVX2,
                                        COMPUTE_ISA_AVX_VNNI, COMPUTE_ISA_AVX512};

struct shape {
    enum compute_type type;
    bool exact;
    bool refined;
    bool tiny; /* BF16: numbers so small that sums are near the smallest normal number, 2^-126. */
    uint32_t rows, cols, count;
    struct compute_scales scales; /* Scales of F8_E4M3. */
};

struct quantised {
    int32_t q[32];
    float scale;
    int32_t sum;
};

static uint32_t outliers; /* Blocks of all rows that have a second plane. */

static float reference_amax(const float *x)
{
    float amax = 0;
    for (int i = 0; i < 32; i++)
        amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
    return amax;
}

static void reference_quantise(const float *x, bool refined, struct quantised *out)
{
    float amax = reference_amax(x), most = refined ? 32639.0f : 127.0f;
    out->sum = 0;
    out->scale = amax / most;
    for (int i = 0; i < 32; i++) {
        float t = amax == 0 ? 0 : x[i] * (most / amax), high = nearbyintf(t / 256);
        if (refined)
            out->q[i] =
                256 * (int32_t)high + (int32_t)nearbyintf(fmaxf(-127, fminf(127, t - 256 * high)));
        else
            out->q[i] = (int32_t)nearbyintf(t);
        out->sum += out->q[i];
    }
}

/* Quantises one row; `refined`: blocks with an outlier have 16 bits. */
static void reference_quantise_row(const float *x, uint32_t blocks, bool refined,
                                   struct quantised *out)
{
    float sum = 0;
    for (uint32_t b = 0; b < blocks; b++)
        sum += reference_amax(x + (size_t)b * 32);
    for (uint32_t b = 0; b < blocks; b++) {
        bool outlier = refined && reference_amax(x + (size_t)b * 32) * (float)blocks >= 3 * sum;
        reference_quantise(x + (size_t)b * 32, outlier, &out[b]);
        outliers += outlier;
    }
}

/* Types that are kept with a scale per 16 columns. */
static bool has_halves(enum compute_type type)
{
    return type == COMPUTE_Q6_K || type == COMPUTE_Q2_K || type == COMPUTE_Q3_K ||
           (type >= COMPUTE_IQ2_S && type <= COMPUTE_IQ1_M);
}

static float reference_dot_quantised(enum compute_type type, const uint8_t *row,
                                     const struct quantised *x, uint32_t blocks)
{
    float f = 0;
    const int8_t *codes = types_codes(type);
    for (uint32_t b = 0; b < blocks; b++) {
        struct types_group w;
        types_group_unpack(type, row, b, &w);
        int32_t acc[2] = {0, 0}, sum[2] = {0, 0};
        for (uint32_t i = 0; i < 32; i++) {
            int32_t value = codes != NULL
                                ? codes[w.quants[i]]
                                : (int32_t)w.quants[i] - (int32_t)types_quant_offset(type);
            acc[i / 16] += value * x[b].q[i];
            sum[i / 16] += x[b].q[i];
        }
        if (!has_halves(type)) {
            f = fmaf((float)(acc[0] + acc[1]), w.scales[0] * x[b].scale, f);
            if (blocks_have_min(type))
                f = fmaf(w.mins[0], x[b].scale * (float)x[b].sum, f);
            continue;
        }
        for (int i = 0; i < 2; i++) {
            f = fmaf((float)acc[i], w.scales[i] * x[b].scale, f);
            if (blocks_have_min(type))
                f = fmaf(w.mins[i], x[b].scale * (float)sum[i], f);
        }
    }
    return f;
}

/* Multiplies and adds as BF16 does: subnormal numbers count as 0, and a sum that would be below
 * 2^-126 after rounding to 24 bits becomes 0. fp64 holds such sums exactly. */
static float reference_fma_bf16(float w, float x, float f)
{
    w = fabsf(w) < 0x1p-126f ? 0 : w;
    x = half_from_bf16(half_to_bf16(x));
    double sum = fma((double)w, (double)x, (double)f);
    return fabs(sum) < 0x1p-126 - 0x1p-151 ? copysignf(0, (float)sum) : fmaf(w, x, f);
}

static struct compute_source source_of(const struct shape *s, const void *weights)
{
    struct compute_source source = fixture_source(s->type, s->rows, s->cols, weights);
    source.scales = s->scales;
    return source;
}

/* Adds blocks of columns that share a scale, each as BF16. */
static float reference_dot_f8(const struct compute_source *w, uint32_t row, const float *x)
{
    float f = 0, part = 0;
    for (uint32_t k = 0; k < w->cols; k++) {
        float weight = half_from_e4m3(((const uint8_t *)w->data)[(size_t)row * w->cols + k]);
        part = reference_fma_bf16(weight, x[k], part);
        if (w->scales.values == NULL) {
            f = part;
        } else if (k + 1 == w->cols || (w->scales.first_col + k + 1) % w->scales.cols == 0) {
            f += part * compute_scale_at(&w->scales, row, k);
            part = 0;
        }
    }
    return f;
}

/* Returns the largest magnitude in the block of 32 elements that has element k. */
static double block_largest(const float *x, uint32_t k, uint32_t cols)
{
    double largest = 0;
    for (uint32_t i = k / 32 * 32; i < cols && i < k / 32 * 32 + 32; i++)
        largest = fmax(largest, fabs((double)x[i]));
    return largest;
}

/* Computes y [count × rows] by the definition, and checks it against fp64 on the dequantised
 * weights. */
static float *reference_matmul(const struct shape *s, const uint8_t *weights, const float *x)
{
    enum compute_type type = s->type;
    uint32_t rows = s->rows, cols = s->cols, count = s->count;
    float *y = malloc((size_t)count * rows * sizeof(float)), *w = malloc(cols * sizeof(float));
    size_t blocks = (size_t)count * (cols / 32);
    struct quantised *q = malloc((blocks + 1) * sizeof(*q));
    size_t row_bytes = cols / compute_type_block_elements(type) * compute_type_block_bytes(type);
    bool quantise = !s->exact && compute_type_block_elements(type) > 1;
    const bool f8 = !s->exact && type == COMPUTE_F8_E4M3;
    const bool round = f8 || (!s->exact && type == COMPUTE_BF16);
    const struct compute_source source = source_of(s, weights);
    CHECK(y != NULL && w != NULL && q != NULL);
    for (uint32_t r = 0; quantise && r < count; r++)
        reference_quantise_row(x + (size_t)r * cols, cols / 32, s->refined, &q[r * (cols / 32)]);
    for (uint32_t n = 0; n < rows; n++) {
        compute_source_row(&source, n, w);
        for (uint32_t r = 0; r < count; r++) {
            const float *xr = x + (size_t)r * cols;
            float f = 0;
            double sum = 0, square = 0, rounded = 0;
            for (uint32_t k = 0; k < cols; k++) {
                f = round ? reference_fma_bf16(w[k], xr[k], f) : fmaf(w[k], xr[k], f);
                sum += (double)w[k] * xr[k];
                square += (double)w[k] * w[k] * xr[k] * xr[k];
                rounded += fabs((double)w[k]) * block_largest(xr, k, cols) / 254;
            }
            if (quantise)
                f = reference_dot_quantised(type, weights + n * row_bytes, q + r * (cols / 32),
                                            cols / 32);
            if (f8)
                f = reference_dot_f8(&source, n, xr);
            /* Elements are rounded to steps of 1 / 127 of the largest element of their block. */
            double bound = quantise ? rounded + 1e-3
                           : round  ? 0.01 * sqrt(square) + 1e-6
                                    : 1e-5 * sqrt(square * cols) + 1e-6;
            CHECKF(fabs(f - sum) <= bound, "%s [%u] row %u: %g, fp64 %g", compute_type_name(type),
                   n, r, (double)f, sum);
            y[(size_t)r * rows + n] = f;
        }
    }
    free(q);
    free(w);
    return y;
}

static void check_embed(struct compute *c, const struct compute_matrix *m,
                        const struct compute_source *source)
{
    const uint32_t rows = source->rows, cols = source->cols;
    uint32_t ids[20], count = 1 + fixture_below(20);
    float *y = malloc((size_t)count * cols * sizeof(float)), *want = malloc(cols * sizeof(float));
    for (uint32_t i = 0; i < count; i++)
        ids[i] = fixture_below(rows);
    OPS->embed(c, m, ids, count, y);
    for (uint32_t i = 0; i < count; i++) {
        compute_source_row(source, ids[i], want);
        fixture_equal(y + (size_t)i * cols, want, cols, "embed");
    }
    free(want);
    free(y);
}

/* A CPU with AVX512_BF16 whose rounding differs from the definition uses a slower kernel. The
 * test's CPU should not be such a CPU. */
static void check_dot_products_used(void)
{
#ifdef __x86_64__
    struct compute *c = fixture_open(COMPUTE_ISA_AUTO, 1, false);
    const char *what = OPS->describe(c);
    if (__builtin_cpu_supports("avx512bf16") && strstr(what, "avx512") != NULL)
        CHECKF(strstr(what, "-bf16") != NULL, "%s", what);
    OPS->close(c);
#endif
}

static void check_device(struct compute *c, const struct shape *s, const uint8_t *weights,
                         const float *x, const float *want)
{
    const struct compute_source source = source_of(s, weights);
    struct compute_matrix *m = NULL;
    size_t total = (size_t)s->count * s->rows;
    float *y = malloc(total * sizeof(float)), *bias = fixture_floats(s->rows);
    float *base = fixture_floats(total), *added = malloc(total * sizeof(float));
    CHECK(OPS->matrix_open(c, &source, &m) == ST_OK);
    struct compute_activations *a = fixture_activations(
        c, x, s->count, s->cols, OPS->matrix_needs(m) | (s->refined ? COMPUTE_NEEDS_REFINED : 0));
    const struct compute_matrix *matrices[] = {m, m};
    const float *biases[] = {NULL, bias};
    float *out[] = {y, added};
    OPS->matmul(c, matrices, biases, 2, a, s->count, out);
    fixture_equal(y, want, total, compute_type_name(s->type));
    for (size_t i = 0; i < total; i++)
        y[i] = want[i] + bias[i % s->rows];
    fixture_equal(added, y, total, "bias");
    memcpy(y, base, total * sizeof(float));
    OPS->matmul_add(c, m, a, s->count, y);
    for (size_t i = 0; i < total; i++)
        base[i] += want[i];
    fixture_equal(y, base, total, "matmul_add");
    check_embed(c, m, &source);
    OPS->activations_close(c, a);
    OPS->matrix_close(c, m);
    free(added);
    free(base);
    free(bias);
    free(y);
}

static void check_shape(const struct shape *s)
{
    uint8_t *weights = fixture_weights(s->type, s->rows, s->cols);
    float *x = fixture_floats((size_t)s->count * s->cols);
    for (size_t i = 0; s->tiny && i < (size_t)s->rows * s->cols; i++)
        ((uint16_t *)weights)[i] =
            half_to_bf16(half_from_bf16(((uint16_t *)weights)[i]) * 0x1p-66f);
    for (size_t i = 0; s->tiny && i < (size_t)s->count * s->cols; i++)
        x[i] *= i % 7 == 0 ? 0x1p-130f : 0x1p-62f;
    memset(x, 0, (s->cols < 32 ? s->cols : 32) * sizeof(float)); /* A block of zeros. */
    float *want = reference_matmul(s, weights, x);
    for (size_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++)
        for (uint32_t threads = 1; threads <= 3; threads++) {
            struct compute *c = fixture_open(isas[i], threads, s->exact);
            if (c == NULL)
                break;
            check_device(c, s, weights, x, want);
            OPS->close(c);
            if (isas[i] == COMPUTE_ISA_PORTABLE)
                break; /* More threads would be slow, and run the same code. */
        }
    free(want);
    free(x);
    free(weights);
}

/* A row has the same bits in a batch of 512 rows and in any smaller batch. */
static void check_batches(enum compute_isa isa, enum compute_type type)
{
    const uint32_t rows = 83, cols = 512, count = 512;
    struct compute *one = fixture_open(isa, 1, false), *two = fixture_open(isa, 2, false);
    if (one == NULL)
        return;
    uint8_t *weights = fixture_weights(type, rows, cols);
    float *x = fixture_floats((size_t)count * cols);
    float *all = malloc((size_t)count * rows * sizeof(float));
    float *some = malloc((size_t)count * rows * sizeof(float));
    struct compute_matrix *m = fixture_matrix(two, type, rows, cols, weights);
    const struct compute_matrix *matrices[] = {m};
    struct compute_activations *a = fixture_activations(two, x, count, cols, OPS->matrix_needs(m));
    OPS->matmul(two, matrices, NULL, 1, a, count, &all);
    OPS->activations_close(two, a);
    for (uint32_t n = 1; n <= 40; n++) {
        uint32_t first = fixture_below(count - n);
        a = fixture_activations(one, x + (size_t)first * cols, n, cols, OPS->matrix_needs(m));
        OPS->matmul(one, matrices, NULL, 1, a, n, &some);
        fixture_equal(some, all + (size_t)first * rows, (size_t)n * rows, "batch");
        OPS->activations_close(one, a);
    }
    OPS->matrix_close(two, m);
    OPS->close(one);
    OPS->close(two);
    free(some);
    free(all);
    free(x);
    free(weights);
}

/* The largest quants of both signs everywhere: AVX2's 16-bit sums must not saturate. */
static void check_extremes(enum compute_type type)
{
    struct shape s = {.type = type, .rows = 33, .cols = 512, .count = 7};
    uint8_t *weights = fixture_weights(type, s.rows, s.cols);
    size_t bytes = compute_type_block_bytes(type);
    for (size_t i = 0; i < (size_t)s.rows * s.cols / compute_type_block_elements(type); i++) {
        uint8_t *block = weights + i * bytes;
        const uint16_t scale = half_to_f16(0.01f * (float)(1 + i % 7));
        /* IQ4: the largest code is that of nibble 0. */
        uint8_t fill = type == COMPUTE_Q8_0                               ? (i % 2 ? 0x80 : 0x7f)
                       : type == COMPUTE_IQ4_NL || type == COMPUTE_IQ4_XS ? 0
                                                                          : 0xff;
        memset(block, fill, bytes);
        blocks_put(type, block, scale, scale);
    }
    float *x = malloc((size_t)s.count * s.cols * sizeof(float));
    for (size_t i = 0; i < (size_t)s.count * s.cols; i++)
        x[i] = i / s.cols % 2 ? 1.0f : -1.0f;
    float *y = malloc((size_t)s.count * s.rows * sizeof(float)), *want = NULL;
    for (size_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++) {
        struct compute *c = fixture_open(isas[i], 1, false);
        if (c == NULL)
            continue;
        struct compute_matrix *m = fixture_matrix(c, type, s.rows, s.cols, weights);
        struct compute_activations *a =
            fixture_activations(c, x, s.count, s.cols, OPS->matrix_needs(m));
        const struct compute_matrix *matrices[] = {m};
        OPS->matmul(c, matrices, NULL, 1, a, s.count, &y);
        /* The portable results; check_shape compares them with the reference. */
        if (want == NULL) {
            want = malloc((size_t)s.count * s.rows * sizeof(float));
            memcpy(want, y, (size_t)s.count * s.rows * sizeof(float));
        }
        fixture_equal(y, want, (size_t)s.count * s.rows, "extremes");
        OPS->activations_close(c, a);
        OPS->matrix_close(c, m);
        OPS->close(c);
    }
    free(want);
    free(y);
    free(x);
    free(weights);
}

/* NaN and infinity affect only their own row. */
static void check_not_finite(enum compute_isa isa, enum compute_type type)
{
    struct compute *c = fixture_open(isa, 2, false);
    if (c == NULL)
        return;
    const uint32_t rows = 40, cols = 256, count = 9;
    uint8_t *weights = fixture_weights(type, rows, cols);
    float *x = fixture_floats((size_t)count * cols);
    const struct shape shape = {.type = type, .rows = rows, .cols = cols, .count = count};
    float *want = reference_matmul(&shape, weights, x);
    float *y = malloc((size_t)count * rows * sizeof(float));
    x[2 * cols + 7] = NAN;
    x[5 * cols + 99] = INFINITY;
    struct compute_matrix *m = fixture_matrix(c, type, rows, cols, weights);
    struct compute_activations *a = fixture_activations(c, x, count, cols, OPS->matrix_needs(m));
    const struct compute_matrix *matrices[] = {m};
    OPS->matmul(c, matrices, NULL, 1, a, count, &y);
    for (uint32_t r = 0; r < count; r++)
        for (uint32_t n = 0; n < rows; n++) {
            float got = y[r * rows + n];
            CHECKF(r == 2 || r == 5 ? !isfinite(got) : got == want[r * rows + n], "row %u: %g", r,
                   (double)got);
        }
    OPS->activations_close(c, a);
    OPS->matrix_close(c, m);
    OPS->close(c);
    free(y);
    free(want);
    free(x);
    free(weights);
}

/* One scale for the matrix, one per row, or one per 128 × 128 block; and slices of such
 * matrices. */
static void check_f8(void)
{
    static const struct {
        uint32_t rows, cols, first_row, first_col;
    } forms[] = {{UINT32_MAX, UINT32_MAX, 0, 0},
                 {1, UINT32_MAX, 0, 0},
                 {128, 128, 0, 0},
                 {128, 128, 70, 64},
                 {1, 32, 0, 30}};
    float values[400 * 20];
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        values[i] = (fixture_normal() + 0.01f) * 0.01f;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct shape s = {.type = COMPUTE_F8_E4M3, .rows = 1 + fixture_below(300)};
        s.scales = (struct compute_scales){values, forms[i].rows,      forms[i].cols,
                                           20,     forms[i].first_row, forms[i].first_col};
        s.cols = 1 + fixture_below(550);
        s.count = 1 + fixture_below(20);
        printf("%s scaled by %u x %u: %u x %u, %u rows\n", compute_type_name(s.type), s.scales.rows,
               s.scales.cols, s.rows, s.cols, s.count);
        check_shape(&s);
        s.exact = true;
        check_shape(&s);
    }
}

/* A slice has the same rows as the whole matrix. */
static void check_slices(enum compute_type type)
{
    const uint32_t rows = 300, cols = 1024, block = compute_type_block_elements(type);
    uint8_t *weights = fixture_weights(type, rows, cols);
    float values[3 * 8], whole[1024], part[1024];
    struct compute_source source = fixture_source(type, rows, cols, weights), slice;
    for (size_t i = 0; i < 3 * 8; i++)
        values[i] = fixture_normal();
    if (type == COMPUTE_F8_E4M3)
        source.scales = (struct compute_scales){values, 128, 128, 8, 0, 0};
    for (uint32_t i = 0; i < 50; i++) {
        uint32_t row = fixture_below(rows), col = fixture_below(cols / block) * block;
        uint32_t count = 1 + fixture_below(rows - row);
        uint32_t wide = block * (1 + fixture_below((cols - col) / block)), at, again;
        CHECK(compute_source_slice(&source, row, count, col, wide, &slice));
        at = fixture_below(count);
        compute_source_row(&source, row + at, whole);
        compute_source_row(&slice, at, part);
        fixture_equal(part, whole + col, wide, "slice");
        again = fixture_below(wide / block) * block; /* A slice of a slice. */
        CHECK(compute_source_slice(&slice, at, 1, again, block, &slice));
        compute_source_row(&slice, 0, part);
        fixture_equal(part, whole + col + again, block, "slice of a slice");
    }
    CHECK(block == 1 || !compute_source_slice(&source, 0, 1, 16, block, &slice));
    free(weights);
}

/* Every E4M3 number, against the definition. */
static void check_e4m3(void)
{
    for (int code = 0; code < 256; code++) {
        int exponent = code >> 3 & 15, mantissa = code & 7;
        float value =
            ldexpf((float)(mantissa + (exponent > 0 ? 8 : 0)), (exponent > 0 ? exponent : 1) - 10);
        value = code & 128 ? -value : value;
        float got = half_from_e4m3((uint8_t)code);
        CHECKF((code & 127) == 127 ? isnan(got) : got == value && signbit(got) == signbit(value),
               "%d is %g", code, (double)got);
        CHECK(half_to_e4m3(got) == code);
        float next = half_from_e4m3((uint8_t)(code + 1));
        if ((code & 127) >= 126)
            continue;
        float middle = (value + next) / 2; /* Ties round to even. */
        CHECK(half_to_e4m3(middle) == code + code % 2);
        CHECK(half_to_e4m3(nextafterf(middle, value)) == code);
        CHECK(half_to_e4m3(nextafterf(middle, next)) == code + 1);
    }
    CHECK(half_to_e4m3(1e30f) == 126 && half_to_e4m3(-INFINITY) == 254);
}

/* The choice is measured; the environment variable `name` replaces it. */
static void check_rule(const char *name)
{
    const struct compute_options options = {.threads = 1};
    struct compute *c = NULL;
    struct error error = {""};
    setenv(name, "sometimes", 1);
    CHECK(OPS->open(&options, &c, &error) == ST_INVALID);
    CHECKF(strstr(error.text, name) != NULL && strstr(error.text, " = \"sometimes\"") != NULL, "%s",
           error.text);
    setenv(name, "auto", 1);
    c = fixture_open(COMPUTE_ISA_AUTO, 1, false);
    uint8_t *weights = fixture_weights(COMPUTE_Q4_1, 40, 64);
    OPS->matrix_close(c, fixture_matrix(c, COMPUTE_Q4_1, 40, 64, weights));
    OPS->close(c);
    free(weights);
    unsetenv(name);
}

/* Says so if the checks of products with tile registers run without them. */
static void report_tile_registers(void)
{
    struct compute *c = fixture_open(COMPUTE_ISA_AUTO, 1, false);
    if (strstr(OPS->describe(c), "-amx") == NULL)
        printf("skipped: products with tile registers: this CPU or system does not allow AMX\n");
    OPS->close(c);
}

int main(void)
{
    fixture_seed = test_seed();
    report_tile_registers();
    check_dot_products_used();
    check_e4m3();
    check_f8();
    for (int type = 0; type < COMPUTE_TYPE_COUNT; type++) {
        uint32_t unit = compute_type_block_elements((enum compute_type)type);
        for (int i = 0; i < 11; i++) {
            const bool unpack = i == 6 || i == 7; /* Groups are unpacked before the product. */
            const bool amx = i >= 8;              /* Tile registers make the products. */
            struct shape s = {.type = (enum compute_type)type,
                              .exact = i == 5,
                              .refined = i >= 3 && i != 6 && i != 8,
                              .rows = 1 + fixture_below(100),
                              .cols = unit * (1 + fixture_below(unit == 1 ? 300 : 512 / unit)),
                              .count = unpack ? 12 + fixture_below(60)
                                       : amx  ? 1 + fixture_below(70)
                                              : 1 + fixture_below(i < 3 ? 7 : 45)};
            setenv("CLEAVE_UNPACK", unpack ? "always" : "never", 1);
            setenv("CLEAVE_AMX", amx ? "always" : "never", 1);
            printf("%s%s%s %u x %u, %u rows\n", compute_type_name(s.type), s.exact ? " exact" : "",
                   s.refined ? " refined" : "", s.rows, s.cols, s.count);
            check_shape(&s);
        }
        setenv("CLEAVE_UNPACK", "always", 1);
        if (unit == 1) { /* Several pieces of columns; one of them has an odd size. */
            struct shape s = {
                .type = (enum compute_type)type, .rows = 40, .cols = 4321, .count = 9};
            check_shape(&s);
            s.tiny = type == COMPUTE_BF16;
            s.cols = 300;
            check_shape(&s);
        }
        for (int amx = 0; amx < 2; amx++) {
            setenv("CLEAVE_AMX", amx != 0 ? "always" : "never", 1);
            for (size_t i = 1; i < sizeof(isas) / sizeof(isas[0]); i++) {
                if (amx != 0 && isas[i] != COMPUTE_ISA_AVX512)
                    continue;
                check_batches(isas[i], (enum compute_type)type);
                check_not_finite(isas[i], (enum compute_type)type);
            }
            if (unit > 1)
                check_extremes((enum compute_type)type);
        }
        check_slices((enum compute_type)type);
        unsetenv("CLEAVE_UNPACK");
        unsetenv("CLEAVE_AMX");
    }
    check_rule("CLEAVE_UNPACK");
    check_rule("CLEAVE_AMX");
    CHECK(outliers > 0);
    return 0;
}
