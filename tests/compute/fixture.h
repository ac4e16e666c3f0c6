/* fixture: what the tests and benchmarks of the CPU backend share: random weights of any type,
 * devices of every ISA, activations with known content, and a comparison. Everything is static in
 * the test program that includes it, and for its main thread. It has no reference results: each
 * test computes its own. The caller frees what a function returns. */
#ifndef TESTS_COMPUTE_FIXTURE_H
#define TESTS_COMPUTE_FIXTURE_H

#include "common/random.h"
#include "compute/cpu/cpu.h"
#include "compute/half.h"
#include "compute/types.h"
#include "tests/check.h"
#include "tests/compute/blocks.h"

#include <math.h>
#include <string.h>

#define OPS (&compute_cpu) /* The tested backend. */

/* The test sets the seed. Each random number increments the counter. */
static uint64_t fixture_seed, fixture_counter;

static inline uint64_t fixture_bits(void)
{
    return random_at(fixture_seed, fixture_counter++);
}

static inline uint32_t fixture_below(uint32_t limit)
{
    return (uint32_t)(fixture_bits() % limit);
}

/* Returns a nearly normal number, |x| < 6, with an outlier now and then, as in real activations. */
static inline float fixture_normal(void)
{
    float sum = 0;
    for (int i = 0; i < 4; i++)
        sum += random_unit_at(fixture_seed, fixture_counter++) - 0.5f;
    return fixture_below(200) == 0 ? sum * 30 : sum * 1.7f;
}

/* Returns `count` numbers of fixture_normal. */
static inline float *fixture_floats(size_t count)
{
    float *out = malloc((count + 1) * sizeof(float));
    CHECK(out != NULL);
    for (size_t i = 0; i < count; i++)
        out[i] = fixture_normal();
    return out;
}

/* Writes a random f16 number of the usual size of a block's scale. */
static inline void fixture_scale(uint16_t *at)
{
    *at = half_to_f16(fixture_normal() * 0.02f);
}

/* Returns `rows` × `cols` weights of `type`: random bits with scales of a usual size. */
static inline uint8_t *fixture_weights(enum compute_type type, uint32_t rows, uint32_t cols)
{
    size_t blocks = (size_t)rows * cols / compute_type_block_elements(type);
    size_t bytes = compute_type_block_bytes(type);
    uint8_t *out = malloc(blocks * bytes);
    CHECK(out != NULL);
    for (size_t i = 0; i < blocks; i++) {
        uint8_t *block = out + i * bytes;
        for (size_t k = 0; k < bytes; k++)
            block[k] = (uint8_t)fixture_bits();
        float value = fixture_normal();
        if (type == COMPUTE_F32) {
            memcpy(block, &value, 4);
        } else if (type == COMPUTE_F16) {
            fixture_scale((uint16_t *)block);
        } else if (type == COMPUTE_BF16) {
            *(uint16_t *)block = (uint16_t)(half_float_bits(value) >> 16);
        } else if (type == COMPUTE_F8_E4M3) {
            *block = half_to_e4m3(value * 60);
        } else {
            uint16_t scale, min;
            fixture_scale(&scale);
            fixture_scale(&min);
            blocks_put(type, block, scale, min);
            if (type == COMPUTE_MXFP4 && fixture_below(16) == 0)
                block[0] = (uint8_t)fixture_below(3); /* Scales below the normal numbers. */
        }
    }
    return out;
}

/* Returns the source of a whole matrix without scales. */
static inline struct compute_source fixture_source(enum compute_type type, uint32_t rows,
                                                   uint32_t cols, const void *weights)
{
    return (struct compute_source){.type = type, .rows = rows, .cols = cols, .data = weights};
}

/* Opens a whole matrix without scales on device `c`. */
static inline struct compute_matrix *fixture_matrix(struct compute *c, enum compute_type type,
                                                    uint32_t rows, uint32_t cols,
                                                    const void *weights)
{
    const struct compute_source source = fixture_source(type, rows, cols, weights);
    struct compute_matrix *m = NULL;
    CHECK(OPS->matrix_open(c, &source, &m) == ST_OK);
    return m;
}

/* Opens a device. Returns NULL if this CPU does not have the ISA. */
static inline struct compute *fixture_open(enum compute_isa isa, uint32_t threads, bool exact)
{
    struct compute_options options = {.threads = threads, .isa = isa, .exact = exact};
    struct compute *c = NULL;
    struct error error = {""};
    enum status status = OPS->open(&options, &c, &error);
    if (status == ST_UNSUPPORTED && isa != COMPUTE_ISA_PORTABLE) {
        printf("not here: %s\n", error.text);
        return NULL;
    }
    CHECKF(status == ST_OK, "%s", error.text);
    return c;
}

/* Returns activations with the content x [rows × cols], quantised if `needs` (COMPUTE_NEEDS_…) says
 * so. */
static inline struct compute_activations *
fixture_activations(struct compute *c, const float *x, uint32_t rows, uint32_t cols, unsigned needs)
{
    struct compute_activations *a = NULL;
    CHECK(OPS->activations_open(c, rows, cols, needs, &a) == ST_OK);
    float *row = malloc(cols * sizeof(float));
    CHECK(row != NULL);
    memcpy(a->floats, x, (size_t)rows * cols * sizeof(float));
    for (uint32_t r = 0; r < rows && (needs & (COMPUTE_NEEDS_Q8 | COMPUTE_NEEDS_BF16)) != 0; r++) {
        memcpy(row, x + (size_t)r * cols, cols * sizeof(float));
        cpu_activations_quantise(c, a, r, 0, cols, row);
    }
    free(row);
    return a;
}

/* Fails the test unless all elements are equal. 0 equals -0, and a NaN equals a NaN. */
static inline void fixture_equal(const float *got, const float *want, size_t count,
                                 const char *what)
{
    for (size_t i = 0; i < count; i++)
        CHECKF(got[i] == want[i] || (isnan(got[i]) && isnan(want[i])),
               "%s: element %zu of %zu is %.9g, want %.9g", what, i, count, (double)got[i],
               (double)want[i]);
}

#endif
