/* weights: the layout of a matrix's weights on the device, and how 8 of them are read. weights.cu
 * writes the layout, on the host; kernels read it. Internal to compute/cuda/. This header has no
 * state, and copies nothing between host and device.
 *
 * Float types, including F8_E4M3, keep the file's elements; each row is padded with zeros to 16
 * bytes. kernels.cuh describes the scales of F8_E4M3.
 *
 * TQ1_0 and TQ2_0 are kept as Q4_0, and IQ1, IQ2, IQ3 and IQ4_XS as Q3_K with other codes
 * (cuda_weights_kept).
 *
 * A row of a quantised type is divided into steps of 256 columns (the last step is padded with
 * zeros). A step has two units of 128 columns, a unit has four groups of 32. A group is read by
 * four lanes t = 0 … 3 of a warp, 8 elements each: a chunk. A chunk's columns in the group are 8t …
 * 8t + 7, or, for types with scales per 16 columns (weights_halves), 4t … 4t + 3 and 16 + 4t … 16 +
 * 4t + 3. So a lane has the elements of each chunk in the order that an operand of mma.m16n8k16
 * needs (gemv_mma.cuh).
 *
 * Quants of a step: [unit 0][unit 1][high bits of unit 0][high bits of unit 1]
 * - Nibbles: a unit is 64 bytes, 16 for each t, with a word for each group. Element e of the word
 *   is nibble e / 2 + 4 (e % 2), so that one mask moves the pair (2p, 2p + 1) to the low bits of
 *   both halves of a register.
 * - One high bit: a word for each t. The bit of group j and element e is bit 4j + e / 2 + 16 (e %
 *   2).
 * - Two high bits: two words for each t, with two groups per word. The bits of group j and element
 *   e begin at bit 8 (j % 2) + 2 (e / 2) + 16 (e % 2).
 * - Bytes (Q8_0, signed): a unit is 128 bytes: [two groups at a time][t][group][8], element e at
 *   byte 4 (e / 4) + e / 2 % 2 + 2 (e % 2).
 *
 * Scales of a row, for each step:
 *   Q4_0, Q5_0, Q8_0, IQ4_NL   eight f16
 *   MXFP4              eight bf16
 *   Q4_1, Q5_1         eight pairs of f16 scale and minimum
 *   Q4_K, Q5_K         eight pairs of bytes
 *   Q6_K, Q3_K         sixteen signed bytes
 *   Q2_K               sixteen bytes: scales in low nibbles, minima in high nibbles
 * In K-quants, an f16 pair for each step follows the scales of all steps: the factors of the step's
 * scales and of its minima. */
#ifndef COMPUTE_CUDA_WEIGHTS_CUH
#define COMPUTE_CUDA_WEIGHTS_CUH

#include "compute/cuda/kernels.cuh"

#define WEIGHTS_STEP   256 /* Columns of a step. */
#define WEIGHTS_CHUNKS 32  /* Chunks in a step: one per lane of a warp. */

/* Returns true if the type's elements are not quantised. */
static constexpr __host__ __device__ bool weights_float(enum compute_type type)
{
    return type == COMPUTE_F32 || type == COMPUTE_F16 || type == COMPUTE_BF16 ||
           type == COMPUTE_F8_E4M3;
}

static constexpr __host__ __device__ uint32_t weights_element_bytes(enum compute_type type)
{
    return type == COMPUTE_F32 ? 4 : type == COMPUTE_F8_E4M3 ? 1 : 2;
}

/* Returns true if quants are nibbles that are indices of cuda_weights.codes. */
static constexpr __host__ __device__ bool weights_coded(enum compute_type type)
{
    return type == COMPUTE_Q3_K || type == COMPUTE_IQ4_NL || type == COMPUTE_MXFP4;
}

/* Returns true if scales are per 16 columns. */
static constexpr __host__ __device__ bool weights_halves(enum compute_type type)
{
    return type == COMPUTE_Q6_K || type == COMPUTE_Q3_K || type == COMPUTE_Q2_K;
}

/* Returns the bits of a quant beyond the nibble; 0 for Q8_0. */
static constexpr __host__ __device__ uint32_t weights_high_bits(enum compute_type type)
{
    return type == COMPUTE_Q6_K                                                   ? 2
           : type == COMPUTE_Q5_0 || type == COMPUTE_Q5_1 || type == COMPUTE_Q5_K ? 1
                                                                                  : 0;
}

