/* kv_pool: the fixed set of KV blocks of one stage: the state and the owner of each block.
 * Bookkeeping only: it never touches the memory of the blocks, and does not decide which request
 * gets blocks (scheduler/memory.h does). A block has exactly one owner from kv_pool_take to
 * kv_pool_free. Blocks that several requests read belong to the prefix cache (kv_prefix.h).
 *
 * machine/ opens it and reads its counts; the two request tables (prompt_pool/, token_pool/) and
 * the prefix cache take, mark and free blocks. A machine with stages has one pool, in its head. Not
 * thread-safe: the machine's event loop thread makes every call. */
#ifndef KVCACHE_KV_POOL_H
#define KVCACHE_KV_POOL_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef uint32_t kv_block_id; /* Index of a block, from 0. */
/* One request during its use of a slot (a later request in the slot has another id), or
 * KV_PREFIX_OWNER; 0 = no owner. */
typedef uint64_t kv_owner_id;

#define KV_BLOCK_NONE UINT32_MAX /* No block. */

/* States of a block:
 *
 *    free ─take▶ reserved ─▶ filling ─▶ live ◀──▶ cached
 *                    └──────────┴────────┘
 *                          ▼
 *                     quarantined
 *
 * RESERVED: taken for a request; a prompt machine may be writing its KV into the block.
 * FILLING: this machine computes a prompt's KV into the block.
 * LIVE: the block can be read. A reserved block becomes live at once when the prompt machine has
 *     reported its KV, or when this machine's next batch writes the block.
 * CACHED: kept for requests with the same prefix, and evicted when a take needs the block.
 * QUARANTINED: its request has ended, but a peer may still write into the block. The block becomes
 *     free when the peer has said that it stopped, or when the lease ends.
 * kv_pool_free leads from every state to FREE. */
enum kv_state {
    KV_FREE,
    KV_RESERVED,
    KV_FILLING,
    KV_LIVE,
    KV_CACHED,
    KV_QUARANTINED,
    KV_STATE_COUNT
};

/* Returns a lower-case name, such as "free". */
const char *kv_state_name(enum kv_state state);

struct kv_pool;

/* Opens a pool of free blocks with the ids 0 to block_count - 1. ST_NO_MEMORY on failure. */
enum status kv_pool_open(uint32_t block_count, struct kv_pool **out);
void kv_pool_close(struct kv_pool *pool); /* NULL is fine. Requires that every block is free. */

/* Sets the function that evicts cached blocks: `reclaim` must free `count` of them. kv_pool_take
 * calls it with at most the number of cached blocks. NULL = no function; requires that no block is
 * cached. */
void kv_pool_reclaimer(struct kv_pool *pool, void (*reclaim)(void *self, uint32_t count),
                       void *self);

/* Number of blocks that a take can get: free blocks, and cached blocks if there is a reclaimer. */
uint32_t kv_pool_available(const struct kv_pool *pool);

/* Takes `count` blocks for `owner` in state KV_RESERVED. On ST_NO_RESOURCE (fewer are available)
 * nothing has changed. Prefers runs of consecutive ids, because a run is transferred as one write.
 * ids_out receives `count` ids. */
enum status kv_pool_take(struct kv_pool *pool, kv_owner_id owner, uint32_t count,
                         kv_block_id *ids_out);

/* True if all blocks [first, first + count) belong to `owner` and are reserved or being filled, so
 * that a peer may write into them. Any values are fine. */
bool kv_pool_fillable(const struct kv_pool *pool, kv_owner_id owner, uint64_t first,
                      uint64_t count);

/* Changes the state of blocks of `owner`. Requires that each change is one of those drawn above
 * (asserted). */
void kv_pool_mark(struct kv_pool *pool, kv_owner_id owner, const kv_block_id *ids, uint32_t count,
                  enum kv_state state);

/* Transfers blocks from `owner` to `heir`. Requires that no block is in a state that a lease
 * covers. */
void kv_pool_hand(struct kv_pool *pool, kv_owner_id owner, kv_owner_id heir, const kv_block_id *ids,
                  uint32_t count);

/* Frees blocks of `owner`, in any state. */
void kv_pool_free(struct kv_pool *pool, kv_owner_id owner, const kv_block_id *ids, uint32_t count);

/* Sets the end of the owner's lease, which covers its reserved and quarantined blocks: until_us, by
 * the clock of the caller; 0 = no lease. Freeing the owner's last block also removes the lease. No
 * effect for an owner without blocks. */
void kv_pool_lease(struct kv_pool *pool, kv_owner_id owner, int64_t until_us);
/* Removes one lease that has ended at now_us while its owner holds reserved or quarantined blocks,
 * and stores the owner. Returns false if there is none. The caller frees the blocks or sets a new
 * lease. */
bool kv_pool_expired(struct kv_pool *pool, int64_t now_us, kv_owner_id *owner_out);

/* Return the number of all blocks, and of those in `state`. */
uint32_t kv_pool_block_count(const struct kv_pool *pool);
uint32_t kv_pool_count(const struct kv_pool *pool, enum kv_state state);

/* For tests and assertions: returns whether every invariant holds: the states add up, the free
 * lists contain each free block once, and the owners' records agree. O(blocks). */
bool kv_pool_check(const struct kv_pool *pool, struct error *error);

#endif
