/* Goal: y += B · A · x for the rows that have an adapter, with the same bits in every batch and for
 * every number of threads; other rows are not changed. Method: random batches of sequences, each
 * with one of several adapters of random ranks, or none, are compared bit for bit with each row
 * computed alone by a plain loop in the order of sums that compute/cpu/low_rank.c promises: LANES
 * parts, then their sum. */
#include "fixture.h"

#include "compute/low_rank.h"

#include <stdlib.h>

enum { LANES = 16, ADAPTERS = 5, ROWS_MAX = 600, ROUNDS = 60 };

struct shape {
    uint32_t cols, rows;
};

struct adapters {
    struct shape shape;
    struct compute_low_rank each[ADAPTERS];
    float *memory[2 * ADAPTERS];
};

static void adapters_make(struct adapters *a, struct shape shape)
{
    a->shape = shape;
    for (uint32_t i = 0; i < ADAPTERS; i++) {
        const uint32_t rank = i == 0 ? 0 : i == 1 ? COMPUTE_LOW_RANK_MAX : 1 + fixture_below(40);
        a->memory[2 * i] = fixture_floats((size_t)rank * shape.cols);
        a->memory[2 * i + 1] = fixture_floats((size_t)rank * shape.rows);
        a->each[i] = (struct compute_low_rank){rank, a->memory[2 * i], a->memory[2 * i + 1]};
    }
}

static void adapters_free(struct adapters *a)
{
    for (uint32_t i = 0; i < 2 * ADAPTERS; i++)
        free(a->memory[i]);
}

/* Computes one row of a sequence that has this adapter. */
static void row_add(const struct compute_low_rank *l, struct shape shape, const float *x, float *y)
{
    float factors[COMPUTE_LOW_RANK_MAX];
    const uint32_t whole = shape.cols / LANES * LANES;
    for (uint32_t r = 0; r < l->rank; r++) {
        float parts[LANES] = {0};
        const float *a = l->down + (size_t)r * shape.cols;
        for (uint32_t i = 0; i < shape.cols; i++)
            parts[i < whole ? i % LANES : 0] += a[i] * x[i];
        factors[r] = 0;
        for (uint32_t j = 0; j < LANES; j++)
            factors[r] += parts[j];
    }
    for (uint32_t i = 0; i < shape.rows; i++)
        for (uint32_t r = 0; r < l->rank; r++)
            y[i] += factors[r] * l->up[(size_t)r * shape.rows + i];
}

/* Fills `out` with sequences of up to `most` rows each, and returns the number of all rows. */
static uint32_t batch_make(struct compute_sequence *out, uint32_t count, uint32_t most)
{
    uint32_t rows = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t own = 1 + fixture_below(most);
        out[i] = (struct compute_sequence){
            .first_row = rows, .row_count = own, .adapter = fixture_below(ADAPTERS + 1)};
        rows += own;
    }
    return rows;
}

static void check_batch(struct compute *c, const struct adapters *adapters, uint32_t count,
                        uint32_t most)
{
    struct compute_sequence sequences[ROWS_MAX];
    const struct shape shape = adapters->shape;
    const uint32_t rows = batch_make(sequences, count, most);
    CHECK(rows <= ROWS_MAX);
    const struct compute_batch batch = {
        .row_count = rows, .sequence_count = count, .sequences = sequences};
    const struct compute_low_ranks ranks = {adapters->each, shape.rows, COMPUTE_LOW_RANK_MAX};
    float *x = fixture_floats((size_t)rows * shape.cols);
    float *got = fixture_floats((size_t)rows * shape.rows);
    float *want = malloc((size_t)rows * shape.rows * sizeof(float));
    CHECK(want != NULL);
    memcpy(want, got, (size_t)rows * shape.rows * sizeof(float));
    struct compute_activations *a = fixture_activations(c, x, rows, shape.cols, COMPUTE_NEEDS_F32);
    OPS->low_rank(c, &ranks, &batch, a, got);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t row = sequences[i].first_row;
             sequences[i].adapter != 0 && row < sequences[i].first_row + sequences[i].row_count;
             row++)
            row_add(&adapters->each[sequences[i].adapter - 1], shape, x + (size_t)row * shape.cols,
                    want + (size_t)row * shape.rows);
    fixture_equal(got, want, (size_t)rows * shape.rows, "low rank");
    OPS->activations_close(c, a);
    free(want);
    free(got);
    free(x);
}

int main(void)
{
    fixture_seed = test_seed();
    const struct shape shapes[] = {{64, 64}, {96, 32}, {40, 72}, {15, 17}, {144, 200}};
    struct compute *const devices[] = {fixture_open(COMPUTE_ISA_PORTABLE, 1, false),
                                       fixture_open(COMPUTE_ISA_PORTABLE, 3, false)};
    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct adapters adapters;
        adapters_make(&adapters, shapes[i % (sizeof(shapes) / sizeof(shapes[0]))]);
        check_batch(devices[i % 2], &adapters, 1 + fixture_below(30), 1); /* A decode step. */
        check_batch(devices[i % 2], &adapters, 1 + fixture_below(5), 20); /* With prompts. */
        adapters_free(&adapters);
    }
    /* More rows than one run of the workers takes. */
    struct adapters adapters;
    adapters_make(&adapters, shapes[0]);
    check_batch(devices[0], &adapters, ROWS_MAX, 1);
    check_batch(devices[1], &adapters, 3, ROWS_MAX / 3);
    adapters_free(&adapters);
    for (uint32_t i = 0; i < 2; i++)
        OPS->close(devices[i]);
    return 0;
}
