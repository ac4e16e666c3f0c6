/* gguf: maps the GGUF files of a model (versions 2 and 3, little-endian), and finds metadata keys
 * of the first file and tensors of all files. A struct gguf owns the mappings. The texts, arrays,
 * tensors and digests that the functions return are valid until gguf_close. Other files of
 * model/file/ call the functions, on the thread that uses the struct model_file. This part does not
 * know the meaning of keys, and converts no tensors. */
#ifndef MODEL_FILE_GGUF_H
#define MODEL_FILE_GGUF_H

#include "common/digest.h"
#include "common/status.h"
#include "model/file/mapped.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gguf;

/* Maps the file at `path`. If the file is the first of several files of a model, maps all of them.
 * The caller closes *out with gguf_close. Returns ST_NOT_FOUND if there is no such file, ST_IO if a
 * file cannot be read, ST_INVALID if a file is malformed, one of the other files is missing or
 * `path` is one of the other files, ST_UNSUPPORTED if a version or a tensor's type is not
 * supported, or ST_NO_MEMORY. */
enum status gguf_open(const char *path, struct gguf **out, struct error *error);
/* Opens one GGUF file in memory (fuzzing, tests). Errors call the file `name`. Requires that `data`
 * is aligned to 16 bytes and stays unchanged until gguf_close. Returns the errors of gguf_open. */
enum status gguf_open_memory(const void *data, size_t bytes, const char *name, struct gguf **out,
                             struct error *error);
void gguf_close(struct gguf *g); /* NULL is fine. */

/* Returns a digest of all files of the model (content_hash.h). `g` owns the digest. */
const struct digest *gguf_digest(struct gguf *g);
/* Returns a digest of all files of the model, without their tensor data. `g` owns the digest. */
const struct digest *gguf_metadata_digest(struct gguf *g);

/* The next five functions store the value of a key of the model's first file. They return
 * ST_NOT_FOUND if the file does not have the key, and ST_INVALID if the value's type does not fit.
 * gguf_get_u32 and gguf_get_i64 accept an integer type of any width. gguf_get_u32 returns
 * ST_INVALID if the value is negative or above UINT32_MAX; gguf_get_i64 stores INT64_MAX for a
 * value above INT64_MAX. gguf_get_f32 accepts floats of 32 and 64 bits. *out is written only on
 * success. */
enum status gguf_get_u32(const struct gguf *g, const char *key, uint32_t *out, struct error *error);
enum status gguf_get_i64(const struct gguf *g, const char *key, int64_t *out, struct error *error);
enum status gguf_get_f32(const struct gguf *g, const char *key, float *out, struct error *error);
enum status gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct error *error);
enum status gguf_get_string(const struct gguf *g, const char *key, struct mapped_text *out,
                            struct error *error);
/* The next two functions store an array of strings, or of 32-bit integers, and the number of its
 * elements. `g` owns the array. They return ST_NOT_FOUND if the file does not have the key, and
 * ST_INVALID if the type does not fit or an unsigned element is above INT32_MAX. */
enum status gguf_get_string_array(const struct gguf *g, const char *key,
                                  const struct mapped_text **out, size_t *count_out,
                                  struct error *error);
enum status gguf_get_i32_array(const struct gguf *g, const char *key, const int32_t **out,
                               size_t *count_out, struct error *error);
/* Stores element `index` of an array of booleans. Returns ST_NOT_FOUND, without an error text, if
 * the file does not have the key or the value is not an array of booleans; ST_INVALID if the array
 * does not have the element. */
enum status gguf_get_bool_at(const struct gguf *g, const char *key, size_t index, bool *out,
                             struct error *error);
/* Copies an array of `count` floats of 32 bits to `out`. Returns ST_NOT_FOUND if the file does not
 * have the key, ST_INVALID if the type or the number of elements differs. */
enum status gguf_get_f32_array(const struct gguf *g, const char *key, size_t count, float *out,
                               struct error *error);

uint64_t gguf_bytes(const struct gguf *g); /* Returns the size of all files of the model. */
/* Returns tensor `index` of all files, counted from 0; NULL = there are fewer tensors. */
const struct mapped_tensor *gguf_tensor_at(const struct gguf *g, size_t index);
/* Returns the tensor with this name; NULL = none. */
const struct mapped_tensor *gguf_tensor_find(const struct gguf *g, const char *name);

#endif
