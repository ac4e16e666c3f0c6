/* kv_pool: the fixed set of KV blocks of one stage: which is free, who owns it, in which state.
 * Bookkeeping only: it never touches device memory, so the simulator links it unchanged. Not
 * thread-safe: one event loop owns each pool. A block has exactly one owner from take to free;
 * blocks that several requests read belong to the prefix cache (kv_prefix.h). */
#ifndef KVCACHE_KV_POOL_H
#define KVCACHE_KV_POOL_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef uint32_t kv_block_id;
typedef uint64_t kv_owner_id; /* the request's id; 0 is nobody */

#define KV_BLOCK_NONE UINT32_MAX

/* free → reserved → filling → live → (cached) → free; CACHED: kept for whoever wants to read it,
 * and given up as soon as somebody wants to take it; QUARANTINED: given up by its request while a
 * peer may still write into it; free once that peer has said that it stopped, or its lease ends. */
enum kv_state {
    KV_FREE,
    KV_RESERVED,
    KV_FILLING,
    KV_LIVE,
    KV_CACHED,
    KV_QUARANTINED,
    KV_STATE_COUNT
};

const char *kv_state_name(enum kv_state state);

struct kv_pool;

enum status kv_pool_open(uint32_t block_count, struct kv_pool **out);
void kv_pool_close(struct kv_pool *pool); /* NULL is fine. Every block must be back. */

/* Who holds the cached blocks: `reclaim` frees `count` of them (there are as many). NULL: nobody
 * any more, and no block is cached. */
void kv_pool_reclaimer(struct kv_pool *pool, void (*reclaim)(void *self, uint32_t count),
                       void *self);

/* What a take may ask for: free blocks, and cached ones, which it lets go. */
uint32_t kv_pool_available(const struct kv_pool *pool);

/* Takes `count` blocks for `owner` in state KV_RESERVED, or none: on ST_NO_RESOURCE (there are not
 * so many available) nothing changed. Prefers runs of consecutive ids (a run travels as one write).
 * ids_out holds `count` ids.
 */
enum status kv_pool_take(struct kv_pool *pool, kv_owner_id owner, uint32_t count,
                         kv_block_id *ids_out);

/* Changes the state of blocks of `owner` along the legal transitions (assertion otherwise). */
void kv_pool_mark(struct kv_pool *pool, kv_owner_id owner, const kv_block_id *ids, uint32_t count,
                  enum kv_state state);

/* Blocks of `owner`, in a state that no lease covers, belong to `heir` from now on. */
void kv_pool_hand(struct kv_pool *pool, kv_owner_id owner, kv_owner_id heir, const kv_block_id *ids,
                  uint32_t count);

/* Gives blocks of `owner` back (any state but KV_FREE). */
void kv_pool_free(struct kv_pool *pool, kv_owner_id owner, const kv_block_id *ids, uint32_t count);

/* A lease: kv_pool_expired names an owner whose lease has ended at now_us while it holds reserved
 * or quarantined blocks, one owner a call; the lease is gone then, and the caller frees the blocks.
 * until_us 0 removes the lease; so does giving the last block back. An owner that holds nothing
 * gets none. */
void kv_pool_lease(struct kv_pool *pool, kv_owner_id owner, int64_t until_us);
bool kv_pool_expired(struct kv_pool *pool, int64_t now_us, kv_owner_id *owner_out);

uint32_t kv_pool_block_count(const struct kv_pool *pool);
uint32_t kv_pool_count(const struct kv_pool *pool, enum kv_state state);

/* Checks every invariant (states add up, the free list has each free block once, owners agree).
 * O(blocks). */
bool kv_pool_check(const struct kv_pool *pool, struct error *error);

#endif
