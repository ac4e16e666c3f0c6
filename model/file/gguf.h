/* gguf: maps a GGUF file (versions 2 and 3, little-endian) and finds its metadata keys and tensors.
 * A struct gguf owns the mapping. What the functions return is valid until gguf_close. Other files
 * of model/file/ call it, on the thread that uses the model_file. Every length and offset is
 * checked before it is used, so a truncated or corrupt file gives an error. It does not interpret
 * the keys (its callers do) and does not convert tensors. */
#ifndef MODEL_FILE_GGUF_H
#define MODEL_FILE_GGUF_H

#include "common/digest.h"
#include "common/status.h"
#include "model/file/mapped.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gguf;

/* Maps the file at `path` and, if it is the first of several files of a model, the other files. The
 * caller closes *out with gguf_close. Returns ST_NOT_FOUND if there is no such file, ST_IO,
 * ST_INVALID, ST_UNSUPPORTED or ST_NO_MEMORY. */
enum status gguf_open(const char *path, struct gguf **out, struct error *error);
/* Opens a GGUF file in memory (fuzzing, tests), which errors call `name`. Requires that `data` is
 * aligned to 16 bytes and stays unchanged until gguf_close. */
enum status gguf_open_memory(const void *data, size_t bytes, const char *name, struct gguf **out,
                             struct error *error);
void gguf_close(struct gguf *g); /* NULL is fine */

/* Return what model_file_digest and model_file_metadata_hash (model_file.h) return for a model
 * without adapters, with one difference: gguf_metadata_digest returns the digest whose first
 * 64 bits are the hash. `g` owns the digests, and computes them at the first call. */
const struct digest *gguf_digest(struct gguf *g);
const struct digest *gguf_metadata_digest(struct gguf *g);

/* Store the value of a key. Return ST_NOT_FOUND if the file does not have the key, and ST_INVALID
 * if the value's type does not fit. gguf_get_u32 accepts an integer type of any width, and returns
 * ST_INVALID if *out cannot hold the value. gguf_get_f32 accepts floats of 32 and 64 bits. *out is
 * written only on success. */
enum status gguf_get_u32(const struct gguf *g, const char *key, uint32_t *out, struct error *error);
enum status gguf_get_f32(const struct gguf *g, const char *key, float *out, struct error *error);
enum status gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct error *error);
enum status gguf_get_string(const struct gguf *g, const char *key, struct mapped_text *out,
                            struct error *error);
/* Store an array of strings, or of 32-bit integers, and the number of its elements. g owns the
 * array. Return the errors of gguf_get_u32. */
enum status gguf_get_string_array(const struct gguf *g, const char *key,
                                  const struct mapped_text **out, size_t *count_out,
                                  struct error *error);
enum status gguf_get_i32_array(const struct gguf *g, const char *key, const int32_t **out,
                               size_t *count_out, struct error *error);
/* Reads element `index` of an array of booleans. Returns ST_NOT_FOUND, without an error text, if
 * the file does not have the key or its value is not an array of booleans; ST_INVALID if the array
 * is shorter. */
enum status gguf_get_bool_at(const struct gguf *g, const char *key, size_t index, bool *out,
                             struct error *error);
/* Copies an array of `count` floats of 32 bits to `out`. Returns ST_NOT_FOUND if the file does not
 * have the key, ST_INVALID if the type or the number of elements differs. */
enum status gguf_get_f32_array(const struct gguf *g, const char *key, size_t count, float *out,
                               struct error *error);

uint64_t gguf_bytes(const struct gguf *g); /* Returns the bytes of all files of the model. */
/* Returns tensor `index`, counted from 0; NULL = there are fewer tensors. */
const struct mapped_tensor *gguf_tensor_at(const struct gguf *g, size_t index);
/* Returns the tensor with this name; NULL = none. */
const struct mapped_tensor *gguf_tensor_find(const struct gguf *g, const char *name);

#endif
