/* kv_owner: a table of the owners that hold blocks of a pool. For each owner, it has the number of
 * blocks and the lease. A lease is the time at which the owner's reserved and quarantined blocks
 * are due to be freed. Only kv_pool.c calls the functions, on the thread that uses the pool. Not
 * thread-safe. It does not know which blocks an owner has (kv_pool does), frees no blocks and reads
 * no clock. */
#ifndef KVCACHE_KV_OWNER_H
#define KVCACHE_KV_OWNER_H

#include "kvcache/kv_pool.h"

/* A record is an owner's index in the table. KV_OWNER_NONE = no record. */
#define KV_OWNER_NONE UINT32_MAX

struct kv_owners;

/* Opens a table for at most `capacity` owners. Returns ST_NO_MEMORY on failure. */
enum status kv_owners_open(uint32_t capacity, struct kv_owners **out);
void kv_owners_close(struct kv_owners *owners); /* NULL is fine. */

/* Returns the owner's record; KV_OWNER_NONE = the owner holds no blocks. */
uint32_t kv_owners_find(const struct kv_owners *owners, kv_owner_id id);

/* Adds `blocks` blocks to the owner `id`. `leased` of them are reserved or quarantined. Returns the
 * owner's record, which is new if the owner had no blocks. Requires that the table has room. */
uint32_t kv_owners_blocks_add(struct kv_owners *owners, kv_owner_id id, uint32_t blocks,
                              uint32_t leased);
/* Adds `change`, which may be negative, to the number of the owner's reserved and quarantined
 * blocks. */
void kv_owners_leased_add(struct kv_owners *owners, uint32_t record, int change);
/* Takes `blocks` blocks away from the owner. `leased` of them are reserved or quarantined. An owner
 * without blocks loses its record and its lease. */
void kv_owners_blocks_remove(struct kv_owners *owners, uint32_t record, uint32_t blocks,
                             uint32_t leased);

/* Sets the end of the owner's lease, in microseconds of the caller's clock; 0 = no lease. */
void kv_owners_lease_set(struct kv_owners *owners, uint32_t record, int64_t until_us);
/* Finds an owner of reserved or quarantined blocks whose lease has ended at now_us, removes the
 * lease and stores the owner. Returns false if no such lease has ended. Leases that ended earlier,
 * of owners without reserved or quarantined blocks, are removed on the way. */
bool kv_owners_expired(struct kv_owners *owners, int64_t now_us, kv_owner_id *id_out);

/* kv_pool_check calls kv_owners_check_count once for each block with an owner, and then
 * kv_owners_check, which returns true if these counts and the records agree, and resets the
 * counts. */
void kv_owners_check_count(struct kv_owners *owners, uint32_t record, bool leased);
bool kv_owners_check(struct kv_owners *owners, struct error *error);

#endif
