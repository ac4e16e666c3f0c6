/* gemv_mma_quantised: y = W · a of up to 16 rows for quantised weights, which are converted in
 * registers to bf16 operands of tensor cores. Reference: compute_dequantize and a plain double
 * loop.
 *
 * Quants and codes are whole numbers below 2^8, which bf16 represents exactly: products are exact. A
 * group of 32 (types with scales per 16: 16) is added up by mma in fp32 and then multiplied with its scale in fp32. No weight is
 * rounded. 0x4300 is 128 in bf16, with a last bit of value 1: `word >> 4p & 0x000f000f |
 * 0x43004300` makes two operands 128 + q from a word of nibbles with a shift and one logic
 * instruction. For types without a minimum, the 128 and the type's offset are subtracted again
 * (exactly). For types with a minimum, the sum of the group's activations is needed anyway: one
 * more mma with ones computes it, and 128 times it is subtracted from the group's sum.
 *
 * Codes are looked up in four registers by byte permutations. Q2_K has minima, but its quants are
 * so small beside 128 that 128 is subtracted from each.
 *
 * Issue: instructions of the main loop for a warp's stage (16 rows × 256 columns, Q8_0 128), as
 * nvcc 13 generates them for 9.0, and how many an H200's multiprocessor can issue while the stage
 * is read at 85 % of 4.8 TB/s:
 *
 *          Q8_0  Q4_0  Q4_1  Q5_0  Q5_1  Q6_K  Q4_K  Q5_K
 *   loop    359   512   512   660   656   748   631   780
 *   limit   507   537   596   656   716   790   552   671
 *
 * Q5_0, Q4_K and Q5_K are limited by issue. Sums that begin with the offsets would need fewer
 * instructions, but round differently: with the default model, log-probabilities were then further
 * from those of fp32. With more than 4 rows, two tiles share activations (MT = 2), because reading
 * the activations from L2 would otherwise take as many bytes as the weights.
 *
 * Bound: bytes of W over bandwidth, as in gemv_mma.cu: 4096×4096 in Q4_0 is 9.4 MB, 2.0 µs; Q4_K
 * 9.7 MB; Q8_0 17.8 MB. Stages in flight: 100 to 165 KiB per multiprocessor. */
#include "compute/cuda/gemv_mma.cuh"

