/* content_hash: hashes of the bytes of a model's files. The fast one is fast enough to read all
 * weights at start-up (14 times as fast as SHA-256), but not cryptographic: it finds accidental
 * differences. It has no state: any thread. Internal to model/. */
#ifndef MODEL_FILE_CONTENT_HASH_H
#define MODEL_FILE_CONTENT_HASH_H

#include "common/digest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most bytes of tensor data that the hash of a model reads. */
#define CONTENT_HASH_BYTES_MAX (1024u << 20)

uint64_t content_hash(uint64_t seed, const uint8_t *data, size_t bytes);
/* Hash of tensor data: all of it if `bytes` is at most bytes_max, otherwise 64 KiB pieces at equal
 * distances, bytes_max in all. `mapped`: the data is a file's mapping; its pages are then loaded
 * with one system call. */
uint64_t content_hash_sampled(uint64_t seed, const uint8_t *data, size_t bytes, size_t bytes_max,
                              bool mapped);

/* Appends tensor data to a digest: the fast hash of all of it (see content_hash_sampled), and 16
 * pieces of 64 KiB at equal distances by SHA-256. */
void content_digest_add(struct digest *digest, const uint8_t *data, size_t bytes, size_t bytes_max,
                        bool mapped);

#endif
