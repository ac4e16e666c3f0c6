/* gguf: maps a GGUF file (versions 2 and 3, little-endian) and reads its metadata keys and tensors.
 * Every length and offset is checked before it is used, so a truncated or corrupt file gives an
 * error. A struct gguf owns the mapping and its tables. What the functions return is valid until
 * gguf_close. Other files of model/file/ call it, on the thread that uses the model_file; one
 * thread at a time. It does not interpret the keys (hyper.c does) and does not convert tensors. */
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
 * caller closes *out with gguf_close. On failure *error has the file and the reason. */
enum status gguf_open(const char *path, struct gguf **out, struct error *error);
/* Opens a GGUF file in memory (fuzzing, tests), which errors call `name`. Requires that `data` is
 * aligned to 16 bytes and stays unchanged until gguf_close. */
enum status gguf_open_memory(const void *data, size_t bytes, const char *name, struct gguf **out,
                             struct error *error);
void gguf_close(struct gguf *g); /* NULL is fine */

/* Return for a GGUF file what model_file_digest and model_file_metadata_hash (model_file.h) return
 * for a model without adapters; gguf_metadata_digest returns the whole digest. `g` owns the
 * digests, which are computed at the first call. */
const struct digest *gguf_digest(struct gguf *g);
const struct digest *gguf_metadata_digest(struct gguf *g);

/* Store the value of a key. They return ST_NOT_FOUND if the file does not have the key, and
 * ST_INVALID, with the key and the types, if its type does not fit. gguf_get_u32 takes an
 * integer of any width, and gguf_get_f32 a float of any width; an integer that *out cannot hold is
 * ST_INVALID. *out is written only on success. */
enum status gguf_get_u32(const struct gguf *g, const char *key, uint32_t *out, struct error *error);
enum status gguf_get_f32(const struct gguf *g, const char *key, float *out, struct error *error);
enum status gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct error *error);
enum status gguf_get_string(const struct gguf *g, const char *key, struct mapped_text *out,
                            struct error *error);
/* Store an array of strings, or of 32-bit integers. g owns the arrays. They return the errors of
 * gguf_get_u32. */
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
/* Copies an array of F32. Returns ST_INVALID also if it does not have exactly `count` elements. */
enum status gguf_get_f32_array(const struct gguf *g, const char *key, size_t count, float *out,
                               struct error *error);

uint64_t gguf_bytes(const struct gguf *g); /* Returns the bytes of the file, or of all parts. */
/* Returns tensor `index`, counted from 0; NULL = there are fewer tensors. */
const struct mapped_tensor *gguf_tensor_at(const struct gguf *g, size_t index);
/* Returns the tensor with this name; NULL = none. */
const struct mapped_tensor *gguf_tensor_find(const struct gguf *g, const char *name);

#endif
