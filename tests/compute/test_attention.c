/* Goal: attention over the paged cache is right, and gives the same bits for a whole prompt, in
 * chunks, token by token, with any block table, block size, number of threads, other sequences in
 * the batch, and instruction set; and blocks before a window are not read. Method: random sequences
 * of random shapes go through rope_store and attention; results are compared with an fp64 reference
 * that reads plain arrays, and with each other bit for bit. */
#include "fixture.h"

static const enum compute_isa isas[] = {COMPUTE_ISA_PORTABLE, COMPUTE_ISA_AVX2,
                                        COMPUTE_ISA_AVX_VNNI, COMPUTE_ISA_AVX512};

struct shape {
    uint32_t heads, kv_heads, dim, block_tokens, tokens, rope_dim;
    enum compute_kv_dtype dtype;
    bool neox;
    uint32_t window;
    float cap;
    bool sinks;
    uint32_t latent; /* See struct compute_kv. */
};

static uint32_t key_dim(const struct shape *s)
{
    return s->latent != 0 ? 2 * s->dim : s->dim;
}

static uint32_t value_dim(const struct shape *s)
{
    return s->latent != 0 ? s->latent : s->dim;
}

#define HEADS_MAX 16
/* Sinks of heads: one far above, one far below the scores, and some between. */
static const float head_sinks[HEADS_MAX] = {0.5f, 9, -3, -70, 2, 0, 4, 1, -1, 3, 80, 0, 1, 2, 3, 4};

static struct compute_attention how_of(const struct shape *s)
{
    return (struct compute_attention){
        .scale = 0.125f, .window = s->window, .cap = s->cap, .sinks = s->sinks ? head_sinks : NULL};
}

/* A sequence's inputs: q, k and v of every token, and its block table. */
struct input {
    float *q, *k, *v;
    uint32_t *blocks;
};

static float *attention_result(const struct compute_activations *a)
{
    return a->floats;
}

struct setting {
    enum compute_isa isa;
    uint32_t threads;
    uint32_t chunk; /* Rows per call; 0 = random. */
    bool permuted;  /* Blocks are in random order, in a cache full of NaN. */
    bool company;   /* Each batch has another sequence. */
};

static void cache_fill(const struct shape *s, struct compute_kv *kv, uint32_t blocks)
{
    *kv = (struct compute_kv){.block_tokens = s->block_tokens,
                              .head_count = s->kv_heads,
                              .head_dim = s->dim,
                              .dtype = s->dtype,
                              .latent = s->latent};
    kv->block_bytes = compute_kv_block_bytes(s->block_tokens, s->kv_heads, s->dim, s->dtype) + 64;
    kv->base = malloc(blocks * kv->block_bytes);
    CHECK(kv->base != NULL);
    memset(kv->base, 0xff,
           /* NaN as f16 and as fp32: unwritten memory must not change a result. */
           blocks * kv->block_bytes);
}

static void blocks_shuffle(uint32_t *blocks, uint32_t count)
{
    for (uint32_t i = count - 1; i > 0; i--) {
        uint32_t k = fixture_below(i + 1), keep = blocks[i];
        blocks[i] = blocks[k];
        blocks[k] = keep;
    }
}

/* Runs rows [first, first + rows) of the sequence, with another sequence before it if
 * set->company. */
