/* kv: the layout of the KV-cache of one layer, and the sizes that follow from the layout. Backends
 * store K and V in this layout, and machines and tools compute the size of KV memory. Blocks travel
 * between machines in this form, so the layout is part of the protocol. No state; any thread. This
 * part owns no memory, and does not know which block belongs to which request (kvcache/kv_pool.h)
 * or how blocks are sent (kvcache/kv_transfer.h). */
#ifndef COMPUTE_KV_H
#define COMPUTE_KV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How K and V are stored. In the integer types (I16, I8), K of one token and one head is head_dim
 * integers and one bfloat16 scale, and V of one token and one head is head_dim integers and one
 * bfloat16 scale. */
enum compute_kv_dtype {
    COMPUTE_KV_F16,
    COMPUTE_KV_F32,
    COMPUTE_KV_I16, /* |x| ≤ 8191, which is 14 bits. */
    COMPUTE_KV_I8,  /* |x| ≤ 127. */
    COMPUTE_KV_DTYPE_COUNT
};

/* The KV-cache of one layer, divided into blocks. Block b starts at base + b * block_bytes. In a
 * block, the KV heads follow each other. Each KV head has, in this order:
 *
 *   F16, F32   K as [head_dim][block_tokens] (a token is a column),
 *              V as [block_tokens][head_dim]
 *   I16, I8    [K scale of each token][V scale of each token],
 *              K as [head_dim / 2][block_tokens][2 dimensions],
 *              V as [block_tokens / 2][head_dim][2 tokens]; head_dim is even
 *
 * A latent cache (latent > 0) has one head, and one vector of 2 * head_dim values per token instead
 * of K and V: K is the whole vector, and V is the last `latent` values of the vector. The vector
 * takes as many bytes as K and V of one head:
 *
 *   F16, F32   [2 * head_dim][block_tokens]
 *   I16, I8    [scale of the values before the last `latent`, for each token]
 *              [scale of the last `latent` values, for each token],
 *              [head_dim][block_tokens][2 dimensions] */
struct compute_kv {
    void *base;
    size_t block_bytes;    /* Bytes from block to block: at least compute_kv_block_bytes. */
    uint32_t block_tokens; /* A multiple of 8. */
    uint32_t head_count;   /* Number of KV heads. */
    uint32_t head_dim;     /* Dimensions of a K or V; in a latent cache, half of the vector. */
    enum compute_kv_dtype dtype;
    uint32_t latent; /* Dimensions of a value of a latent cache, even; 0 = no latent cache. */
};

/* Returns the number of dimensions of a key, and of a query. */
static inline uint32_t compute_kv_key_dim(const struct compute_kv *kv)
{
    return kv->latent != 0 ? 2 * kv->head_dim : kv->head_dim;
}

/* Returns the number of dimensions of a value. */
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

/* Returns the bytes of one block of one layer with head_count KV heads, also in a latent cache. */
static inline size_t compute_kv_block_bytes(uint32_t block_tokens, uint32_t head_count,
                                            uint32_t head_dim, enum compute_kv_dtype dtype)
{
    return (size_t)block_tokens * head_count * compute_kv_token_bytes(head_dim, dtype);
}

#endif
