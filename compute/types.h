/* types: the quantised blocks of a GGUF file, and a common form to which blocks of all types can be
 * unpacked: a group of 32 elements with unsigned quants, and a scale and a minimum for each 16
 * elements. Backends call these functions when they repack weights or multiply with weights;
 * model/file/packed.c writes blocks. Any thread; no state. The functions read rows that are in
 * memory, check no sizes, and own nothing. */
#ifndef COMPUTE_TYPES_H
#define COMPUTE_TYPES_H

#include "compute/source.h"

#include <assert.h>

/* The blocks of each type, byte for byte as in the file. `quants` are the packed integers from
 * which elements are computed. `scale` and `min` are IEEE binary16 (compute/half.h). Types with two
 * levels of scales also have a scale for each part of a block (types_two_level_unpack), which may
 * share a field with minima, points or signs. */
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

struct block_q2_k {
    uint8_t scales[16]; /* Per 16 elements: scale in the low nibble, minimum in the high nibble. */
    uint8_t quants[64];
    uint16_t scale;
    uint16_t min;
};

struct block_q3_k {
    uint8_t high_bits[32];
    uint8_t quants[64];
    uint8_t scales[12];
    uint16_t scale;
};

struct block_iq4_nl {
    uint16_t scale;
    uint8_t quants[16]; /* As in Q4_0. */
};

struct block_iq4_xs {
    uint16_t scale;
    uint16_t scales_high;
    uint8_t scales_low[4];
    uint8_t quants[128];
};

struct block_mxfp4 {
    uint8_t exponent;   /* E8M0: the scale is 2^(exponent - 128), because codes are doubled. */
    uint8_t quants[16]; /* As in Q4_0. */
};

struct block_tq1_0 {
    uint8_t quants[48];
    uint8_t quants_last[4]; /* Elements 240–255. */
    uint16_t scale;
};

struct block_tq2_0 {
    uint8_t quants[64];
    uint16_t scale;
};

/* The blocks below hold indices of grid points (types_grid.h). Each point gives 4 or 8 elements.
 * IQ2 and IQ3 blocks also have a sign for each element. In IQ1 blocks, a bit (the sign of the
 * shift) says whether 1/8 is added to the values of a point or subtracted from them. */
struct block_iq3_s {
    uint16_t scale;
    uint8_t points[64];
    uint8_t points_high[8];
    uint8_t signs[32];
    uint8_t scales[4];
};

struct block_iq3_xxs {
    uint16_t scale;
    uint8_t points[64];
    uint8_t signs_scales[32];
};

struct block_iq2_s {
    uint16_t scale;
    uint8_t points[32];
    uint8_t signs[32];
    uint8_t points_high[8];
    uint8_t scales[8];
};

struct block_iq2_xs {
    uint16_t scale;
    uint16_t points_signs[32];
    uint8_t scales[8];
};

struct block_iq2_xxs {
    uint16_t scale;
    /* For each 32 elements: four bytes of points, then a 32-bit word of signs and a scale. */
    uint8_t points_signs_scale[8][8];
};

struct block_iq1_s {
    uint16_t scale;
    uint8_t points[32];
    uint16_t points_high[8]; /* Bits 12–14: a scale; bit 15: the sign of the shift. */
};

struct block_iq1_m {
    uint8_t points[32];
    uint8_t points_high[16];
    uint16_t scales[4]; /* The highest four bits of each entry make the f16 scale of the block. */
};

static_assert(sizeof(struct block_q8_0) == 34, "as in the file");
static_assert(sizeof(struct block_q4_0) == 18, "as in the file");
static_assert(sizeof(struct block_q4_1) == 20, "as in the file");
static_assert(sizeof(struct block_q5_0) == 22, "as in the file");
static_assert(sizeof(struct block_q5_1) == 24, "as in the file");
static_assert(sizeof(struct block_q4_k) == 144, "as in the file");
static_assert(sizeof(struct block_q5_k) == 176, "as in the file");
static_assert(sizeof(struct block_q6_k) == 210, "as in the file");
static_assert(sizeof(struct block_q2_k) == 84, "as in the file");
static_assert(sizeof(struct block_q3_k) == 110, "as in the file");
static_assert(sizeof(struct block_iq4_nl) == 18, "as in the file");
static_assert(sizeof(struct block_iq4_xs) == 136, "as in the file");
static_assert(sizeof(struct block_mxfp4) == 17, "as in the file");
static_assert(sizeof(struct block_tq1_0) == 54, "as in the file");
static_assert(sizeof(struct block_tq2_0) == 66, "as in the file");
static_assert(sizeof(struct block_iq3_s) == 110, "as in the file");
static_assert(sizeof(struct block_iq3_xxs) == 98, "as in the file");
static_assert(sizeof(struct block_iq2_s) == 82, "as in the file");
static_assert(sizeof(struct block_iq2_xs) == 74, "as in the file");
static_assert(sizeof(struct block_iq2_xxs) == 66, "as in the file");
static_assert(sizeof(struct block_iq1_s) == 50, "as in the file");
static_assert(sizeof(struct block_iq1_m) == 56, "as in the file");

/* 32 elements in the common form: element i = scales[i / 16] * v + mins[i / 16], where v is
 * codes[quants[i]] for a type with codes (types_codes), otherwise quants[i] -
 * types_quant_offset(type). */
struct types_group {
    uint8_t quants[32];
    float scales[2];
    float mins[2]; /* 0 for types without minima. */
};

/* Scales of a block of 256 elements of a type with two levels of scales (types_is_two_level): a
 * scale of the whole block, and a scale of each part. A part has 32 elements in Q4_K and Q5_K, 16
 * in other types. With v as in struct types_group:
 *
 *   element of part i = v * scale * scales[i] * types_scale_factor(type) - min * mins[i]
 *
 * All products are exact in fp32. */
struct types_two_level {
    uint16_t scale;     /* IEEE binary16. */
    uint16_t min;       /* IEEE binary16; 0 for types without minima. */
    uint8_t scales[16]; /* Unsigned in Q2_K, Q4_K and Q5_K; signed in the others. */
    uint8_t mins[16];
};

/* Returns true if a block of the type has 256 elements, a scale for all of them, and a scale for
 * each part. */
bool types_is_two_level(enum compute_type type);

/* Unpacks the scales of block `block_index` (256 elements) of a row. Requires
 * types_is_two_level(type). */
void types_two_level_unpack(enum compute_type type, const void *row, uint32_t block_index,
                            struct types_two_level *out);

/* Returns the power of two by which the scales of this type are multiplied (struct
 * types_two_level). */
float types_scale_factor(enum compute_type type);

/* Returns the number that is subtracted from each quant of this type (struct types_group). */
uint32_t types_quant_offset(enum compute_type type);

/* Returns the 16 values that the quants of this type select (struct types_group); NULL = the quants
 * are not indices. The table lives as long as the process. */
const int8_t *types_codes(enum compute_type type);

/* Unpacks elements [32 × group, 32 × group + 32) of the quantised row that begins at `row`. */
void types_group_unpack(enum compute_type type, const void *row, uint32_t group,
                        struct types_group *out);
/* types_group_unpack for types with codes; does not set `mins`. Only for types.c. */
void types_coded_group_unpack(enum compute_type type, const void *row, uint32_t group,
                              struct types_group *out);
/* types_two_level_unpack for types with codes; does not set `min` and `mins`. Only for types.c. */
void types_coded_two_level_unpack(enum compute_type type, const void *row, uint32_t block_index,
                                  struct types_two_level *out);
#endif
