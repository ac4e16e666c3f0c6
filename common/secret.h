/* secret: what keys need, from a library (GnuTLS): a hash, a keyed hash, random bytes, a comparison
 * whose time says nothing, and files that nobody else may read. It keeps nothing. Any thread. */
#ifndef COMMON_SECRET_H
#define COMMON_SECRET_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SECRET_HASH_BYTES 32 /* SHA-256 */

void secret_hash(const void *data, size_t bytes, uint8_t out[SECRET_HASH_BYTES]);

/* A keyed hash of several pieces, one after the other (HMAC-SHA-256). Whoever needs to tell the
 * pieces' ends apart gives them fixed sizes. */
struct secret_piece {
    const void *data;
    size_t bytes;
};

void secret_mac(const void *key, size_t key_bytes, const struct secret_piece *pieces, size_t count,
                uint8_t out[SECRET_HASH_BYTES]);

/* Takes the same time wherever the first difference is. */
bool secret_equal(const void *a, const void *b, size_t bytes);

/* From the kernel, fit for keys and nonces. Ends the process should the kernel have none: going on
 * with guessable ones would be worse. */
void secret_random(void *out, size_t bytes);

/* Overwrites, and is not optimised away. NULL is fine. */
void secret_wipe(void *data, size_t bytes);

/* Reads a small file whose content is secret: a regular file of ours (or root's) that neither its
 * group nor others may read or write. *text_out is malloc'ed and NUL-terminated; wipe it before it
 * is freed. Errors name the path, and the mode that is wrong. */
enum status secret_file_read(const char *path, size_t bytes_max, char **text_out, size_t *bytes_out,
                             struct error *error);

/* The key that a file holds: at least 32 bytes (white space at the end does not count), of which it
 * is the SHA-256. */
enum status secret_key_read(const char *path, uint8_t out[SECRET_HASH_BYTES], struct error *error);

#endif
