/* ptx: one function for each instruction that CUDA C++ has no construct for: products on tensor
 * cores (mma.sync), loads of 8×8 matrices (ldmatrix), asynchronous copies (cp.async). Device code
 * for the kernels, without state; nothing is checked. On the emulator,
 * tests/gpu/emulator/emulated_ptx.h takes the place of this header. All 32 lanes of a warp call the
 * mma and ldmatrix functions together. The PTX ISA defines the layout of registers ("Matrix
 * Fragments for mma.m16n8k16").
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

/* Converts an address to the form that shared-memory instructions need. */
static __device__ __forceinline__ uint32_t ptx_shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

/* c += a · b, 16×8, summed over 16, bf16. Requires compute capability 8.0. */
static __device__ __forceinline__ void ptx_mma_bf16_16816(float (&c)[4], const uint32_t (&a)[4],
                                                          const uint32_t (&b)[2])
{
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    __trap();
#endif
}

/* c += a · b, 16×8, summed over 8, f16. Requires compute capability 7.5. */
static __device__ __forceinline__ void ptx_mma_f16_1688(float (&c)[4], const uint32_t (&a)[2],
                                                        const uint32_t (&b)[1])
{
#if __CUDA_ARCH__ >= 750
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]));
#else
    __trap();
#endif
}

/* c += a · b, 16×8, summed over 16, f16. Requires compute capability 7.5. */
static __device__ __forceinline__ void ptx_mma_f16_16816(float (&c)[4], const uint32_t (&a)[4],
                                                         const uint32_t (&b)[2])
{
#if __CUDA_ARCH__ >= 800
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
static __device__ __forceinline__ void ptx_ldmatrix_x4(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(ptx_shared_address(row))
                 : "memory");
}

static __device__ __forceinline__ void ptx_ldmatrix_x4_trans(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(ptx_shared_address(row))
                 : "memory");
}

static __device__ __forceinline__ void ptx_ldmatrix_x2(uint32_t (&r)[2], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(ptx_shared_address(row))
                 : "memory");
}

static __device__ __forceinline__ void ptx_ldmatrix_x2_trans(uint32_t (&r)[2], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "r"(ptx_shared_address(row))
                 : "memory");
}

static __device__ __forceinline__ void ptx_ldmatrix_x1(uint32_t (&r)[1], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                 : "=r"(r[0])
                 : "r"(ptx_shared_address(row))
                 : "memory");
}

static __device__ __forceinline__ void ptx_ldmatrix_x1_trans(uint32_t (&r)[1], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                 : "=r"(r[0])
                 : "r"(ptx_shared_address(row))
                 : "memory");
}

/* Starts copying 16 bytes from global to shared memory, both aligned. If `there` is false, writes
 * zeros and reads nothing. This thread may use the bytes after ptx_cp_async_wait, other threads
 * after a barrier that follows. On compute capability 7.5, the copy is finished at once. */
static __device__ __forceinline__ void ptx_cp_async_16(void *shared, const void *global,
                                                       bool there = true)
{
#if __CUDA_ARCH__ >= 800
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
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(ptx_shared_address(shared)),
                 "l"(__cvta_generic_to_global(global)), "r"(there ? 4 : 0)
                 : "memory");
#else
    *static_cast<uint32_t *>(shared) = there ? *static_cast<const uint32_t *>(global) : 0;
#endif
}

/* Ends a group: the copies that this thread has started since the end of the last group. */
static __device__ __forceinline__ void ptx_cp_async_commit()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Returns when all groups of this thread except the LEFT youngest are finished. */
template <int LEFT> static __device__ __forceinline__ void ptx_cp_async_wait()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#endif
}

/* Returns 2^x within 2 ulp; 0 if the result would be subnormal. */
static __device__ __forceinline__ float ptx_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Waits until the kernels before this kernel are done (see CUDA_LAUNCH_EARLY in launch.cuh). */
static __device__ __forceinline__ void ptx_wait_dependency()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Lets the next kernel, if it is launched early, begin when all blocks have called this function or
 * ended. */
static __device__ __forceinline__ void ptx_launch_dependents()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Returns (a & mask) | bits, computed by one instruction. */
static __device__ __forceinline__ uint32_t ptx_and_or(uint32_t a, uint32_t mask, uint32_t bits)
{
    uint32_t out;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(a), "r"(mask), "r"(bits));
    return out;
}

#endif
