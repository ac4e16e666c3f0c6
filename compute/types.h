/* types: the quantised blocks of a GGUF file, and their common form: a group of 32 elements with
 * unsigned quants, a scale per 16 and one minimum. Used by the backends' repacking; compute.h has
 * what others see. Stateless; any thread. */
#ifndef COMPUTE_TYPES_H
#define COMPUTE_TYPES_H

#include "compute/compute.h"

#include <assert.h>

/* Halves are kept as uint16_t: see compute/half.h. */
struct block_q8_0 {
    uint16_t scale;
    int8_t quants[32];
};

struct block_q4_0 {
    uint16_t scale;
    uint8_t quants[16]; /* low nibbles: elements 0–15; high nibbles: 16–31 */
};

struct block_q4_1 {
    uint16_t scale;
    uint16_t min;
    uint8_t quants[16];
};

struct block_q5_0 {
    uint16_t scale;
    uint8_t high_bits[4]; /* bit i: of element i */
    uint8_t quants[16];   /* low four bits, as in Q4_0 */
};

struct block_q5_1 {
    uint16_t scale;
    uint16_t min;
    uint8_t high_bits[4];
    uint8_t quants[16];
};

struct block_q4_k {
    uint16_t scale;
    uint16_t min;
    uint8_t scales[12];
    uint8_t quants[128];
};

struct block_q5_k {
    uint16_t scale;
    uint16_t min;
    uint8_t scales[12];
    uint8_t high_bits[32];
    uint8_t quants[128];
};

struct block_q6_k {
    uint8_t low_bits[128];
    uint8_t high_bits[64];
    int8_t scales[16];
    uint16_t scale;
};

static_assert(sizeof(struct block_q8_0) == 34, "as in the file");
static_assert(sizeof(struct block_q4_0) == 18, "as in the file");
static_assert(sizeof(struct block_q4_1) == 20, "as in the file");
static_assert(sizeof(struct block_q5_0) == 22, "as in the file");
static_assert(sizeof(struct block_q5_1) == 24, "as in the file");
static_assert(sizeof(struct block_q4_k) == 144, "as in the file");
static_assert(sizeof(struct block_q5_k) == 176, "as in the file");
static_assert(sizeof(struct block_q6_k) == 210, "as in the file");

/* element i = scale[i / 16] * (quants[i] - types_offset(type)) + min */
struct types_group {
    uint8_t quants[32];
    float scale[2];
    float min;
};

/* What scales the groups of 256 elements of a K-quant (Q4_K, Q5_K, Q6_K): part i of `part` elements
 * is scaled by scale * scales[i], and min * mins[i] is subtracted, each product exact in fp32. */
struct types_super {
    uint16_t scale;
    uint16_t min;       /* Q6_K: 0 */
    uint8_t scales[16]; /* Q4_K, Q5_K: of 32 elements each, 6 bits; Q6_K: of 16, signed */
    uint8_t mins[8];
};

void types_super_unpack(enum compute_type type, const void *row, uint32_t index,
                        struct types_super *out);

uint32_t types_offset(enum compute_type type);

/* The group-th 32 elements of a quantised row that begins at `row`. */
void types_group_unpack(enum compute_type type, const void *row, uint32_t group,
                        struct types_group *out);
void types_group_dequantize(enum compute_type type, const struct types_group *group, float out[32]);

#endif
