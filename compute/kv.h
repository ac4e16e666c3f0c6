/* kv: the layout of the KV-cache of one layer, and the sizes that follow from it. The layout is
 * part of the protocol: blocks travel between machines in this form, and every backend uses it.
 * Machines, `cleave profile` and bench-engine compute the size of their KV memory from it. No
 * state; any thread. It does not know which block belongs to which request (kvcache/kv_pool.h) or
 * how blocks are sent (kvcache/kv_transfer.h). */
#ifndef COMPUTE_KV_H
#define COMPUTE_KV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How K and V are stored. The integer types (I16, I8) store the K, and the V, of one token and one
 * head as integers (|x| ≤ 8191 for I16, which is 14 bits; |x| ≤ 127 for I8) with one bfloat16
 * scale. For the K and V of real models, I16 loses as little as F16, in up to 2 % more memory (for
 * heads of 64 or more dimensions). Attention then multiplies integers, two per lane and
 * instruction, and its sums are exact. */
enum compute_kv_dtype {
    COMPUTE_KV_F16,
    COMPUTE_KV_F32,
    COMPUTE_KV_I16,
    COMPUTE_KV_I8,
    COMPUTE_KV_DTYPE_COUNT
};

/* The KV-cache of one layer, divided into blocks. Block b starts at base + b * block_bytes. It
 * holds, KV head after KV head, first K and then V, each of block_tokens × head_dim elements:
 *
 *   F16, F32   K as [head_dim][block_tokens] (a token is a column), V as [block_tokens][head_dim]
 *   I16, I8    [K scale of each token][V scale of each token],
 *              K as [head_dim / 2][block_tokens][2 dimensions],
 *              V as [block_tokens / 2][head_dim][2 tokens]; head_dim is even
 *
 * A latent cache (latent > 0) has one head, and one vector of 2 * head_dim values per token instead
 * of K and V: K is the vector, and V is its last `latent` values. So it takes as many bytes as K
 * and V of one head:
 *
 *   F16, F32   [2 * head_dim][block_tokens]
 *   I16, I8    [scale of the values before the last `latent`, for each token]
 *              [scale of the last `latent` values, for each token],
 *              [head_dim][block_tokens][2 dimensions] */
struct compute_kv {
    void *base;
    size_t block_bytes; /* Bytes from block to block: at least compute_kv_block_bytes. */
    uint32_t block_tokens;
    uint32_t head_count; /* KV heads. */
    uint32_t head_dim;
    enum compute_kv_dtype dtype;
    uint32_t latent; /* 0 = K and V of heads. */
};

/* Return the number of dimensions of a key (and of a query), and of a value. */
static inline uint32_t compute_kv_key_dim(const struct compute_kv *kv)
{
    return kv->latent != 0 ? 2 * kv->head_dim : kv->head_dim;
}

static inline uint32_t compute_kv_value_dim(const struct compute_kv *kv)
{
    return kv->latent != 0 ? kv->latent : kv->head_dim;
}

/* Returns the name of the dtype in the config, such as "i16". */
const char *compute_kv_dtype_name(enum compute_kv_dtype dtype);
/* Stores the dtype with this name. Returns false if no dtype has the name. */
bool compute_kv_dtype_find(const char *name, enum compute_kv_dtype *out);

/* Returns true if K and V are stored as integers with scales. */
static inline bool compute_kv_fixed(enum compute_kv_dtype dtype)
{
    return dtype == COMPUTE_KV_I16 || dtype == COMPUTE_KV_I8;
}

/* Returns the bytes of one element of K or V, without scales. */
static inline size_t compute_kv_element_bytes(enum compute_kv_dtype dtype)
{
    return dtype == COMPUTE_KV_F32 ? 4 : dtype == COMPUTE_KV_I8 ? 1 : 2;
}

/* Returns the bytes of the K and V of one token and one head, including scales. */
static inline size_t compute_kv_token_bytes(uint32_t head_dim, enum compute_kv_dtype dtype)
{
    return 2 * (head_dim * compute_kv_element_bytes(dtype) + (compute_kv_fixed(dtype) ? 2 : 0));
}

/* Returns the bytes of one block of one layer: K and V of its tokens, for head_count KV heads. The
 * result holds for a latent cache, too (struct compute_kv). */
static inline size_t compute_kv_block_bytes(uint32_t block_tokens, uint32_t head_count,
                                            uint32_t head_dim, enum compute_kv_dtype dtype)
{
    return (size_t)block_tokens * head_count * compute_kv_token_bytes(head_dim, dtype);
}

#endif
