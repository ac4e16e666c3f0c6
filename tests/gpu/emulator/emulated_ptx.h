/* emulated_ptx: the functions of compute/cuda/ptx.cuh for the emulator: plain C++ bodies with the
 * same layout of registers. emulated.cc.in includes this file first; it defines ptx.cuh's include
 * guard, so that ptx.cuh itself stays empty. Kernels call the functions on the CPU thread that runs
 * their block. They show that a kernel computes correctly, not that PTX assembles: test_ptx.cu
 * does. */
#ifndef TESTS_GPU_EMULATOR_EMULATED_PTX_H
#define TESTS_GPU_EMULATOR_EMULATED_PTX_H
#define COMPUTE_CUDA_PTX_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

namespace ptx_emulated
{
struct product {
    const uint32_t *a, *b;
    float *c;
};

static inline float element(uint32_t pair, unsigned high, bool bf16)
{
    unsigned short bits = (unsigned short)(pair >> (16 * high));
    return bf16 ? __bfloat162float(__ushort_as_bfloat16(bits))
                : __half2float(__ushort_as_half(bits));
}

/* Computes C += A · B over the fragments of a warp. in[lane] is the lane's struct product. */
template <int K, bool BF16> void mma(uint32_t, const void *const *in, void *const *)
{
    float a[16][K], b[K][8];
    for (unsigned lane = 0; lane < 32; lane++) {
        const product *p = static_cast<const product *>(in[lane]);
        unsigned g = lane / 4, t = lane % 4;
        for (unsigned i = 0; i < K / 4; i++) {
            for (unsigned high = 0; high < 2; high++)
                a[g + 8 * (i % 2)][2 * t + 8 * (i / 2) + high] = element(p->a[i], high, BF16);
        }
        for (unsigned i = 0; i < K / 8; i++) {
            for (unsigned high = 0; high < 2; high++)
                b[2 * t + 8 * i + high][g] = element(p->b[i], high, BF16);
        }
    }
    for (unsigned lane = 0; lane < 32; lane++) {
        const product *p = static_cast<const product *>(in[lane]);
        for (unsigned i = 0; i < 4; i++) {
            unsigned row = lane / 4 + 8 * (i / 2), col = 2 * (lane % 4) + i % 2;
            float sum = p->c[i];
            for (unsigned k = 0; k < K; k++)
                sum += a[row][k] * b[k][col];
            p->c[i] = sum;
        }
    }
}

template <int K, bool BF16>
void mma_call(float *c, const uint32_t *a, const uint32_t *b, const char *name, const char *file,
              int line)
{
    product p = {a, b, c};
    emulated::warp_call(0xffffffffu, mma<K, BF16>, &p, nullptr, name, file, line);
}

/* in[lane]: the lane's pointer to a row of 8 elements; out[lane]: its N registers. */
template <int N, bool TRANSPOSED> void ldmatrix(uint32_t, const void *const *in, void *const *out)
{
    for (unsigned m = 0; m < N; m++) {
        uint16_t rows[8][8];
        for (unsigned r = 0; r < 8; r++)
            memcpy(rows[r], *static_cast<const void *const *>(in[8 * m + r]), sizeof(rows[r]));
        for (unsigned lane = 0; lane < 32; lane++) {
            unsigned g = lane / 4, t = 2 * (lane % 4);
            uint16_t low = TRANSPOSED ? rows[t][g] : rows[g][t];
            uint16_t high = TRANSPOSED ? rows[t + 1][g] : rows[g][t + 1];
            static_cast<uint32_t *>(out[lane])[m] = (uint32_t)high << 16 | low;
        }
    }
}

template <int N, bool TRANSPOSED>
void ldmatrix_call(uint32_t *out, const void *row, const char *file, int line)
{
    if (emulated::self->lane < 8 * N && (uintptr_t)row % 16 != 0)
        emulated::thread_error("ldmatrix: row %p is not aligned to 16 bytes", row);
    emulated::warp_call(0xffffffffu, ldmatrix<N, TRANSPOSED>, &row, out, "ldmatrix", file, line);
}
} // namespace ptx_emulated

static inline void ptx_mma_bf16_16816(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                      EMULATED_PLACE)
{
    ptx_emulated::mma_call<16, true>(c, a, b, "mma.bf16.m16n8k16", file, line);
}

static inline void ptx_mma_f16_1688(float (&c)[4], const uint32_t (&a)[2], const uint32_t (&b)[1],
                                    EMULATED_PLACE)
{
    ptx_emulated::mma_call<8, false>(c, a, b, "mma.f16.m16n8k8", file, line);
}

static inline void ptx_mma_f16_16816(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                     EMULATED_PLACE)
{
    ptx_emulated::mma_call<16, false>(c, a, b, "mma.f16.m16n8k16", file, line);
}

static inline void ptx_ldmatrix_x4(uint32_t (&r)[4], const void *row, EMULATED_PLACE)
{
    ptx_emulated::ldmatrix_call<4, false>(r, row, file, line);
}

static inline void ptx_ldmatrix_x4_trans(uint32_t (&r)[4], const void *row, EMULATED_PLACE)
{
    ptx_emulated::ldmatrix_call<4, true>(r, row, file, line);
}

static inline void ptx_ldmatrix_x2(uint32_t (&r)[2], const void *row, EMULATED_PLACE)
{
    ptx_emulated::ldmatrix_call<2, false>(r, row, file, line);
}

static inline void ptx_ldmatrix_x2_trans(uint32_t (&r)[2], const void *row, EMULATED_PLACE)
{
    ptx_emulated::ldmatrix_call<2, true>(r, row, file, line);
}

static inline void ptx_ldmatrix_x1(uint32_t (&r)[1], const void *row, EMULATED_PLACE)
{
    ptx_emulated::ldmatrix_call<1, false>(r, row, file, line);
}

static inline void ptx_ldmatrix_x1_trans(uint32_t (&r)[1], const void *row, EMULATED_PLACE)
{
    ptx_emulated::ldmatrix_call<1, true>(r, row, file, line);
}

static inline void ptx_cp_async_16(void *shared, const void *global, bool there = true)
{
    emulated::copy_begin(shared, global, 16, there ? 16 : 0);
}

static inline void ptx_cp_async_4(void *shared, const void *global, bool there = true)
{
    emulated::copy_begin(shared, global, 4, there ? 4 : 0);
}

static inline void ptx_cp_async_commit()
{
    emulated::copy_commit();
}

template <int LEFT> static inline void ptx_cp_async_wait()
{
    emulated::copy_wait(LEFT);
}

static inline float ptx_exp2(float x)
{
    return x < -126 ? 0.0f : exp2f(x);
}

/* Kernels run one after the other. */
static inline void ptx_wait_dependency()
{
}

static inline void ptx_launch_dependents()
{
}

static inline uint32_t ptx_and_or(uint32_t a, uint32_t mask, uint32_t bits)
{
    return (a & mask) | bits;
}

#endif
