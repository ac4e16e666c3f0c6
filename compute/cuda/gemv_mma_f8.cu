/* gemv_mma_f8: y = W · a of up to 16 rows for E4M3 weights, which are stored as in the file, with
 * fp32 scales per row or per 128 × 128 block. Reference: compute_source_row and a plain double
 * loop.
 *
 * An E4M3 number is exactly a bf16 number, so these are gemv_mma.cu's products with half the bytes:
 * a pair is widened by a permutation, two masks, a shift and a multiplication by 2^120, all exact
 * (including subnormal numbers) and the same on every device. The 128 columns of a step have one
 * scale per row: their products are added up separately and then, times the scale, added to the
 * row's sum. Weights have no NaN (model/file/quantization.c refuses them).
 *
 * Of rows g and g + 8 and of each 64 columns, a lane has the elements 16t … 16t + 15, which are the
 * operands of four mma: one load of 16 bytes of weights, two of 16 bytes of activations.
 *
 * Bound: bytes of W over bandwidth: 4096×4096 3.5 µs, 14336×4096 12.2 at 4.8 TB/s. A stage of 2 KiB
 * is 16 mma, 8 loads from shared memory, 32 widened pairs of about 5 instructions each, and 4 loads
 * of activations: about 200 instructions of a warp. A multiprocessor reads 20 bytes per clock, so a
 * stage takes 100 clocks, in which its four schedulers issue 400 instructions. */
#include "compute/cuda/gemv_mma.cuh"

namespace
{
/* Converts four E4M3 to two pairs of bf16. */
__device__ __forceinline__ void widen(uint32_t four, uint32_t *first, uint32_t *second)
{
    const __nv_bfloat162 scale = __halves2bfloat162(__ushort_as_bfloat16(0x7b80), /* 2^120. */
                                                    __ushort_as_bfloat16(0x7b80));
    const uint32_t pairs[2] = {__byte_perm(four, 0, 0x1404), __byte_perm(four, 0, 0x3424)};
    uint32_t out[2];
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t bits = (pairs[i] & 0x80008000u) | (pairs[i] & 0x7f007f00u) >> 4;
        __nv_bfloat162 small;
        memcpy(&small, &bits, sizeof(bits));
        const __nv_bfloat162 value = __hmul2(small, scale);
        memcpy(&out[i], &value, sizeof(value));
    }
    *first = out[0];
    *second = out[1];
}

/* Loads a lane's 16 elements of the 64 columns from `col` on, as operands of four mma. */
__device__ __forceinline__ void input_load16(const struct gemv_input &in, uint32_t row,
                                             uint32_t cols, uint32_t col, uint32_t (&b)[4][2])
{
    const uint32_t first = col + 16 * (threadIdx.x % 4);
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        const bool there = row < in.rows && first + 8 * i < cols;
        uint4 eight = make_uint4(0, 0, 0, 0);
        if (there)
            eight = *reinterpret_cast<const uint4 *>(in.a + (size_t)row * cols + first + 8 * i);
        b[2 * i][0] = eight.x, b[2 * i][1] = eight.y;
        b[2 * i + 1][0] = eight.z, b[2 * i + 1][1] = eight.w;
    }
}

template <enum compute_type TYPE, uint32_t MT, uint32_t NT>
__device__ __forceinline__ void stage_multiply(const uint8_t *from, const struct gemv_set &set,
                                               const struct gemv_input &in, uint32_t col,
                                               sums<MT, NT> &acc)
{
    using S = stage<TYPE, MT>;
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    sums<MT, NT> part = {};
#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
        uint32_t b[NT][4][2];
#pragma unroll
        for (uint32_t n = 0; n < NT; n++)
            input_load16(in, 8 * n + g, set.cols, col + 64 * half, b[n]);
#pragma unroll
        for (uint32_t m = 0; m < MT; m++) {
            const uint4 x = shared16(from + line_at(16 * m + g, 4 * half + t));
            const uint4 y = shared16(from + line_at(16 * m + g + 8, 4 * half + t));
            const uint32_t xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                uint32_t a[4];
                widen(xs[i], &a[0], &a[2]);
                widen(ys[i], &a[1], &a[3]);
#pragma unroll
                for (uint32_t n = 0; n < NT; n++)
                    ptx_mma_bf16_16816(part[m][n], a, b[n][i]);
            }
        }
    }
#pragma unroll
    for (uint32_t m = 0; m < MT; m++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const float scale = *reinterpret_cast<const float *>(
                from + S::SUPER + (16 * m + g + i / 2 * 8) * sizeof(float));
#pragma unroll
            for (uint32_t n = 0; n < NT; n++)
                acc[m][n][i] = fmaf(scale, part[m][n][i], acc[m][n][i]);
        }
}
} // namespace

void gemv_mma_f8(cudaStream_t stream, const struct gemv_set &set, const struct gemv_input &input)
{
    gemv_typed<COMPUTE_F8_E4M3>(stream, set, input);
}
