/* ptx: one function for each instruction that CUDA C++ has no construct for: products on tensor
 * cores (mma.sync), loads of 8×8 matrices (ldmatrix), asynchronous copies (cp.async). Beside each
 * asm is a plain body for tests/gpu/emulator with the same layout of registers, as the PTX ISA
 * defines it ("Matrix Fragments for mma.m16n8k16"); tests/gpu/test_ptx.cu compares both with a
 * plain product. All 32 lanes of a warp call the mma and ldmatrix functions together.
 *
 * With g = lane / 4 and t = lane % 4, register i of two 16-bit elements {low, high} holds
 *   A 16×16: row g + 8·(i % 2), columns 2t + 8·(i / 2) + {0, 1}     (16×8: i = 0, 1 only)
 *   B 16×8:  rows 2t + 8·i + {0, 1}, column g                       (8×8: i = 0 only)
 *   C 16×8:  fp32 element i: row g + 8·(i / 2), column 2t + i % 2 */
#ifndef COMPUTE_CUDA_PTX_CUH
#define COMPUTE_CUDA_PTX_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#ifdef CUDA_EMULATED
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

/* C += A · B over the fragments of a warp; in[lane] is the lane's struct product. */
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
/* Position of the caller, for messages. */
#define PTX_PLACE , const char *file = __builtin_FILE(), int line = __builtin_LINE()
#else
#define PTX_PLACE
#endif

/* Converts an address to the form that shared-memory instructions need. */
#ifndef CUDA_EMULATED
static __device__ __forceinline__ uint32_t ptx_shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}
#endif

/* c += a · b, 16×8, summed over 16, bf16. Requires compute capability 8.0: kernels compiled for
 * less must not call it. */
static __device__ __forceinline__ void ptx_mma_bf16_16816(float (&c)[4], const uint32_t (&a)[4],
                                                          const uint32_t (&b)[2] PTX_PLACE)
{
#ifdef CUDA_EMULATED
    ptx_emulated::mma_call<16, true>(c, a, b, "mma.bf16.m16n8k16", file, line);
#elif __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    __trap();
#endif
}

/* c += a · b, 16×8, summed over 8, f16. Available from compute capability 7.5 on. */
static __device__ __forceinline__ void ptx_mma_f16_1688(float (&c)[4], const uint32_t (&a)[2],
                                                        const uint32_t (&b)[1] PTX_PLACE)
{
#ifdef CUDA_EMULATED
    ptx_emulated::mma_call<8, false>(c, a, b, "mma.f16.m16n8k8", file, line);
#elif __CUDA_ARCH__ >= 750
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]));
#else
    __trap();
#endif
}

/* c += a · b, 16×8, summed over 16, f16. On 7.5 it is done in two halves. */
static __device__ __forceinline__ void ptx_mma_f16_16816(float (&c)[4], const uint32_t (&a)[4],
                                                         const uint32_t (&b)[2] PTX_PLACE)
{
#ifdef CUDA_EMULATED
    ptx_emulated::mma_call<16, false>(c, a, b, "mma.f16.m16n8k16", file, line);
#elif __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    ptx_mma_f16_1688(c, {a[0], a[1]}, {b[0]});
    ptx_mma_f16_1688(c, {a[2], a[3]}, {b[1]});
#endif
}

/* Loads 8×8 matrices of 16-bit elements from shared memory. Lane 8·m + r gives the address of row r
 * of matrix m (16 bytes, aligned). Register m of lane 4g + t receives row g, columns 2t and 2t + 1;
 * transposed: rows 2t and 2t + 1, column g. */
static __device__ __forceinline__ void ptx_ldmatrix_x4(uint32_t (&r)[4], const void *row PTX_PLACE)
{
#ifdef CUDA_EMULATED
    ptx_emulated::ldmatrix_call<4, false>(r, row, file, line);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(ptx_shared_address(row))
                 : "memory");
#endif
}

static __device__ __forceinline__ void ptx_ldmatrix_x4_trans(uint32_t (&r)[4],
                                                             const void *row PTX_PLACE)
{
#ifdef CUDA_EMULATED
    ptx_emulated::ldmatrix_call<4, true>(r, row, file, line);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(ptx_shared_address(row))
                 : "memory");
#endif
}

