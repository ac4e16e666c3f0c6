/* tier_record: the name and the form of a record (tier_backend.h). A record holds the KV of one
 * span in one layer group: the block's KV of each layer of the group, one layer after the other,
 * with all KV heads. If the group has one layer fewer than others, zeros take the place of this
 * layer. So a record does not depend on how a machine is split into stages and ranks.
 *
 * A record has a header of TIER_RECORD_HEADER_BYTES bytes, with a checksum of the record, and then
 * the payload, which is the KV. If there is a key, the payload is encrypted (AES-256-GCM), the tag
 * of the cipher takes the place of the checksum, and the names depend on the key. A store then
 * learns neither KV nor tokens.
 *
 * tiers.c and machine/ call the functions. The functions own nothing, and any thread may call them.
 * They do not put records into a store (tier_backend.h). */
#ifndef KVCACHE_TIERS_TIER_RECORD_H
#define KVCACHE_TIERS_TIER_RECORD_H

#include "common/digest.h"
#include "kvcache/kv_transfer.h"

#define TIER_RECORD_HEADER_BYTES 128
#define TIER_KEY_BYTES           SECRET_HASH_BYTES

/* Returns the size of a record. In all functions, `arena` must have all layers and KV heads. */
static inline size_t tier_record_bytes(const struct kv_arena *arena)
{
    return TIER_RECORD_HEADER_BYTES + (size_t)kv_arena_rows(arena) * arena->block_bytes;
}

/* Stores a digest of what decides the bytes of a record besides the tokens and the salt: the model
 * with its adapters (the digest `model`), the type of KV (such as "i16"), the layout of blocks, and
 * the version of records. */
void tier_identity_make(const struct digest *model, const char *kv_type,
                        const struct kv_arena *arena, struct digest *out);

/* Stores the names of the records, in layer group 0, of the first span_count spans of `tokens`. A
 * span has block_tokens tokens. A name depends on the salt (kv_prefix.h) and on all tokens up to
 * the end of its span. key: TIER_KEY_BYTES bytes; NULL = none. */
void tier_names_make(const struct digest *identity, const uint8_t *key, uint64_t salt,
                     const uint32_t *tokens, uint32_t block_tokens, uint32_t span_count,
                     struct digest *names_out);

/* Returns the name of a span's record in a layer group. group_0_name: the name in group 0. */
struct digest tier_name_of_group(const struct digest *group_0_name, uint32_t group);

/* Copies the KV of a block from KV memory (`region`, with the layout `arena`) to the payload. */
void tier_record_payload_set(void *record, const struct kv_arena *arena, const uint8_t *region,
                             uint32_t group, kv_block_id block);
/* Copies the payload to a block in KV memory. */
void tier_record_payload_get(const void *record, const struct kv_arena *arena, uint8_t *region,
                             uint32_t group, kv_block_id block);

/* Writes the header of a record that has its payload, and encrypts the payload if there is a key.
 * Returns ST_IO if GnuTLS fails. */
enum status tier_record_seal(const uint8_t *key, const struct digest *name, void *record,
                             size_t record_bytes, struct error *error);
/* Checks a record and decrypts its payload. Returns ST_INVALID if the bytes are not the record
 * `name` as tier_record_seal has made it with this key. */
enum status tier_record_open(const uint8_t *key, const struct digest *name, void *record,
                             size_t record_bytes, struct error *error);

#endif
