/* kv_prefix: full blocks of prompts that were computed here, kept after their request has gone, so
 * that a prompt that begins with the same tokens does not compute them again. Bookkeeping only,
 * like the pool: ids and tokens, never memory. One event loop makes every call.
 *
 * Blocks form chains: one is found by the chain before it and by its own tokens. A hash finds it
 * and the tokens are compared, as is the block before it: a collision costs a comparison, never a
 * wrong answer. A machine has one model, so nothing else changes K and V: they depend on the tokens
 * before a position alone, not on how these were batched.
 *
 * The cache owns its blocks (KV_PREFIX_OWNER). A block that a request reads, or that comes before
 * one that a request reads, is KV_LIVE; the others are KV_CACHED, which the pool counts as
 * available: a take that needs them evicts the ones that were left longest ago, ends of chains
 * first. */
#ifndef KVCACHE_KV_PREFIX_H
#define KVCACHE_KV_PREFIX_H

#include "kvcache/kv_pool.h"

#define KV_PREFIX_OWNER UINT64_MAX

struct kv_prefix;

/* A cache over all blocks of `pool`, whose reclaimer it becomes; block_tokens ≥ 1 tokens a block.
 * The pool outlives it. */
enum status kv_prefix_open(struct kv_pool *pool, uint32_t block_tokens, struct kv_prefix **out);
/* NULL is fine. Nobody reads its blocks any more; they are freed. */
void kv_prefix_close(struct kv_prefix *prefix);

/* The longest chain of at most `block_count_max` blocks with which tokens[0, block_count_max ×
 * block_tokens) begin: its length, and its blocks in ids_out. *end_out is its last one
 * (KV_BLOCK_NONE: none): the chain stays until that is released with kv_prefix_leave. */
uint32_t kv_prefix_enter(struct kv_prefix *prefix, const uint32_t *tokens, uint32_t block_count_max,
                         kv_block_id *ids_out, kv_block_id *end_out);

/* The caller reads the chain that ends at `end` no longer. KV_BLOCK_NONE is fine. */
void kv_prefix_leave(struct kv_prefix *prefix, kv_block_id end);

/* ids[0, block_count) hold K and V of tokens[0, block_count × block_tokens). Those of them that
 * belong to `owner` (all KV_LIVE) become the cache's, unless it has the same tokens already: then
 * the block stays the owner's. *end is the chain that the caller reads, as kv_prefix_enter gave it;
 * afterwards the longer one. */
void kv_prefix_add(struct kv_prefix *prefix, kv_owner_id owner, const uint32_t *tokens,
                   const kv_block_id *ids, uint32_t block_count, kv_block_id *end);

/* Who hears of chains that come and go: those of a multiple of `step` ≥ 1 blocks, each by the
 * prefix_hash (common/prefix_hash.h) of its tokens. Set it while the cache is empty. */
struct kv_prefix_ear {
    uint32_t step;
    void (*changed)(void *self, uint64_t hash, bool held);
    void *self;
};
void kv_prefix_listen(struct kv_prefix *prefix, const struct kv_prefix_ear *ear);

/* The hashes of up to `count_max` such chains, all that there are if there are no more. */
uint32_t kv_prefix_list(const struct kv_prefix *prefix, uint64_t *hashes_out, uint32_t count_max);

bool kv_prefix_holds(const struct kv_prefix *prefix, kv_block_id id);

/* Checks every invariant, beside the pool's own: chains, readers, the order of eviction. O(blocks).
 */
bool kv_prefix_check(const struct kv_prefix *prefix, struct error *error);

#endif
