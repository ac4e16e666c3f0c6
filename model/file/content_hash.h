/* content_hash: adds a model's tensor data to the digest of the model's files. gguf.c and folder.c
 * call it, on the thread that uses the model_file; no state. A fast hash reads the data of a model
 * completely up to 1 GiB; of more data, only pieces. The fast hash is not cryptographic: it finds
 * accidental differences, but not every deliberate one. It opens and maps no files. */
#ifndef MODEL_FILE_CONTENT_HASH_H
#define MODEL_FILE_CONTENT_HASH_H

#include "common/digest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Most bytes of tensor data that the fast hash of a model reads. SHA-256 reads up to 1 MiB of each
 * file. */
#define CONTENT_HASH_BYTES_MAX (1024u << 20)

/* Appends tensor data to a digest: a fast hash of all data, or of 64 KiB pieces at equal distances,
 * bytes_max in all, if there is more (of the first piece only, if bytes_max is below 128 KiB); and
 * the SHA-256 of 16 such pieces (of all data, if there is less). mapped = the data is the mapping
 * of a file, whose pages may be loaded with one system call. */
void content_digest_add(struct digest *digest, const uint8_t *data, size_t bytes, size_t bytes_max,
                        bool mapped);

#endif
