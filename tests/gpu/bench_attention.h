/* bench_attention: the rates of attention and sampling, as lines of bench_device, which includes it
 * and calls attention_and_sampling on its main thread. Prompts: floating-point operations that
 * causal attention needs, per second. Token steps: bytes of KV read per second. Sampling: the time.
 * Queries, keys and values are random; cuda_rope_store puts K and V into the cache. It checks no
 * results: the tests do. */
#ifndef TESTS_GPU_BENCH_ATTENTION_H
#define TESTS_GPU_BENCH_ATTENTION_H

#include "compute/cuda/kernels.cuh"
#include "compute/cuda/launch.cuh"
#include "tests/gpu/timing.h"

#include <memory>
#include <string>

namespace bench
{
static __global__ void fill_floats(float *out, size_t count, float low, float high)
{
    const size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        uint32_t x = (uint32_t)i * 2654435761u + 12345;
        x ^= x >> 15;
        x *= 2246822519u;
        x ^= x >> 13;
        out[i] = low + (high - low) * ((float)(x & 0xffff) / 65536.0f);
    }
}

inline void fill(float *out, size_t count, float low, float high)
{
    CUDA_LAUNCH(fill_floats, dim3(256), dim3(256), 0, NULL, out, count, low, high);
    GPU_CHECK(cudaGetLastError());
}

struct attention_shape {
    uint32_t heads, kv_heads, dim;
    enum compute_kv_dtype dtype;
};

/* An attention call with `count` sequences. Each sequence has `rows` rows, which are the last of
 * its `tokens` tokens. */
class attention
{
  public:
    attention(attention_shape s, uint32_t count, uint32_t rows, uint32_t tokens)
        : s(s), kv(kv_of(s)), per_sequence((tokens + kv.block_tokens - 1) / kv.block_tokens),
          cache(count * per_sequence * kv.block_bytes), q((size_t)count * rows * s.heads * s.dim),
          out(q.size)
    {
        kv.base = cache.data;
        fill(q, q.size, -2, 2);
        store(count, tokens);
        arrange(count, rows, tokens - rows);
        scratch.reset(new gpu::buffer<uint8_t>(cuda_attention_scratch(&sequences, &kv, s.heads)));
        GPU_CHECK(cudaMemset(scratch->data, 0, scratch->size));
    }

    void run()
    {
        const struct compute_attention parameters = {0.1f, 0, 0, NULL};
        cuda_attention(NULL, &sequences, &kv, s.heads, &parameters, q, scratch->data, out, NULL);
    }

  private:
    static struct compute_kv kv_of(attention_shape s)
    {
        struct compute_kv kv = {};
        kv.block_tokens = 16;
        kv.head_count = s.kv_heads;
        kv.head_dim = s.dim;
        kv.dtype = s.dtype;
        kv.block_bytes = compute_kv_block_bytes(16, s.kv_heads, s.dim, s.dtype);
        return kv;
    }

    /* Block b of sequence i is b * count + i, so that neighbouring blocks of a sequence are far
     * apart. */
    void arrange(uint32_t count, uint32_t rows, uint32_t first)
    {
        std::vector<uint32_t> words[7];
        for (uint32_t i = 0; i < count; i++) {
            for (uint32_t r = 0; r < rows; r++) {
                words[0].push_back(i);
                words[1].push_back(first + r);
            }
            words[2].push_back(i * rows);
            words[3].push_back(rows);
            words[4].push_back(first);
            words[5].push_back(i * per_sequence);
            for (uint32_t b = 0; b < per_sequence; b++)
                words[6].push_back(b * count + i);
        }
        for (int i = 0; i < 7; i++)
            arrays[i].reset(new gpu::buffer<uint32_t>(words[i]));
        sequences = {arrays[0]->data,
                     arrays[1]->data,
                     arrays[2]->data,
                     arrays[3]->data,
                     arrays[4]->data,
                     arrays[5]->data,
                     arrays[6]->data,
                     count * rows,
                     count,
                     rows,
                     per_sequence * kv.block_tokens};
    }

    /* Stores K and V of all sequences, at most ROWS rows at a time. */
    void store(uint32_t count, uint32_t tokens)
    {
        constexpr uint32_t ROWS = 2048;
        gpu::buffer<float> table((size_t)tokens * s.dim), k((size_t)ROWS * s.kv_heads * s.dim);
        gpu::buffer<float> v(k.size), unused((size_t)ROWS * s.heads * s.dim);
        fill(table, table.size, 0.5f, 0.9f);
        fill(k, k.size, -1, 1);
        fill(v, v.size, -1, 1);
        for (uint32_t first = 0; first < tokens; first += ROWS) {
            const uint32_t rows = std::min(ROWS, tokens - first);
            arrange(count, rows, first);
            sequences.rows = rows;
            for (uint32_t i = 0; i < count; i++, sequences.row_sequence += rows)
                cuda_rope_store(NULL, table, s.dim, false, &sequences, &kv, s.heads, unused, k, v);
            GPU_CHECK(cudaDeviceSynchronize());
        }
    }