static void run_chunk(struct compute *c, const struct shape *s, const struct compute_kv *kv,
                      struct compute_rope_table *rope, const struct input *in, uint32_t first,
                      uint32_t rows, const uint32_t *other_blocks, uint32_t other, float *out)
{
    uint32_t q_cols = s->heads * key_dim(s), k_cols = s->kv_heads * key_dim(s);
    uint32_t total = rows + other, out_cols = s->heads * value_dim(s);
    float *q = fixture_floats((size_t)total * q_cols), *k = fixture_floats((size_t)total * k_cols);
    float *v = fixture_floats((size_t)total * k_cols);
    memcpy(q + (size_t)other * q_cols, in->q + (size_t)first * q_cols,
           (size_t)rows * q_cols * sizeof(float));
    memcpy(k + (size_t)other * k_cols, in->k + (size_t)first * k_cols,
           (size_t)rows * k_cols * sizeof(float));
    memcpy(v + (size_t)other * k_cols, in->v + (size_t)first * k_cols,
           (size_t)rows * k_cols * sizeof(float));
    struct compute_sequence sequences[2] = {
        {.first_row = 0, .row_count = other, .first_position = 0, .blocks = other_blocks},
        {.first_row = other, .row_count = rows, .first_position = first, .blocks = in->blocks}};
    struct compute_batch batch = {.row_count = total,
                                  .sequence_count = other > 0 ? 2 : 1,
                                  .sequences = other > 0 ? sequences : sequences + 1};
    struct compute_activations *a = NULL;
    unsigned needs = COMPUTE_NEEDS_F32 | (out_cols % 32 == 0 ? COMPUTE_NEEDS_Q8 : 0);
    CHECK(OPS->activations_open(c, total, out_cols, needs, &a) == ST_OK);
    OPS->rope_store(c, rope, &batch, kv, s->heads, q, k, v);
    const struct compute_attention parameters = how_of(s);
    OPS->attention(c, &batch, kv, s->heads, &parameters, q, a);
    memcpy(out + (size_t)first * out_cols, attention_result(a) + (size_t)other * out_cols,
           (size_t)rows * out_cols * sizeof(float));
    for (uint32_t r = 0; (needs & COMPUTE_NEEDS_Q8) != 0 && r < total; r++) {
        /* The quantised output is the fp32 output quantised. */
        struct kernels_block *want = malloc(out_cols / 32 * sizeof(*want));
        const struct kernels_block *got = a->blocks + cpu_activation_block(a, r, 0);
        c->kernels->quantise(a->floats + (size_t)r * out_cols, out_cols, want, NULL,
                             r % a->tile_rows);
        for (uint32_t b = 0; b < out_cols / 32; b++) {
            CHECK(memcmp(got[b].quants[r % a->tile_rows], want[b].quants[r % a->tile_rows], 32) ==
                  0);
            CHECK(got[b].scale[r % a->tile_rows] == want[b].scale[r % a->tile_rows]);
        }
        free(want);
    }
    OPS->activations_close(c, a);
    free(q);
    free(k);
    free(v);
}

/* Returns the whole sequence's results [tokens][heads * dim]; NULL = the CPU does not have the
 * ISA. */
static float *run(const struct shape *s, const struct setting *set, struct input *in)
{
    struct compute *c = fixture_open(set->isa, set->threads, false);
    if (c == NULL)
        return NULL;
    uint32_t count = (s->tokens + s->block_tokens - 1) / s->block_tokens;
    uint32_t *blocks = malloc(2 * count * sizeof(*blocks));
    for (uint32_t i = 0; i < 2 * count; i++)
        blocks[i] = i;
    if (set->permuted)
        blocks_shuffle(blocks, 2 * count);
    in->blocks = blocks;
    struct compute_kv kv;
    cache_fill(s, &kv, 2 * count);
    struct compute_rope settings = {.dim = s->rope_dim,
                                    .neox = s->neox,
                                    .freq_base = 10000,
                                    .freq_scale = 0.5f,
                                    .positions_max = s->tokens};
    struct compute_rope_table *rope = NULL;
    CHECK(OPS->rope_open(c, &settings, &rope) == ST_OK);
    float *out = malloc((size_t)s->tokens * s->heads * value_dim(s) * sizeof(float));
    for (uint32_t first = 0, rows; first < s->tokens; first += rows) {
        rows = set->chunk != 0 ? set->chunk : 1 + fixture_below(70);
        rows = s->tokens - first < rows ? s->tokens - first : rows;
        uint32_t other = set->company ? 1 + fixture_below(s->tokens) : 0;
        /* The ids of blocks that no row sees any more are beyond the cache. */
        for (uint32_t i = 0; s->window != 0 && (i + 1) * s->block_tokens + s->window <= first + 1;
             i++)
            blocks[i] = UINT32_MAX;
        run_chunk(c, s, &kv, rope, in, first, rows, blocks + count, other, out);
    }
    OPS->rope_close(c, rope);
    OPS->close(c);
    free(kv.base);
    free(blocks);
    return out;
}

