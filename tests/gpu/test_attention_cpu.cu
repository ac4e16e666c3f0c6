/* Goal: the GPU reads a cache that the CPU backend has written: a prompt computed on a CPU
 * continues on a GPU.
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

void check(gpu::random &random, const shape &s, uint32_t tokens, gpu::buffer<uint8_t> &scratch)
{
    std::vector<sequence> one = {draw_sequence(random, s, tokens)};
    cache host(s, shuffle_blocks(random, s, one));
    host.kv.base = host.bytes.data();
    const struct compute_attention parameters = {1 / std::sqrt((float)s.dim),
                                                 random.below(2) * (1 + random.below(tokens)),
                                                 random.below(2) * 30.0f, NULL};
    const size_t width = (size_t)s.heads * s.dim;
    std::vector<float> want(tokens * width);
    const struct compute_sequence whole = {0, tokens, 0, 0, one[0].blocks.data(), 0};
    const struct compute_batch batch = {tokens, 1, &whole};
    attention_cpu_run(&batch, &host.kv, s.heads, &parameters, one[0].q.data(), one[0].k.data(),
                      one[0].v.data(), want.data());
    gpu::buffer<uint8_t> memory(host.bytes);
    struct compute_kv kv = host.kv;
    kv.base = memory.data;
    for (uint32_t rows : {tokens, std::min(tokens, 3u)}) { /* For each of the two kernels. */
        const uint32_t first = tokens - rows;
        std::vector<uint32_t> row_sequence(rows, 0), row_position;
        for (uint32_t i = 0; i < rows; i++)
            row_position.push_back(first + i);
        gpu::buffer<uint32_t> sequence_of(row_sequence), position_of(row_position);
        gpu::buffer<uint32_t> zero(std::vector<uint32_t>{0}), count(std::vector<uint32_t>{rows});
        gpu::buffer<uint32_t> begin(std::vector<uint32_t>{first}), blocks(one[0].blocks);
        gpu::buffer<float> q(
            std::vector<float>(one[0].q.begin() + (size_t)first * width, one[0].q.end()));
        gpu::buffer<float> out(rows * width);
        const struct cuda_sequences on_device = {sequence_of, position_of, zero, count, begin, zero,
                                                 blocks,      rows,        1,    rows,  tokens};
        cuda_attention(NULL, &on_device, &kv, s.heads, &parameters, q, scratch, NULL, out);
        char name[120];
        snprintf(name, sizeof(name), "%u heads over %u, dim %u, dtype %d, %u of %u rows", s.heads,
                 s.kv_heads, s.dim, (int)s.dtype, rows, tokens);
        const double tolerance = s.dtype == COMPUTE_KV_F32 ? 2e-5 : 8e-3;
        gpu::expect_near(name, out.get(),
                         std::vector<float>(want.begin() + (size_t)first * width, want.end()),
                         {tolerance, 0});
    }
}
} // namespace

int main()
{
    gpu::begin();
    gpu::random random(gpu::seed());
    gpu::buffer<uint8_t> scratch(16 << 20);
    GPU_CHECK(cudaMemset(scratch, 0, scratch.size));
    for (int dtype = 0; dtype < COMPUTE_KV_DTYPE_COUNT; dtype++)
        for (uint32_t dim : {64, 80, 128})
            for (uint32_t block_tokens : {8, 16})
                check(random, {6, 2, dim, block_tokens, (enum compute_kv_dtype)dtype},
                      1 + random.below(300), scratch);
    return gpu::finish();
}
