/* Goal: products of 1 to 16 rows with weights of every type are right, for any shape, alone and in
 * sets, with and without bias, and added to y or not. The bits of a row depend neither on the
 * number of rows nor on the set.
 *
 * Method: random weights as a file has them against compute_dequantize and a plain loop in double
 * over the same (rounded) activations. The error is taken relative to the sum of |w · a|, for sums
 * may cancel. Tolerance 4e-6: fp32 chains of up to some 500 roundings of 2^-24 of what is added up
 * so far, which mostly cancel, on tensor cores of 2^-23 (they cut off). A weight rounded to bf16 in
 * between (2^-9) would stand out a hundred times. Results lie before a guard that must not change.
 */
#include "compute/cuda/launch.cuh"
#include "tests/gpu/weights_fixture.h"

#include <cmath>
#include <cstdio>

namespace
{
constexpr float GUARD = 42.0f;
constexpr double NEAR = 4e-6;

char what[160];

const char *name(const char *kernel, const gpu::matrix &m, uint32_t rows)
{
    snprintf(what, sizeof(what), "%s %s %ux%u, %u rows", kernel, compute_type_name(m.type),
             m.weights.rows, m.weights.cols, rows);
    return what;
}

struct input {
    input(gpu::random &random, uint32_t rows, uint32_t cols, bool exact)
        : values(gpu::normals(random, (size_t)rows * cols)), a(gpu::rounded(values)), f32(values),
          exact(exact)
    {
        if (!exact)
            values = gpu::floats(gpu::rounded(values));
    }
    std::vector<float> values; /* The values that are multiplied. */
    gpu::buffer<__nv_bfloat16> a;
    gpu::buffer<float> f32;
    bool exact;
};

/* Both errors are divided by the sum of magnitudes. */
void compare(const char *text, const gpu::matrix &m, const std::vector<float> &values,
             uint32_t rows, std::vector<float> got, const float *bias, const float *base)
{
    const uint32_t outputs = m.weights.rows, cols = m.weights.cols;
    std::vector<float> want(got.size(), GUARD);
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t n = 0; n < outputs; n++) {
            const size_t at = (size_t)r * outputs + n;
            double sum = bias != nullptr ? bias[n] : 0, magnitude = fabs(sum);
            for (uint32_t i = 0; i < cols; i++) {
                const double product =
                    (double)m.numbers[(size_t)n * cols + i] * values[(size_t)r * cols + i];
                sum += product;
                magnitude += fabs(product);
            }
            if (base != nullptr) {
                sum += base[at];
                magnitude += fabs(base[at]);
            }
            want[at] = (float)(sum / (magnitude + 1e-30));
            got[at] = (float)(got[at] / (magnitude + 1e-30));
        }
    gpu::expect_near(text, got, want, {NEAR, 0});
}

std::vector<float> multiply(const gpu::matrix &m, const struct input &in, uint32_t first,
                            uint32_t rows, const std::vector<float> *base)
{
    const size_t count = (size_t)rows * m.weights.rows;
    std::vector<float> start(count + 8, GUARD);
    if (base != nullptr)
        std::copy(base->begin(), base->begin() + (long)count, start.begin());
    gpu::buffer<float> y(start);
    const size_t offset = (size_t)first * m.weights.cols;
    cuda_gemv(nullptr, &m.weights, in.a.data + offset, in.exact ? in.f32.data + offset : nullptr,
              rows, base != nullptr, y);
    return y.get();
}

void test_matrix(gpu::random &random, enum compute_type type, uint32_t rows, uint32_t cols,
                 bool exact)
{
    const gpu::matrix m(random, type, rows, cols);
    const struct input in(random, CUDA_GEMV_ROWS, cols, exact);
    const char *kernel = exact ? "exact" : "product";
    const std::vector<float> all = multiply(m, in, 0, CUDA_GEMV_ROWS, nullptr);
    compare(name(kernel, m, CUDA_GEMV_ROWS), m, in.values, CUDA_GEMV_ROWS, all, nullptr, nullptr);
    const std::vector<float> base = gpu::normals(random, all.size());
    const uint32_t some = 1 + random.below(CUDA_GEMV_ROWS);
    compare(name("added", m, some), m, in.values, some, multiply(m, in, 0, some, &base), nullptr,
            base.data());
    for (uint32_t count : {1u, 2u, 3u, 4u, 5u, 8u, 9u, 13u}) {
        std::vector<float> want(all.begin(), all.begin() + (long)((size_t)count * rows));
        want.insert(want.end(), 8, GUARD);
        gpu::expect_equal(name("bits", m, count), multiply(m, in, 0, count, nullptr).data(),
                          want.data(), want.size() * 4);
    }
    if (cols % 8 != 0) /* Row pointers of activations are aligned to 16 bytes. */
        return;
    const uint32_t last = CUDA_GEMV_ROWS - 1;
    gpu::expect_equal(name("bits of the last row alone", m, 1),
                      multiply(m, in, last, 1, nullptr).data(), all.data() + (size_t)last * rows,
                      rows * 4);
}