static void reference_rotate(const struct shape *s, uint32_t position, const float *in, double *out)
{
    uint32_t half = s->rope_dim / 2;
    for (uint32_t i = 0; i < key_dim(s); i++)
        out[i] = in[i];
    for (uint32_t i = 0; i < half; i++) {
        double angle = position * 0.5 * pow(10000, -2.0 * i / s->rope_dim);
        uint32_t a = s->neox ? i : 2 * i, b = s->neox ? i + half : 2 * i + 1;
        out[a] = in[a] * cos(angle) - in[b] * sin(angle);
        out[b] = in[b] * cos(angle) + in[a] * sin(angle);
    }
}

/* Returns the `dim` values as they are read back from the cache. */
static void stored(const struct shape *s, uint32_t dim, const double *x, double *out)
{
    double most = 0;
    for (uint32_t d = 0; d < dim; d++)
        most = fabs(x[d]) > most ? fabs(x[d]) : most;
    double limit = s->dtype == COMPUTE_KV_I8 ? 127 : 8191, scale = most / limit;
    /* A bfloat16 has 8 bits, and the scale is rounded up. */
    if (most > 0)
        scale = ldexp(ceil(scale / ldexp(1, ilogb(scale) - 7)), ilogb(scale) - 7);
    for (uint32_t d = 0; d < dim; d++) {
        out[d] = x[d];
        if (s->dtype == COMPUTE_KV_F16)
            out[d] = (double)half_from_f16(half_to_f16((float)x[d]));
        else if (s->dtype != COMPUTE_KV_F32)
            out[d] = most > 0 ? rint(x[d] / scale) * scale : 0;
    }
}

/* Rounds the query as the kernels do for a fixed cache. */
static void rounded(const struct shape *s, double *q)
{
    double most = 0;
    for (uint32_t d = 0; d < key_dim(s); d++)
        most = fabs(q[d]) > most ? fabs(q[d]) : most;
    for (uint32_t d = 0; d < key_dim(s) && compute_kv_fixed(s->dtype) && most > 0; d++)
        q[d] = rint(q[d] * 4095 / most) * most / 4095;
}

static double tolerance_of(enum compute_kv_dtype dtype)
{
    /* A key or query may be rounded to another value in fp64: with outliers of 60 that is up to 5 %
     * of a weight, and so up to 5 % of a value. */
    static const double tolerance[] = {5e-3, 1e-4, 5e-2, 0.1};
    return tolerance[dtype];
}

static void check_reference(const struct shape *s, const struct input *in, const float *got)
{
    const uint32_t wide = key_dim(s), dim = value_dim(s), own = wide - dim;
    double *k = malloc((size_t)s->tokens * s->kv_heads * wide * sizeof(double));
    double *q = malloc(wide * sizeof(double)), *p = malloc(s->tokens * sizeof(double));
    double *o = malloc(dim * sizeof(double));
    double *v = malloc((size_t)s->tokens * s->kv_heads * dim * sizeof(double));
    double tolerance = tolerance_of(s->dtype);
    for (uint32_t i = 0; i < s->tokens * s->kv_heads; i++) {
        double *k_row = k + (size_t)i * wide, *v_row = v + (size_t)i * dim;
        reference_rotate(s, i / s->kv_heads, in->k + (size_t)i * wide, k_row);
        for (uint32_t d = 0; d < dim; d++)
            v_row[d] = s->latent != 0 ? k_row[own + d] : (double)in->v[(size_t)i * dim + d];
        stored(s, s->latent != 0 ? own : wide, k_row, k_row);
        stored(s, dim, v_row, v_row);
        if (s->latent != 0)
            memcpy(k_row + own, v_row, dim * sizeof(double));
    }
    for (uint32_t i = 0; i < s->tokens * s->heads; i++) {
        uint32_t t = i / s->heads, h = i % s->heads / (s->heads / s->kv_heads);
        reference_rotate(s, t, in->q + (size_t)i * wide, q);
        rounded(s, q);
        const uint32_t from = s->window != 0 && t >= s->window ? t + 1 - s->window : 0;
        double sum = 0, most = s->sinks ? (double)head_sinks[i % s->heads] : -1e300;
        for (uint32_t u = from; u <= t; u++) {
            p[u] = 0;
            for (uint32_t d = 0; d < wide; d++)
                p[u] += 0.125 * q[d] * k[((size_t)u * s->kv_heads + h) * wide + d];
            if (s->cap != 0)
                p[u] = (double)s->cap * tanh(p[u] / (double)s->cap);
            most = p[u] > most ? p[u] : most;
        }
        memset(o, 0, dim * sizeof(double));
        if (s->sinks)
            sum = exp((double)head_sinks[i % s->heads] - most);
        for (uint32_t u = from; u <= t; u++) {
            p[u] = exp(p[u] - most);
            sum += p[u];
            for (uint32_t d = 0; d < dim; d++)
                o[d] += p[u] * v[((size_t)u * s->kv_heads + h) * dim + d];
        }
        for (uint32_t d = 0; d < dim; d++)
            CHECKF(fabs(o[d] / sum - got[(size_t)i * dim + d]) < tolerance * (1 + fabs(o[d] / sum)),
                   "token %u head %u dim %u: %g, want %g", t, i % s->heads, d,
                   (double)got[(size_t)i * dim + d], o[d] / sum);
    }
    free(o);
    free(p);
    free(q);
    free(v);
    free(k);
}

