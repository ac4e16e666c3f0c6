/* gguf_writer: builds a GGUF image in memory, correct or wrong on purpose, for tests and fuzz
 * seeds. Order of calls: open; keys and tensors in any order; finish. The test's main thread calls
 * it. It checks nothing, and aborts when out of memory. It has no random models: synthetic.h makes
 * them. */
#ifndef TESTS_MODEL_FILE_GGUF_WRITER_H
#define TESTS_MODEL_FILE_GGUF_WRITER_H

#include "compute/compute.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gguf_writer;

/* Begins an image. version: of the file format. alignment: 0 = the default of 32, without a key;
 * otherwise the key general.alignment is written first. */
struct gguf_writer *gguf_writer_open(uint32_t version, uint32_t alignment);

/* Write a key with a value, or with a copy of an array, of the type in the function's name. */
void gguf_writer_u8(struct gguf_writer *w, const char *key, uint8_t value);
void gguf_writer_i8(struct gguf_writer *w, const char *key, int8_t value);
void gguf_writer_u16(struct gguf_writer *w, const char *key, uint16_t value);
void gguf_writer_i16(struct gguf_writer *w, const char *key, int16_t value);
void gguf_writer_u32(struct gguf_writer *w, const char *key, uint32_t value);
void gguf_writer_i32(struct gguf_writer *w, const char *key, int32_t value);
void gguf_writer_u64(struct gguf_writer *w, const char *key, uint64_t value);
void gguf_writer_i64(struct gguf_writer *w, const char *key, int64_t value);
void gguf_writer_f32(struct gguf_writer *w, const char *key, float value);
void gguf_writer_f64(struct gguf_writer *w, const char *key, double value);
void gguf_writer_bool(struct gguf_writer *w, const char *key, bool value);
void gguf_writer_string(struct gguf_writer *w, const char *key, const char *value);
void gguf_writer_i32_array(struct gguf_writer *w, const char *key, const int32_t *values,
                           size_t count);
void gguf_writer_u32_array(struct gguf_writer *w, const char *key, const uint32_t *values,
                           size_t count);
void gguf_writer_f32_array(struct gguf_writer *w, const char *key, const float *values,
                           size_t count);
void gguf_writer_string_array(struct gguf_writer *w, const char *key, const char *const *values,
                              size_t count);
/* Writes a key with any type number and any value bytes. */
void gguf_writer_raw_key(struct gguf_writer *w, const char *key, uint32_t type, const void *value,
                         size_t bytes);

/* Writes a tensor with a copy of bytes[0..size) as its data. dims[0] is the contiguous dimension.
 */
void gguf_writer_tensor(struct gguf_writer *w, const char *name, enum compute_type type,
                        uint32_t dim_count, const uint64_t *dims, const void *bytes, size_t size);
/* Writes a tensor's entry with any type number of the file format and any offset from the start of
 * the data. */
void gguf_writer_raw_tensor(struct gguf_writer *w, const char *name, uint32_t type,
                            uint32_t dim_count, const uint64_t *dims, uint64_t offset);
/* Returns the file format's number of a type. */
uint32_t gguf_writer_type(enum compute_type type);

/* Returns the image, which the caller frees. Frees w. */
uint8_t *gguf_writer_finish(struct gguf_writer *w, size_t *bytes_out);

#endif
