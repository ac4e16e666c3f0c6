/* Goal: a row chooses the experts and weights that compute/experts.h defines, and its result is the
 * weighted sum over its experts in the order of their numbers, with the same bits in any batch, for
 * any number of threads, instruction set and type of weights. Method: routing against a plain
 * definition in fp64, with equal scores and scores that are not numbers; then random batches
 * against the operations of one dense layer (matmul, gate_mul), called for one row and one expert
 * at a time, bit for bit, also where another process has some of the experts. */
#include "compute/cpu/routing.h"
#include "fixture.h"

#define ROWS_MAX    40
#define EXPERTS_MAX 48

static const enum compute_isa isas[] = {COMPUTE_ISA_PORTABLE, COMPUTE_ISA_AVX2,
                                        COMPUTE_ISA_AVX_VNNI, COMPUTE_ISA_AVX512};

/* ---- routing ---- */

/* How many of values[0..count) are greater than value i, or equal and before it. */
static uint32_t rank_of(const float *values, uint32_t count, uint32_t i)
{
    uint32_t rank = 0;
    for (uint32_t k = 0; k < count; k++)
        rank += values[k] > values[i] || (values[k] == values[i] && k < i);
    return rank;
}

/* Writes the weight of each expert; 0 = not chosen. */
static void route_plain(const struct compute_routing *r, const float *product, double *weights)
{
    const uint32_t groups = r->groups > 1 ? r->groups : 1, size = r->experts / groups;
    float scores[EXPERTS_MAX], totals[EXPERTS_MAX] = {0};
    double sum = 0, chosen = 0;
    for (uint32_t i = 0; i < r->experts; i++) {
        weights[i] = r->sigmoid ? 1 / (1 + exp(-(double)product[i])) : exp((double)product[i]);
        sum += weights[i];
        scores[i] = r->sigmoid ? (float)weights[i] : product[i];
        scores[i] += r->choice_bias != NULL ? r->choice_bias[i] : 0;
    }
    for (uint32_t i = 0; i < r->experts; i++)
        if (rank_of(scores + i / size * size, size, i % size) < r->group_best)
            totals[i / size] += scores[i];
    for (uint32_t i = 0; i < r->experts; i++)
        if (groups > 1 && rank_of(totals, groups, i / size) >= r->groups_used)
            scores[i] = -INFINITY;
    for (uint32_t i = 0; i < r->experts; i++) {
        weights[i] = rank_of(scores, r->experts, i) < r->used ? weights[i] : 0;
        chosen += weights[i];
    }
    for (uint32_t i = 0; i < r->experts; i++)
        weights[i] *= (double)r->scale / (r->normalise ? chosen : r->sigmoid ? 1 : sum);
}

static void check_choice(const struct compute_routing *r, const float *product)
{
    uint32_t ids[COMPUTE_EXPERTS_USED_MAX];
    float weights[COMPUTE_EXPERTS_USED_MAX];
    double want[EXPERTS_MAX];
    uint32_t found = 0;
    routing_choose(r, product, ids, weights);
    route_plain(r, product, want);
    for (uint32_t i = 0; i < r->experts; i++) {
        if (want[i] == 0)
            continue;
        CHECKF(found < r->used && ids[found] == i, "expert %u is not chosen", i);
        CHECKF(fabs((double)weights[found] - want[i]) <= 1e-6 * want[i], "weight %g, want %g",
               (double)weights[found], want[i]);
        found++;
    }
    CHECK(found == r->used);
}

static void check_routing(void)
{
    float product[EXPERTS_MAX], bias[EXPERTS_MAX];
    for (uint32_t run = 0; run < 3000; run++) {
        struct compute_routing r = {.groups = 1 + fixture_below(4),
                                    .sigmoid = fixture_below(2) == 0,
                                    .normalise = fixture_below(2) == 0,
                                    .scale = 0.5f + (float)fixture_below(4),
                                    .group_best = 1 + fixture_below(2)};
        const uint32_t size = 1 + fixture_below(EXPERTS_MAX / r.groups);
        r.experts = size * r.groups;
        r.groups_used = 1 + fixture_below(r.groups);
        r.used = 1 + fixture_below(size * r.groups_used);
        r.choice_bias = fixture_below(2) == 0 ? bias : NULL;
        for (uint32_t i = 0; i < r.experts; i++) {
            /* Few different values, so that many are equal. */
            product[i] = run % 2 == 0 ? fixture_normal() : (float)fixture_below(3);
            bias[i] = run % 2 == 0 ? 0.1f * fixture_normal() : 0;
        }
        check_choice(&r, product);
    }
}

