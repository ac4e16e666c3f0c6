/* prefix_hash: a hash of a sequence of tokens, equal in all processes (FORMAT_PREFIX_HASH). The
 * gateway compares the hashes of a prompt with those that machines report for cached prefixes. The
 * functions keep no state, and any thread may call them. Two different prefixes can have equal
 * hashes: compare salt and tokens before KV of a cached prefix is used (kvcache/kv_prefix.c). */
#ifndef COMMON_PREFIX_HASH_H
#define COMMON_PREFIX_HASH_H

#include "common/random.h"

/* Returns the hash of a sequence that ends with the `count` tokens `tokens`. `hash` is the hash of
 * the tokens before them; for the first tokens, the request's salt (0 = none). Requests with
 * different salts share no cached KV. */
static inline uint64_t prefix_hash(uint64_t hash, const uint32_t *tokens, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        hash = random_mix(hash ^ tokens[i]);
    return hash;
}

/* Returns the number of whole blocks that fit into 128 tokens, at least 1. Machines report only
 * prefixes whose length is a multiple of this number of blocks. */
static inline uint32_t prefix_step_blocks(uint32_t block_tokens)
{
    return block_tokens < 128 ? 128 / block_tokens : 1;
}

#endif