static __device__ __forceinline__ void ptx_ldmatrix_x2(uint32_t (&r)[2], const void *row PTX_PLACE)
{
#ifdef CUDA_EMULATED
    ptx_emulated::ldmatrix_call<2, false>(r, row, file, line);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(ptx_shared_address(row))
                 : "memory");
#endif
}

static __device__ __forceinline__ void ptx_ldmatrix_x2_trans(uint32_t (&r)[2],
                                                             const void *row PTX_PLACE)
{
#ifdef CUDA_EMULATED
    ptx_emulated::ldmatrix_call<2, true>(r, row, file, line);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(ptx_shared_address(row))
                 : "memory");
#endif
}

static __device__ __forceinline__ void ptx_ldmatrix_x1(uint32_t (&r)[1], const void *row PTX_PLACE)
{
#ifdef CUDA_EMULATED
    ptx_emulated::ldmatrix_call<1, false>(r, row, file, line);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                 : "=r"(r[0])
                 : "r"(ptx_shared_address(row))
                 : "memory");
#endif
}

static __device__ __forceinline__ void ptx_ldmatrix_x1_trans(uint32_t (&r)[1],
                                                             const void *row PTX_PLACE)
{
#ifdef CUDA_EMULATED
    ptx_emulated::ldmatrix_call<1, true>(r, row, file, line);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                 : "=r"(r[0])
                 : "r"(ptx_shared_address(row))
                 : "memory");
#endif
}

/* Starts copying 16 bytes from global to shared memory, both aligned. With `there` false it writes
 * zeros and reads nothing. This thread may use the bytes after it has waited for its group, other
 * threads after a barrier. On 7.5 it is a plain copy. */
static __device__ __forceinline__ void ptx_cp_async_16(void *shared, const void *global,
                                                       bool there = true)
{
#ifdef CUDA_EMULATED
    emulated::copy_begin(shared, global, 16, there ? 16 : 0);
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(ptx_shared_address(shared)),
                 "l"(__cvta_generic_to_global(global)), "r"(there ? 16 : 0)
                 : "memory");
#else
    *static_cast<uint4 *>(shared) =
        there ? *static_cast<const uint4 *>(global) : make_uint4(0, 0, 0, 0);
#endif
}

/* Starts copying 4 bytes, as ptx_cp_async_16 does. */
static __device__ __forceinline__ void ptx_cp_async_4(void *shared, const void *global,
                                                      bool there = true)
{
#ifdef CUDA_EMULATED
    emulated::copy_begin(shared, global, 4, there ? 4 : 0);
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(ptx_shared_address(shared)),
                 "l"(__cvta_generic_to_global(global)), "r"(there ? 4 : 0)
                 : "memory");
#else
    *static_cast<uint32_t *>(shared) = there ? *static_cast<const uint32_t *>(global) : 0;
#endif
}

/* Ends a group: this thread's copies since the end of the last group. */
static __device__ __forceinline__ void ptx_cp_async_commit()
{
#ifdef CUDA_EMULATED
    emulated::copy_commit();
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Returns when at most LEFT groups of this thread (the youngest) are not finished. */
template <int LEFT> static __device__ __forceinline__ void ptx_cp_async_wait()
{
#ifdef CUDA_EMULATED
    emulated::copy_wait(LEFT);
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#endif
}

/* 2^x within 2 ulp; 0 if the result would be subnormal. */
static __device__ __forceinline__ float ptx_exp2(float x)
{
#ifdef CUDA_EMULATED
    return x < -126 ? 0.0f : exp2f(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

/* Waits until the kernels before this one are done (see CUDA_LAUNCH_EARLY in launch.cuh). It does
 * nothing if this kernel was launched after them anyway. */
static __device__ __forceinline__ void ptx_wait_dependency()
{
#if !defined(CUDA_EMULATED) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Lets the next kernel, if it is launched early, begin when all blocks have called this. */
static __device__ __forceinline__ void ptx_launch_dependents()
{
#if !defined(CUDA_EMULATED) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* (a & mask) | bits in one instruction; the compiler uses two where both are constants. */
static __device__ __forceinline__ uint32_t ptx_and_or(uint32_t a, uint32_t mask, uint32_t bits)
{
#ifdef CUDA_EMULATED
    return (a & mask) | bits;
#else
    uint32_t out;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(a), "r"(mask), "r"(bits));
    return out;
#endif
}

#endif
