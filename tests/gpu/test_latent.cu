/* Goal: the operations of latent attention beside attention itself, and those of low-rank adapters,
 * are right for any shape, and a row's bits do not depend on the rows beside it.
 *
 * Method: random numbers, against double. Tolerance: a sum of n products of size 1 has n roundings
 * of 2^-24 of at most its size, which is about sqrt(n). Attention over a latent cache is compared
 * in test_attention_cpu.cu. */
#include "tests/gpu/weights_fixture.h"

#include <cmath>
#include <cstdio>

namespace
{
char what[128];

/* ---- the vectors that are cached ---- */

void test_join(gpu::random &random, uint32_t rows, uint32_t own_cols, uint32_t cols)
{
    const std::vector<float> own = gpu::normals(random, (size_t)rows * own_cols);
    const std::vector<float> latent = gpu::normals(random, (size_t)rows * cols);
    const std::vector<float> weight = gpu::normals(random, cols);
    gpu::buffer<float> own_device(own), latent_device(latent), weight_device(weight);
    gpu::buffer<float> k((size_t)rows * (own_cols + cols));
    cuda_latent_join(nullptr, weight_device, 1e-5f, rows, own_cols, cols, own_device, latent_device,
                     k);
    std::vector<float> want;
    for (uint32_t r = 0; r < rows; r++) {
        double squares = 0;
        for (uint32_t i = 0; i < cols; i++)
            squares += (double)latent[(size_t)r * cols + i] * latent[(size_t)r * cols + i];
        for (uint32_t i = 0; i < own_cols; i++)
            want.push_back(own[(size_t)r * own_cols + i]);
        for (uint32_t i = 0; i < cols; i++)
            want.push_back(
                (float)(latent[(size_t)r * cols + i] / sqrt(squares / cols + 1e-5) * weight[i]));
    }
    snprintf(what, sizeof(what), "join %u x %u + %u", rows, own_cols, cols);
    gpu::expect_near(what, k.get(), want, {1e-7, 1e-6});
}

/* ---- products of heads ---- */

struct heads {
    uint32_t count, outputs, cols, carried; /* carried: values that are copied. */
};

std::vector<float> products_reference(const heads &h, const std::vector<float> &w, size_t w_row,
                                      const std::vector<float> &x, uint32_t rows)
{
    std::vector<float> out;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t head = 0; head < h.count; head++) {
            const float *input = x.data() + ((size_t)r * h.count + head) * (h.cols + h.carried);
            out.insert(out.end(), input + h.cols, input + h.cols + h.carried);
            for (uint32_t o = 0; o < h.outputs; o++) {
                double sum = 0;
                for (uint32_t i = 0; i < h.cols; i++)
                    sum += (double)w[(head * h.outputs + o) * w_row + i] * input[i];
                out.push_back((float)sum);
            }
        }
    return out;
}

void test_products(gpu::random &random, const heads &h, uint32_t rows)
{
    const size_t w_row = (h.cols + 3) / 4 * 4, width = h.carried + h.outputs;
    const std::vector<float> w = gpu::normals(random, h.count * h.outputs * w_row);
    const std::vector<float> x =
        gpu::normals(random, (size_t)rows * h.count * (h.cols + h.carried));
    gpu::buffer<float> w_device(w), x_device(x), f32(rows * h.count * width);
    gpu::buffer<__nv_bfloat16> bf16(rows * h.count * width);
    struct cuda_latent_product p = {w_device,           w_row, h.count, h.outputs, h.cols, x_device,
                                    h.cols + h.carried, rows,  bf16,    f32};
    cuda_latent_multiply(nullptr, &p);
    const std::vector<float> got = f32.get();
    snprintf(what, sizeof(what), "%u heads of %u x %u, %u carried, %u rows", h.count, h.outputs,
             h.cols, h.carried, rows);
    gpu::expect_near(what, got, products_reference(h, w, w_row, x, rows), {2e-7 * h.cols, 2e-6});
    gpu::expect_equal(what, bf16.get().data(), gpu::rounded(got).data(), got.size() * 2);
    /* The last row with fewer rows beside it, by the kernel that has computed all. */
    p.rows = rows > CUDA_GEMV_ROWS ? CUDA_GEMV_ROWS + 1 : 1;
    const uint32_t first = rows - p.rows;
    p.x += (size_t)first * h.count * p.x_width;
    gpu::buffer<float> again(p.rows * h.count * width);
    p.out = nullptr;
    p.out_f32 = again;
    cuda_latent_multiply(nullptr, &p);
    gpu::expect_equal(what, again.get().data(), got.data() + first * h.count * width,
                      again.size * sizeof(float));
}

/* ---- low-rank adapters ---- */

struct adapter {
    uint32_t rank;
    std::vector<float> down, up; /* [rank × cols], [rank × rows] */
};