/* Scores without an order give some experts, each once, and weights that are not numbers. */
static void check_not_numbers(void)
{
    const struct compute_routing r = {
        .experts = 16, .used = 5, .scale = 1, .groups = 4, .groups_used = 2, .group_best = 2};
    float product[16], weights[5];
    uint32_t ids[5];
    for (uint32_t run = 0; run < 200; run++) {
        for (uint32_t i = 0; i < 16; i++)
            product[i] = fixture_below(3) == 0 ? NAN : fixture_below(3) == 0 ? INFINITY : 1;
        routing_choose(&r, product, ids, weights);
        for (uint32_t i = 0; i < 5; i++)
            CHECK(ids[i] < 16 && (i == 0 || ids[i] > ids[i - 1]));
    }
}

/* ---- products ---- */

struct layer {
    struct compute *c;
    enum compute_type type, down_type;
    struct compute_routing routing;
    struct compute_gate gate_kind;
    uint32_t hidden, ffn;
    struct compute_matrix *matrices[3][EXPERTS_MAX];
    float *biases[3]; /* NULL = none. */
    unsigned needs_in, needs_ffn;
};

static void layer_open(struct layer *l)
{
    for (uint32_t k = 0; k < 3; k++) {
        const uint32_t rows = k == 2 ? l->hidden : l->ffn, cols = k == 2 ? l->ffn : l->hidden;
        const enum compute_type type = k == 2 ? l->down_type : l->type;
        for (uint32_t i = 0; i < l->routing.experts; i++) {
            uint8_t *weights = fixture_weights(type, rows, cols);
            l->matrices[k][i] = fixture_matrix(l->c, type, rows, cols, weights);
            free(weights);
        }
        l->biases[k] = l->gate_kind.limit > 0 ? fixture_floats((size_t)EXPERTS_MAX * rows) : NULL;
    }
    l->needs_in = OPS->matrix_needs(l->matrices[0][0]) | COMPUTE_NEEDS_REFINED;
    l->needs_ffn = OPS->matrix_needs(l->matrices[2][0]) | COMPUTE_NEEDS_REFINED;
}

static void layer_close(struct layer *l)
{
    for (uint32_t k = 0; k < 3; k++) {
        free(l->biases[k]);
        for (uint32_t i = 0; i < l->routing.experts; i++)
            OPS->matrix_close(l->c, l->matrices[k][i]);
    }
}

static const float *bias_of(const struct layer *l, uint32_t k, uint32_t expert)
{
    const size_t rows = k == 2 ? l->hidden : l->ffn;
    return l->biases[k] != NULL ? l->biases[k] + expert * rows : NULL;
}

/* The result of one expert for one row. */
static void expert_plain(const struct layer *l, uint32_t expert, const float *x, float *out)
{
    const struct compute_matrix *const first[] = {l->matrices[0][expert], l->matrices[1][expert]};
    const struct compute_matrix *const down[] = {l->matrices[2][expert]};
    const float *const biases[] = {bias_of(l, 0, expert), bias_of(l, 1, expert)};
    const float *const down_bias[] = {bias_of(l, 2, expert)};
    float gate[512], up[512];
    float *const results[] = {gate, up};
    struct compute_activations *in = fixture_activations(l->c, x, 1, l->hidden, l->needs_in), *a;
    CHECK(l->ffn <= 512 && OPS->activations_open(l->c, 1, l->ffn, l->needs_ffn, &a) == ST_OK);
    OPS->matmul(l->c, first, biases, 2, in, 1, results);
    for (uint32_t i = 0; i < l->ffn && l->gate_kind.limit > 0; i++) {
        const float limit = l->gate_kind.limit, alpha = l->gate_kind.alpha;
        gate[i] = fminf(gate[i], limit) * alpha;
        up[i] = (fmaxf(-limit, fminf(up[i], limit)) + 1) / alpha;
    }
    OPS->gate_mul(l->c, COMPUTE_SILU, gate, up, 1, l->ffn, a);
    OPS->matmul(l->c, down, down_bias, 1, a, 1, &out);
    OPS->activations_close(l->c, in);
    OPS->activations_close(l->c, a);
}

/* y (+)= the experts of [first, first + count) that a row has chosen. */
static void row_plain(const struct layer *l, const float *product, const float *x, uint32_t first,
                      uint32_t count, bool add, float *y)
{
    uint32_t ids[COMPUTE_EXPERTS_USED_MAX];
    float weights[COMPUTE_EXPERTS_USED_MAX], out[512];
    routing_choose(&l->routing, product, ids, weights);
    CHECK(l->hidden <= 512);
    if (!add)
        memset(y, 0, l->hidden * sizeof(float));
    for (uint32_t i = 0; i < l->routing.used; i++) {
        if (ids[i] < first || ids[i] >= first + count)
            continue;
        expert_plain(l, ids[i], x, out);
        for (uint32_t k = 0; k < l->hidden; k++)
            y[k] += weights[i] * out[k];
    }
}

