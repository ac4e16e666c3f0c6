/* Goal: norm, silu_mul, rope, quantisation and the exponential are accurate, have the same bits on
 * every ISA and number of threads, keep rows separate, and survive NaN, infinities and extreme
 * values. Method: random rows of odd lengths compared with fp64; every ISA compared with the
 * portable one bit for bit; the exponential (through silu) over its whole range. */
#include "fixture.h"

static const enum compute_isa isas[] = {COMPUTE_ISA_PORTABLE, COMPUTE_ISA_AVX2,
                                        COMPUTE_ISA_AVX_VNNI, COMPUTE_ISA_AVX512};

#define ISA_COUNT (sizeof(isas) / sizeof(isas[0]))

static const struct kernels *kernels_of(enum compute_isa isa)
{
    struct compute *c = fixture_open(isa, 1, false);
    const struct kernels *kernels = c != NULL ? c->kernels : NULL;
    OPS->close(c);
    return kernels;
}

static void check_near(double got, double want, double relative, const char *what)
{
    CHECKF(fabs(got - want) <= relative * fabs(want) + 1e-36, "%s: %.9g, want %.9g", what, got,
           want);
}

static void check_norm(const struct kernels *k, const struct kernels *portable, uint32_t cols)
{
    float *x = fixture_floats(cols), *w = fixture_floats(cols);
    float *got = fixture_floats(cols + 1), *want = fixture_floats(cols), guard = got[cols];
    double sum = 0;
    for (uint32_t i = 0; i < cols; i++)
        sum += (double)x[i] * x[i];
    k->norm(x, cols, w, 1e-5f, got);
    portable->norm(x, cols, w, 1e-5f, want);
    for (uint32_t i = 0; i < cols; i++)
        check_near(got[i], x[i] / sqrt(sum / cols + 1e-5) * w[i], 2e-6, "norm");
    CHECK(got[cols] == guard);
    fixture_equal(got, want, cols, "norm");
    k->silu_mul(x, w, cols, got);
    portable->silu_mul(x, w, cols, want);
    for (uint32_t i = 0; i < cols; i++)
        check_near(got[i], x[i] / (1 + exp(-(double)x[i])) * w[i], 1e-6, "silu_mul");
    CHECK(got[cols] == guard);
    fixture_equal(got, want, cols, "silu_mul");
    k->gelu_mul(x, w, cols, got);
    portable->gelu_mul(x, w, cols, want);
    for (uint32_t i = 0; i < cols; i++) {
        double u = sqrt(2 / M_PI) * (x[i] + 0.044715 * pow(x[i], 3));
        CHECK(fabs(x[i] * (1 + tanh(u)) / 2 * w[i] - got[i]) <= 1e-6 * fabs(x[i] * w[i]) + 1e-36);
    }
    CHECK(got[cols] == guard);
    fixture_equal(got, want, cols, "gelu_mul");
    k->gelu_mul(x, NULL, cols, got);
    for (uint32_t i = 0; i < cols; i++) {
        double u = sqrt(2 / M_PI) * (x[i] + 0.044715 * pow(x[i], 3));
        CHECK(fabs(x[i] * (1 + tanh(u)) / 2 - got[i]) <= 1e-6 * fabs(x[i]) + 1e-36);
    }
    for (int with = 0; with < 2; with++) {
        k->gelu_erf_mul(x, with != 0 ? w : NULL, cols, got);
        portable->gelu_erf_mul(x, with != 0 ? w : NULL, cols, want);
        for (uint32_t i = 0; i < cols; i++) {
            double up = with != 0 ? w[i] : 1;
            double right = x[i] * erfc(-x[i] * sqrt(0.5)) / 2 * up;
            CHECK(fabs(right - got[i]) <= 4e-7 * fabs(x[i] * up) + 1e-36);
        }
        CHECK(got[cols] == guard);
        fixture_equal(got, want, cols, "gelu_erf_mul");
    }
    free(x);
    free(w);
    free(got);
    free(want);
}

