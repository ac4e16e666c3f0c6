/* attention: chooses which kernel computes which rows of a batch, and lays out their scratch
 * memory. */
#include "compute/cuda/attention.cuh"

#include "common/limits.h"

#include <assert.h>

static size_t align(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Counters are first, and equally many for every batch: they stay 0 for batches of any shape. */
static size_t attention_scratch(struct attention *a, uint32_t head_dim, uint8_t *scratch)
{
    const size_t tiles = (size_t)a->kv_heads * attention_tiles_per_kv(a->group);
    const size_t parts_done = align(LIMIT_BATCH_TOKENS * tiles * sizeof(uint32_t));
    const uint32_t few = a->s.sequences * ATTENTION_TOKEN_ROWS;
    const uint32_t chunks = (a->s.context_tokens_max + ATTENTION_CHUNK - 1) / ATTENTION_CHUNK;
    a->slots = few < a->s.rows ? few : a->s.rows;
    a->chunks_max = chunks < ATTENTION_CHUNKS_MAX ? chunks : ATTENTION_CHUNKS_MAX;
    const uint32_t splits =
        (a->s.context_tokens_max + ATTENTION_SPLIT_TOKENS - 1) / ATTENTION_SPLIT_TOKENS;
    a->splits = a->s.rows > ATTENTION_SPLIT_ROWS ? 1
                : splits < ATTENTION_SPLIT_MAX   ? splits
                                                 : ATTENTION_SPLIT_MAX;
    size_t parts = (size_t)a->slots * a->head_count * a->chunks_max;
    const size_t of_splits = (size_t)a->s.rows * a->head_count * ATTENTION_SPLIT_MAX;
    if (a->splits > 1 && a->s.rows_longest > ATTENTION_TOKEN_ROWS && parts < of_splits)
        parts = of_splits;
    a->parts_done = (uint32_t *)scratch;
    a->sums = (float2 *)(scratch + parts_done);
    a->parts = (float *)(scratch + parts_done + align(parts * sizeof(float2)));
    return parts_done + align(parts * sizeof(float2)) + parts * head_dim * sizeof(float);
}

size_t cuda_attention_scratch(const struct cuda_sequences *s, const struct compute_kv *kv,
                              uint32_t head_count)
{
    struct attention a = {};
    if (kv->latent != 0)
        return attention_latent_scratch(s, kv, head_count);
    a.s = *s;
    a.kv_heads = kv->head_count;
    a.head_count = head_count;
    a.group = head_count / kv->head_count;
    return attention_scratch(&a, kv->head_dim, NULL);
}

bool cuda_attention_takes(const struct compute_kv *kv, uint32_t head_count)
{
    const uint32_t dim = kv->head_dim;
    if (kv->latent != 0)
        return attention_latent_takes(kv, head_count);
    return (dim == 64 || dim == 80 || dim == 96 || dim == 128 || dim == 256) &&
           kv->block_tokens % 8 == 0 && kv->block_bytes % 16 == 0 && kv->head_count > 0 &&
           head_count % kv->head_count == 0 && head_count / kv->head_count <= 16;
}

void cuda_attention(cudaStream_t stream, const struct cuda_sequences *s,
                    const struct compute_kv *kv, uint32_t head_count,
                    const struct compute_attention *parameters, const float *q, void *scratch,
                    __nv_bfloat16 *out, float *out_f32)
{
    assert(cuda_attention_takes(kv, head_count) && s->rows <= LIMIT_BATCH_TOKENS);
    struct attention a = {};
    a.s = *s;
    a.base = (const uint8_t *)kv->base;
    a.block_bytes = kv->block_bytes;
    a.head_bytes = kv->block_tokens * compute_kv_token_bytes(kv->head_dim, kv->dtype);
    a.block_tokens = kv->block_tokens;
    a.kv_heads = kv->head_count;
    a.head_count = head_count;
    a.group = head_count / kv->head_count;
    a.dtype = kv->dtype;
    a.scale = parameters->scale * ATTENTION_LOG2_E;
    a.window = parameters->window;
    a.cap = parameters->cap * ATTENTION_LOG2_E;
    a.sinks = parameters->sinks;
    a.q = q;
    a.out = out;
    a.out_f32 = out_f32;
    if (s->rows == 0)
        return;
    if (kv->latent != 0) {
        attention_latent(stream, &a, kv, scratch);
        return;
    }
    attention_scratch(&a, kv->head_dim, (uint8_t *)scratch);
    const enum attention_shape shape = attention_prompt_shape();
    const bool all = !attention_prompt_takes(shape, kv->head_dim, kv->dtype);
    const bool prompts = s->rows_longest > ATTENTION_TOKEN_ROWS && !all;
    if (prompts)
        attention_prompt(stream, &a, kv->head_dim, shape);
    if (!prompts || s->sequences > 1)
        attention_token(stream, &a, kv->head_dim, all);
}