namespace
{
__device__ __forceinline__ uint32_t bf16x2_add(uint32_t a, uint32_t b)
{
    __nv_bfloat162 x, y;
    memcpy(&x, &a, sizeof(x));
    memcpy(&y, &b, sizeof(y));
    x = __hadd2(x, y);
    memcpy(&a, &x, sizeof(a));
    return a;
}

__device__ __forceinline__ uint32_t shifted(uint32_t word, int right)
{
    return right >= 0 ? word >> right : word << -right;
}

/* Four bf16 pairs of 128 + the stored value; for types without a minimum, the quant itself. */
constexpr __host__ __device__ uint32_t unbias(enum compute_type type) /* -(128 + offset), twice. */
{
    return type == COMPUTE_Q4_0   ? 0xc308c308u
           : type == COMPUTE_Q5_0 ? 0xc310c310u
           : type == COMPUTE_Q6_K ? 0xc320c320u
                                  : 0xc300c300u; /* Q2_K. */
}

/* True if unpacked quants are 128 too large. */
constexpr __host__ __device__ bool biased(enum compute_type type)
{
    return weights_min(type) && type != COMPUTE_Q2_K;
}

/* Unpacks the four pairs of group j of a unit of one row from its nibbles `word` and its high bits
 * `high`. */
template <enum compute_type TYPE>
__device__ __forceinline__ void unpack(uint32_t word, uint32_t high, uint32_t j, uint32_t (&out)[4])
{
#pragma unroll
    for (uint32_t p = 0; p < 4; p++) {
        out[p] = ptx_and_or(word >> 4 * p, 0x000f000fu, 0x43004300u);
        if constexpr (weights_high_bits(TYPE) == 1)
            out[p] |= shifted(high, (int)(4 * j + p) - 4) & 0x00100010u;
        if constexpr (weights_high_bits(TYPE) == 2)
            out[p] |= shifted(high, (int)(j % 2 * 8 + 2 * p) - 4) & 0x00300030u;
        if constexpr (!biased(TYPE))
            out[p] = bf16x2_add(out[p], unbias(TYPE));
    }
}

/* Unpacks signed bytes: 128 + the low 7 bits, then minus 128, or minus 256 if the sign bit is set.
 */
__device__ __forceinline__ void unpack_bytes(uint32_t first, uint32_t second, uint32_t (&out)[4])
{
#pragma unroll
    for (uint32_t p = 0; p < 4; p++) {
        const uint32_t word = (p < 2 ? first : second) >> p % 2 * 8;
        out[p] = bf16x2_add(ptx_and_or(word, 0x007f007fu, 0x43004300u),
                            ptx_and_or(word, 0x00800080u, 0xc300c300u));
    }
}

__device__ __forceinline__ uint32_t word_of(uint4 four, uint32_t i)
{
    return i == 0 ? four.x : i == 1 ? four.y : i == 2 ? four.z : four.w;
}

/* What a lane has of a row in a unit of 128 columns. */
template <enum compute_type TYPE> struct unit_row {
    uint4 low;        /* Nibbles of the four groups, or bytes of two groups. */
    uint4 bytes;      /* Bytes of the other two groups; only Q8_0. */
    uint2 high;       /* High bits. */
    uint4 scale;      /* Scales of the four groups, as stored. */
    float super, min; /* Factors of the scales and minima; only Q2_K, Q4_K and Q5_K. */
};

template <enum compute_type TYPE, uint32_t MT>
__device__ __forceinline__ void unit_load(const uint8_t *from, uint32_t unit, uint32_t row,
                                          struct unit_row<TYPE> &out)
{
    using S = stage<TYPE, MT>;
    const uint32_t t = threadIdx.x % 4;
    out.low = shared16(from + line_at(row, unit * 4 + t));
    if constexpr (TYPE == COMPUTE_Q8_0)
        out.bytes = shared16(from + line_at(row, 4 + t));
    const uint8_t *high = from + S::HIGH + (unit * S::ROWS + row) * (S::HIGH_BYTES / 2);
    if constexpr (S::HIGH_BYTES == 32)
        out.high.x = *reinterpret_cast<const uint32_t *>(high + 4 * t);
    else if constexpr (S::HIGH_BYTES == 64)
        out.high = *reinterpret_cast<const uint2 *>(high + 8 * t);
    if constexpr (S::SCALE_BYTES == 32) {
        out.scale = shared16(from + S::SCALES + (unit * S::ROWS + row) * 16);
    } else {
        const uint2 eight =
            *reinterpret_cast<const uint2 *>(from + S::SCALES + row * S::SCALE_BYTES + unit * 8);
        out.scale = make_uint4(eight.x, eight.y, 0, 0);
    }
    if constexpr (weights_super(TYPE) && weights_min(TYPE)) {
        const uint32_t pair = *reinterpret_cast<const uint32_t *>(from + S::SUPER + row * 4);
        out.super = weights_f16(pair);
        out.min = -weights_f16(pair >> 16);
    }
}

template <enum compute_type TYPE>
__device__ __forceinline__ void unit_unpack(const struct unit_row<TYPE> &row, uint32_t j,
                                            const uint32_t (&codes)[4], uint32_t (&out)[4])
{
    if constexpr (weights_coded(TYPE)) {
        const uint2 bytes = weights_decode(codes, word_of(row.low, j));
        unpack_bytes(bytes.x, bytes.y, out);
        return;
    }
    if constexpr (TYPE == COMPUTE_Q8_0) {
        const uint4 four = j < 2 ? row.low : row.bytes;
        unpack_bytes(j % 2 == 0 ? four.x : four.z, j % 2 == 0 ? four.y : four.w, out);
    } else {
        const uint32_t high = weights_high_bits(TYPE) == 2 && j >= 2 ? row.high.y : row.high.x;
        unpack<TYPE>(word_of(row.low, j), high, j, out);
    }
}

/* Scale and minimum of group j; with scales per 16 columns, the scales of its halves (for Q6_K and
 * Q3_K whole numbers that must still be multiplied with the scale of 256 columns), and their minima
 * in out[2] and out[3]. */
template <enum compute_type TYPE>
__device__ __forceinline__ void unit_scale(const struct unit_row<TYPE> &row, uint32_t j,
                                           float (&out)[4])
{
    if constexpr (TYPE == COMPUTE_Q4_1 || TYPE == COMPUTE_Q5_1) {
        const uint32_t pair = word_of(row.scale, j);
        out[0] = weights_f16(pair);
        out[1] = weights_f16(pair >> 16);
    } else {
        const uint32_t pair = word_of(row.scale, j / 2) >> j % 2 * 16;
        if constexpr (TYPE == COMPUTE_Q2_K) {
            out[0] = row.super * (float)(pair & 15u);
            out[1] = row.super * (float)(pair >> 8 & 15u);
            out[2] = row.min * (float)(pair >> 4 & 15u);
            out[3] = row.min * (float)(pair >> 12 & 15u);
        } else if constexpr (weights_halves(TYPE)) {
            out[0] = (float)(int8_t)pair;
            out[1] = (float)(int8_t)(pair >> 8);
        } else if constexpr (TYPE == COMPUTE_MXFP4) {
            out[0] = weights_bf16(pair);
        } else if constexpr (weights_super(TYPE)) {
            out[0] = row.super * (float)(uint8_t)pair;
            out[1] = row.min * (float)(uint8_t)(pair >> 8);
        } else {
            out[0] = weights_f16(pair);
        }
    }
}

/* Multiplies 16 rows of W with 8 of the activations in a group. The result is added to acc, or to
 * `part` if it must still be scaled; in other cases `part` is acc too. */
template <enum compute_type TYPE>
__device__ __forceinline__ void group_multiply(const uint32_t (&low)[4], const uint32_t (&high)[4],
                                               const float (&scale)[2][4],
                                               const uint32_t (&b)[2][2], const float (&ones)[2][4],
                                               float (&part)[4], float (&acc)[4])
{
    float sum[4] = {}, other[4] = {};
    ptx_mma_bf16_16816(sum, low, b[0]);
    ptx_mma_bf16_16816(weights_halves(TYPE) ? other : sum, high, b[1]);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        if constexpr (biased(TYPE))
            sum[i] = fmaf(-128.0f, ones[0][i], sum[i]);
        part[i] = fmaf(scale[i / 2][0], sum[i], part[i]);
        if constexpr (weights_halves(TYPE))
            part[i] = fmaf(scale[i / 2][1], other[i], part[i]);
        if constexpr (TYPE == COMPUTE_Q2_K) {
            acc[i] = fmaf(scale[i / 2][2], ones[0][i], acc[i]);
            acc[i] = fmaf(scale[i / 2][3], ones[1][i], acc[i]);
        } else if constexpr (weights_min(TYPE)) {
            acc[i] = fmaf(scale[i / 2][1], ones[0][i], acc[i]);
        }
    }
}

