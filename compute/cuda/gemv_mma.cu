/* gemv_mma: y = W · a of up to 16 rows for BF16 and F16 weights, which are stored as in the file.
 * Reference: compute_dequantize and a plain double loop.
 *
 * Why tensor cores for one row: reading W limits the product, at 20 bytes per clock for each of an
 * H200's 132 multiprocessors (4.8 TB/s at 1.8 GHz). With fp32 multiply-adds, each weight needs one
 * conversion and one multiply-add per row: of a multiprocessor's 128 lanes, one row of bf16 keeps
 * 20 busy, 8 rows keep 90 busy, and 16 rows do not fit. An mma multiplies 16 × 16 weights with 8
 * rows at once: a stage of 2 KiB takes 187 instructions of a warp (F16: 301), most of them for
 * addresses, as nvcc 13 generates them for 9.0, where 400 could be issued. Seven eighths of the
 * arithmetic are unused with one row, but cost no time, and the order of sums is the same for every
 * number of rows.
 *
 * Bytes in flight: a warp has 2 to 3 stages of 2 KiB in flight (cp.async), a multiprocessor has 24
 * warps in 3 blocks: 96 to 144 KiB, twice what 4.8 TB/s need at 0.9 µs. The copies continue across
 * tiles: while a tile's sums are added up, the next tile's weights are copied.
 *
 * Bound: bytes of W over bandwidth. At 4.8 TB/s in bf16: 4096×4096 7.0 µs, 14336×4096 24.5,
 * 128256×4096 219, 1024×4096 1.7. Tiles per multiprocessor: 256 / 132, so most have 2 (97 % even);
 * q, k and v in one set 384 / 132; gate and up 1792 / 132.
 *
 * F16 weights have 11 bits, bf16 has 8: each weight is exactly the sum of two bf16 numbers, and is
 * multiplied twice. */
#include "compute/cuda/gemv_mma.cuh"

namespace
{
/* Splits two f16 into the sum of two pairs of bf16: the upper 8 bits, and the rest. */
__device__ __forceinline__ void f16_split(uint32_t pair, uint32_t *upper, uint32_t *lower)
{
    const uint32_t low = __float_as_uint(weights_f16(pair));
    const uint32_t high = __float_as_uint(weights_f16(pair >> 16));
    const float low_rest = __uint_as_float(low) - __uint_as_float(low & 0xffff0000u);
    const float high_rest = __uint_as_float(high) - __uint_as_float(high & 0xffff0000u);
    *upper = __byte_perm(low, high, 0x7632);
    *lower = __byte_perm(__float_as_uint(low_rest), __float_as_uint(high_rest), 0x7632);
}

template <enum compute_type TYPE>
__device__ __forceinline__ void mma(float (&acc)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    if constexpr (TYPE == COMPUTE_BF16) {
        ptx_mma_bf16_16816(acc, a, b);
    } else {
        uint32_t upper[4], lower[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            f16_split(a[i], &upper[i], &lower[i]);
        ptx_mma_bf16_16816(acc, upper, b);
        ptx_mma_bf16_16816(acc, lower, b);
    }
}

template <enum compute_type TYPE, uint32_t MT, uint32_t NT>
__device__ __forceinline__ void stage_multiply(const uint8_t *from, const struct gemv_set &set,
                                               const struct gemv_input &in, uint32_t col,
                                               sums<MT, NT> &acc)
{
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    uint32_t b[2][NT][2][2];
#pragma unroll
    for (uint32_t j = 0; j < 2; j++)
#pragma unroll
        for (uint32_t n = 0; n < NT; n++)
            input_load<TYPE>(in, 8 * n + g, set.cols, col + 32 * j, b[j][n]);
#pragma unroll
    for (uint32_t j = 0; j < 2; j++)
#pragma unroll
        for (uint32_t m = 0; m < MT; m++) {
            const uint4 x = shared16(from + line_at(16 * m + g, 4 * j + t));
            const uint4 y = shared16(from + line_at(16 * m + g + 8, 4 * j + t));
            const uint32_t first[4] = {x.x, y.x, x.y, y.y}, second[4] = {x.z, y.z, x.w, y.w};
#pragma unroll
            for (uint32_t n = 0; n < NT; n++) {
                mma<TYPE>(acc[m][n], first, b[j][n][0]);
                mma<TYPE>(acc[m][n], second, b[j][n][1]);
            }
        }
}
} // namespace

void gemv_mma(cudaStream_t stream, const struct gemv_set &set, const struct gemv_input &input)
{
    if (set.w[0].type == COMPUTE_BF16)
        gemv_typed<COMPUTE_BF16>(stream, set, input);
    else
        gemv_typed<COMPUTE_F16>(stream, set, input);
}
