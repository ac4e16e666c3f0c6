/* api_keys_internal: what the files of api_keys share: keys_file.c (reads key files), keys_fields.c
 * (the fields of key files) and keys.c (the table of keys in use). The functions run on the thread
 * that calls the functions of keys.h. Only keys_file.c opens files. */
#ifndef SERVER_API_KEYS_INTERNAL_H
#define SERVER_API_KEYS_INTERNAL_H

#include "common/secret.h"
#include "server/api/keys.h"

#include <jansson.h>
#include <string.h>

#define KEY_BYTES_MAX 512 /* Longest secret. */

/* The SHA-256 of a key's secrets. */
struct key_secrets {
    uint32_t count; /* Number of secrets. */
    uint8_t hashes[API_KEY_SECRETS][SECRET_HASH_BYTES];
};

struct api_key_set {
    uint32_t count;
    struct key_set_entry {
        struct key_secrets secrets;
        struct api_key_settings settings;
    } keys[LIMIT_API_KEYS];
};

/* The position of the entry of a key file that is being read. */
struct key_file_entry {
    const char *path;
    size_t index;
    struct error *error; /* Receives the errors of the entry. */
};

/* Sets the error, and returns false. field: name of the field. want: what the field should have.
 * Neither may quote a value of the file, because the value might be a secret in the wrong field. */
bool key_entry_refuse(const struct key_file_entry *at, const char *field, const char *want);
/* Sets the defaults of all fields. *settings must be all zeros. */
void key_settings_init(struct api_key_settings *settings);
/* Reads one field of an entry into *settings or *secrets. Returns false, with at->error set, if
 * there is no such field or its value is wrong. */
bool key_field_read(const struct key_file_entry *at, const char *name, const json_t *value,
                    struct api_key_settings *settings, struct key_secrets *secrets);

/* A hash table from hashes to numbers. A search gives candidates, which the caller compares with
 * the name or secret that it wants. Single numbers cannot be removed. */
#define KEY_INDEX_SLOTS 131072 /* A power of two, at least twice the secrets of all indices. */
#define KEY_INDEX_NONE  UINT32_MAX
_Static_assert(KEY_INDEX_SLOTS >= 2 * API_KEY_SECRETS * API_KEY_INDICES, "half of it stays empty");

/* All zeros = empty. */
struct key_index {
    uint32_t count;                  /* Numbers in the index. */
    uint32_t slots[KEY_INDEX_SLOTS]; /* A number + 1; 0 = empty. */
};

static inline void key_index_clear(struct key_index *index)
{
    if (index->count > 0)
        memset(index, 0, sizeof(*index));
}

static inline void key_index_add(struct key_index *index, uint64_t hash, uint32_t number)
{
    uint32_t at = (uint32_t)hash % KEY_INDEX_SLOTS;
    while (index->slots[at] != 0)
        at = (at + 1) % KEY_INDEX_SLOTS;
    index->slots[at] = number + 1;
    index->count++;
}

/* The next two functions return the position of a candidate: the first candidate for the hash, or
 * the next candidate after the position `at`. Both functions store the candidate's number;
 * KEY_INDEX_NONE = there is no such candidate. */
static inline uint32_t key_index_first(const struct key_index *index, uint64_t hash,
                                       uint32_t *number_out)
{
    uint32_t at = (uint32_t)hash % KEY_INDEX_SLOTS;
    *number_out = index->slots[at] - 1;
    return at;
}

static inline uint32_t key_index_next(const struct key_index *index, uint32_t at,
                                      uint32_t *number_out)
{
    at = (at + 1) % KEY_INDEX_SLOTS;
    *number_out = index->slots[at] - 1;
    return at;
}

/* Returns the hash that stands for a secret with this SHA-256 in a key_index. */
static inline uint64_t key_secret_hash(const uint8_t *hash)
{
    uint64_t first;
    memcpy(&first, hash, sizeof(first));
    return first;
}

#endif
