/* kv_owner: a record for each owner that holds blocks of a pool: the number of its blocks, and its
 * lease. Part of kv_pool, which is the only caller; other files name owners by their id.
 * Bookkeeping only, not thread-safe. */
#ifndef KVCACHE_KV_OWNER_H
#define KVCACHE_KV_OWNER_H

#include "kvcache/kv_pool.h"

#define KV_OWNER_NONE UINT32_MAX

struct kv_owners;

/* Opens a table for up to `capacity` owners, each of which holds at least one block. */
enum status kv_owners_open(uint32_t capacity, struct kv_owners **out);
void kv_owners_close(struct kv_owners *owners); /* NULL is fine. */

/* Returns the record of an owner that holds blocks, or KV_OWNER_NONE. */
uint32_t kv_owners_find(const struct kv_owners *owners, kv_owner_id id);

/* Adds `blocks` to the owner `id`, of which `leased` are in a state that a lease covers. Returns
 * the owner's record. */
uint32_t kv_owners_hold(struct kv_owners *owners, kv_owner_id id, uint32_t blocks, uint32_t leased);
/* Changes the number of blocks that a lease covers. */
void kv_owners_leased_add(struct kv_owners *owners, uint32_t record, int change);
/* Takes blocks away from the owner. With its last block, its record and lease end. */
void kv_owners_drop(struct kv_owners *owners, uint32_t record, uint32_t blocks, uint32_t leased);

/* Sets the end of the owner's lease; 0 = no lease. */
void kv_owners_lease(struct kv_owners *owners, uint32_t record, int64_t until_us);
/* Takes one lease that has ended at now_us, of an owner that still holds blocks that a lease
 * covers. Returns false if there is none. */
bool kv_owners_expired(struct kv_owners *owners, int64_t now_us, kv_owner_id *id_out);

/* For kv_pool_check: call kv_owners_check_count once per owned block, then kv_owners_check, which
 * compares the counts with the records and resets the counts. */
void kv_owners_check_count(struct kv_owners *owners, uint32_t record, bool leased);
bool kv_owners_check(struct kv_owners *owners, struct error *error);

#endif
