/* types: the quantised blocks of a GGUF file, and their common form: a group of 32 elements with
 * unsigned quants, one scale per 16 elements and one minimum. The repacking of weights calls it
 * (cpu/matrix.c, cuda/weights.cu), and so does compute_dequantize; other folders use source.h. No
 * state; any thread. It reads rows that are in memory already and checks no sizes. */
#ifndef COMPUTE_TYPES_H
#define COMPUTE_TYPES_H

#include "compute/source.h"

#include <assert.h>

/* The blocks of each type, byte for byte as in the file. `quants` are the integers that elements
 * are computed from. 16-bit floats are stored as uint16_t: see compute/half.h. */
struct block_q8_0 {
    uint16_t scale;
    int8_t quants[32];
};

struct block_q4_0 {
    uint16_t scale;
    uint8_t quants[16]; /* Low nibbles: elements 0–15; high nibbles: 16–31. */
};

struct block_q4_1 {
    uint16_t scale;
    uint16_t min;
    uint8_t quants[16];
};

struct block_q5_0 {
    uint16_t scale;
    uint8_t high_bits[4]; /* Bit i belongs to element i. */
    uint8_t quants[16];   /* Low four bits, as in Q4_0. */
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

/* 32 elements in the common form: element i = scale[i / 16] * (quants[i] - types_offset(type)) +
 * min. */
struct types_group {
    uint8_t quants[32];
    float scale[2];
    float min;
};

/* Scales of 256 elements of a K-quant (Q4_K, Q5_K, Q6_K). Part i of the elements is multiplied by
 * scale * scales[i], and min * mins[i] is subtracted. Both products are exact in fp32. */
struct types_super {
    uint16_t scale;
    uint16_t min;       /* 0 for Q6_K. */
    uint8_t scales[16]; /* Q4_K, Q5_K: per 32 elements, 6 bits; Q6_K: per 16 elements, signed. */
    uint8_t mins[8];
};

/* Unpacks the scales of the index-th 256 elements of a quantised row. */
void types_super_unpack(enum compute_type type, const void *row, uint32_t index,
                        struct types_super *out);

/* Returns the number that is subtracted from each quant of this type (struct types_group). */
uint32_t types_offset(enum compute_type type);

/* Unpacks the group-th 32 elements of a quantised row that begins at `row`. */
void types_group_unpack(enum compute_type type, const void *row, uint32_t group,
                        struct types_group *out);
/* Writes the 32 elements of a group as floats. */
void types_group_dequantize(enum compute_type type, const struct types_group *group, float out[32]);

#endif
