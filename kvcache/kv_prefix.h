/* kv_prefix: the prefix cache. It keeps full blocks of prompts and answers that were computed here
 * after their request has ended, so that a prompt that begins with the same tokens need not compute
 * them again. prompt_pool/ and token_pool/ look prompts up and add blocks; machine/ opens the cache
 * and listens to its changes. The machine's event loop thread makes every call. Bookkeeping only,
 * like the pool: ids and tokens, never the memory of the blocks. It sends nothing
 * (machine/prefixes.c reports prefixes to gateways), and it does not share blocks between machines.
 *
 * Blocks form chains: each block, except the first of a chain, follows one other block. A block is
 * found by the block before it and by its own tokens: a hash leads to it, then tokens and previous
 * block are compared. So a collision of hashes costs a comparison, and never gives a wrong answer.
 * K and V of a block depend only on the model and on the tokens up to the block's end, not on how
 * the tokens were batched. A machine has one model.
 *
 * The cache owns its blocks (KV_PREFIX_OWNER). A block is KV_LIVE if a request reads the block or a
 * block behind it in its chain. All other blocks are KV_CACHED, which the pool counts as available.
 * A take that needs them evicts the blocks that have been without a reader for longest; within a
 * chain, from the end. */
#ifndef KVCACHE_KV_PREFIX_H
#define KVCACHE_KV_PREFIX_H

#include "kvcache/kv_pool.h"

#define KV_PREFIX_OWNER UINT64_MAX /* The cache as an owner of blocks in the pool. */

struct kv_prefix;

/* Opens a cache over all blocks of `pool` and becomes the pool's reclaimer. A block has
 * block_tokens >= 1 tokens. The pool must outlive the cache. Returns ST_NO_MEMORY on failure. */
enum status kv_prefix_open(struct kv_pool *pool, uint32_t block_tokens, struct kv_prefix **out);
/* Frees all blocks of the cache, and the cache. Requires that no request reads them. NULL is fine.
 */
void kv_prefix_close(struct kv_prefix *prefix);

/* Finds the longest chain of at most `block_count_max` blocks whose tokens are the first tokens of
 * `tokens`. Requires block_count_max * block_tokens tokens. Returns the number of blocks, whose ids
 * are stored in ids_out. *end_out is the last block of the chain; KV_BLOCK_NONE = no block found.
 * The chain is not evicted until the caller passes *end_out to kv_prefix_leave. */
uint32_t kv_prefix_enter(struct kv_prefix *prefix, const uint32_t *tokens, uint32_t block_count_max,
                         kv_block_id *ids_out, kv_block_id *end_out);

/* The caller no longer reads the chain that ends at `end`. KV_BLOCK_NONE is fine. */
void kv_prefix_leave(struct kv_prefix *prefix, kv_block_id end);

/* Adds computed blocks to the cache. Requires that the `block_count` blocks `ids` hold K and V of
 * the first block_count * block_tokens tokens. A block that belongs to `owner` (then it must be
 * KV_LIVE) becomes the cache's, unless the cache already has a block with the same tokens; then it
 * stays the owner's. *end is the chain that the caller reads, from kv_prefix_enter; afterwards it
 * is the longer chain. */
void kv_prefix_add(struct kv_prefix *prefix, kv_owner_id owner, const uint32_t *tokens,
                   const kv_block_id *ids, uint32_t block_count, kv_block_id *end);

/* A listener for chains that enter (held = true) or leave (false) the cache. `changed` is called
 * for chains whose length is a multiple of `step` >= 1 blocks, with the prefix_hash
 * (common/prefix_hash.h) of their tokens. Requires an empty cache. */
struct kv_prefix_ear {
    uint32_t step;
    void (*changed)(void *self, uint64_t hash, bool held);
    void *self;
};
/* Sets the cache's one listener; *ear is copied. */
void kv_prefix_listen(struct kv_prefix *prefix, const struct kv_prefix_ear *ear);

/* Stores the hashes of the cached chains of which the listener was informed, at most `count_max` of
 * them. Returns their number. */
uint32_t kv_prefix_list(const struct kv_prefix *prefix, uint64_t *hashes_out, uint32_t count_max);

/* True if the block belongs to the cache. */
bool kv_prefix_holds(const struct kv_prefix *prefix, kv_block_id id);

/* For tests and assertions: returns whether every invariant holds, except the pool's own: chains,
 * readers, order of eviction. O(blocks). */
bool kv_prefix_check(const struct kv_prefix *prefix, struct error *error);

#endif
