/* blocks: writes the scale and the minimum of a quantised block of any type, as a GGUF file has
 * them. Tests that make weights of random bits call the functions on any thread. The header
 * compiles as C and as C++. The functions keep no state, and do not write the quantised numbers. */
#ifndef TESTS_COMPUTE_BLOCKS_H
#define TESTS_COMPUTE_BLOCKS_H

#include "compute/source.h"

#include <string.h>

/* Returns the offset of the f16 scale in a block: the scale is the first member, or the last one
 * before the minimum. Not for IQ1_M and MXFP4. */
static inline size_t blocks_scale_offset(enum compute_type type)
{
    switch (type) {
    case COMPUTE_Q6_K:
    case COMPUTE_Q3_K:
    case COMPUTE_TQ1_0:
    case COMPUTE_TQ2_0:
        return compute_type_block_bytes(type) - 2;
    case COMPUTE_Q2_K:
        return compute_type_block_bytes(type) - 4;
    default:
        return 0;
    }
}

/* Returns true if blocks of the type have a minimum, which follows the scale. */
static inline bool blocks_have_min(enum compute_type type)
{
    return type == COMPUTE_Q4_1 || type == COMPUTE_Q5_1 || type == COMPUTE_Q4_K ||
           type == COMPUTE_Q5_K || type == COMPUTE_Q2_K;
}

/* Writes the scale and, if the type has one, the minimum: two f16 numbers. For MXFP4, writes the
 * power of two with the exponent of `scale`. */
static inline void blocks_put(enum compute_type type, uint8_t *block, uint16_t scale, uint16_t min)
{
    if (type == COMPUTE_MXFP4) {
        block[0] = (uint8_t)((scale >> 10 & 31) + 128 - 15);
    } else if (type == COMPUTE_IQ1_M) {
        for (uint32_t i = 0; i < 4; i++) /* Four bits in each of the last four 16-bit numbers. */
            block[49 + 2 * i] = (uint8_t)((block[49 + 2 * i] & 15) | (scale >> 4 * i & 15) << 4);
    } else {
        memcpy(block + blocks_scale_offset(type), &scale, sizeof(scale));
        if (blocks_have_min(type))
            memcpy(block + blocks_scale_offset(type) + 2, &min, sizeof(min));
    }
}

#endif
