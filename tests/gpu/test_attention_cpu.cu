/* Goal: the GPU reads a cache that the CPU backend has written: a prompt computed on a CPU
 * continues on a GPU. A latent cache has the same bytes whichever of them writes it.
 *
 * Method: prompts of random K and V are stored by the CPU backend (portable C), in all layouts;
 * then rows at the end of each are attended to by both backends over the same bytes. Tolerance:
 * both round q and the weights for integer caches, the GPU to 11 bits also for f16; V has variance
 * 1. */
#include "compute/cuda/kernels.cuh"
#include "tests/gpu/paged.h"

extern "C" {
#include "tests/gpu/attention_cpu.h"
}

#include <string>

namespace
{
using namespace paged;

/* Rows [first, tokens) of a sequence as a batch on the device. */
struct rows_on_device {
    rows_on_device(const sequence &q, uint32_t first, uint32_t tokens)
        : rows(tokens - first), sequence_of(std::vector<uint32_t>(rows, 0)),
          position_of(from(first, rows)), zero(std::vector<uint32_t>{0}),
          count(std::vector<uint32_t>{rows}), begin(std::vector<uint32_t>{first}), blocks(q.blocks)
    {
        batch = {sequence_of, position_of, zero, count, begin, zero, blocks, rows, 1, rows, tokens};
    }
    static std::vector<uint32_t> from(uint32_t first, uint32_t count)
    {
        std::vector<uint32_t> out;
        for (uint32_t i = 0; i < count; i++)
            out.push_back(first + i);
        return out;
    }
    uint32_t rows;
    gpu::buffer<uint32_t> sequence_of, position_of, zero, count, begin, blocks;
    struct cuda_sequences batch;
};

/* Computes the attention of the CPU, which fills host.bytes. */
std::vector<float> on_cpu(cache &host, const sequence &q, uint32_t heads,
                          const struct compute_attention *parameters)
{
    std::vector<float> out((size_t)q.tokens * heads * compute_kv_value_dim(&host.kv));
    const struct compute_sequence whole = {0, q.tokens, 0, 0, q.blocks.data(), 0};
    const struct compute_batch batch = {q.tokens, 1, &whole};
    host.kv.base = host.bytes.data();
    attention_cpu_run(&batch, &host.kv, heads, parameters, q.q.data(), q.k.data(), q.v.data(),
                      out.data());
    return out;
}

/* Compares rows [first, tokens) over the cache of the CPU with `want`, those of all rows. */
void compare(const cache &host, const sequence &q, uint32_t heads,
             const struct compute_attention *parameters, uint32_t first,
             const std::vector<float> &want, const char *name, gpu::buffer<uint8_t> &scratch)
{
    gpu::buffer<uint8_t> memory(host.bytes);
    struct compute_kv kv = host.kv;
    kv.base = memory.data;
    const rows_on_device rows(q, first, q.tokens);
    const size_t q_width = (size_t)heads * compute_kv_key_dim(&kv);
    const size_t width = (size_t)heads * compute_kv_value_dim(&kv);
    gpu::buffer<float> queries(std::vector<float>(q.q.begin() + first * q_width, q.q.end()));
    gpu::buffer<float> out(rows.rows * width);
    cuda_attention(NULL, &rows.batch, &kv, heads, parameters, queries, scratch, NULL, out);
    const double tolerance = kv.dtype == COMPUTE_KV_F32 ? 2e-5 : 8e-3;
    gpu::expect_near(name, out.get(), std::vector<float>(want.begin() + first * width, want.end()),
                     {tolerance, 0});
}

void check(gpu::random &random, const shape &s, uint32_t tokens, gpu::buffer<uint8_t> &scratch)
{
    std::vector<sequence> one = {draw_sequence(random, s, tokens)};
    cache host(s, shuffle_blocks(random, s, one));
    const struct compute_attention parameters = {1 / std::sqrt((float)s.dim),
                                                 random.below(2) * (1 + random.below(tokens)),
                                                 random.below(2) * 30.0f, NULL};
    const std::vector<float> want = on_cpu(host, one[0], s.heads, &parameters);
    for (uint32_t rows : {tokens, std::min(tokens, 3u)}) { /* For each of the two kernels. */
        char name[120];
        snprintf(name, sizeof(name), "%u heads over %u, dim %u, dtype %d, %u of %u rows", s.heads,
                 s.kv_heads, s.dim, (int)s.dtype, rows, tokens);
        compare(host, one[0], s.heads, &parameters, tokens - rows, want, name, scratch);
    }
}

/* A latent cache of `own` + `rank` values. The last rows are computed in a small batch, whose
 * context is split, and together with many others. */
void check_latent(gpu::random &random, uint32_t heads, uint32_t own, uint32_t rank,
                  enum compute_kv_dtype dtype, uint32_t tokens, gpu::buffer<uint8_t> &scratch)
{
    const shape s = {heads, 1, (own + rank) / 2, 16, dtype};
    std::vector<sequence> one = {
        draw_sequence(random, {2 * heads, 2, s.dim, 16, dtype}, tokens)}; /* Twice as wide. */
    cache host(s, shuffle_blocks(random, s, one));
    const sequence &q = one[0];
    host.kv.latent = rank;
    const std::vector<uint8_t> empty = host.bytes;
    const struct compute_attention parameters = {1 / std::sqrt((float)(own + rank)),
                                                 random.below(2) * (1 + random.below(tokens)),
                                                 random.below(2) * 30.0f, NULL};
    const std::vector<float> want = on_cpu(host, q, heads, &parameters);
    char name[120];
    snprintf(name, sizeof(name), "latent %u + %u, %u heads, dtype %d, window %u, %u tokens", own,
             rank, heads, (int)dtype, parameters.window, tokens);
    for (uint32_t rows : {3u, 65u}) /* On the emulator the widest would take long. */
        if (rows <= tokens && (rows == 3 || rank < 512 || gpu::large()))
            compare(host, q, heads, &parameters, tokens - rows, want, name, scratch);
    gpu::buffer<uint8_t> memory(empty);
    struct compute_kv kv = host.kv;
    kv.base = memory.data;
    const rows_on_device rows(q, 0, tokens);
    gpu::buffer<float> queries(q.q), keys(q.k);
    cuda_rope_store(NULL, NULL, 0, false, &rows.batch, &kv, heads, queries, keys, NULL);
    gpu::expect_equal(name, memory.get().data(), host.bytes.data(), host.bytes.size());
}
} // namespace

int main()
{
    gpu::begin();
    gpu::random random(gpu::seed());
    gpu::buffer<uint8_t> scratch(64 << 20);
    GPU_CHECK(cudaMemset(scratch, 0, scratch.size));
    for (int dtype = 0; dtype < COMPUTE_KV_DTYPE_COUNT; dtype++)
        for (uint32_t dim : {64, 80, 128})
            for (uint32_t block_tokens : {8, 16})
                check(random, {6, 2, dim, block_tokens, (enum compute_kv_dtype)dtype},
                      1 + random.below(300), scratch);
    for (int dtype = 0; dtype < COMPUTE_KV_DTYPE_COUNT; dtype++) {
        const enum compute_kv_dtype type = (enum compute_kv_dtype)dtype;
        check_latent(random, 20, 64, 512, type, 260 + random.below(60), scratch);
        check_latent(random, 4, 8, 32, type, 1 + random.below(900), scratch);
        check_latent(random, 70, 20, 96, type, 1 + random.below(300), scratch);
    }
    return gpu::finish();
}