/* The rows that have an adapter, ordered by adapter, as graph.cu writes them. */
void list_rows(const std::vector<uint32_t> &adapter_of, uint32_t adapters,
               std::vector<uint32_t> &rows, std::vector<uint32_t> &of_rows)
{
    for (uint32_t a = 1; a <= adapters; a++)
        for (uint32_t r = 0; r < adapter_of.size(); r++)
            if (adapter_of[r] == a) {
                rows.push_back(r);
                of_rows.push_back(a);
            }
    rows.resize(adapter_of.size());
    of_rows.resize(adapter_of.size());
}

std::vector<float> low_rank_run(const std::vector<uint32_t> &adapter_of,
                                const struct compute_low_ranks &ranks, uint32_t adapters,
                                const std::vector<float> &x, uint32_t cols,
                                const std::vector<float> &y)
{
    std::vector<uint32_t> rows, of_rows;
    list_rows(adapter_of, adapters, rows, of_rows);
    gpu::buffer<uint32_t> rows_device(rows), adapters_device(of_rows);
    gpu::buffer<float> x_device(x), y_device(y), factors(rows.size() * ranks.rank_max);
    struct cuda_sequences s = {};
    s.rows = (uint32_t)rows.size();
    s.adapted_rows = rows_device;
    s.adapters = adapters_device;
    cuda_low_rank(nullptr, &s, &ranks, x_device, cols, factors, y_device);
    return y_device.get();
}

void test_low_rank(gpu::random &random, uint32_t rows, uint32_t cols, uint32_t outputs)
{
    const uint32_t count = 3, ranks[count] = {1 + random.below(20), 0, 8};
    std::vector<gpu::buffer<float> *> memory;
    std::vector<struct compute_low_rank> each;
    adapter adapters[count];
    uint32_t rank_max = 8;
    for (uint32_t a = 0; a < count; a++) {
        adapters[a] = {ranks[a], gpu::normals(random, (size_t)ranks[a] * cols),
                       gpu::normals(random, (size_t)ranks[a] * outputs)};
        rank_max = ranks[a] > rank_max ? ranks[a] : rank_max;
        if (ranks[a] > 0) {
            memory.push_back(new gpu::buffer<float>(adapters[a].down));
            memory.push_back(new gpu::buffer<float>(adapters[a].up));
        }
        each.push_back({ranks[a], ranks[a] > 0 ? memory[memory.size() - 2]->data : nullptr,
                        ranks[a] > 0 ? memory[memory.size() - 1]->data : nullptr});
    }
    gpu::buffer<struct compute_low_rank> each_device(each);
    const struct compute_low_ranks all = {each_device, outputs, rank_max};
    std::vector<uint32_t> adapter_of;
    for (uint32_t r = 0; r < rows; r++)
        adapter_of.push_back(random.below(count + 1));
    const std::vector<float> x = gpu::normals(random, (size_t)rows * cols);
    const std::vector<float> y = gpu::normals(random, (size_t)rows * outputs);
    std::vector<float> want = y;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t k = 0; adapter_of[r] > 0 && k < ranks[adapter_of[r] - 1]; k++) {
            const adapter &a = adapters[adapter_of[r] - 1];
            double factor = 0;
            for (uint32_t i = 0; i < cols; i++)
                factor += (double)a.down[(size_t)k * cols + i] * x[(size_t)r * cols + i];
            for (uint32_t i = 0; i < outputs; i++)
                want[(size_t)r * outputs + i] += (float)(factor * a.up[(size_t)k * outputs + i]);
        }
    snprintf(what, sizeof(what), "adapters of ranks %u, 0, 8: %u x %u x %u", ranks[0], rows, cols,
             outputs);
    const std::vector<float> got = low_rank_run(adapter_of, all, count, x, cols, y);
    gpu::expect_near(what, got, want, {1e-5 * sqrt(cols * rank_max), 1e-5});
    /* The last row alone. */
    const std::vector<float> last =
        low_rank_run({adapter_of.back()}, all, count, std::vector<float>(x.end() - cols, x.end()),
                     cols, std::vector<float>(y.end() - outputs, y.end()));
    gpu::expect_equal(what, last.data(), got.data() + (size_t)(rows - 1) * outputs, outputs * 4);
    for (gpu::buffer<float> *buffer : memory)
        delete buffer;
}
} // namespace

int main()
{
    gpu::begin();
    gpu::random random(gpu::seed());
    test_join(random, 1, 64, 512);
    test_join(random, 5, 8, 32);
    test_join(random, 3, 20, 1000);
    for (uint32_t rows : {1, 9, 16, 17, 70}) {
        test_products(random, {2, 96, 64, 16}, rows);
        test_products(random, {3, 32, 35, 0}, rows);
        test_products(random, {1, 130, 16, 7}, rows);
    }
    if (gpu::large())
        test_products(random, {128, 512, 128, 64}, 300);
    for (uint32_t rows : {1, 2, 7, 8, 30}) {
        test_low_rank(random, rows, 96, 300);
        test_low_rank(random, rows, 35, 10);
    }
    return gpu::finish();
}
