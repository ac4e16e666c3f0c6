/* content_hash: a hash of the bytes of a model's files. gguf.c and folder.c call it when a model is
 * opened. Any thread; no state. It is not cryptographic. It opens and maps no files. */
#ifndef MODEL_FILE_CONTENT_HASH_H
#define MODEL_FILE_CONTENT_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most bytes of tensor data that the hash of a model reads. */
#define CONTENT_HASH_BYTES_MAX (1024u << 20)

/* Returns the hash of the bytes. `seed` is the hash of the data before, or any number. */
uint64_t content_hash(uint64_t seed, const uint8_t *data, size_t bytes);
/* Returns the hash of tensor data: of all bytes if there are at most bytes_max, otherwise of 64 KiB
 * pieces at equal distances, bytes_max in all. mapped = the data is the mapping of a file, whose
 * pages may be loaded with one system call. */
uint64_t content_hash_sampled(uint64_t seed, const uint8_t *data, size_t bytes, size_t bytes_max,
                              bool mapped);

#endif
