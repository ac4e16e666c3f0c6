/* kv_owner: the owners that hold blocks of a pool: how many each holds, and its lease. Part of
 * kv_pool, which is the only caller; everybody else names owners by their id. */
#ifndef KVCACHE_KV_OWNER_H
#define KVCACHE_KV_OWNER_H

#include "kvcache/kv_pool.h"

#define KV_OWNER_NONE UINT32_MAX

struct kv_owners;

/* Room for `capacity` owners with at least one block each. */
enum status kv_owners_open(uint32_t capacity, struct kv_owners **out);
void kv_owners_close(struct kv_owners *owners); /* NULL is fine */

/* The record of an owner that holds blocks, or KV_OWNER_NONE. */
uint32_t kv_owners_find(const struct kv_owners *owners, kv_owner_id id);

/* `id` holds `blocks` more, of which `leased` are in a state that a lease covers. Returns its
 * record. */
uint32_t kv_owners_hold(struct kv_owners *owners, kv_owner_id id, uint32_t blocks, uint32_t leased);
void kv_owners_leased_add(struct kv_owners *owners, uint32_t record, int change);
/* The owner gave blocks back; with its last one the record and its lease end. */
void kv_owners_drop(struct kv_owners *owners, uint32_t record, uint32_t blocks, uint32_t leased);

void kv_owners_lease(struct kv_owners *owners, uint32_t record, int64_t until_us);
bool kv_owners_expired(struct kv_owners *owners, int64_t now_us, kv_owner_id *id_out);

/* For kv_pool_check: first once per block that somebody owns, then the comparison (which ends the
 * count). */
void kv_owners_check_count(struct kv_owners *owners, uint32_t record, bool leased);
bool kv_owners_check(struct kv_owners *owners, struct error *error);

#endif
