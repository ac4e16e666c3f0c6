/* kv_prefix: the prefix cache of one machine. It owns full blocks of prompts and answers, also
 * after a request has ended, so that a later request that begins with the same tokens can read
 * these blocks. machine/, prompt_pool/, token_pool/ and the simulator call the functions, on the
 * thread that uses the pool. The cache stores block ids and tokens, does not touch the memory of
 * the blocks, and sends nothing.
 *
 * Spans form chains: each span except the first follows one other span, and several spans may
 * follow the same span. A chain has a salt (0 = none). Requests with different salts share no
 * block, so that no client learns from the number of cached tokens what another client has sent. A
 * span is found by a hash; then salt and tokens are compared.
 *
 * A span has a block in each layer group without a window. In the groups with a window, a span has
 * either a block in each group (the span's *window blocks*) or none. In layers with a window, the
 * tokens after a chain read only the last spans of the chain. So a request that computes these
 * tokens needs the window blocks of the last spans.
 *
 * The cache's blocks have the owner KV_PREFIX_OWNER. A request that reads a chain reads the blocks
 * of all spans in the groups without a window, and some of the window blocks (struct
 * kv_prefix_reader). Blocks that a request reads are KV_LIVE. Other blocks are KV_CACHED: the pool
 * counts them as available. When the pool or the cache needs room, the cache evicts the blocks that
 * have had no reader for the longest time. Of a chain's blocks in groups without a window, the
 * blocks of the last span are evicted first. Window blocks may be evicted earlier. */
#ifndef KVCACHE_KV_PREFIX_H
#define KVCACHE_KV_PREFIX_H

#include "kvcache/kv_tables.h"

#define KV_PREFIX_OWNER UINT64_MAX /* The cache as an owner of blocks in the pool. */

/* Pass this as `window_first` of kv_prefix_read_begin if the caller computes the tokens after the
 * chain. */
#define KV_PREFIX_WHOLE_WINDOW UINT32_MAX

struct kv_prefix;

/* What a request reads in the cache. All zeros = nothing. */
struct kv_prefix_reader {
    uint32_t chain_end; /* Used by the cache: identifies the chain's last span; 0 = no chain. */
    uint32_t spans;     /* Number of spans of the chain. */
    /* The request reads the window blocks of the spans [window_first, window_end). */
    uint32_t window_first;
    uint32_t window_end;
};

/* Opens an empty cache for the blocks of `pool`. The cache becomes the pool's reclaimer
 * (kv_pool_reclaimer_set). Requires that block_tokens is at least 1 and that the pool outlives the
 * cache. *groups is copied. Returns ST_NO_MEMORY on failure. */
enum status kv_prefix_open(struct kv_pool *pool, const struct layer_groups *groups,
                           uint32_t block_tokens, struct kv_prefix **out);
/* Frees the cache and its blocks. Requires that no request reads them. NULL is fine. */
void kv_prefix_close(struct kv_prefix *prefix);

/* Finds the longest chain with this salt whose tokens are the first tokens of `tokens`, with at
 * most `spans_max` spans. Requires that `tokens` has spans_max * block_tokens tokens.
 *
 * window_first = KV_PREFIX_WHOLE_WINDOW: finds only a chain whose last spans have the window blocks
 * that the next tokens read. The caller becomes a reader of these window blocks. Any other
 * window_first: a chain is found also without window blocks, and the caller reads the window blocks
 * from span window_first on, up to the first span that has none.
 *
 * Stores the ids of the blocks in the first entries of `tables`, and sets tables->cached_spans and
 * tables->window_cached_spans. The blocks that the caller reads are not evicted until
 * kv_prefix_read_end. Returns the number of spans; 0 = no chain is found. */
uint32_t kv_prefix_read_begin(struct kv_prefix *prefix, uint64_t salt, const uint32_t *tokens,
                              uint32_t spans_max, uint32_t window_first, struct kv_tables *tables,
                              struct kv_prefix_reader *reader_out);