    attention_shape s;
    struct compute_kv kv;
    uint32_t per_sequence;
    gpu::buffer<uint8_t> cache;
    gpu::buffer<float> q;
    gpu::buffer<__nv_bfloat16> out;
    std::unique_ptr<gpu::buffer<uint32_t>> arrays[7];
    std::unique_ptr<gpu::buffer<uint8_t>> scratch;
    struct cuda_sequences sequences = {};
};

inline void prompts(const char *name, attention_shape s, uint32_t count, uint32_t tokens, bool tiny)
{
    attention a(s, count, tokens, tokens);
    const double ms = gpu::median_ms(
        NULL, [&] { a.run(); }, tiny ? 1 : 5, tiny ? 1 : 5);
    const double pairs = (double)count * s.heads * tokens * (tokens + 1) / 2;
    printf("attention_prompt_%s_%ux%u %.1f TFLOP/s (%.3f ms)\n", name, count, tokens,
           pairs * s.dim * 4 / ms * 1e-9, ms);
}

inline void tokens(const char *name, attention_shape s, uint32_t count, uint32_t tokens, bool tiny)
{
    attention a(s, count, 1, tokens);
    const double ms = gpu::median_ms(
        NULL, [&] { a.run(); }, tiny ? 1 : 20, tiny ? 1 : 5);
    const double bytes =
        (double)count * tokens * s.kv_heads * compute_kv_token_bytes(s.dim, s.dtype);
    printf("attention_token_%s_%u@%u %.0f GB/s of %.0f MB (%.4f ms)\n", name, count, tokens,
           bytes / ms * 1e-6, bytes * 1e-6, ms);
}

inline void sampling(const char *name, float temperature, float top_p, int32_t logprobs,
                     uint32_t rows, uint32_t vocab, bool tiny)
{
    gpu::buffer<float> logits((size_t)rows * vocab);
    struct compute_sample one = {};
    one.sampling.temperature = temperature;
    one.sampling.top_p = top_p;
    one.sampling.logprobs = logprobs;
    one.forced_token = COMPUTE_SAMPLE_DRAW;
    gpu::buffer<struct compute_sample> samples(std::vector<struct compute_sample>(rows, one));
    gpu::buffer<struct compute_sampled> sampled(rows);
    fill(logits, logits.size, -15, 15);
    const double ms = gpu::median_ms(
        NULL, [&] { cuda_sample(NULL, logits, vocab, samples, rows, NULL, NULL, sampled); },
        tiny ? 1 : 20, tiny ? 1 : 5);
    printf("sample_%s_%u %.1f us\n", name, rows, ms * 1e3);
}

inline void attention_and_sampling(bool tiny)
{
    const attention_shape llama_8b = {32, 8, 128, COMPUTE_KV_F16};
    const attention_shape llama_8b_i16 = {32, 8, 128, COMPUTE_KV_I16};
    if (tiny) {
        prompts("8b_i16", {4, 1, 128, COMPUTE_KV_I16}, 2, 40, true);
        tokens("8b_f16", {4, 1, 128, COMPUTE_KV_F16}, 3, 300, true);
        sampling("top_p", 0.8f, 0.9f, 1, 2, 3000, true);
        return;
    }
    prompts("8b_f16", llama_8b, 4, 2048, false);
    prompts("8b_f16", llama_8b, 1, 4096, false);
    prompts("8b_i16", llama_8b_i16, 4, 2048, false);
    prompts("8b_i8", {32, 8, 128, COMPUTE_KV_I8}, 4, 2048, false);
    prompts("70b_f16", {64, 8, 128, COMPUTE_KV_F16}, 2, 2048, false);
    prompts("dim64_f16", {32, 8, 64, COMPUTE_KV_F16}, 4, 2048, false);
    prompts("dim256_f16", {16, 8, 256, COMPUTE_KV_F16}, 4, 2048, false);
    tokens("8b_f16", llama_8b, 1, 2048, false);
    tokens("8b_f16", llama_8b, 1, 65536, false);
    tokens("8b_f16", llama_8b, 64, 2048, false);
    tokens("8b_i16", llama_8b_i16, 64, 2048, false);
    tokens("8b_i8", {32, 8, 128, COMPUTE_KV_I8}, 64, 2048, false);
    tokens("70b_f16", {64, 8, 128, COMPUTE_KV_F16}, 64, 2048, false);
    tokens("dim64_f16", {32, 8, 64, COMPUTE_KV_F16}, 64, 2048, false);
    sampling("greedy", 0, 1, -1, 1, 128256, false);
    sampling("greedy", 0, 1, -1, 64, 128256, false);
    sampling("all", 1, 1, -1, 64, 128256, false);
    sampling("top_p", 0.8f, 0.9f, -1, 64, 128256, false);
    sampling("logprobs", 0, 1, 5, 64, 128256, false);
}
} // namespace bench

#endif
