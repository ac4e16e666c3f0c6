/* secret_keys: the cluster keys of a process: one, or several while an operator rotates them. The
 * first is used to connect; all are accepted. `cleave serve` and `cleave machine` read them from
 * cluster/key_file, also while they run; host/child.c hands them to child processes; transport/
 * proves and checks them. Pure functions except for the reading of files; any thread. */
#ifndef COMMON_SECRET_KEYS_H
#define COMMON_SECRET_KEYS_H

#include "common/secret.h"

#define SECRET_KEYS_MAX 4
/* A key's id: the first bytes of an HMAC under the key. It names the key on the network and in
 * logs. */
#define SECRET_KEY_ID_BYTES    8
#define SECRET_KEYS_TEXT_BYTES 128

struct secret_key {
    uint8_t bytes[SECRET_HASH_BYTES];
    uint8_t id[SECRET_KEY_ID_BYTES];
};

struct secret_keys {
    uint32_t count; /* 1 to SECRET_KEYS_MAX; 0 = none. */
    struct secret_key keys[SECRET_KEYS_MAX];
};

/* Makes `out` a set of this one key. */
void secret_keys_set(struct secret_keys *out, const uint8_t key[SECRET_HASH_BYTES]);

/* Reads the text of a key file. If its first line is a key by itself (64 or more hexadecimal
 * digits, or 44 characters of base64), each line that is not empty must be such a key, and no key
 * may be there twice. Else the whole text is one key: at least 32 bytes of any kind. White space at
 * the end of lines and of the text does not count. A key is the SHA-256 of its line, or of the
 * text. Errors begin with `path`. */
enum status secret_keys_parse(const char *text, size_t bytes, const char *path,
                              struct secret_keys *out, struct error *error);
/* Reads and parses a key file; it must be private, see secret_file_read. */
enum status secret_keys_read(const char *path, struct secret_keys *out, struct error *error);
/* Reads the key file of a running process again. Returns ST_INVALID if it has no key in common with
 * `present`: no other process would accept any connection. */
enum status secret_keys_read_again(const char *path, const struct secret_keys *present,
                                   struct secret_keys *out, struct error *error);

/* Returns the key with this id; NULL = none. */
const struct secret_key *secret_keys_find(const struct secret_keys *keys,
                                          const uint8_t id[SECRET_KEY_ID_BYTES]);
bool secret_keys_equal(const struct secret_keys *a, const struct secret_keys *b);
/* The ids of the keys, for logs: "5c1e2a90b4d7f311, also 0a1b…". */
void secret_keys_text(const struct secret_keys *keys, char out[SECRET_KEYS_TEXT_BYTES]);

#endif