static void check_layer_norm(const struct kernels *k, const struct kernels *portable, uint32_t cols)
{
    float *x = fixture_floats(cols), *w = fixture_floats(cols), *bias = fixture_floats(cols);
    float *got = fixture_floats(cols + 1), *want = fixture_floats(cols), guard = got[cols];
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < cols; i++)
        sum += (double)(x[i] += 3);
    for (uint32_t i = 0; i < cols; i++)
        squares += (x[i] - sum / cols) * (x[i] - sum / cols);
    for (int with = 0; with < 2; with++) {
        k->layer_norm(x, cols, w, with ? bias : NULL, 1e-5f, got);
        portable->layer_norm(x, cols, w, with ? bias : NULL, 1e-5f, want);
        for (uint32_t i = 0; i < cols; i++) {
            /* The rounding of the mean counts more the closer the elements are to it. */
            double scale = w[i] / sqrt(squares / cols + 1e-5);
            double error = (x[i] - sum / cols) * scale + (with ? bias[i] : 0) - got[i];
            CHECK(fabs(error) <= 1e-5 + 1e-6 * fabs(x[i] * scale));
        }
        fixture_equal(got, want, cols, "layer_norm");
    }
    CHECK(got[cols] == guard);
    free(x);
    free(w);
    free(bias);
    free(got);
    free(want);
}

/* Below -86 the exponential is clamped: silu is then x * e^-86, as good as 0. */
static void check_exp(const struct kernels *k, const struct kernels *portable)
{
    enum { COUNT = 4096 };
    float x[COUNT], one[COUNT], got[COUNT], want[COUNT];
    for (int i = 0; i < COUNT; i++) {
        x[i] = ((float)i - COUNT / 2) * (172.0f / COUNT);
        one[i] = 1;
    }
    k->silu_mul(x, one, COUNT, got);
    portable->silu_mul(x, one, COUNT, want);
    for (int i = 0; i < COUNT; i++)
        check_near(got[i], x[i] / (1 + exp(-(double)x[i])), 4e-7, "silu");
    fixture_equal(got, want, COUNT, "silu");
}

/* Every pair of a head is rotated, and nothing beyond the rotated part changes. */
static void check_rope(const struct kernels *k, const struct kernels *portable, uint32_t half,
                       bool neox)
{
    enum { MOST = 160 };
    float table[MOST], x[MOST + 1], got[MOST + 1], want[MOST + 1];
    CHECK(2 * half <= MOST);
    for (uint32_t i = 0; i < 2 * half; i++)
        table[i] = fixture_normal();
    for (int i = 0; i <= MOST; i++)
        got[i] = want[i] = x[i] = fixture_normal();
    const struct kernels_rope rope = {.dim = 2 * half, .neox = neox, .table = table};
    k->rope(&rope, got);
    portable->rope(&rope, want);
    fixture_equal(got, want, MOST + 1, "rope");
    for (uint32_t i = 0; i < half; i++) {
        uint32_t a = neox ? i : 2 * i, b = neox ? i + half : a + 1;
        double c = table[i], s = table[half + i];
        CHECK(fabs(x[a] * c - x[b] * s - got[a]) <= 1e-6 * (fabs(x[a] * c) + fabs(x[b] * s)));
        CHECK(fabs(x[b] * c + x[a] * s - got[b]) <= 1e-6 * (fabs(x[b] * c) + fabs(x[a] * s)));
    }
    fixture_equal(got + 2 * half, x + 2 * half, MOST + 1 - 2 * half, "beyond rope");
}

/* Difficult blocks: zeros, values near both ends of fp32, ties, NaN and infinity. */
static void hard_blocks(float *x, int blocks)
{
    for (int i = 0; i < blocks * 32; i++)
        x[i] = fixture_normal();
    for (int i = 0; i < 32; i++) {
        x[i] = 0;
        x[32 + i] *= 1e-38f;             /* Below 2^-96, which counts as zero. */
        x[64 + i] *= 5e36f;              /* Up to nearly 3e38. */
        x[96 + i] = (float)(i - 16) / 2; /* Ties. */
    }
    x[96] = 127;
    x[5 * 32 + 3] = NAN;
    x[6 * 32 + 31] = -INFINITY;
}

