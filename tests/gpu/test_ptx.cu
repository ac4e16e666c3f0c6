/* Goal: the instructions of compute/cuda/ptx.cuh do what their comments say, on a device and in the
 * emulator: the layout of fragments in registers, loads by ldmatrix, and copies by cp.async.
 *
 * Method: a warp multiplies small matrices of random numbers, its fragments once loaded by hand and
 * once by ldmatrix from shared memory that cp.async filled; the result is compared with a plain
 * product in double. */
#include "compute/cuda/launch.cuh"
#include "compute/cuda/ptx.cuh"
#include "tests/gpu/harness.h"

namespace
{
constexpr unsigned ROWS = 16, COLS = 8;

template <class T> __device__ uint32_t pair(const T *low, unsigned step)
{
    T two[2] = {low[0], low[step]};
    uint32_t bits;
    memcpy(&bits, two, sizeof(bits));
    return bits;
}

/* a is [16 × k] row-major, b [k × 8] row-major, c [16 × 8]. */
template <class T, int K> __global__ void multiply_by_hand(const T *a, const T *b, float *c)
{
    unsigned g = threadIdx.x / 4, t = threadIdx.x % 4;
    uint32_t af[K / 4], bf[K / 8];
    float cf[4];
    for (unsigned i = 0; i < 4; i++)
        cf[i] = c[(g + 8 * (i / 2)) * COLS + 2 * t + i % 2];
    for (unsigned i = 0; i < K / 4; i++)
        af[i] = pair(a + (g + 8 * (i % 2)) * K + 2 * t + 8 * (i / 2), 1);
    for (unsigned i = 0; i < K / 8; i++)
        bf[i] = pair(b + (2 * t + 8 * i) * COLS + g, COLS);
    if constexpr (K == 8)
        ptx_mma_f16_1688(cf, af, bf);
    else if constexpr (sizeof(T) == 2 && std::is_same_v<T, __half>)
        ptx_mma_f16_16816(cf, af, bf);
    else
        ptx_mma_bf16_16816(cf, af, bf);
    for (unsigned i = 0; i < 4; i++)
        c[(g + 8 * (i / 2)) * COLS + 2 * t + i % 2] = cf[i];
}

/* Loads from shared memory: A by x4, B (whose rows are rows of the sum) by x2 transposed. */
__global__ void multiply_by_ldmatrix(const __half *a, const __half *b, float *c)
{
    __shared__ __align__(16) __half a_shared[ROWS * 16], b_shared[16 * COLS];
    unsigned lane = threadIdx.x, g = lane / 4, t = lane % 4;
    ptx_cp_async_16(a_shared + 8 * lane, a + 8 * lane);
    ptx_cp_async_commit();
    if (lane < 16)
        ptx_cp_async_16(b_shared + 8 * lane, b + 8 * lane);
    ptx_cp_async_commit();
    ptx_cp_async_wait<0>();
    __syncthreads();
    uint32_t af[4], bf[2];
    float cf[4] = {0, 0, 0, 0};
    ptx_ldmatrix_x4(af, a_shared + (lane % 16) * 16 + lane / 16 * 8);
    ptx_ldmatrix_x2_trans(bf, b_shared + (lane % 16) * COLS);
    ptx_mma_f16_16816(cf, af, bf);
    for (unsigned i = 0; i < 4; i++)
        c[(g + 8 * (i / 2)) * COLS + 2 * t + i % 2] += cf[i];
}

/* Loads by x1, x2 and x1 transposed, and compares with x4. B is [8 × k]: a row is a column of the
 * product. */
__global__ void load_each_way(const uint16_t *matrix, uint32_t *out)
{
    __shared__ __align__(16) uint16_t rows[32 * 8];
    unsigned lane = threadIdx.x;
    ptx_cp_async_16(rows + 8 * lane, matrix + 8 * lane);
    ptx_cp_async_commit();
    ptx_cp_async_wait<0>();
    __syncthreads();
    uint32_t x4[4], x4_trans[4], x2[2], x2_trans[2], x1[1], x1_trans[1];
    ptx_ldmatrix_x4(x4, rows + 8 * lane);
    ptx_ldmatrix_x4_trans(x4_trans, rows + 8 * lane);
    ptx_ldmatrix_x2(x2, rows + 8 * lane);
    ptx_ldmatrix_x2_trans(x2_trans, rows + 8 * lane);
    ptx_ldmatrix_x1(x1, rows + 8 * lane);
    ptx_ldmatrix_x1_trans(x1_trans, rows + 8 * lane);
    uint32_t *mine = out + lane * 14;
    for (unsigned i = 0; i < 4; i++) {
        mine[i] = x4[i];
        mine[4 + i] = x4_trans[i];
    }
    for (unsigned i = 0; i < 2; i++) {
        mine[8 + i] = x2[i];
        mine[10 + i] = x2_trans[i];
    }
    mine[12] = x1[0];
    mine[13] = x1_trans[0];
}

/* The newest group may still be in flight. A copy of 0 bytes leaves zeros. */
__global__ void copy_in_groups(const uint32_t *from, uint32_t *to)
{
    CUDA_SHARED(uint32_t, shared);
    unsigned lane = threadIdx.x;
    ptx_cp_async_16(shared + 4 * lane, from + 4 * lane);
    ptx_cp_async_commit();
    ptx_cp_async_16(shared + 128 + 4 * lane, from + 128 + 4 * lane, lane % 2 == 0);
    ptx_cp_async_commit();
    ptx_cp_async_wait<1>();
    __syncthreads();
    for (unsigned i = 0; i < 4; i++)
        to[i * 32 + lane] = shared[i * 32 + lane];
    ptx_cp_async_4(shared + lane, from + lane, lane < 16);
    ptx_cp_async_commit();
    ptx_cp_async_wait<0>();
    __syncthreads();
    for (unsigned i = 0; i < 4; i++)
        to[128 + i * 32 + lane] = shared[128 + i * 32 + lane];
    to[256 + lane] = shared[lane];
}

template <class T> std::vector<T> draw(gpu::random &random, size_t count)
{
    std::vector<T> values(count);
    for (T &value : values)
        value = T(random.normal());
    return values;
}

template <class T>
std::vector<float> product(const std::vector<T> &a, const std::vector<T> &b, unsigned k,
                           const std::vector<float> &c)
{
    std::vector<float> out(ROWS * COLS);
    for (unsigned row = 0; row < ROWS; row++) {
        for (unsigned col = 0; col < COLS; col++) {
            double sum = c[row * COLS + col];
            for (unsigned i = 0; i < k; i++)
                sum += (double)(float)a[row * k + i] * (double)(float)b[i * COLS + col];
            out[row * COLS + col] = (float)sum;
        }
    }
    return out;
}

template <class T, int K> void test_by_hand(gpu::random &random, const char *what)
{
    std::vector<T> a = draw<T>(random, ROWS * K), b = draw<T>(random, K * COLS);
    std::vector<float> c = draw<float>(random, ROWS * COLS);
    gpu::buffer<T> a_device(a), b_device(b);
    gpu::buffer<float> c_device(c);
    CUDA_LAUNCH((multiply_by_hand<T, K>), 1, 32, 0, nullptr, a_device, b_device, c_device);
    gpu::expect_near(what, c_device.get(), product(a, b, K, c), {1e-5, 1e-5});
}

void test_by_ldmatrix(gpu::random &random)
{
    std::vector<__half> a = draw<__half>(random, ROWS * 16), b = draw<__half>(random, 16 * COLS);
    std::vector<float> c = draw<float>(random, ROWS * COLS);
    gpu::buffer<__half> a_device(a), b_device(b);
    gpu::buffer<float> c_device(c);
    CUDA_LAUNCH(multiply_by_ldmatrix, 1, 32, 0, nullptr, a_device, b_device, c_device);
    gpu::expect_near("mma of ldmatrix", c_device.get(), product(a, b, 16, c), {1e-5, 1e-5});
}

void test_loads(gpu::random &random)
{
    std::vector<uint16_t> matrix(32 * 8);
    for (uint16_t &value : matrix)
        value = (uint16_t)random.bits();
    gpu::buffer<uint16_t> device(matrix);
    gpu::buffer<uint32_t> out(32 * 14);
    CUDA_LAUNCH(load_each_way, 1, 32, 0, nullptr, device, out);
    std::vector<uint32_t> want(32 * 14);
    for (unsigned lane = 0; lane < 32; lane++) {
        unsigned g = lane / 4, t = 2 * (lane % 4);
        auto at = [&](unsigned m, unsigned row, unsigned col) {
            return (uint32_t)matrix[(8 * m + row) * 8 + col];
        };
        uint32_t *mine = want.data() + lane * 14;
        for (unsigned m = 0; m < 4; m++) {
            mine[m] = at(m, g, t) | at(m, g, t + 1) << 16;
            mine[4 + m] = at(m, t, g) | at(m, t + 1, g) << 16;
        }
        mine[8] = mine[12] = mine[0];
        mine[9] = mine[1];
        mine[10] = mine[13] = mine[4];
        mine[11] = mine[5];
    }
    gpu::expect_equal("ldmatrix", out.get().data(), want.data(), want.size() * 4);
}

void test_copies(gpu::random &random)
{
    std::vector<uint32_t> from(256), want(288);
    for (uint32_t &value : from)
        value = random.bits();
    for (unsigned i = 0; i < 256; i++)
        want[i] = i < 128 || i / 4 % 2 == 0 ? from[i] : 0;
    for (unsigned i = 0; i < 16; i++)
        want[256 + i] = from[i];
    gpu::buffer<uint32_t> from_device(from), to(288);
    CUDA_LAUNCH(copy_in_groups, 1, 32, 1024, nullptr, from_device, to);
    gpu::expect_equal("cp.async", to.get().data(), want.data(), want.size() * 4);
}
} // namespace

int main()
{
    gpu::begin();
    gpu::random random(gpu::seed());
    for (int round = 0; round < 20; round++) {
        test_by_hand<__nv_bfloat16, 16>(random, "mma of bf16");
        test_by_hand<__half, 16>(random, "mma of f16");
        test_by_hand<__half, 8>(random, "mma of f16, 8 in the sum");
        test_by_ldmatrix(random);
        test_loads(random);
        test_copies(random);
    }
    return gpu::finish();
}
