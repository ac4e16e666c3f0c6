/* secret_keys: key files: the cluster keys of a process, and other keys in the same format, such as
 * the key of kv/tiers/key_file. A process has one cluster key, or several keys while an operator
 * replaces the key. A process connects with its first key, and accepts a peer that has any of the
 * keys. The cluster keys come from a key file, or from the process that started this process
 * (host/child.h). A gateway without a key file may make one random key. Any folder may call the
 * functions, on any thread; they keep no state. They do not watch the file, encrypt nothing, and do
 * not prove keys to peers (transport/ does). */
#ifndef COMMON_SECRET_KEYS_H
#define COMMON_SECRET_KEYS_H

#include "common/secret.h"

#define SECRET_KEYS_MAX        4   /* Most keys of a process. */
#define SECRET_KEY_ID_BYTES    8   /* Bytes of a key's id. */
#define SECRET_KEYS_TEXT_BYTES 128 /* Most bytes of secret_keys_text's text, with its NUL. */

struct secret_key {
    uint8_t bytes[SECRET_HASH_BYTES];
    /* Identifies the key on the network and in logs. Not secret. */
    uint8_t id[SECRET_KEY_ID_BYTES];
};

struct secret_keys {
    uint32_t count; /* Number of keys; 0 = none. */
    struct secret_key keys[SECRET_KEYS_MAX];
};

/* Sets *out to one key. The bytes of `key` are the key itself and are not hashed. */
void secret_keys_set(struct secret_keys *out, const uint8_t key[SECRET_HASH_BYTES]);

/* Parses the text of a key file. A key line has 44 characters of base64, or an even number of
 * hexadecimal digits, at least 64. The text has one of two forms:
 * - The first line that is not empty is a key line. Then all lines that are not empty must be key
 *   lines, and must differ. Each key is the SHA-256 of one line.
 * - Any other text has one key: the SHA-256 of the whole text, which must have at least 32 bytes.
 *
 * White space at the end of a key line, or at the end of the whole text, is ignored. Errors begin
 * with `path`: ST_INVALID, or ST_TOO_LARGE for more than SECRET_KEYS_MAX keys. After an error *out
 * is unchanged. */
enum status secret_keys_parse(const char *text, size_t bytes, const char *path,
                              struct secret_keys *out, struct error *error);
/* Reads a key file of at most 4,096 bytes with secret_file_read, and parses the text with
 * secret_keys_parse. Returns the errors of these functions. */
enum status secret_keys_read(const char *path, struct secret_keys *out, struct error *error);
/* Reads the key file of a running process again. Returns the errors of secret_keys_read, and
 * ST_INVALID if the file has none of the keys in `present`. */
enum status secret_keys_read_again(const char *path, const struct secret_keys *present,
                                   struct secret_keys *out, struct error *error);

/* Returns the key with this id; NULL = none. */
const struct secret_key *secret_keys_find(const struct secret_keys *keys,
                                          const uint8_t id[SECRET_KEY_ID_BYTES]);
/* Returns true if a and b have the same keys in the same order. */
bool secret_keys_equal(const struct secret_keys *a, const struct secret_keys *b);
/* Writes the ids of the keys as hexadecimal digits, for logs: "5c1e2a90b4d7f311, also 0a1b…". */
void secret_keys_text(const struct secret_keys *keys, char out[SECRET_KEYS_TEXT_BYTES]);

#endif