/* Multiplies GROUPS groups of a unit from group `first` on. Their activations are loaded at once.
 */
template <enum compute_type TYPE, uint32_t MT, uint32_t NT, uint32_t GROUPS>
__device__ __forceinline__ void
groups_multiply(const uint8_t *from, uint32_t unit, uint32_t first, const struct gemv_set &set,
                const struct gemv_input &in, uint32_t col, sums<MT, NT> &part, sums<MT, NT> &acc)
{
    const uint32_t g = threadIdx.x % 32 / 4;
    const uint32_t one[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
    uint32_t b[GROUPS][NT][2][2];
    /* Loads must not move up across this, because registers could not hold the values. */
    __syncwarp();
#pragma unroll
    for (uint32_t i = 0; i < GROUPS; i++)
#pragma unroll
        for (uint32_t n = 0; n < NT; n++)
            input_load<TYPE>(in, 8 * n + g, set.cols, col + 32 * (first + i), b[i][n]);
#pragma unroll
    for (uint32_t m = 0; m < MT; m++) {
        struct unit_row<TYPE> rows[2];
        unit_load<TYPE, MT>(from, unit, 16 * m + g, rows[0]);
        unit_load<TYPE, MT>(from, unit, 16 * m + g + 8, rows[1]);
#pragma unroll
        for (uint32_t i = 0; i < GROUPS; i++) {
            uint32_t x[4], y[4];
            float scale[2][4];
            unit_unpack<TYPE>(rows[0], first + i, set.w[0].codes, x);
            unit_unpack<TYPE>(rows[1], first + i, set.w[0].codes, y);
            unit_scale<TYPE>(rows[0], first + i, scale[0]);
            unit_scale<TYPE>(rows[1], first + i, scale[1]);
            const uint32_t low[4] = {x[0], y[0], x[1], y[1]};
            const uint32_t high[4] = {x[2], y[2], x[3], y[3]};
#pragma unroll
            for (uint32_t n = 0; n < NT; n++) {
                float ones[2][4] = {};
                if constexpr (weights_min(TYPE)) {
                    ptx_mma_bf16_16816(ones[0], one, b[i][n][0]);
                    ptx_mma_bf16_16816(ones[weights_halves(TYPE) ? 1 : 0], one, b[i][n][1]);
                }
                group_multiply<TYPE>(low, high, scale, b[i][n], ones, part[m][n], acc[m][n]);
            }
        }
    }
}

/* True if a step's sums are multiplied with the scale of its 256 columns at the end. */
constexpr __host__ __device__ bool scaled_late(enum compute_type type)
{
    return weights_halves(type) && type != COMPUTE_Q2_K;
}

template <enum compute_type TYPE, uint32_t MT, uint32_t NT>
__device__ __forceinline__ void stage_multiply(const uint8_t *from, const struct gemv_set &set,
                                               const struct gemv_input &in, uint32_t col,
                                               sums<MT, NT> &acc)
{
    using S = stage<TYPE, MT>;
    /* The most that fit in the registers. */
    constexpr uint32_t GROUPS = NT == 2 ? 1 : MT == 2 ? 2 : 4;
    sums<MT, NT> part = {};
    const uint32_t g = threadIdx.x % 32 / 4;
#pragma unroll(NT == 1 ? 2 : 1)
    for (uint32_t unit = 0; unit < S::UNITS; unit++)
#pragma unroll
        for (uint32_t group = 0; group < 4; group += GROUPS)
            groups_multiply<TYPE, MT, NT, GROUPS>(from, unit, group, set, in, col + 128 * unit,
                                                  scaled_late(TYPE) ? part : acc, acc);
    if constexpr (scaled_late(TYPE)) {
#pragma unroll
        for (uint32_t m = 0; m < MT; m++)
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                const float scale =
                    set.w[0].factor * weights_f16(*reinterpret_cast<const uint32_t *>(
                                          from + S::SUPER + (16 * m + g + i / 2 * 8) * 4));
#pragma unroll
                for (uint32_t n = 0; n < NT; n++)
                    acc[m][n][i] = fmaf(scale, part[m][n][i], acc[m][n][i]);
            }
    }
}
} // namespace

void gemv_mma_quantised(cudaStream_t stream, const struct gemv_set &set,
                        const struct gemv_input &input)
{
#define TYPED(type) gemv_typed<type>(stream, set, input)
    switch (set.w[0].type) {
        WEIGHTS_EACH_QUANTISED(TYPED)
    default:
        break;
    }
#undef TYPED
}
