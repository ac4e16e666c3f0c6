/* kv_owner: a table of the owners that hold blocks of a pool: for each, the number of its blocks,
 * and its lease (the time at which its reserved and quarantined blocks are due to be freed). Part
 * of kv_pool, which is the only caller, on the event loop thread that owns the pool; other files
 * name owners by their id. Bookkeeping only, not thread-safe. It does not know which blocks an
 * owner has, nor their states (kv_pool does), and it reads no clock. */
#ifndef KVCACHE_KV_OWNER_H
#define KVCACHE_KV_OWNER_H

#include "kvcache/kv_pool.h"

#define KV_OWNER_NONE UINT32_MAX /* No record. */

struct kv_owners;

/* Opens a table for up to `capacity` owners, each of which holds at least one block. Returns
 * ST_NO_MEMORY on failure. */
enum status kv_owners_open(uint32_t capacity, struct kv_owners **out);
void kv_owners_close(struct kv_owners *owners); /* NULL is fine. */

/* Returns the record (index in the table) of the owner; KV_OWNER_NONE = it holds no blocks. */
uint32_t kv_owners_find(const struct kv_owners *owners, kv_owner_id id);

/* Adds `blocks` blocks to the owner `id`, making its record if it has none. `leased` of them are in
 * a state that a lease covers (reserved or quarantined). Returns the owner's record. */
uint32_t kv_owners_hold(struct kv_owners *owners, kv_owner_id id, uint32_t blocks, uint32_t leased);
/* Adds `change`, which may be negative, to the number of the owner's blocks that a lease covers. */
void kv_owners_leased_add(struct kv_owners *owners, uint32_t record, int change);
/* Takes `blocks` blocks away from the owner, `leased` of which a lease covered. With its last
 * block, the owner's record and lease end. */
void kv_owners_drop(struct kv_owners *owners, uint32_t record, uint32_t blocks, uint32_t leased);

/* Sets the end of the owner's lease, in microseconds of the caller's clock; 0 = no lease. */
void kv_owners_lease(struct kv_owners *owners, uint32_t record, int64_t until_us);
/* Removes one lease that has ended at now_us and whose owner still holds blocks that a lease
 * covers, and stores the owner. Returns false if there is none. */
bool kv_owners_expired(struct kv_owners *owners, int64_t now_us, kv_owner_id *id_out);

/* For kv_pool_check: call kv_owners_check_count once per owned block, then kv_owners_check, which
 * compares the counts with the records and resets the counts. */
void kv_owners_check_count(struct kv_owners *owners, uint32_t record, bool leased);
bool kv_owners_check(struct kv_owners *owners, struct error *error);

#endif
