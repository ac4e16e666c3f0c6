/* kv_pool: owns the state and the owner of each KV block of one machine. It does not touch the
 * memory of the blocks, and does not decide which request gets blocks (scheduler/memory.h does). A
 * block that is not free has exactly one owner. Blocks that several requests read belong to the
 * prefix cache (kv_prefix.h).
 *
 * machine/, prompt_pool/, token_pool/ and the prefix cache take, mark and free blocks, mostly
 * through kv_tables.h. A draft model's KV has a pool of its own (token_pool/draft_seats.h). In a
 * machine with stages, the head has the pool, and the stage processes use the head's block ids. One
 * thread uses a pool: the thread of the machine's event loop, or a simulator's. */
#ifndef KVCACHE_KV_POOL_H
#define KVCACHE_KV_POOL_H

#include "common/layer_groups.h"
#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef uint32_t kv_block_id; /* Index of a block, from 0. */
/* The owner of blocks, for example a request, a load from a tier, or the prefix cache
 * (KV_PREFIX_OWNER). The users of a pool choose the numbers. 0 is not valid. */
typedef uint64_t kv_owner_id;

#define KV_BLOCK_NONE UINT32_MAX /* No block. */

/* States of a block:
 *
 *                    ┌────────────────────┐
 *                    │                    ▼
 *    free ─take▶ reserved ─▶ filling ─▶ live ◀──▶ cached
 *                    └──────────┴────────┘
 *                          ▼
 *                     quarantined
 *
 * RESERVED: taken; KV may be written into the block.
 * FILLING: this machine computes a prompt's KV into the block, or loads KV from a tier into it.
 * LIVE: a request or another reader uses the block's KV, or this machine's next batch writes KV
 *     into the block.
 * CACHED: in the prefix cache, with no reader. The cache may evict the block.
 * QUARANTINED: the owner no longer needs the block, but a peer may still write into the block. The
 *     caller frees the block when no write can arrive.
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

/* Opens a pool of free blocks with the ids 0 to block_count - 1. Returns ST_NO_MEMORY, or
 * ST_INVALID if block_count is 0 or KV_BLOCK_NONE. */
enum status kv_pool_open(uint32_t block_count, struct kv_pool **out);
void kv_pool_close(struct kv_pool *pool); /* NULL is fine. Requires that every block is free. */

/* Sets the function that evicts cached blocks: it must free at least block_count cached blocks.
 * kv_pool_take calls the function if too few blocks are free. NULL = none; then no block may be
 * cached. */
void kv_pool_reclaimer_set(struct kv_pool *pool, void (*reclaim)(void *self, uint32_t block_count),
                           void *self);

/* Returns the number of blocks that kv_pool_take can get: the free and the cached blocks. */
uint32_t kv_pool_available(const struct kv_pool *pool);

/* Takes `count` blocks for the KV of layers of one kind, makes `owner` their owner, and sets their
 * state to KV_RESERVED. ids_out receives the ids, preferably consecutive ids: consecutive blocks
 * can be transferred as one write. Requires that `owner` is not 0. If fewer blocks are available,
 * takes no block and returns ST_NO_RESOURCE. */
enum status kv_pool_take(struct kv_pool *pool, kv_owner_id owner, enum layer_kind kind,
                         uint32_t count, kv_block_id *ids_out);

/* Returns true if all blocks [first, first + count) belong to `owner` and are reserved or being
 * filled. The arguments may come from a peer: any values are fine. */
bool kv_pool_fillable(const struct kv_pool *pool, kv_owner_id owner, uint64_t first,
                      uint64_t count);

/* Returns true if the block belongs to `owner`. Requires that the pool has the block. */
bool kv_pool_owns(const struct kv_pool *pool, kv_owner_id owner, kv_block_id id);

/* Changes the state of blocks of `owner`. Requires that the diagram above shows each change. */
void kv_pool_state_set(struct kv_pool *pool, kv_owner_id owner, const kv_block_id *ids,
                       uint32_t count, enum kv_state state);

/* Makes `heir` the owner of blocks of `owner`. Requires that `heir` is neither `owner` nor 0, and
 * that none of the blocks is reserved or quarantined. */
void kv_pool_owner_change(struct kv_pool *pool, kv_owner_id owner, kv_owner_id heir,
                          const kv_block_id *ids, uint32_t count);

/* Frees blocks of `owner`, in any state. */
void kv_pool_free(struct kv_pool *pool, kv_owner_id owner, const kv_block_id *ids, uint32_t count);

/* Sets the owner's lease: the time, in microseconds of the caller's clock, at which the owner's
 * reserved and quarantined blocks are due to be freed; 0 = no lease. The lease is removed when the
 * owner no longer has blocks. No effect for an owner without blocks. */
void kv_pool_lease_set(struct kv_pool *pool, kv_owner_id owner, int64_t until_us);
/* Finds an owner of reserved or quarantined blocks whose lease has ended at now_us, removes the
 * lease and stores the owner. Returns false if no such lease has ended. The caller frees the blocks
 * or sets a new lease. */
bool kv_pool_expired(struct kv_pool *pool, int64_t now_us, kv_owner_id *owner_out);

/* Returns the number of all blocks. */
uint32_t kv_pool_block_count(const struct kv_pool *pool);
/* Returns the number of blocks in `state`. */
uint32_t kv_pool_state_count(const struct kv_pool *pool, enum kv_state state);
/* Returns the number of blocks that were taken for layers of this kind and are not free. */
uint32_t kv_pool_kind_count(const struct kv_pool *pool, enum layer_kind kind);

/* Returns true if the pool agrees with itself; else false, with the first difference in *error.
 * Looks at every block: call it in tests and at the end of a process. */
bool kv_pool_check(const struct kv_pool *pool, struct error *error);

#endif
