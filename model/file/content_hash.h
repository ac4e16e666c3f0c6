/* content_hash: the digest of a model's tensor data. Its fast hash is fast enough to read all weights
 * at start-up, but not cryptographic: it finds accidental differences. It has no state: any thread.
 * Internal to model/. */
#ifndef MODEL_FILE_CONTENT_HASH_H
#define MODEL_FILE_CONTENT_HASH_H

#include "common/digest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most bytes of tensor data that the digest of a model reads. */
#define CONTENT_HASH_BYTES_MAX (1024u << 20)

/* Appends tensor data to a digest: a fast hash of all of it (of bytes_max bytes at most, in pieces
 * of 64 KiB at equal distances), and 16 pieces of 64 KiB at equal distances by SHA-256. `mapped`:
 * the data is a file's mapping; its pages are then loaded with one system call. */
void content_digest_add(struct digest *digest, const uint8_t *data, size_t bytes, size_t bytes_max,
                        bool mapped);

#endif
