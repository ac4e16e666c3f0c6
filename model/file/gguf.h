/* gguf: maps a GGUF file (versions 2 and 3, little-endian) and reads its metadata keys and tensors.
 * Every length and offset is checked against the file before it is used, so a truncated or corrupt
 * file gives an error with position and value, never a fault. Other files of model/file/ call it
 * (model_file.c, keys.c, vocabulary_gguf.c), on the thread that opens the model; one thread at a
 * time may use a struct gguf, which owns the mapping and its tables. What the functions return
 * points into these and is valid until gguf_close. It does not interpret the keys (see hyper.c) and
 * does not convert tensors. */
#ifndef MODEL_FILE_GGUF_H
#define MODEL_FILE_GGUF_H

#include "common/digest.h"
#include "common/status.h"
#include "model/file/mapped.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gguf;

/* Maps the file at `path`. ST_OK: the caller closes *out with gguf_close. */
enum status gguf_open(const char *path, struct gguf **out, struct error *error);
/* Opens a GGUF image in memory (fuzzing, tests). Requires `data` aligned to 16 bytes and unchanged
 * until gguf_close. */
enum status gguf_open_memory(const void *data, size_t bytes, const char *name, struct gguf **out,
                             struct error *error);
void gguf_close(struct gguf *g); /* NULL is fine */

/* Digests as in model_file.h; computed on first use, and owned by `g`. */
const struct digest *gguf_digest(struct gguf *g);
const struct digest *gguf_metadata_digest(struct gguf *g);

/* Typed look-ups. ST_NOT_FOUND: the key is absent, nothing is written. ST_INVALID: its type does
 * not fit; the error names the key and the types. Integers convert between widths if the value
 * fits. */
enum status gguf_get_u32(const struct gguf *g, const char *key, uint32_t *out, struct error *error);
enum status gguf_get_f32(const struct gguf *g, const char *key, float *out, struct error *error);
enum status gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct error *error);
enum status gguf_get_string(const struct gguf *g, const char *key, struct mapped_text *out,
                            struct error *error);
/* Arrays of strings, and of 32-bit integers. The arrays are owned by g. */
enum status gguf_get_string_array(const struct gguf *g, const char *key,
                                  const struct mapped_text **out, size_t *count_out,
                                  struct error *error);
enum status gguf_get_i32_array(const struct gguf *g, const char *key, const int32_t **out,
                               size_t *count_out, struct error *error);
/* Copies an array of F32. ST_INVALID if it does not have exactly `count` elements. */
enum status gguf_get_f32_array(const struct gguf *g, const char *key, size_t count, float *out,
                               struct error *error);

uint64_t gguf_bytes(const struct gguf *g); /* Bytes of the file. */
/* NULL = the file has no tensor `index`, counted from 0. */
const struct mapped_tensor *gguf_tensor_at(const struct gguf *g, size_t index);
/* NULL = no tensor has this name. */
const struct mapped_tensor *gguf_tensor_find(const struct gguf *g, const char *name);

#endif