/* Returns the bytes of a unit of one row, without high bits. */
static constexpr __host__ __device__ uint32_t weights_unit_bytes(enum compute_type type)
{
    return type == COMPUTE_Q8_0 ? 128 : 64;
}

/* Returns the bytes of the quants of one row in one step. */
static constexpr __host__ __device__ uint32_t weights_step_bytes(enum compute_type type)
{
    return 2 * weights_unit_bytes(type) + 32 * weights_high_bits(type);
}

/* Returns true for the K-quants. */
static constexpr __host__ __device__ bool weights_super(enum compute_type type)
{
    return type == COMPUTE_Q4_K || type == COMPUTE_Q5_K || weights_halves(type);
}

/* Returns true if the type has minima. */
static constexpr __host__ __device__ bool weights_min(enum compute_type type)
{
    return type == COMPUTE_Q4_1 || type == COMPUTE_Q5_1 || type == COMPUTE_Q4_K ||
           type == COMPUTE_Q5_K || type == COMPUTE_Q2_K;
}

/* Returns the number that is subtracted from each stored quant. */
static constexpr __host__ __device__ int32_t weights_offset(enum compute_type type)
{
    return type == COMPUTE_Q4_0 ? 8 : type == COMPUTE_Q5_0 ? 16 : type == COMPUTE_Q6_K ? 32 : 0;
}

/* Returns the bytes of the scales of one row in one step, without the K-quants' pair. */
static constexpr __host__ __device__ uint32_t weights_scale_bytes(enum compute_type type)
{
    return type == COMPUTE_Q4_1 || type == COMPUTE_Q5_1 ? 32 : 16;
}

/* Returns the number of steps of a row. */
static constexpr __host__ __device__ uint32_t weights_steps(uint32_t cols)
{
    return (cols + WEIGHTS_STEP - 1) / WEIGHTS_STEP;
}

/* Returns the first column of elements 0 … 3 of a chunk (half 0), or of elements 4 … 7 (half 1). */
static __host__ __device__ inline uint32_t weights_column(enum compute_type type, uint32_t chunk,
                                                          uint32_t half)
{
    const uint32_t group = chunk / 4 * 32, t = chunk % 4;
    return weights_halves(type) ? group + 16 * half + 4 * t : group + 8 * t + 4 * half;
}

static __device__ __forceinline__ float weights_f16(uint32_t bits)
{
    return __half2float(__ushort_as_half((unsigned short)bits));
}

static __device__ __forceinline__ float weights_bf16(uint32_t bits)
{
    return __uint_as_float(bits << 16);
}

/* Converts the E4M3 number in the low byte. Requires that the number is not NaN. */
static __device__ __forceinline__ float weights_e4m3(uint32_t byte)
{
    return __uint_as_float((byte & 0x80u) << 24 | (byte & 0x7fu) << 20) * 0x1p120f;
}

static __device__ __forceinline__ float weights_f8_scale(const struct cuda_weights &w, size_t row,
                                                         uint32_t col)
{
    const size_t block = (w.scale_first + row) >> w.scale_shift;
    const uint32_t right = w.scale_shift != 0 ? col / 128 : 0;
    return reinterpret_cast<const float *>(w.scales + block * w.scale_row_bytes)[right];
}

/* Replaces four nibbles, in the low 16 bits of `four`, by the bytes of `codes` at these indices. */
static __device__ __forceinline__ uint32_t weights_lookup(const uint32_t (&codes)[4], uint32_t four)
{
    const uint32_t index = four & 0x7777u;
    const uint32_t low = __byte_perm(codes[0], codes[1], index);
    const uint32_t high = __byte_perm(codes[2], codes[3], index);
    return __byte_perm(low, high, 0x3210u | (four & 0x8888u) >> 1);
}

/* Replaces the nibbles of a group's word by signed bytes in the order of Q8_0. */
static __device__ __forceinline__ uint2 weights_decode(const uint32_t (&codes)[4], uint32_t word)
{
    return make_uint2(weights_lookup(codes, __byte_perm(word, 0, 0x0020)),
                      weights_lookup(codes, __byte_perm(word, 0, 0x0031)));
}

/* Reads the scales and the minima of group `group` of a step: entry 0 for elements 0 … 3 of a
 * chunk, entry 1 for elements 4 … 7. The entries differ only for types with scales per 16 columns.
 */
