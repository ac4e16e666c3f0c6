/* prefix_hash: a hash of a sequence of tokens that is the same in every process. The prefix cache
 * (kvcache/kv_prefix.c) names the prefixes that a machine holds by it, the machine reports these
 * hashes (machine/prefixes.c), and the gateway compares them with the hashes of a prompt
 * (server/gateway/schedule.c). Pure functions, any thread. Two prefixes may have the same hash: the
 * gateway's choice of a machine may then be worse, and the machine compares tokens. */
#ifndef COMMON_PREFIX_HASH_H
#define COMMON_PREFIX_HASH_H

#include "common/random.h"

/* Returns the hash of a longer sequence: `hash` is the hash of the tokens before (0 = no tokens),
 * and `tokens` are the `count` tokens that follow them. */
static inline uint64_t prefix_hash(uint64_t hash, const uint32_t *tokens, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        hash = random_mix(hash ^ tokens[i]);
    return hash;
}

/* Machines report only prefixes whose length is a multiple of this number of blocks: as many as
 * hold 128 tokens, or one block if a block is larger. */
static inline uint32_t prefix_step_blocks(uint32_t block_tokens)
{
    return block_tokens < 128 ? 128 / block_tokens : 1;
}

#endif
