/* content_hash: a hash of what a model's files hold, fast enough to read all weights at start. Not
 * cryptographic. Internal to model/. */
#ifndef MODEL_CONTENT_HASH_H
#define MODEL_CONTENT_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is read of the data of a model at most. */
#define CONTENT_HASH_BYTES_MAX (1024u << 20)

uint64_t content_hash(uint64_t seed, const uint8_t *data, size_t bytes);
/* Of tensor data: all of it if it has up to `bytes_max`, pieces at even distances beyond. `mapped`:
 * it is a file's mapping, whose pages are asked for in one go. */
uint64_t content_hash_sampled(uint64_t seed, const uint8_t *data, size_t bytes, size_t bytes_max,
                              bool mapped);

#endif