static struct compute_experts *experts_of(const struct layer *l, uint32_t first, uint32_t count)
{
    const struct compute_matrix *matrices[3][EXPERTS_MAX];
    struct compute_experts *e = NULL;
    for (uint32_t k = 0; k < 3; k++)
        for (uint32_t i = 0; i < count; i++)
            matrices[k][i] = l->matrices[k][first + i];
    const struct compute_experts_options options = {
        .routing = l->routing,
        .gate_kind = l->gate_kind,
        .first = first,
        .count = count,
        .hidden = l->hidden,
        .ffn = l->ffn,
        .gate = matrices[0],
        .up = matrices[1],
        .down = matrices[2],
        .gate_bias = bias_of(l, 0, first),
        .up_bias = bias_of(l, 1, first),
        .down_bias = bias_of(l, 2, first),
    };
    CHECK(OPS->experts->open(l->c, &options, &e) == ST_OK);
    return e;
}

static void check_batch(const struct layer *l, struct compute_experts_workspace *room,
                        uint32_t rows, uint32_t first, uint32_t count)
{
    const bool add = fixture_below(2) == 0;
    float *x = fixture_floats((size_t)rows * l->hidden);
    float *product = fixture_floats((size_t)rows * l->routing.experts);
    float *y = fixture_floats((size_t)rows * l->hidden);
    float *want = malloc((size_t)rows * l->hidden * sizeof(float));
    struct compute_experts *e = experts_of(l, first, count);
    struct compute_activations *a;
    CHECK(want != NULL);
    memcpy(want, y, (size_t)rows * l->hidden * sizeof(float));
    for (uint32_t r = 0; r < rows; r++)
        row_plain(l, product + (size_t)r * l->routing.experts, x + (size_t)r * l->hidden, first,
                  count, add, want + (size_t)r * l->hidden);
    a = fixture_activations(l->c, x, rows, l->hidden, l->needs_in);
    OPS->experts->run(l->c, e, room, product, a, rows, add, y);
    fixture_equal(y, want, (size_t)rows * l->hidden, compute_type_name(l->type));
    OPS->activations_close(l->c, a);
    OPS->experts->close(l->c, e);
    free(x);
    free(product);
    free(y);
    free(want);
}

static void check_layer(struct layer *l)
{
    struct compute_experts_workspace *room = NULL;
    layer_open(l);
    const struct compute_experts_workspace_options options = {.rows_max = ROWS_MAX,
                                                              .experts = l->routing.experts,
                                                              .used = l->routing.used,
                                                              .hidden = l->hidden,
                                                              .ffn = l->ffn,
                                                              .needs_gate_up = l->needs_in,
                                                              .needs_down = l->needs_ffn};
    CHECK(OPS->experts->workspace_open(l->c, &options, &room) == ST_OK);
    check_batch(l, room, 1, 0, l->routing.experts);
    for (uint32_t run = 0; run < 3; run++) {
        const uint32_t first = fixture_below(l->routing.experts);
        check_batch(l, room, 1 + fixture_below(ROWS_MAX), 0, l->routing.experts);
        check_batch(l, room, 1 + fixture_below(ROWS_MAX), first,
                    1 + fixture_below(l->routing.experts - first));
    }
    OPS->experts->workspace_close(l->c, room);
    layer_close(l);
}

/* hidden and ffn are multiples of the types' blocks, and not always of a group of rows. */
static void check_products(struct compute *c)
{
    static const struct {
        enum compute_type type, down_type;
        uint32_t hidden, ffn;
    } kinds[] = {
        {COMPUTE_Q4_0, COMPUTE_Q8_0, 96, 64},   {COMPUTE_Q8_0, COMPUTE_F32, 64, 40},
        {COMPUTE_BF16, COMPUTE_Q4_1, 80, 32},   {COMPUTE_F16, COMPUTE_BF16, 50, 70},
        {COMPUTE_Q4_K, COMPUTE_Q6_K, 256, 256}, {COMPUTE_F32, COMPUTE_F16, 72, 24},
    };
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct layer l = {.c = c,
                          .type = kinds[i].type,
                          .down_type = kinds[i].down_type,
                          .hidden = kinds[i].hidden,
                          .ffn = kinds[i].ffn};
        l.routing = (struct compute_routing){
            .experts = 4 + fixture_below(12), .scale = 1, .normalise = i % 2 == 0};
        l.routing.used = 1 + fixture_below(l.routing.experts);
        if (i % 3 == 0)
            l.gate_kind = (struct compute_gate){.limit = 1.5f, .alpha = 1.702f};
        check_layer(&l);
    }
}

int main(void)
{
    fixture_seed = test_seed();
    check_routing();
    check_not_numbers();
    for (size_t i = 0; i < sizeof(isas) / sizeof(isas[0]); i++)
        for (uint32_t threads = 1; threads <= 3; threads++) {
            struct compute *c = fixture_open(isas[i], threads, false);
            if (c == NULL)
                break;
            check_products(c);
            OPS->close(c);
        }
    return 0;
}
