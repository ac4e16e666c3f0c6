/* kv_prefix: the prefix cache of one machine. It keeps full blocks of prompts and answers, also
 * after their request has ended, so that a request that begins with the same tokens can read these
 * blocks. prompt_pool/ and token_pool/ look prompts up and add blocks; machine/ opens the cache and
 * listens to its changes. The machine's event loop thread makes every call. The cache stores block
 * ids and tokens and never touches the memory of the blocks. It sends nothing (machine/prefixes.c
 * reports prefixes to gateways).
 *
 * Spans (common/layer_groups.h) form chains: each span except the first follows one other span, and
 * several spans may follow the same span. A span is found by a hash of all tokens up to its end.
 * Then the span's tokens and the span before it are compared, so equal hashes never give a wrong
 * answer. A chain has a salt (0 = none), which is compared too. Requests with different salts share
 * no block, so that no client learns from the number of cached tokens what another client has sent.
 *
 * A span has a block in each layer group without a window. In the groups with a window it has either
 * a block in each of them, its *window blocks*, or none. A chain of n spans is useful to a request
 * that computes the tokens after it if those of its last spans that these tokens see have window
 * blocks.
 *
 * The cache owns its blocks (KV_PREFIX_OWNER). The blocks of groups without a window are KV_LIVE if
 * a request reads this span or a later span of a chain through it; window blocks are KV_LIVE if a
 * request reads them. Other blocks are KV_CACHED: the pool counts them as available. When
 * kv_pool_take needs them, the cache evicts the blocks whose last reader left first, and in each
 * chain those of the last span first. */
#ifndef KVCACHE_KV_PREFIX_H
#define KVCACHE_KV_PREFIX_H

#include "kvcache/kv_tables.h"

#define KV_PREFIX_OWNER UINT64_MAX /* The cache as an owner of blocks in the pool. */

/* kv_prefix_read_begin: the caller computes the tokens after the chain. */
#define KV_PREFIX_COMPUTE UINT32_MAX

struct kv_prefix;

/* What a request reads in the cache. All zeros = nothing. */
struct kv_prefix_reader {
    uint32_t chain; /* The last span of the chain, as the cache's number + 1; 0 = none. */
    uint32_t spans; /* Spans of the chain. */
    /* The window blocks that it reads are those of the spans [window_first, window_end). */
    uint32_t window_first;
    uint32_t window_end;
};

/* Opens an empty cache for the blocks of `pool` and calls kv_pool_reclaimer_set. A block has
 * block_tokens >= 1 tokens. *groups is copied. The pool must outlive the cache. Returns ST_NO_MEMORY
 * on failure. */
enum status kv_prefix_open(struct kv_pool *pool, const struct layer_groups *groups,
                           uint32_t block_tokens, struct kv_prefix **out);
/* Frees the cache and its blocks. Requires that no request reads them. NULL is fine. */
void kv_prefix_close(struct kv_prefix *prefix);

/* Finds the longest chain with this salt, of at most `spans_max` spans, whose tokens are the first
 * tokens of `tokens`. Requires that `tokens` has spans_max * block_tokens tokens.
 *
 * window_first = KV_PREFIX_COMPUTE: only chains are found that have all window blocks which the
 * tokens after the chain see, and the caller reads these. Otherwise the longest chain is found, and
 * the caller reads the window blocks from span window_first on, up to the first span without them.
 *
 * Stores the ids in the first entries of `tables`, and sets tables->held and tables->window_held.
 * The caller is now a reader: what *reader_out names is not evicted until kv_prefix_read_end. Returns
 * the number of spans. */
uint32_t kv_prefix_read_begin(struct kv_prefix *prefix, uint64_t salt, const uint32_t *tokens,
                              uint32_t spans_max, uint32_t window_first, struct kv_tables *tables,
                              struct kv_prefix_reader *reader_out);

/* The caller no longer reads anything. Sets *reader to zeros. */
void kv_prefix_read_end(struct kv_prefix *prefix, struct kv_prefix_reader *reader);
/* The caller no longer reads window blocks. */
void kv_prefix_windows_leave(struct kv_prefix *prefix, struct kv_prefix_reader *reader);

/* The blocks of a request that kv_prefix_add adds. */
struct kv_prefix_blocks {
    kv_owner_id owner; /* The request. */
    uint64_t salt;
    const uint32_t *tokens; /* spans * block_tokens tokens. */
    const struct kv_tables *tables;
    uint32_t spans; /* The first spans, whose KV is complete. */
    /* From this span on, the request's own window blocks hold the KV of their span, and the request
     * no longer writes into them. `spans` = it may write into them, or has none. */
    uint32_t window_valid;
    /* The request reads window blocks from this span on. `spans` = it reads those that it has read
     * before this call. */
    uint32_t window_read;
};

/* Adds a request's blocks to the cache. Requires that each is a KV_LIVE block of the owner or a
 * block of the cache. The owner's blocks become the cache's, except those for whose tokens and salt
 * the cache already has a block. *reader is what the caller reads, from kv_prefix_read_begin. Unless
 * `spans` is 0, the caller reads after this call the chain of all spans. If the cache has too many
 * spans without blocks, it adds fewer. */
void kv_prefix_add(struct kv_prefix *prefix, const struct kv_prefix_blocks *blocks,
                   struct kv_prefix_reader *reader);

/* Frees the blocks of `owner` in the first `spans` spans that were not added to the cache. */
void kv_prefix_rest_free(const struct kv_prefix *prefix, kv_owner_id owner,
                         const struct kv_tables *tables, uint32_t spans);

/* A listener for prefixes that enter or leave the cache. A prefix is in the cache while its last
 * span has blocks in all layer groups. */
struct kv_prefix_listener {
    uint32_t step; /* `changed` is called for prefixes of a multiple of `step` >= 1 spans. */
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

/* For tests: returns true if chains, readers and the order of eviction agree with each other; else
 * false, with the first difference in *error. kv_pool_check checks the pool. O(blocks). */
bool kv_prefix_check(const struct kv_prefix *prefix, struct error *error);

#endif
