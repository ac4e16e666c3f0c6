/* tier_record: see the header. */
#include "kvcache/tiers/tier_record.h"

#include "common/siphash.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <string.h>
#include <sys/uio.h>

#define MAGIC   "cleaveKV"
#define VERSION 2

#define NONCE_BYTES 12
#define TAG_BYTES   16

#define LANES       4
#define LANE_FACTOR 0x9e3779b97f4a7c15u /* Odd, so that multiplying loses nothing. */

struct header {
    char magic[8];
    uint32_t version;
    uint32_t encrypted; /* 1 = the payload is encrypted. */
    uint64_t payload_bytes;
    struct digest name;
    uint8_t nonce[NONCE_BYTES];
    uint8_t padding[44];
    uint8_t check[TAG_BYTES]; /* 0 while the checksum or the tag is computed. */
};
_Static_assert(sizeof(struct header) == TIER_RECORD_HEADER_BYTES, "no hidden padding");

/* Returns the layer of the group in a row; layer_count = the last row has no layer of the group. */
static uint32_t layer_of(const struct kv_arena *arena, uint32_t row, uint32_t group)
{
    const uint32_t layer = row * layer_groups_count(&arena->groups) + group;
    return layer < arena->layer_count ? layer : arena->layer_count;
}

void tier_record_payload_set(void *record, const struct kv_arena *arena, const uint8_t *region,
                             uint32_t group, kv_block_id block)
{
    uint8_t *to = (uint8_t *)record + TIER_RECORD_HEADER_BYTES;
    for (uint32_t row = 0; row < kv_arena_rows(arena); row++, to += arena->block_bytes) {
        const uint32_t layer = layer_of(arena, row, group);
        if (layer < arena->layer_count)
            memcpy(to, region + kv_arena_offset(arena, layer, block), arena->block_bytes);
        else
            memset(to, 0, arena->block_bytes);
    }
}

void tier_record_payload_get(const void *record, const struct kv_arena *arena, uint8_t *region,
                             uint32_t group, kv_block_id block)
{
    const uint8_t *from = (const uint8_t *)record + TIER_RECORD_HEADER_BYTES;
    for (uint32_t row = 0; row < kv_arena_rows(arena); row++, from += arena->block_bytes) {
        const uint32_t layer = layer_of(arena, row, group);
        if (layer < arena->layer_count)
            memcpy(region + kv_arena_offset(arena, layer, block), from, arena->block_bytes);
    }
}

void tier_identity_make(const struct digest *model, const char *kv_type,
                        const struct kv_arena *arena, struct digest *out)
{
    const uint64_t layout[] = {VERSION,
                               arena->layer_count,
                               arena->head_total,
                               arena->block_tokens,
                               arena->block_bytes,
                               layer_groups_count(&arena->groups)};
    *out = *model;
    digest_add(out, kv_type, strlen(kv_type));
    digest_add(out, layout, sizeof(layout));
}

void tier_names_make(const struct digest *identity, const uint8_t *key, uint64_t salt,
                     const uint32_t *tokens, uint32_t block_tokens, uint32_t span_count,
                     struct digest *names_out)
{
    static const uint8_t no_key[TIER_KEY_BYTES];
    const struct secret_piece pieces[] = {{identity->bytes, sizeof(identity->bytes)},
                                          {&salt, sizeof(salt)}};
    struct digest name;
    secret_mac(key != NULL ? key : no_key, TIER_KEY_BYTES, pieces, 2, name.bytes);
    for (uint32_t i = 0; i < span_count; i++) {
        digest_add(&name, tokens + (size_t)i * block_tokens, block_tokens * sizeof(tokens[0]));
        names_out[i] = name;
    }
}

struct digest tier_name_of_group(const struct digest *group_0_name, uint32_t group)
{
    struct digest of_group = *group_0_name;
    if (group > 0)
        digest_add(&of_group, &group, sizeof(group));
    return of_group;
}

/* Adds 32 bytes to the lanes. A changed word always changes its lane: the step is a bijection of
 * the lane, and of the word. */
static void lanes_add(uint64_t lanes[LANES], const uint8_t *from)
{
    uint64_t words[LANES];
    memcpy(words, from, sizeof(words));
    for (int i = 0; i < LANES; i++) {
        const uint64_t lane = lanes[i] + words[i] * LANE_FACTOR;
        lanes[i] = (lane << 31 | lane >> 33) * LANE_FACTOR;
    }
}