/* Checks the scales and sums of row 5 of a block, and that its quants are near x. */
static void check_block(const struct kernels_block *g, const struct kernels_second_plane *low,
                        const float *x, bool near)
{
    const bool refined = g->refined[5];
    int32_t sum = 0, last = 0;
    for (int i = 0; i < 32; i++) {
        int32_t q = refined ? g->quants[5][i] * 256 + low->quants[5][i] : g->quants[5][i];
        sum += q;
        last += i >= 16 ? q : 0;
        /* A low part beyond 127 is kept at 127. When the quotient is within the rounding of fp32 of
         * a tie between two high parts, the low part can be up to 128 + 32768 × 2^-23. */
        if (near)
            CHECK(fabsf((float)q * g->scale[5] - x[i]) <=
                  (refined ? 1.01f : 0.5001f) * g->scale[5]);
        CHECK(abs(g->quants[5][i]) <= 127 && (!refined || abs(low->quants[5][i]) <= 127));
    }
    CHECK(sum == -g->minus_sum[0][5] && last == -g->minus_sum[1][5]);
}

static void check_quantise(const struct kernels *k, const struct kernels *portable)
{
    enum { BLOCKS = 40 };
    float x[BLOCKS * 32];
    struct kernels_block got[BLOCKS], want[BLOCKS];
    const struct kernels_second_plane none = {{{0}}};
    memset(got, 0, sizeof(got));
    memset(want, 0, sizeof(want));
    hard_blocks(x, BLOCKS);
    for (uint32_t row = 0; row < TILE_ROWS; row += 5) {
        k->quantise(x, BLOCKS * 32, got, NULL, row);
        portable->quantise(x, BLOCKS * 32, want, NULL, row);
    }
    CHECK(memcmp(got, want, sizeof(got)) == 0);
    for (int b = 0; b < BLOCKS; b++)
        check_block(&got[b], &none, x + b * 32, b >= 2 && b != 5 && b != 6);
    CHECK(got[0].scale[0] == 0 && got[1].scale[0] == 0 && got[2].scale[0] > 0);
    CHECK(isnan(got[5].scale[0]) && isnan(got[6].scale[0]) && got[5].minus_sum[0][0] == 0);
    CHECK(got[3].quants[0][1] == -8 && got[3].quants[0][3] == -6 && got[3].quants[0][18] == 1);
}

/* Blocks with an outlier have a second plane; other blocks do not. */
static void check_refine(const struct kernels *k, const struct kernels *portable, uint32_t blocks)
{
    enum { BLOCKS = 48 };
    float x[BLOCKS * 32];
    struct kernels_block got[BLOCKS], want[BLOCKS];
    struct kernels_second_plane low[BLOCKS], want_low[BLOCKS];
    memset(got, 0, sizeof(got));
    memset(want, 0, sizeof(want));
    memset(low, 0, sizeof(low));
    memset(want_low, 0, sizeof(want_low));
    uint32_t outlier = fixture_below(blocks);
    for (uint32_t i = 0; i < blocks * 32; i++)
        x[i] = (random_unit_at(fixture_seed, fixture_counter++) - 0.5f) *
               /* Bounded, so that no other block has an outlier. */
               (i / 32 == outlier ? 30 : 0.1f);
    k->quantise(x, blocks * 32, got, low, 5);
    portable->quantise(x, blocks * 32, want, want_low, 5);
    CHECK(memcmp(got, want, sizeof(got)) == 0);
    CHECK(memcmp(low, want_low, sizeof(low)) == 0);
    for (uint32_t b = 0; b < blocks; b++) {
        check_block(&got[b], &low[b], x + b * 32, true);
        CHECK(blocks < 6 || got[b].refined[5] == (b == outlier));
        CHECK(blocks >= 3 || !got[b].refined[5]); /* amax * n ≥ 3 Σ amax is impossible. */
    }
    memset(x, 0, sizeof(x));
    k->quantise(x, blocks * 32, got, low, 5);
    CHECK(got[0].scale[5] == 0);
    x[0] = INFINITY;
    k->quantise(x, blocks * 32, got, low, 5);
    CHECK(isnan(got[0].scale[5]));
}

/* Any bits as input give a result, without a crash. */
static void check_any_bits(const struct kernels *k)
{
    float x[96], y[96], out[96];
    struct kernels_block blocks[3];
    struct kernels_second_plane second_planes[3];
    for (int i = 0; i < 96; i++) {
        x[i] = half_bits_float((uint32_t)fixture_bits());
        y[i] = half_bits_float((uint32_t)fixture_bits());
    }
    x[fixture_below(96)] = NAN;
    k->norm(x, 96, y, 1e-5f, out);
    CHECK(isnan(out[0]));
    k->silu_mul(x, y, 96, out);
    k->quantise(x, 96, blocks, NULL, 3);
    k->quantise(x, 96, blocks, second_planes, 3);
}