template <enum compute_type TYPE>
static __device__ __forceinline__ void weights_scale(const uint8_t *row, uint32_t steps,
                                                     uint32_t step, uint32_t group, float factor,
                                                     float scale[2], float min[2])
{
    const uint8_t *at = row + (size_t)step * weights_scale_bytes(TYPE);
    min[0] = min[1] = 0;
    if constexpr (weights_super(TYPE)) {
        const uint32_t unit = *reinterpret_cast<const uint32_t *>(
            row + (size_t)steps * weights_scale_bytes(TYPE) + (size_t)step * 4);
        const float d = weights_f16(unit);
        if constexpr (TYPE == COMPUTE_Q2_K) {
            for (uint32_t i = 0; i < 2; i++) {
                scale[i] = d * (float)(at[2 * group + i] & 15u);
                min[i] = -(weights_f16(unit >> 16) * (float)(at[2 * group + i] >> 4));
            }
        } else if constexpr (weights_halves(TYPE)) {
            scale[0] = d * factor * (float)(int8_t)at[2 * group];
            scale[1] = d * factor * (float)(int8_t)at[2 * group + 1];
        } else {
            scale[0] = scale[1] = d * (float)at[2 * group];
            min[0] = min[1] = -(weights_f16(unit >> 16) * (float)at[2 * group + 1]);
        }
    } else if constexpr (weights_min(TYPE)) {
        const uint32_t pair = reinterpret_cast<const uint32_t *>(at)[group];
        scale[0] = scale[1] = weights_f16(pair);
        min[0] = min[1] = weights_f16(pair >> 16);
    } else if constexpr (TYPE == COMPUTE_MXFP4) {
        scale[0] = scale[1] = weights_bf16(reinterpret_cast<const uint16_t *>(at)[group]);
    } else {
        scale[0] = scale[1] = weights_f16(reinterpret_cast<const uint16_t *>(at)[group]);
    }
}

/* Reads the 8 quants of a chunk as numbers. */
template <enum compute_type TYPE>
static __device__ __forceinline__ void weights_quants(const uint8_t *step, uint32_t chunk,
                                                      const uint32_t (&codes)[4], int32_t out[8])
{
    const uint32_t group = chunk / 4, unit = group / 4, j = group % 4, t = chunk % 4;
    if constexpr (TYPE == COMPUTE_Q8_0 || weights_coded(TYPE)) {
        uint2 words;
        if constexpr (TYPE == COMPUTE_Q8_0)
            words = *reinterpret_cast<const uint2 *>(step + unit * 128 + j / 2 * 64 + t * 16 +
                                                     j % 2 * 8);
        else
            words = weights_decode(
                codes, *reinterpret_cast<const uint32_t *>(step + unit * 64 + t * 16 + j * 4));
#pragma unroll
        for (uint32_t e = 0; e < 8; e++)
            out[e] = (int8_t)((e < 4 ? words.x : words.y) >> (e / 2 % 2 * 8 + e % 2 * 16));
        return;
    }
    const uint32_t word = *reinterpret_cast<const uint32_t *>(step + unit * 64 + t * 16 + j * 4);
#pragma unroll
    for (uint32_t e = 0; e < 8; e++)
        out[e] = (int32_t)(word >> (e / 2 * 4 + e % 2 * 16) & 15u) - weights_offset(TYPE);
    if constexpr (weights_high_bits(TYPE) == 1) {
        const uint32_t high =
            *reinterpret_cast<const uint32_t *>(step + 128 + unit * 16 + t * 4) >> j * 4;
#pragma unroll
        for (uint32_t e = 0; e < 8; e++)
            out[e] += (int32_t)((high >> (e / 2 + e % 2 * 16) & 1u) << 4);
    } else if constexpr (weights_high_bits(TYPE) == 2) {
        const uint32_t high =
            *reinterpret_cast<const uint32_t *>(step + 128 + unit * 32 + t * 8 + j / 2 * 4) >>
            j % 2 * 8;
#pragma unroll
        for (uint32_t e = 0; e < 8; e++)
            out[e] += (int32_t)((high >> (e / 2 * 2 + e % 2 * 16) & 3u) << 4);
    }
}

/* Reads the 8 weights of chunk `chunk` of a step of row `row`, with the same bits as
 * compute_source_row. Columns beyond the row's end are 0. */
