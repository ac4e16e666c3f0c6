/* Goal: weights of every type are unchanged by the packing for the device: read back as fp32 they
 * have the bits of compute_dequantize, and as bf16 those bits rounded to nearest even, as whole
 * matrices or as embedding rows.
 *
 * Method: random blocks of many shapes: columns that do not fill a step of 256, odd numbers of
 * rows, float types with any even number of columns; results lie before a guard that must not
 * change. */
#include "tests/gpu/weights_fixture.h"

#include <cstdio>

namespace
{
void test_matrix(gpu::random &random, enum compute_type type, uint32_t rows, uint32_t cols)
{
    char what[96];
    gpu::matrix m(random, type, rows, cols);
    const size_t count = (size_t)rows * cols;
    const std::vector<float> guard(8, 42.0f);
    std::vector<float> want = m.numbers;
    want.insert(want.end(), guard.begin(), guard.end());

    gpu::buffer<float> out(std::vector<float>(count + 8, 42.0f));
    cuda_dequantize_f32(nullptr, &m.weights, out);
    snprintf(what, sizeof(what), "%s %ux%u as fp32", compute_type_name(type), rows, cols);
    gpu::expect_equal(what, out.get().data(), want.data(), want.size() * sizeof(float));

    gpu::buffer<__nv_bfloat16> halves(gpu::rounded(std::vector<float>(count + 8, 42.0f)));
    cuda_dequantize(nullptr, &m.weights, halves);
    snprintf(what, sizeof(what), "%s %ux%u as bf16", compute_type_name(type), rows, cols);
    gpu::expect_equal(what, halves.get().data(), gpu::rounded(want).data(), want.size() * 2);

    std::vector<uint32_t> ids(5);
    std::vector<float> want_rows;
    for (uint32_t &id : ids) {
        id = random.below(rows);
        want_rows.insert(want_rows.end(), m.numbers.begin() + (size_t)id * cols,
                         m.numbers.begin() + (size_t)(id + 1) * cols);
    }
    want_rows.insert(want_rows.end(), guard.begin(), guard.end());
    gpu::buffer<uint32_t> ids_device(ids);
    gpu::buffer<float> y(std::vector<float>(want_rows.size(), 42.0f));
    cuda_embed(nullptr, &m.weights, ids_device, (uint32_t)ids.size(), y);
    snprintf(what, sizeof(what), "%s %ux%u embedded", compute_type_name(type), rows, cols);
    gpu::expect_equal(what, y.get().data(), want_rows.data(), want_rows.size() * sizeof(float));
}
} // namespace

int main()
{
    gpu::begin();
    gpu::random random(gpu::seed());
    for (int i = 0; i < COMPUTE_TYPE_COUNT; i++) {
        const enum compute_type type = (enum compute_type)i;
        const uint32_t block = compute_type_block_elements(type);
        for (uint32_t blocks : {1u, 2u, 7u, 8u, 9u, 18u, 67u})
            test_matrix(random, type, 1 + random.below(40),
                        block == 1 ? 2 * blocks : block * blocks);
        test_matrix(random, type, 3, 2560);
        if (gpu::large())
            test_matrix(random, type, 1000, 14336);
    }
    return gpu::finish();
}
