/* gguf: reads a GGUF file (versions 2 and 3, little-endian) by mmap: metadata keys and tensors.
 * Every length and offset is checked against the file before it is used, so a cut or corrupted file
 * gives an error with place and value, never a fault. The mapping lives until gguf_close. It knows
 * no model: see model.h. */
#ifndef MODEL_GGUF_H
#define MODEL_GGUF_H

#include "common/status.h"
#include "model/mapped.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gguf;

enum status gguf_open(const char *path, struct gguf **out, struct error *error);
/* The same over memory, aligned to 16 bytes, that the caller keeps until gguf_close (fuzzing,
 * tests). */
enum status gguf_open_memory(const void *data, size_t bytes, const char *name, struct gguf **out,
                             struct error *error);
void gguf_close(struct gguf *g); /* NULL is fine */

/* Identifies the model: a hash of the metadata, the tensor table and the tensor data (sampled
 * beyond 1 GiB). Computed on first use. Two machines with equal hashes have the same weights. */
uint64_t gguf_hash(struct gguf *g);
/* The same of the metadata and the tensor table only, without a look at the data: all that a
 * gateway reads of the file. */
uint64_t gguf_metadata_hash(const struct gguf *g);

/* Typed look-ups. ST_NOT_FOUND when the key is absent (nothing written), ST_INVALID with error text
 * naming key and types when its type does not fit. Integers convert between widths when the value
 * fits. */
enum status gguf_get_u32(const struct gguf *g, const char *key, uint32_t *out, struct error *error);
enum status gguf_get_f32(const struct gguf *g, const char *key, float *out, struct error *error);
enum status gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct error *error);
enum status gguf_get_string(const struct gguf *g, const char *key, struct mapped_text *out,
                            struct error *error);
/* Arrays of strings, and of 32-bit integers or floats. */
enum status gguf_get_string_array(const struct gguf *g, const char *key,
                                  const struct mapped_text **out, size_t *count_out,
                                  struct error *error); /* owned by g */
enum status gguf_get_i32_array(const struct gguf *g, const char *key, const int32_t **out,
                               size_t *count_out, struct error *error); /* owned by g */
/* Copies an array of f32 that has `count` elements; ST_INVALID if it has another number of them. */
enum status gguf_get_f32_array(const struct gguf *g, const char *key, size_t count, float *out,
                               struct error *error);

uint64_t gguf_bytes(const struct gguf *g); /* of the file */
size_t gguf_tensor_count(const struct gguf *g);
const struct mapped_tensor *gguf_tensor_at(const struct gguf *g, size_t index);
/* NULL when there is none of that name. */
const struct mapped_tensor *gguf_tensor_find(const struct gguf *g, const char *name);

#endif