static void check_shape(const struct shape *s)
{
    printf("%u heads over %u, dim %u (rope %u%s), blocks of %u, %u tokens, %s, window %u, cap %g%s"
           "\n",
           s->heads, s->kv_heads, s->dim, s->rope_dim, s->neox ? " neox" : "", s->block_tokens,
           s->tokens, compute_kv_dtype_name(s->dtype), s->window, (double)s->cap,
           s->sinks ? ", sinks" : "");
    if (s->latent != 0)
        printf("  latent: %u of %u\n", s->latent, key_dim(s));
    struct input in;
    in.q = fixture_floats((size_t)s->tokens * s->heads * key_dim(s));
    in.k = fixture_floats((size_t)s->tokens * s->kv_heads * key_dim(s));
    in.v = fixture_floats((size_t)s->tokens * s->kv_heads * key_dim(s));
    float *want = NULL;
    for (size_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++) {
        const struct setting settings[] = {
            {isas[i], 1, s->tokens, false, false}, {isas[i], 1, 1, true, false},
            {isas[i], 2, 0, true, true},           {isas[i], 3, s->tokens, true, false},
            {isas[i], 4, 1, true, false},
        };
        for (size_t k = 0; k < (i == 0 ? 1 : 5); k++) {
            float *got = run(s, &settings[k], &in);
            if (got == NULL)
                break;
            if (want == NULL) {
                check_reference(s, &in, got);
                want = got;
                continue;
            }
            fixture_equal(got, want, (size_t)s->tokens * s->heads * value_dim(s), "attention");
            free(got);
        }
    }
    free(want);
    free(in.q);
    free(in.k);
    free(in.v);
}

/* Values beyond f16's range are clamped. Infinities would spread to masked rows. */
static void check_clamp(void)
{
    for (size_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++) {
        struct compute *c = fixture_open(isas[i], 1, false);
        if (c == NULL)
            continue;
        struct shape s = {.kv_heads = 1, .dim = 16, .block_tokens = 8, .dtype = COMPUTE_KV_F16};
        struct compute_kv kv;
        cache_fill(&s, &kv, 1);
        float x[16];
        for (int d = 0; d < 16; d++)
            x[d] = d % 2 ? 1e6f : -INFINITY;
        c->kernels->store(&kv, kv.base, 3, x, x);
        for (int d = 0; d < 16; d++) {
            uint16_t want = d % 2 ? 0x7bff : 0xfbff, *at = kv.base;
            CHECK(at[d * 8 + 3] == want && at[16 * 8 + 3 * 16 + d] == want);
        }
        free(kv.base);
        OPS->close(c);
    }
}

/* Argument: few = a quarter of the shapes, drawn by the seed (with sanitizers the
 * portable code takes a minute for all). */