void test_set(gpu::random &random, const std::vector<enum compute_type> &types, uint32_t cols,
              uint32_t rows)
{
    const struct input in(random, rows, cols, false);
    std::vector<std::unique_ptr<gpu::matrix>> matrices;
    std::vector<std::vector<float>> biases;
    std::vector<std::unique_ptr<gpu::buffer<float>>> biases_device, results;
    const struct cuda_weights *weights[CUDA_GEMV_SET];
    const float *bias[CUDA_GEMV_SET];
    float *y[CUDA_GEMV_SET];
    for (size_t i = 0; i < types.size(); i++) {
        const uint32_t outputs = 1 + random.below(90);
        matrices.push_back(std::make_unique<gpu::matrix>(random, types[i], outputs, cols));
        biases.push_back(gpu::normals(random, outputs));
        biases_device.push_back(std::make_unique<gpu::buffer<float>>(biases[i]));
        results.push_back(std::make_unique<gpu::buffer<float>>(
            std::vector<float>((size_t)rows * outputs + 8, GUARD)));
        weights[i] = &matrices[i]->weights;
        bias[i] = i % 2 == 0 ? biases_device[i]->data : nullptr;
        y[i] = results[i]->data;
    }
    cuda_gemv_set(nullptr, weights, bias, (uint32_t)types.size(), in.a, nullptr, rows, false, y);
    for (size_t i = 0; i < types.size(); i++) {
        compare(name("of a set", *matrices[i], rows), *matrices[i], in.values, rows,
                results[i]->get(), i % 2 == 0 ? biases[i].data() : nullptr, nullptr);
        if (i % 2 != 0)
            gpu::expect_equal(name("bits of a set", *matrices[i], rows), results[i]->get().data(),
                              multiply(*matrices[i], in, 0, rows, nullptr).data(),
                              results[i]->size * 4);
    }
}

/* A row with NaN or infinity has no valid result; its neighbours have. */
void test_poison(gpu::random &random, enum compute_type type)
{
    const uint32_t cols = 512, rows = 5;
    const gpu::matrix m(random, type, 24, cols);
    struct input in(random, rows, cols, false);
    const std::vector<float> want = multiply(m, in, 0, rows, nullptr);
    std::vector<float> values = in.values;
    values[2 * cols + 300] = NAN;
    values[3 * cols + 5] = INFINITY;
    in.a.put(gpu::rounded(values));
    const std::vector<float> got = multiply(m, in, 0, rows, nullptr);
    for (uint32_t n = 0; n < 24; n++)
        if (std::isfinite(got[2 * 24 + n]))
            gpu::fail("%s: row 2 has a NaN, its result %u has not", compute_type_name(type), n);
    gpu::expect_equal(name("beside NaN", m, rows), got.data(), want.data(), 2 * 24 * 4);
    gpu::expect_equal(name("beside NaN", m, rows), got.data() + 4 * 24, want.data() + 4 * 24,
                      24 * 4);
}
} // namespace

int main()
{
    gpu::begin();
    gpu::random random(gpu::seed());
    for (int i = 0; i < COMPUTE_TYPE_COUNT; i++) {
        const enum compute_type type = (enum compute_type)i;
        const uint32_t block = compute_type_block_elements(type);
        for (uint32_t cols : {32u, 64u, 96u, 256u, 288u, 576u, 1536u, 2304u})
            if (cols % block == 0)
                test_matrix(random, type, 1 + random.below(100), cols, random.below(4) == 0);
        for (uint32_t cols : {2u, 4u, 6u, 8u, 30u, 70u, 130u, 1000u, 2058u})
            if (block == 1)
                test_matrix(random, type, 1 + random.below(40), cols, random.below(4) == 0);
        test_matrix(random, type, 33, 512, true);
        test_set(random, {type, type, type}, 512, 1);
        test_set(random, {type, type}, 768, 1 + random.below(CUDA_GEMV_ROWS));
        test_poison(random, type);
        if (gpu::large()) {
            test_matrix(random, type, 4096, 4096, false);
            test_matrix(random, type, 1024, 14336, false);
            test_matrix(random, type, 16000, 512, false); /* Several tiles per block. */
        }
    }
    for (enum compute_type type : {COMPUTE_BF16, COMPUTE_Q8_0, COMPUTE_Q4_K, COMPUTE_F8_E4M3})
        test_matrix(random, type, 900, 256, false); /* More tiles than the emulator runs blocks. */
    for (int i = 0; i < 4; i++)                     /* Other scales and other sets. */
        test_set(random, {COMPUTE_F8_E4M3, COMPUTE_F8_E4M3, COMPUTE_F8_E4M3}, 640, 5);
    test_set(random, {COMPUTE_Q4_K, COMPUTE_Q4_K, COMPUTE_Q6_K, COMPUTE_BF16}, 1024, 7);
    return gpu::finish();
}
