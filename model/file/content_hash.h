/* content_hash: adds a model's tensor data to the digest of the model's files. It has no state.
 * gguf.c and folder.c call it, on the thread that uses the struct model_file. It opens and maps no
 * files. Large data are read only in part, and most of that part goes through a hash that is not
 * cryptographic. So the digest shows that two models differ by accident, but may not show that a
 * person changed weights on purpose. */
#ifndef MODEL_FILE_CONTENT_HASH_H
#define MODEL_FILE_CONTENT_HASH_H

#include "common/digest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most bytes of tensor data of one model that the fast hash reads. The callers divide this number
 * among the files of the model. */
#define CONTENT_HASH_BYTES_MAX (1024u << 20)

/* Adds the tensor data of one file, data[0..bytes), to *digest in two ways:
 * - It adds a fast hash: of all data if `bytes` is at most bytes_max; otherwise of
 *   bytes_max / 64 KiB pieces of 64 KiB at equal distances (of one piece, the first, if bytes_max
 *   is below 128 KiB).
 * - It adds the data themselves if `bytes` is at most 1 MiB; otherwise 16 pieces of 64 KiB at equal
 *   distances.
 * mapped: true = `data` is the mapping of a file, so the function may ask the kernel to load the
 * pages in one call. */
void content_hash_add(struct digest *digest, const uint8_t *data, size_t bytes, size_t bytes_max,
                      bool mapped);

#endif