int main(int argc, char **argv)
{
    const bool few = argc > 1 && strcmp(argv[1], "few") == 0;
    static const struct shape fixed[] = {
        {9, 3, 64, 16, 150, 64, COMPUTE_KV_F16, false, 0, 0, false, 0},
        {9, 3, 64, 16, 97, 64, COMPUTE_KV_F32, true, 0, 0, false, 0},
        {14, 2, 64, 16, 83, 64, COMPUTE_KV_F16, true, 0, 0, false, 0},
        {8, 2, 128, 32, 70, 128, COMPUTE_KV_F16, true, 0, 0, false, 0},
        {4, 4, 80, 24, 61, 32, COMPUTE_KV_F16, false, 0, 0, false, 0},
        {3, 1, 24, 8, 45, 24, COMPUTE_KV_F32, false, 0, 0, false, 0},
        {5, 1, 16, 256, 40, 16, COMPUTE_KV_F16, false, 0, 0, false, 0},
        {9, 3, 64, 16, 331, 64, COMPUTE_KV_F16, false, 0, 0, false,
         0}, /* Longer than the prefetch distance. */
        {14, 2, 128, 24, 275, 128, COMPUTE_KV_F32, true, 0, 0, false, 0},
        {9, 3, 64, 16, 331, 64, COMPUTE_KV_I16, false, 0, 0, false, 0},
        {9, 3, 64, 16, 97, 64, COMPUTE_KV_I8, true, 0, 0, false, 0},
        {14, 2, 64, 32, 83, 64, COMPUTE_KV_I16, true, 0, 0, false, 0},
        {8, 2, 128, 24, 270, 128, COMPUTE_KV_I16, true, 0, 0, false, 0},
        {6, 1, 200, 8, 61, 32, COMPUTE_KV_I16, false, 0, 0, false, 0},
        {3, 1, 24, 8, 45, 24, COMPUTE_KV_I8, false, 0, 0, false, 0},
        {5, 1, 16, 256, 300, 16, COMPUTE_KV_I8, false, 0, 0, false, 0},
        {2, 1, 32, 16, 1090, 32, COMPUTE_KV_I16, false, 0, 0, false, 0}, /* Three segments. */
        {2, 2, 16, 24, 600, 16, COMPUTE_KV_I8, true, 0, 0, false, 0},
        {9, 3, 64, 16, 150, 64, COMPUTE_KV_F16, false, 1, 0, false, 0},
        {9, 3, 64, 16, 331, 64, COMPUTE_KV_F16, false, 100, 0, true, 0},
        {4, 4, 80, 24, 161, 32, COMPUTE_KV_F32, false, 33, 50, false, 0},
        {9, 3, 64, 16, 331, 64, COMPUTE_KV_I16, false, 37, 0, false, 0},
        {8, 2, 128, 24, 270, 128, COMPUTE_KV_I16, true, 96, 30, true, 0},
        {5, 1, 16, 256, 300, 16, COMPUTE_KV_I8, false, 130, 0, false, 0},
        {2, 1, 32, 16, 1400, 32, COMPUTE_KV_I16, false, 600, 0, true, 0},
        {2, 2, 16, 8, 1100, 16, COMPUTE_KV_I8, true, 5, 0, false, 0},
        {2, 1, 32, 16, 1090, 32, COMPUTE_KV_I16, false, 0, 20, true, 0},
        {16, 1, 288, 16, 75, 64, COMPUTE_KV_I16, false, 0, 0, false, 512},
        {32, 1, 36, 24, 70, 8, COMPUTE_KV_I16, false, 0, 0, false, 64},
        {3, 1, 20, 16, 700, 8, COMPUTE_KV_I16, true, 0, 0, false, 32},
        {5, 1, 20, 8, 90, 8, COMPUTE_KV_I8, false, 50, 0, false, 32},
        {4, 1, 36, 16, 130, 8, COMPUTE_KV_F16, false, 0, 20, false, 64},
        {16, 1, 20, 24, 99, 8, COMPUTE_KV_F32, false, 30, 0, false, 32},
    };
    fixture_seed = test_seed();
    for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
        if (!few || (i + fixture_seed) % 4 == 0)
            check_shape(&fixed[i]);
    for (int i = 0; i < (few ? 3 : 10); i++) {
        struct shape s = {.kv_heads = 1 + fixture_below(3), .dim = 8 * (1 + fixture_below(12))};
        s.heads = s.kv_heads * (1 + fixture_below(4));
        s.block_tokens = 8 * (1 + fixture_below(8));
        s.tokens = 1 + fixture_below(140);
        s.rope_dim = 2 * (1 + fixture_below(s.dim / 2));
        s.dtype = (enum compute_kv_dtype)fixture_below(4);
        s.neox = fixture_below(2);
        s.window = fixture_below(2) * (1 + fixture_below(s.tokens + 10));
        s.cap = fixture_below(3) == 0 ? 5 + (float)fixture_below(40) : 0;
        s.sinks = fixture_below(3) == 0;
        check_shape(&s);
    }
    check_clamp();
    return 0;
}
