/* prefix_hash: one number for all tokens so far, the same in every process: machines say by it
 * which beginnings of prompts they hold, and the gateway finds those of a prompt. */
#ifndef COMMON_PREFIX_HASH_H
#define COMMON_PREFIX_HASH_H

#include "common/random.h"

/* `count` tokens more, after those of `hash` (0: none). */
static inline uint64_t prefix_hash(uint64_t hash, const uint32_t *tokens, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        hash = random_mix(hash ^ tokens[i]);
    return hash;
}

/* Blocks from one beginning that is spoken of to the next: of 128 tokens, or one block. */
static inline uint32_t prefix_step_blocks(uint32_t block_tokens)
{
    return block_tokens < 128 ? 128 / block_tokens : 1;
}

#endif
