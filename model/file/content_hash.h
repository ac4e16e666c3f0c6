/* content_hash: adds a model's tensor data to the digest of the model's files. It has no state.
 * gguf.c and folder.c call it, on the thread that uses the model_file. It opens and maps no files.
 * Large data are read only in part, and mostly with a hash that is not cryptographic: the digest
 * finds accidental differences, but not every deliberate one. */
#ifndef MODEL_FILE_CONTENT_HASH_H
#define MODEL_FILE_CONTENT_HASH_H

#include "common/digest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most bytes of tensor data that the fast hash reads of a whole model: the callers divide this
 * number among the files of the model. */
#define CONTENT_HASH_BYTES_MAX (1024u << 20)

/* Appends a file's tensor data to a digest, in two ways:
 * - a fast hash of all data, if `bytes` is at most bytes_max; else of 64 KiB pieces at equal
 *   distances, bytes_max in all; only of the first piece if bytes_max is below 128 KiB;
 * - the data themselves up to 1 MiB; else 16 pieces of 64 KiB at equal distances.
 * mapped = true: the data are the mapping of a file, whose pages the function may load at once. */
void content_digest_add(struct digest *digest, const uint8_t *data, size_t bytes, size_t bytes_max,
                        bool mapped);

#endif
