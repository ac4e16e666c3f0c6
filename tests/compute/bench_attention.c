/* bench_attention: not a test. Measures the attention kernel alone, for one thread and one KV head
 * of SmolLM2's shape, as the shortest of many runs: rows of a prompt with a cache that stays in the
 * second-level cache, and decode steps of sequences whose caches (of 30 layers) come from memory.
 * Usage: bench-compute-attention [repeats] */
#include "fixture.h"

#include <time.h>

#define DIM    64
#define KV     3
#define GROUP  3
#define TOKENS 1024

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static void bench(struct compute *c, enum compute_kv_dtype dtype, int repeats)
{
    const uint32_t layers = 30, blocks_layer = TOKENS / 16;
    struct compute_kv kv = {.block_tokens = 16, .head_count = KV, .head_dim = DIM, .dtype = dtype};
    kv.block_bytes = compute_kv_block_bytes(16, KV, DIM, dtype);
    size_t bytes = (size_t)layers * blocks_layer * kv.block_bytes;
    kv.base = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    memset(kv.base, 0, bytes);
    uint32_t *blocks = malloc(layers * blocks_layer * sizeof(*blocks));
    for (uint32_t i = 0; i < layers * blocks_layer; i++)
        blocks[i] = i;
    float *q = fixture_floats((size_t)16 * KV * GROUP * DIM);
    float *k = fixture_floats((size_t)TOKENS * DIM);
    for (uint32_t l = 0; l < layers; l++)
        for (uint32_t t = 0; t < TOKENS; t++)
            for (uint32_t h = 0; h < KV; h++)
                c->kernels->store(&kv,
                                  (uint8_t *)kv.base +
                                      blocks[l * blocks_layer + t / 16] * kv.block_bytes +
                                      h * kv.block_bytes / KV,
                                  t % 16, k + t * DIM, k + t * DIM);
    float *scratch =
        aligned_alloc(64, 4 * kernels_scratch_floats(&kv, 16 * GROUP, TOKENS) / 64 * 64 + 64);
    float *out = aligned_alloc(64, 16 * GROUP * DIM * sizeof(float));
    const struct compute_attention parameters = {.scale = 0.125f};
    double prompt = 1e9, decode = 1e9, store = 1e9;
    for (int i = 0; i < repeats; i++) {
        struct kernels_cache cache = {.kv = &kv, .blocks = blocks};
        for (int j = 0; j < 5; j++) {
            double begin = now_us();
            c->kernels->attention(&cache, TOKENS - 16, 16, GROUP, &parameters, q, KV * GROUP * DIM,
                                  scratch, out);
            double took = now_us() - begin;
            prompt = took < prompt ? took : prompt;
        }
        double begin = now_us();
        for (uint32_t t = 0; t < TOKENS; t++)
            c->kernels->store(&kv, (uint8_t *)kv.base + t / 16 * kv.block_bytes, t % 16,
                              k + (size_t)t * DIM, k + (size_t)t * DIM);
        store = now_us() - begin < store ? now_us() - begin : store;
        begin = now_us();
        for (uint32_t l = 0; l < layers; l++)
            for (uint32_t h = 0; h < KV; h++) {
                cache = (struct kernels_cache){
                    .kv = &kv, .blocks = blocks + l * blocks_layer, .kv_head = h};
                c->kernels->attention(&cache, TOKENS - 1, 1, GROUP, &parameters, q,
                                      KV * GROUP * DIM, scratch, out);
            }
        double took = now_us() - begin;
        decode = took < decode ? took : decode;
    }
    double macs = 2.0 * 16 * GROUP * TOKENS * DIM;
    printf("%-4s prompt %7.1f us (%.0f G multiplications/s)   decode of 30 layers %7.1f us (%.1f "
           "GB/s)   store %.0f ns a token\n",
           compute_kv_dtype_name(dtype), prompt, macs / prompt * 1e-3, decode,
           (double)bytes / decode * 1e-3, store * 1e3 / TOKENS);
    free(out);
    free(scratch);
    free(k);
    free(q);
    free(blocks);
    free(kv.base);
}

int main(int argc, char **argv)
{
    struct compute *c = fixture_open(COMPUTE_ISA_AUTO, 1, false);
    int repeats = argc > 1 ? atoi(argv[1]) : 200;
    fixture_seed = 1;
    for (int i = 0; i < 2; i++) {
        bench(c, COMPUTE_KV_F16, repeats);
        bench(c, COMPUTE_KV_I16, repeats);
        bench(c, COMPUTE_KV_I8, repeats);
    }
    OPS->close(c);
    return 0;
}