template <enum compute_type TYPE>
static __device__ __forceinline__ void weights_chunk(const struct cuda_weights &w, size_t row,
                                                     uint32_t step, uint32_t chunk, float out[8])
{
    const uint8_t *quants = w.quants + row * w.row_bytes;
    if constexpr (TYPE == COMPUTE_F8_E4M3) {
        const uint32_t col = step * WEIGHTS_STEP + chunk * 8;
        uint2 words = make_uint2(0, 0);
        float scale = 0;
        if (col < w.row_bytes) {
            words = __ldg(reinterpret_cast<const uint2 *>(quants + col));
            scale = weights_f8_scale(w, row, col);
        }
#pragma unroll
        for (uint32_t e = 0; e < 8; e++)
            out[e] = weights_e4m3((e < 4 ? words.x : words.y) >> e % 4 * 8) * scale;
    } else if constexpr (weights_float(TYPE)) {
        const uint32_t col = step * WEIGHTS_STEP + chunk * 8;
        uint32_t words[TYPE == COMPUTE_F32 ? 8 : 4] = {};
#pragma unroll
        for (uint32_t i = 0; i < sizeof(words) / 16; i++) {
            const size_t at = (size_t)col * weights_element_bytes(TYPE) + 16 * i;
            if (at < w.row_bytes)
                *reinterpret_cast<uint4 *>(words + 4 * i) =
                    __ldg(reinterpret_cast<const uint4 *>(quants + at));
        }
#pragma unroll
        for (uint32_t e = 0; e < 8; e++)
            if constexpr (TYPE == COMPUTE_F32)
                out[e] = __uint_as_float(words[e]);
            else if constexpr (TYPE == COMPUTE_F16)
                out[e] = weights_f16(words[e / 2] >> e % 2 * 16);
            else
                out[e] = weights_bf16(words[e / 2] >> e % 2 * 16);
    } else {
        int32_t q[8];
        float scale[2], min[2];
        weights_quants<TYPE>(quants + (size_t)step * weights_step_bytes(TYPE), chunk, w.codes, q);
        weights_scale<TYPE>(w.scales + row * w.scale_row_bytes, weights_steps(w.cols), step,
                            chunk / 4, w.factor, scale, min);
#pragma unroll
        for (uint32_t e = 0; e < 8; e++)
            out[e] = scale[e / 4] * (float)q[e] + min[e / 4];
    }
}

/* Calls DO(TYPE) with the constant for w's type. */
#define WEIGHTS_EACH_TYPE(type, DO)                                                                \
    switch (type) {                                                                                \
    case COMPUTE_F32:                                                                              \
        DO(COMPUTE_F32);                                                                           \
        break;                                                                                     \
    case COMPUTE_F16:                                                                              \
        DO(COMPUTE_F16);                                                                           \
        break;                                                                                     \
    case COMPUTE_BF16:                                                                             \
        DO(COMPUTE_BF16);                                                                          \
        break;                                                                                     \
    case COMPUTE_F8_E4M3:                                                                          \
        DO(COMPUTE_F8_E4M3);                                                                       \
        break;                                                                                     \
        WEIGHTS_EACH_QUANTISED(DO)                                                                 \
    default:                                                                                       \
        break;                                                                                     \
    }

#define WEIGHTS_EACH_QUANTISED(DO)                                                                 \
    case COMPUTE_Q8_0:                                                                             \
        DO(COMPUTE_Q8_0);                                                                          \
        break;                                                                                     \
    case COMPUTE_Q4_0:                                                                             \
        DO(COMPUTE_Q4_0);                                                                          \
        break;                                                                                     \
    case COMPUTE_Q4_1:                                                                             \
        DO(COMPUTE_Q4_1);                                                                          \
        break;                                                                                     \
    case COMPUTE_Q5_0:                                                                             \
        DO(COMPUTE_Q5_0);                                                                          \
        break;                                                                                     \
    case COMPUTE_Q5_1:                                                                             \
        DO(COMPUTE_Q5_1);                                                                          \
        break;                                                                                     \
    case COMPUTE_Q4_K:                                                                             \
        DO(COMPUTE_Q4_K);                                                                          \
        break;                                                                                     \
    case COMPUTE_Q5_K:                                                                             \
        DO(COMPUTE_Q5_K);                                                                          \
        break;                                                                                     \
    case COMPUTE_Q6_K:                                                                             \
        DO(COMPUTE_Q6_K);                                                                          \
        break;                                                                                     \
    case COMPUTE_Q2_K:                                                                             \
        DO(COMPUTE_Q2_K);                                                                          \
        break;                                                                                     \
    case COMPUTE_Q3_K:                                                                             \
        DO(COMPUTE_Q3_K);                                                                          \
        break;                                                                                     \
    case COMPUTE_IQ4_NL:                                                                           \
        DO(COMPUTE_IQ4_NL);                                                                        \
        break;                                                                                     \
    case COMPUTE_MXFP4:                                                                            \
        DO(COMPUTE_MXFP4);                                                                         \
        break;

#endif
