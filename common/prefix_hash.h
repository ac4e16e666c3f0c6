/* prefix_hash: one number for a sequence of tokens, the same in every process. Machines report with
 * it which prefixes they hold, and the gateway finds the prefixes of a prompt. Pure functions, any
 * thread. */
#ifndef COMMON_PREFIX_HASH_H
#define COMMON_PREFIX_HASH_H

#include "common/random.h"

/* Extends `hash`, which stands for the tokens before (without any: the chain's salt, 0 = none), by
 * `count` tokens. */
static inline uint64_t prefix_hash(uint64_t hash, const uint32_t *tokens, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        hash = random_mix(hash ^ tokens[i]);
    return hash;
}

/* Number of blocks between prefixes that machines report: 128 tokens, or one block if a block is
 * larger. */
static inline uint32_t prefix_step_blocks(uint32_t block_tokens)
{
    return block_tokens < 128 ? 128 / block_tokens : 1;
}

#endif