/* Adds up the payload, with zeros at its end. SipHash of all of it would be slower than an SSD. */
static void lanes_sum(const uint8_t *payload, size_t bytes, uint64_t lanes[LANES])
{
    uint8_t last[LANES * sizeof(uint64_t)] = {0};
    size_t at = 0;
    memset(lanes, 0, sizeof(last));
    for (; bytes - at >= sizeof(last); at += sizeof(last))
        lanes_add(lanes, payload + at);
    memcpy(last, payload + at, bytes - at);
    lanes_add(lanes, last);
}

/* Sums up a record whose header has no check. */
static void checksum(const struct digest *name, const void *record, size_t bytes,
                     uint8_t out[TAG_BYTES])
{
    struct {
        struct header header;
        uint64_t lanes[LANES];
    } summed;
    uint64_t key[2];
    memcpy(key, name->bytes, sizeof(key));
    memcpy(&summed.header, record, sizeof(summed.header));
    lanes_sum((const uint8_t *)record + sizeof(struct header), bytes - sizeof(struct header),
              summed.lanes);
    const uint64_t sum = siphash(key, &summed, sizeof(summed));
    memset(out, 0, TAG_BYTES);
    memcpy(out, &sum, sizeof(sum));
}

/* Encrypts or decrypts the payload. *tag is written or read. Returns GnuTLS's number of the error;
 * 0 = none. */
static int payload_cipher(const uint8_t *key, const struct header *header, void *payload,
                          size_t bytes, bool encrypts, uint8_t tag[TAG_BYTES])
{
    const gnutls_datum_t key_datum = {(uint8_t *)(uintptr_t)key, TIER_KEY_BYTES};
    const giovec_t about = {(void *)(uintptr_t)header, sizeof(*header)};
    const giovec_t data = {payload, bytes};
    gnutls_aead_cipher_hd_t cipher;
    size_t tag_bytes = TAG_BYTES;
    int failed = gnutls_aead_cipher_init(&cipher, GNUTLS_CIPHER_AES_256_GCM, &key_datum);
    if (failed != 0)
        return failed;
    failed = encrypts ? gnutls_aead_cipher_encryptv2(cipher, header->nonce, NONCE_BYTES, &about, 1,
                                                     &data, 1, tag, &tag_bytes)
                      : gnutls_aead_cipher_decryptv2(cipher, header->nonce, NONCE_BYTES, &about, 1,
                                                     &data, 1, tag, tag_bytes);
    gnutls_aead_cipher_deinit(cipher);
    return failed;
}

enum status tier_record_seal(const uint8_t *key, const struct digest *name, void *record,
                             size_t record_bytes, struct error *error)
{
    struct header header = {.magic = MAGIC,
                            .version = VERSION,
                            .encrypted = key != NULL,
                            .payload_bytes = record_bytes - sizeof(header),
                            .name = *name};
    uint8_t check[TAG_BYTES];
    if (key != NULL) {
        secret_random(header.nonce, sizeof(header.nonce));
        const int failed = payload_cipher(key, &header, (uint8_t *)record + sizeof(header),
                                          record_bytes - sizeof(header), true, check);
        if (failed != 0)
            return error_set(error, ST_IO, "KV cannot be encrypted: %s", gnutls_strerror(failed));
    }
    memcpy(record, &header, sizeof(header));
    if (key == NULL)
        checksum(name, record, record_bytes, check);
    memcpy((uint8_t *)record + offsetof(struct header, check), check, sizeof(check));
    return ST_OK;
}

enum status tier_record_open(const uint8_t *key, const struct digest *name, void *record,
                             size_t record_bytes, struct error *error)
{
    struct header header;
    uint8_t check[TAG_BYTES], wanted[TAG_BYTES];
    memcpy(&header, record, sizeof(header));
    memcpy(check, header.check, sizeof(check));
    memset(header.check, 0, sizeof(header.check));
    if (memcmp(header.magic, MAGIC, sizeof(header.magic)) != 0 || header.version != VERSION ||
        header.encrypted != (key != NULL ? 1 : 0) ||
        header.payload_bytes != record_bytes - sizeof(header) || !digest_equal(&header.name, name))
        return error_set(error, ST_INVALID, "a record of KV has a wrong header");
    memcpy(record, &header, sizeof(header));
    bool good;
    if (key != NULL) {
        good = payload_cipher(key, &header, (uint8_t *)record + sizeof(header),
                              record_bytes - sizeof(header), false, check) == 0;
    } else {
        checksum(name, record, record_bytes, wanted);
        good = memcmp(check, wanted, sizeof(check)) == 0;
    }
    return good ? ST_OK
                : error_set(error, ST_INVALID, "a record of KV is damaged: its checksum is wrong");
}
