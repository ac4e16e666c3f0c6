/* tier_record: the name and the form of a record (tier_backend.h). A record holds the KV of one
 * span of tokens in one layer group (common/layer_groups.h): the blocks of its layers, one layer
 * after the other, each with all KV heads. So a record does not depend on how a machine is split
 * into stages and ranks.
 *
 * A record begins with a header of TIER_RECORD_HEADER_BYTES bytes, with a checksum over everything
 * else. With a key, the payload is encrypted (AES-256-GCM), the tag takes the place of the
 * checksum, and the names depend on the key, too. Then a store learns neither the KV nor the
 * tokens.
 *
 * tiers.c makes and opens records on the threads of the tiers; machine/tiers.c makes the identity.
 * The functions keep no state, and any thread may call them. They store nothing. */
#ifndef KVCACHE_TIERS_TIER_RECORD_H
#define KVCACHE_TIERS_TIER_RECORD_H

#include "common/digest.h"
#include "kvcache/kv_transfer.h"

#define TIER_RECORD_HEADER_BYTES 128
#define TIER_KEY_BYTES           SECRET_HASH_BYTES

/* Returns the bytes of a record. `arena`: a layout of all layers, with all KV heads. */
static inline size_t tier_record_bytes(const struct kv_arena *arena)
{
    return TIER_RECORD_HEADER_BYTES + (size_t)kv_arena_rows(arena) * arena->block_bytes;
}

/* Stores a digest of what decides the bytes of KV besides the tokens and the salt: the model, with
 * its adapters, the type of KV (such as "i16"), the layout of blocks, and the version of
 * records. */
void tier_identity_make(const struct digest *model, const char *kv_type,
                        const struct kv_arena *arena, struct digest *out);

/* Stores the names of the records of a chain's first `count` spans, each with block_tokens tokens.
 * A name depends on all tokens up to the end of its span. The names are those in layer group 0.
 * key: TIER_KEY_BYTES bytes; NULL = none. */
void tier_names_make(const struct digest *identity, const uint8_t *key, uint64_t salt,
                     const uint32_t *tokens, uint32_t block_tokens, uint32_t count,
                     struct digest *names_out);

/* Returns the name of a span's record in a layer group. `name`: the name in group 0. */
struct digest tier_name_of_group(const struct digest *name, uint32_t group);

/* Copy the KV of a block between the payload of a record and KV memory (`region`, with the layout
 * `arena`). */
void tier_record_fill(void *record, const struct kv_arena *arena, const uint8_t *region,
                      uint32_t group, kv_block_id block);
void tier_record_empty(const void *record, const struct kv_arena *arena, uint8_t *region,
                       uint32_t group, kv_block_id block);

/* Writes the header of a record whose payload is filled, and encrypts the payload if there is a
 * key. Returns ST_IO if GnuTLS fails. */
enum status tier_record_seal(const uint8_t *key, const struct digest *name, void *record,
                             size_t bytes, struct error *error);
/* Checks a record and decrypts its payload. Returns ST_INVALID if the bytes are not the record
 * `name` as tier_record_seal has made it. */
enum status tier_record_open(const uint8_t *key, const struct digest *name, void *record,
                             size_t bytes, struct error *error);

#endif
