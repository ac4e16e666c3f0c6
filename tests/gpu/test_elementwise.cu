/* Goal: norms, gated activations, scale, gather and bias are right for any shape, and a row's bits
 * do not depend on the rows beside it.
 *
 * Method: random rows of many lengths, whole vectors of 4 and not, against double. Tolerance 1e-6
 * of the result: an element is a handful of fp32 roundings (2^-24 each), a sum of 4096 squares in
 * 32 lanes or more some 2^-20 at most, expf 2 ulp; bf16 is compared with the fp32 that is rounded.
 * layer_norm subtracts the mean: its tolerance has a part that follows from the row (mean_errors).
 * Then each row again alone, bit for bit. */
#include "tests/gpu/weights_fixture.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace
{
const struct tolerance_set {
    gpu::tolerance near = {1e-7, 1e-6};
} tolerances;

char what[128];

const char *name(const char *kernel, uint32_t rows, uint32_t cols)
{
    snprintf(what, sizeof(what), "%s %ux%u", kernel, rows, cols);
    return what;
}

std::vector<float> norm_reference(const std::vector<float> &x, const std::vector<uint32_t> &rows_in,
                                  uint32_t cols, const std::vector<float> &weight, double epsilon)
{
    std::vector<float> out;
    for (uint32_t row : rows_in) {
        double sum = 0;
        for (uint32_t i = 0; i < cols; i++)
            sum += (double)x[(size_t)row * cols + i] * x[(size_t)row * cols + i];
        for (uint32_t i = 0; i < cols; i++)
            out.push_back(
                (float)(x[(size_t)row * cols + i] / sqrt(sum / cols + epsilon) * weight[i]));
    }
    return out;
}

std::vector<uint32_t> upwards(uint32_t rows)
{
    std::vector<uint32_t> out(rows);
    for (uint32_t i = 0; i < rows; i++)
        out[i] = i;
    return out;
}

void test_norm(gpu::random &random, uint32_t rows, uint32_t cols)
{
    const std::vector<float> x = gpu::normals(random, (size_t)rows * cols);
    const std::vector<float> weight = gpu::normals(random, cols);
    std::vector<uint32_t> some;
    for (uint32_t i = 0; i < rows; i += 1 + random.below(3))
        some.push_back(i);
    gpu::buffer<float> x_device(x), weight_device(weight), f32((size_t)rows * cols);
    gpu::buffer<uint32_t> some_device(some);
    gpu::buffer<__nv_bfloat16> out((size_t)rows * cols);
    cuda_norm(nullptr, x_device, nullptr, rows, cols, weight_device, 1e-5f, out, f32);
    const std::vector<float> got = f32.get();
    gpu::expect_near(name("norm", rows, cols), got,
                     norm_reference(x, upwards(rows), cols, weight, 1e-5), tolerances.near);
    gpu::expect_equal(name("norm as bf16", rows, cols), out.get().data(), gpu::rounded(got).data(),
                      got.size() * 2);
    /* The picked rows, one output at a time. */
    gpu::buffer<float> picked(some.size() * cols);
    cuda_norm(nullptr, x_device, some_device, (uint32_t)some.size(), cols, weight_device, 1e-5f,
              nullptr, picked);
    std::vector<float> want;
    for (uint32_t row : some)
        want.insert(want.end(), got.begin() + (size_t)row * cols,
                    got.begin() + (size_t)(row + 1) * cols);
    gpu::expect_equal(name("norm of picked rows", rows, cols), picked.get().data(), want.data(),
                      want.size() * 4);
    /* x += norm */
    const std::vector<float> base = gpu::normals(random, (size_t)rows * cols);
    gpu::buffer<float> sum(base);
    cuda_norm_add(nullptr, x_device, rows, cols, weight_device, 1e-5f, sum);
    want = got;
    for (size_t i = 0; i < want.size(); i++)
        want[i] += base[i];
    gpu::expect_near(name("norm_add", rows, cols), sum.get(), want, {1e-6, 3e-6});
}

/* Returns for each element of a layer norm the error that the mean of its row causes. The mean is
 * rounded, and subtracting it from an element cancels most of both:
 *
 *     roundings · 2^-24 · mean |x| · |weight| / sqrt(variance + epsilon)
 *
 * roundings: of the sum of a thread, of the sums in a warp and over 32 warps (5 each), and of the
 * division; a row of few elements has fewer. With mean |x| = 3 this is 3e-6 of the weight if the
 * variance is 1, and 1e-4 of the weight for two equal elements. centred: the rows without their
 * means. */
std::vector<double> mean_errors(const std::vector<float> &x, const std::vector<float> &centred,
                                uint32_t rows, uint32_t cols, const std::vector<float> &weight,
                                double epsilon)
{
    const double roundings = std::min((double)cols, std::max(4.0, cols / 1024.0) + 11);
    std::vector<double> out;
    for (uint32_t row = 0; row < rows; row++) {
        double size = 0, squares = 0;
        for (size_t i = (size_t)row * cols; i < (size_t)(row + 1) * cols; i++) {
            size += std::fabs((double)x[i]) / cols;
            squares += (double)centred[i] * centred[i];
        }
        for (uint32_t i = 0; i < cols; i++)
            out.push_back(roundings * 0x1p-24 * size * std::fabs((double)weight[i]) /
                          sqrt(squares / cols + epsilon));
    }
    return out;
}

void test_layer_norm(gpu::random &random, uint32_t rows, uint32_t cols)
{
    std::vector<float> x = gpu::normals(random, (size_t)rows * cols), centred(x);
    const std::vector<float> weight = gpu::normals(random, cols), bias = gpu::normals(random, cols);
    for (uint32_t row = 0; row < rows; row++) {
        double sum = 0;
        for (uint32_t i = 0; i < cols; i++)
            sum += x[(size_t)row * cols + i] += 3;
        for (uint32_t i = 0; i < cols; i++)
            centred[(size_t)row * cols + i] = (float)(x[(size_t)row * cols + i] - sum / cols);
    }
    std::vector<float> want = norm_reference(centred, upwards(rows), cols, weight, 1e-5);
    std::vector<double> limits = mean_errors(x, centred, rows, cols, weight, 1e-5);
    for (size_t i = 0; i < want.size(); i++)
        limits[i] += 6e-6 * std::fabs((double)want[i]);
    gpu::buffer<float> x_device(x), weight_device(weight), bias_device(bias), f32(x.size());
    gpu::buffer<__nv_bfloat16> out(x.size());
    cuda_layer_norm(nullptr, x_device, nullptr, rows, cols, weight_device, nullptr, 1e-5f, out,
                    f32);
    gpu::expect_within(name("layer_norm", rows, cols), f32.get(), want, limits);
    gpu::expect_equal(name("layer_norm as bf16", rows, cols), out.get().data(),
                      gpu::rounded(f32.get()).data(), x.size() * 2);
    cuda_layer_norm(nullptr, x_device, nullptr, rows, cols, weight_device, bias_device, 1e-5f,
                    nullptr, f32);
    for (size_t i = 0; i < want.size(); i++) {
        want[i] += bias[i % cols];
        limits[i] += 0x1p-23 * std::fabs((double)want[i]);
    }
    gpu::expect_within(name("layer_norm with bias", rows, cols), f32.get(), want, limits);
    cuda_norm(nullptr, x_device, nullptr, rows, cols, nullptr, 1e-5f, nullptr, f32);
    gpu::expect_equal(name("no norm", rows, cols), f32.get().data(), x.data(), x.size() * 4);
}

void test_head_norm(gpu::random &random, uint32_t rows, uint32_t heads, uint32_t dim)
{
    const std::vector<float> x = gpu::normals(random, (size_t)rows * heads * dim);
    const std::vector<float> weight = gpu::normals(random, dim);
    gpu::buffer<float> x_device(x), weight_device(weight);
    cuda_head_norm(nullptr, weight_device, 1e-6f, rows, heads, dim, x_device);
    gpu::expect_near(name("head_norm", rows * heads, dim), x_device.get(),
                     norm_reference(x, upwards(rows * heads), dim, weight, 1e-6), tolerances.near);
}

void test_gated(gpu::random &random, enum compute_activation activation, uint32_t rows,
                uint32_t cols)
{
    static const char *const kinds[] = {"silu", "gelu", "gelu (erf)"};
    std::vector<float> gate = gpu::normals(random, (size_t)rows * cols), want(gate.size());
    const std::vector<float> up = gpu::normals(random, gate.size());
    for (float &value : gate)
        value *= 4;
    gate[0] = 200, gate[gate.size() - 1] = -200; /* Large values of both signs. */
    for (size_t i = 0; i < gate.size(); i++) {
        const double g = gate[i], u = sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
        want[i] = (float)((activation == COMPUTE_SILU   ? g / (1 + exp(-g))
                           : activation == COMPUTE_GELU ? g / (1 + exp(-2 * u))
                                                        : g * erfc(-g * sqrt(0.5)) / 2) *
                          up[i]);
    }
    gpu::buffer<float> gate_device(gate), up_device(up), f32(gate.size());
    gpu::buffer<__nv_bfloat16> out(gate.size());
    cuda_gated(nullptr, activation, gate_device, up_device, rows, cols, out, f32);
    const std::vector<float> got = f32.get();
    /* x itself is rounded, so the error of e^x grows with |x|, which is up to about 90 here. */
    gpu::expect_near(name(kinds[activation], rows, cols), got, want, {1e-6, 4e-6});
    gpu::expect_equal(name("gated as bf16", rows, cols), out.get().data(), gpu::rounded(got).data(),
                      got.size() * 2);
}

void test_simple(gpu::random &random, uint32_t rows, uint32_t cols)
{
    const std::vector<float> x = gpu::normals(random, (size_t)rows * cols);
    const std::vector<float> bias = gpu::normals(random, cols);
    std::vector<float> scaled(x), biased(x), gathered;
    for (size_t i = 0; i < x.size(); i++) {
        scaled[i] = x[i] * 1.7f;
        biased[i] = x[i] + bias[i % cols];
    }
    gpu::buffer<float> a(x), b(x), bias_device(bias);
    cuda_scale(nullptr, 1.7f, x.size(), a);
    gpu::expect_equal(name("scale", rows, cols), a.get().data(), scaled.data(), x.size() * 4);
    cuda_bias_add(nullptr, bias_device, rows, cols, b);
    gpu::expect_equal(name("bias_add", rows, cols), b.get().data(), biased.data(), x.size() * 4);
    std::vector<float> added(x);
    for (size_t i = 0; i < x.size(); i++)
        added[i] = fmaf(0.22f, scaled[i], x[i]);
    gpu::buffer<float> sum(x);
    cuda_scale_add(nullptr, 0.22f, x.size(), a, sum);
    gpu::expect_equal(name("scale_add", rows, cols), sum.get().data(), added.data(), x.size() * 4);
    std::vector<uint32_t> picked;
    for (uint32_t i = random.below(2); i < rows; i += 1 + random.below(2)) {
        picked.push_back(i);
        gathered.insert(gathered.end(), x.begin() + (size_t)i * cols,
                        x.begin() + (size_t)(i + 1) * cols);
    }
    if (picked.empty())
        return;
    gpu::buffer<float> from(x), to(gathered.size());
    gpu::buffer<uint32_t> picked_device(picked);
    cuda_gather(nullptr, from, picked_device, (uint32_t)picked.size(), cols, to);
    gpu::expect_equal(name("gather", rows, cols), to.get().data(), gathered.data(),
                      gathered.size() * 4);
}
} // namespace

int main()
{
    gpu::begin();
    gpu::random random(gpu::seed());
    std::vector<uint32_t> lengths = {1, 2, 6, 31, 64, 128, 130, 576, 1023, 1536, 4096, 4100};
    if (gpu::large())
        lengths.insert(lengths.end(), {8192, 14336, 28672});
    for (uint32_t cols : lengths) {
        const uint32_t rows = 1 + random.below(gpu::large() ? 300 : 6);
        test_norm(random, rows, cols);
        test_layer_norm(random, rows, cols);
        test_simple(random, rows, cols);
        test_gated(random, COMPUTE_SILU, rows, cols);
        test_gated(random, COMPUTE_GELU, rows, cols);
        test_gated(random, COMPUTE_GELU_ERF, rows, cols);
    }
    for (uint32_t dim : {2u, 64u, 80u, 128u, 256u})
        test_head_norm(random, 1 + random.below(5), 1 + random.below(9), dim);
    return gpu::finish();
}