/* Ends the caller's reading of all blocks. Sets *reader to zeros. */
void kv_prefix_read_end(struct kv_prefix *prefix, struct kv_prefix_reader *reader);
/* Ends the caller's reading of window blocks, which may then be evicted. The caller still reads the
 * other blocks. */
void kv_prefix_windows_read_end(struct kv_prefix *prefix, struct kv_prefix_reader *reader);

/* The blocks of a request that kv_prefix_add adds. */
struct kv_prefix_blocks {
    kv_owner_id owner; /* The request. */
    uint64_t salt;
    const uint32_t *tokens; /* spans * block_tokens tokens. */
    const struct kv_tables *tables;
    /* Number of spans to add, from the request's first span. Requires that their KV is complete. */
    uint32_t spans;
    /* Window blocks are added from this span on. Requires that the request's own window blocks from
     * this span on hold the KV of their span, and that the request no longer writes into them.
     * Equal to `spans` = no window blocks are added. */
    uint32_t window_valid_first;
    /* If at most window_read_first spans are added, the request reads the same window blocks as
     * before. Otherwise the request reads the window blocks of the last added spans: back to span
     * window_read_first, or to the nearest span without window blocks. */
    uint32_t window_read_first;
};

/* Adds a request's blocks to the cache. Requires that each added block is a KV_LIVE block of the
 * owner or a block of the cache. The owner's blocks become blocks of the cache; if the cache
 * already has a block for these tokens and this salt, the owner keeps its block. *reader is what
 * the caller reads, and is updated. After the call, the caller reads the chain of all added spans.
 * If the cache has no room for all spans, only the first spans are added. No effect if no span can
 * be added. */
void kv_prefix_add(struct kv_prefix *prefix, const struct kv_prefix_blocks *blocks,
                   struct kv_prefix_reader *reader);

/* Frees the request's own blocks in the first `spans` spans, except blocks that kv_prefix_add has
 * made blocks of the cache. */
void kv_prefix_own_blocks_free(const struct kv_prefix *prefix, kv_owner_id owner,
                               const struct kv_tables *tables, uint32_t spans);

/* A listener for prefixes that enter or leave the cache. A prefix is in the cache while its last
 * span has blocks in all layer groups. */
struct kv_prefix_listener {
    /* Only prefixes whose number of spans is a multiple of step_spans (>= 1) are reported. */
    uint32_t step_spans;
    /* Called when a prefix has entered (held = true) or left (held = false) the cache, except by
     * kv_prefix_close. `hash` is the prefix's prefix_hash (common/prefix_hash.h). */
    void (*changed)(void *self, uint64_t hash, bool held);
    void *self; /* First argument of `changed`. */
};
/* Sets the only listener; *listener is copied. Requires an empty cache. */
void kv_prefix_listen(struct kv_prefix *prefix, const struct kv_prefix_listener *listener);

/* Sets the function that kv_prefix_add calls at its end, unless kv_prefix_add had no effect. The
 * function is also called if the cache already had all blocks. `tokens` are the tokens of the chain
 * that the request then reads, which has `spans` spans. The function may call kv_prefix_read_begin.
 * NULL = no function. */
void kv_prefix_added_set(struct kv_prefix *prefix,
                         void (*added)(void *self, uint64_t salt, const uint32_t *tokens,
                                       uint32_t spans),
                         void *self);

/* Stores the hashes of the cached prefixes that are reported to the listener (step_spans), at most
 * hashes_max. Returns the number of hashes; 0 without a listener. */
uint32_t kv_prefix_list(const struct kv_prefix *prefix, uint64_t *hashes_out, uint32_t hashes_max);

/* Returns true if the cache agrees with itself and with the pool's count of cached blocks; else
 * false, with the first difference in *error. Looks at every span: call it in tests and at the end
 * of a process. */
bool kv_prefix_check(const struct kv_prefix *prefix, struct error *error);

#endif