/* rows_in selects rows, and a batch on threads has the bits of each row alone. */
static void check_ops(enum compute_isa isa)
{
    enum { ROWS = 77, COLS = 96 };
    float *x = fixture_floats(ROWS * COLS), *w = fixture_floats(COLS), want[COLS];
    uint32_t rows_in[ROWS];
    for (uint32_t i = 0; i < ROWS; i++)
        rows_in[i] = fixture_below(ROWS);
    for (uint32_t threads = 1; threads <= 3; threads++) {
        struct compute *c = fixture_open(isa, threads, false);
        struct compute_activations *a = NULL;
        if (c == NULL)
            break;
        CHECK(OPS->activations_open(c, ROWS, COLS, COMPUTE_NEEDS_Q8 | COMPUTE_NEEDS_F32, &a) ==
              ST_OK);
        OPS->norm(c, x, rows_in, ROWS, COLS, w, 1e-6f, a);
        for (uint32_t r = 0; r < ROWS; r++) {
            struct kernels_block blocks[COLS / 32];
            c->kernels->norm(x + rows_in[r] * COLS, COLS, w, 1e-6f, want);
            fixture_equal(a->floats + r * COLS, want, COLS, "norm of a batch");
            c->kernels->quantise(want, COLS, blocks, NULL, r % a->tile_rows);
            for (uint32_t b = 0; b < COLS / 32; b++)
                CHECK(memcmp(a->blocks[cpu_activation_block(a, r, b * 32)].quants[r % a->tile_rows],
                             blocks[b].quants[r % a->tile_rows], 32) == 0);
        }
        OPS->gate_mul(c, COMPUTE_SILU, x, x, ROWS, COLS, a);
        for (uint32_t r = 0; r < ROWS; r++) {
            c->kernels->silu_mul(x + r * COLS, x + r * COLS, COLS, want);
            fixture_equal(a->floats + r * COLS, want, COLS, "silu_mul of a batch");
        }
        OPS->activations_close(c, a);
        OPS->close(c);
    }
    free(x);
    free(w);
}

static void check_options(void)
{
    struct compute_options options = {.threads = 1};
    struct compute *c = NULL;
    struct error error = {""};
    CHECK(setenv("CLEAVE_ISA", "mmx", 1) == 0);
    CHECK(OPS->open(&options, &c, &error) == ST_INVALID && c == NULL);
    CHECK(strstr(error.text, "mmx") != NULL && strstr(error.text, "portable") != NULL);
    CHECK(setenv("CLEAVE_ISA", "portable", 1) == 0);
    CHECK(OPS->open(&options, &c, &error) == ST_OK);
    CHECK(strcmp(OPS->describe(c), "portable, 1 thread") == 0);
    OPS->close(c);
    CHECK(unsetenv("CLEAVE_ISA") == 0);
    options.threads = 1000;
    CHECK(OPS->open(&options, &c, &error) == ST_INVALID);
}

int main(void)
{
    fixture_seed = test_seed();
    const struct kernels *portable = kernels_of(COMPUTE_ISA_PORTABLE);
    check_options();
    for (size_t i = 0; i < ISA_COUNT; i++) {
        const struct kernels *k = kernels_of(isas[i]);
        if (k == NULL)
            continue;
        for (uint32_t cols = 1; cols < 70; cols++) {
            check_norm(k, portable, cols);
            check_layer_norm(k, portable, cols);
        }
        check_norm(k, portable, 576);
        check_norm(k, portable, 1000 + fixture_below(3000));
        check_exp(k, portable);
        for (uint32_t half = 1; half <= 80; half++) {
            check_rope(k, portable, half, false);
            check_rope(k, portable, half, true);
        }
        check_quantise(k, portable);
        for (uint32_t blocks = 1; blocks <= 48; blocks++)
            check_refine(k, portable, blocks);
        for (int n = 0; n < 200; n++)
            check_any_bits(k);
        check_ops(isas[i]);
    }
    return 0;
}
