/* kv_owner: a table of the owners that hold blocks of a pool. For each owner, the table has the
 * number of blocks, the number of leased blocks (reserved or quarantined), and the owner's lease:
 * the time at which the leased blocks are due to be freed. kv_pool.c calls the functions, on the
 * thread that uses the pool. The table does not know which blocks an owner has (kv_pool does),
 * frees no blocks and reads no clock. */
#ifndef KVCACHE_KV_OWNER_H
#define KVCACHE_KV_OWNER_H

#include "kvcache/kv_pool.h"

/* A record is an owner's index in the table. KV_OWNER_NONE = no record. */
#define KV_OWNER_NONE UINT32_MAX

struct kv_owners;

/* Opens a table for at most owners_max owners. Returns ST_NO_MEMORY on failure. */
enum status kv_owners_open(uint32_t owners_max, struct kv_owners **out);
void kv_owners_close(struct kv_owners *owners); /* NULL is fine. */

/* Returns the owner's record; KV_OWNER_NONE = the owner holds no blocks. */
uint32_t kv_owners_find(const struct kv_owners *owners, kv_owner_id id);

/* Adds block_count blocks to the owner; leased_count of them are leased. Returns the owner's
 * record, which is new if the owner had no blocks. Requires that the table has room and that `id`
 * is not 0. */
uint32_t kv_owners_blocks_add(struct kv_owners *owners, kv_owner_id id, uint32_t block_count,
                              uint32_t leased_count);
/* Adds `change`, which may be negative, to the number of the owner's leased blocks. */
void kv_owners_leased_add(struct kv_owners *owners, uint32_t record, int change);
/* Removes block_count blocks from the owner; leased_count of them are leased. Requires that the
 * owner has these blocks. An owner without blocks loses its record and its lease. */
void kv_owners_blocks_remove(struct kv_owners *owners, uint32_t record, uint32_t block_count,
                             uint32_t leased_count);

/* Sets the end of the owner's lease, in microseconds of the caller's clock; 0 = no lease. */
void kv_owners_lease_set(struct kv_owners *owners, uint32_t record, int64_t until_us);
/* Finds an owner of leased blocks whose lease has ended at now_us, removes the lease and stores the
 * owner's id. Returns false if no such owner is left. Also removes ended leases of owners without
 * leased blocks. */
bool kv_owners_expired(struct kv_owners *owners, int64_t now_us, kv_owner_id *id_out);

/* Counts a block for kv_owners_check. Call this function once for each block that has an owner. */
void kv_owners_check_count(struct kv_owners *owners, uint32_t record, bool leased);
/* Returns true if the table agrees with the counted blocks and with itself; else false, with the
 * first difference in *error. Resets the counts. */
bool kv_owners_check(struct kv_owners *owners, struct error *error);

#endif
