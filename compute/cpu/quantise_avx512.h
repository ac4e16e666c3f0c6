/* quantise_avx512: kernels.quantise for AVX-512, with the same bits as rows_quantise (rows.h).
 * isa_avx512.c includes this header after rows.h and puts quantise_avx512 into its table. Any
 * thread may call the function, which has no state. For rows of more than 16,384 values, it calls
 * rows_quantise. */
#ifndef COMPUTE_CPU_QUANTISE_AVX512_H
#define COMPUTE_CPU_QUANTISE_AVX512_H

#include "compute/cpu/rows.h"

#define WIDE_BLOCKS 16 /* Blocks that are quantised at once. */

/* Returns a vector whose lane i is the greatest lane of v[i] (as int32_t). Overwrites v. */
INLINE __m512i greatest_each(__m512i v[16])
{
    ROWS_EACH(i, 8)
    v[i] = _mm512_max_epi32(_mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]),
                            _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
    ROWS_EACH(i, 4)
    v[i] = _mm512_max_epi32(_mm512_unpacklo_epi64(v[2 * i], v[2 * i + 1]),
                            _mm512_unpackhi_epi64(v[2 * i], v[2 * i + 1]));
    ROWS_EACH(i, 2)
    v[i] = _mm512_max_epi32(_mm512_shuffle_i32x4(v[2 * i], v[2 * i + 1], 0x88),
                            _mm512_shuffle_i32x4(v[2 * i], v[2 * i + 1], 0xdd));
    return _mm512_max_epi32(_mm512_shuffle_i32x4(v[0], v[1], 0x88),
                            _mm512_shuffle_i32x4(v[0], v[1], 0xdd));
}

/* Stores the bits of the greatest |x| of each of 16 blocks. */
INLINE void magnitudes_wide(const float *x, uint32_t bits[WIDE_BLOCKS])
{
    const __m512i mask = _mm512_set1_epi32(0x7fffffff);
    __m512i v[WIDE_BLOCKS];
    ROWS_EACH(i, WIDE_BLOCKS)
    v[i] = _mm512_max_epi32(_mm512_and_si512(_mm512_loadu_si512(x + i * 32), mask),
                            _mm512_and_si512(_mm512_loadu_si512(x + i * 32 + 16), mask));
    _mm512_storeu_si512(bits, greatest_each(v));
}

/* Stores the bits of the greatest |x| of each of `blocks` ≤ 16 blocks; the other entries are 0. */
INLINE void magnitudes(const float *x, uint32_t blocks, uint32_t bits[WIDE_BLOCKS])
{
    if (blocks == WIDE_BLOCKS) {
        magnitudes_wide(x, bits);
        return;
    }
    memset(bits, 0, WIDE_BLOCKS * sizeof(bits[0]));
    for (uint32_t i = 0; i < blocks; i++)
        bits[i] = v_magnitude_bits(v_load(x + i * 32), v_load(x + i * 32 + 16));
}

/* Quantises one block with a scale and its inverse. Requires that the block's values are finite. */
INLINE void block_round(const float *x, struct kernels_block *block, uint32_t row, float scale,
                        float inverse)
{
    __m512i a = _mm512_cvtps_epi32(v_mul(v_load(x), v_set(inverse)));
    __m512i b = _mm512_cvtps_epi32(v_mul(v_load(x + 16), v_set(inverse)));
    __m256i quants = _mm256_set_m128i(_mm512_cvtsepi32_epi8(b), _mm512_cvtsepi32_epi8(a));
    _mm256_storeu_si256((__m256i *)block->quants[row], quants);
    /* Sums four neighbours in each lane, then the four lanes of each half. */
    __m256i sum = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), quants);
    sum = _mm256_add_epi32(sum, _mm256_shuffle_epi32(sum, 0x4e));
    sum = _mm256_add_epi32(sum, _mm256_shuffle_epi32(sum, 0xb1));
    block_describe(block, row, scale, _mm256_extract_epi32(sum, 0), _mm256_extract_epi32(sum, 4),
                   false);
}

/* Quantises `count` blocks (at most 16) from x into row `row` of `blocks`. bits[i]: the bits of the
 * greatest |x| of block i; refine[i]: block i gets a second plane. */
INLINE void blocks_round(const float *x, uint32_t count, const uint32_t bits[WIDE_BLOCKS],
                         const bool *refine, struct kernels_block *blocks,
                         struct kernels_second_plane *second_planes, uint32_t row)
{
    float scales[WIDE_BLOCKS], inverses[WIDE_BLOCKS];
    const __m512 amax = _mm512_loadu_ps((const float *)bits), most = _mm512_set1_ps(127.0f);
    const __mmask16 not_zero = _mm512_cmp_ps_mask(amax, _mm512_set1_ps(0x1p-96f), _CMP_GE_OQ);
    _mm512_storeu_ps(scales, _mm512_maskz_div_ps(not_zero, amax, most));
    _mm512_storeu_ps(inverses, _mm512_maskz_div_ps(not_zero, most, amax));
    for (uint32_t i = 0; i < count; i++) {
        if (refine[i])
            block_refine(x + i * 32, bits[i], &blocks[i], &second_planes[i], row);
        else if (bits[i] >= 0x7f800000u)
            block_quantise(x + i * 32, bits[i], &blocks[i], row);
        else
            block_round(x + i * 32, &blocks[i], row, scales[i], inverses[i]);
    }
}

/* A row that is quantised here has at most WIDE_GROUPS groups of WIDE_BLOCKS blocks: 32 × 16 × 32 =
 * 16,384 values. */
#define WIDE_GROUPS 32

/* See kernels.quantise. */
static void quantise_avx512(const float *x, uint32_t count, struct kernels_block *blocks,
                            struct kernels_second_plane *second_planes, uint32_t row)
{
    const uint32_t row_blocks = count / 32;
    uint32_t bits[WIDE_GROUPS][WIDE_BLOCKS];
    float sum = 0;
    if (row_blocks > WIDE_GROUPS * WIDE_BLOCKS) {
        rows_quantise(x, count, blocks, second_planes, row);
        return;
    }
    for (uint32_t i = 0; i < row_blocks; i += WIDE_BLOCKS) {
        uint32_t *group = bits[i / WIDE_BLOCKS];
        const uint32_t block_count = row_blocks - i < WIDE_BLOCKS ? row_blocks - i : WIDE_BLOCKS;
        magnitudes(x + (size_t)i * 32, block_count, group);
        for (uint32_t k = 0; second_planes != NULL && k < block_count; k++) {
            float amax;
            memcpy(&amax, &group[k], sizeof(amax));
            sum += amax;
        }
    }
    for (uint32_t i = 0; i < row_blocks; i += WIDE_BLOCKS) {
        const uint32_t *group = bits[i / WIDE_BLOCKS];
        const uint32_t block_count = row_blocks - i < WIDE_BLOCKS ? row_blocks - i : WIDE_BLOCKS;
        bool refine[WIDE_BLOCKS] = {false};
        for (uint32_t k = 0; second_planes != NULL && k < block_count; k++) {
            float amax;
            memcpy(&amax, &group[k], sizeof(amax));
            refine[k] = block_refines(amax, row_blocks, sum);
        }
        blocks_round(x + (size_t)i * 32, block_count, group, refine, blocks + i,
                     second_planes != NULL ? second_planes + i : NULL, row);
    }
}

#endif
