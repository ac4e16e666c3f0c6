/* content_hash: adds a model's tensor data to the digest of the model's files, for gguf.c and
 * folder.c. Any thread; no state. This part opens and maps no files. Large data are read only in
 * part, mostly by a hash that is not cryptographic. So the digest differs if other weights are
 * used by accident, but may be equal if a person changed weights on purpose. */
#ifndef MODEL_FILE_CONTENT_HASH_H
#define MODEL_FILE_CONTENT_HASH_H

#include "common/digest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most bytes of tensor data of one model that the fast hash reads. The caller divides this number
 * among the files of the model. */
#define CONTENT_HASH_BYTES_MAX (1024u << 20)

/* Adds the tensor data of one file, data[0..bytes), to *digest in two ways:
 * - a fast hash, of all data if `bytes` is at most bytes_max; otherwise of pieces of 64 KiB at
 *   equal distances, about bytes_max in all, at least one piece;
 * - the data themselves if `bytes` is at most 1 MiB; otherwise 16 pieces of 64 KiB at equal
 *   distances.
 * mapped: `data` is the mapping of a file. */
void content_hash_add(struct digest *digest, const uint8_t *data, size_t bytes, size_t bytes_max,
                      bool mapped);

#endif
