/* secret: cryptographic functions for keys, from GnuTLS: a hash, a keyed hash, random bytes, a
 * comparison in constant time; reading of files that only their owner may read; and no core dumps,
 * which would contain keys. The gateway (API keys, TLS files), machines, transport/ (its
 * hand-shake, TLS keys and ids), `cleave profile` and `cleave replay` call it, on any thread; it
 * has no state. It keeps no keys, encrypts nothing and does no TLS. */
#ifndef COMMON_SECRET_H
#define COMMON_SECRET_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SECRET_HASH_BYTES 32 /* SHA-256. */

/* Stores the SHA-256 of the data. */
void secret_hash(const void *data, size_t bytes, uint8_t out[SECRET_HASH_BYTES]);

/* A keyed hash (HMAC-SHA-256) of several pieces, one after the other. The hash does not contain the
 * borders of the pieces, so a caller that needs them uses pieces of fixed sizes. */
struct secret_piece {
    const void *data;
    size_t bytes;
};

void secret_mac(const void *key, size_t key_bytes, const struct secret_piece *pieces, size_t count,
                uint8_t out[SECRET_HASH_BYTES]);

/* Returns whether two pieces of `bytes` bytes are equal, in a time that does not depend on where
 * the first difference is. */
bool secret_equal(const void *a, const void *b, size_t bytes);

/* Fills `out` with random bytes of the kernel, good enough for keys and nonces. Aborts the process
 * if the kernel has none, because continuing with guessable bytes would be worse. */
void secret_random(void *out, size_t bytes);

/* Overwrites memory; the compiler does not remove it. NULL is fine. */
void secret_wipe(void *data, size_t bytes);

/* From now on this process writes no core dump, neither into a file nor to a program of the system:
 * it would contain keys and prompts. Processes that it starts inherit this. */
void secret_core_dumps_stop(void);

/* Opens a small file with secret content: a regular file that belongs to this user or to root, and
 * that neither its group nor others may access. The caller closes *fd_out. Errors name the path,
 * and the mode that is wrong. */
enum status secret_file_open(const char *path, size_t bytes_max, int *fd_out, struct error *error);

/* Reads such a file. *text_out is allocated with malloc and
 * NUL-terminated; call secret_wipe before free. */
enum status secret_file_read(const char *path, size_t bytes_max, char **text_out, size_t *bytes_out,
                             struct error *error);

#endif
