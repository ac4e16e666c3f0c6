/* kv_prefix: the prefix cache of one machine. It keeps full blocks of prompts and answers, also
 * after their request has ended, so that a request that begins with the same tokens can read these
 * blocks. prompt_pool/ and token_pool/ look prompts up and add blocks; machine/ opens the cache and
 * listens to its changes. The machine's event loop thread makes every call. The cache stores block
 * ids and tokens and never touches the memory of the blocks. It sends nothing (machine/prefixes.c
 * reports prefixes to gateways).
 *
 * Blocks form chains: each block except the first follows one other block, and several blocks may
 * follow the same block. A block is found by a hash of all tokens up to its end. Then the block's
 * tokens and the block before it are compared, so equal hashes never give a wrong answer. A chain
 * has a salt (0 = none), which is compared too. Requests with different salts share no block, so
 * that no client learns from the number of cached tokens what another client has sent.
 *
 * The cache owns its blocks (KV_PREFIX_OWNER). A block is KV_LIVE if a request reads this block or
 * a later block of a chain through it. Other blocks are KV_CACHED: the pool counts them as
 * available. When kv_pool_take needs them, the cache evicts the blocks whose last reader left
 * first, and in each chain the last block first. */
#ifndef KVCACHE_KV_PREFIX_H
#define KVCACHE_KV_PREFIX_H

#include "kvcache/kv_pool.h"

#define KV_PREFIX_OWNER UINT64_MAX /* The cache as an owner of blocks in the pool. */

struct kv_prefix;

/* Opens an empty cache for the blocks of `pool` and calls kv_pool_reclaimer_set. A block has
 * block_tokens >= 1 tokens. The pool must outlive the cache. Returns ST_NO_MEMORY on failure. */
enum status kv_prefix_open(struct kv_pool *pool, uint32_t block_tokens, struct kv_prefix **out);
/* Frees the cache and its blocks. Requires that no request reads them. NULL is fine. */
void kv_prefix_close(struct kv_prefix *prefix);

/* Finds the longest chain with this salt, of at most `block_count_max` blocks, whose tokens are the
 * first tokens of `tokens`. Requires that `tokens` has block_count_max * block_tokens tokens.
 * Returns the number of blocks and stores their ids in ids_out. *end_out is the last block of the
 * chain; KV_BLOCK_NONE = no block found. The caller is now a reader: the chain is not evicted until
 * the caller passes *end_out to kv_prefix_read_end. */
uint32_t kv_prefix_read_begin(struct kv_prefix *prefix, uint64_t salt, const uint32_t *tokens,
                              uint32_t block_count_max, kv_block_id *ids_out, kv_block_id *end_out);

/* The caller no longer reads the chain that ends at `end`. KV_BLOCK_NONE is fine. */
void kv_prefix_read_end(struct kv_prefix *prefix, kv_block_id end);

/* Adds a request's blocks to the cache. Requires that the blocks `ids` hold K and V of the first
 * block_count * block_tokens tokens, and that each is a KV_LIVE block of `owner` or a block of the
 * cache. A block of `owner` becomes the cache's, unless the cache already has a block for these
 * tokens and this salt; then the block stays the owner's. *end is the end of the chain that the
 * caller reads, from kv_prefix_read_begin. Unless block_count is 0, it becomes the end of the chain
 * of all block_count blocks, which the caller reads from then until kv_prefix_read_end. */
void kv_prefix_add(struct kv_prefix *prefix, kv_owner_id owner, uint64_t salt,
                   const uint32_t *tokens, const kv_block_id *ids, uint32_t block_count,
                   kv_block_id *end);

/* A listener for prefixes that enter or leave the cache. */
struct kv_prefix_listener {
    uint32_t step; /* `changed` is called for prefixes of a multiple of `step` >= 1 blocks. */
    /* A prefix entered (held = true) or left (false) the cache. hash = its prefix_hash
     * (common/prefix_hash.h). */
    void (*changed)(void *self, uint64_t hash, bool held);
    void *self; /* First argument of `changed`. */
};
/* Sets the only listener; *listener is copied. Requires an empty cache. */
void kv_prefix_listen(struct kv_prefix *prefix, const struct kv_prefix_listener *listener);

/* Stores the hashes of at most count_max prefixes in the cache whose length is a multiple of the
 * listener's `step`. Returns the number of hashes; 0 without a listener. */
uint32_t kv_prefix_list(const struct kv_prefix *prefix, uint64_t *hashes_out, uint32_t count_max);

/* Returns true if the block, which must be one of the pool's, belongs to the cache. */
bool kv_prefix_holds(const struct kv_prefix *prefix, kv_block_id id);

/* For tests: returns true if chains, readers and the order of eviction agree with each other; else
 * false, with the first difference in *error. kv_pool_check checks the pool. O(blocks). */
bool kv_prefix_check(const struct kv_prefix *prefix, struct error *error);

#endif
