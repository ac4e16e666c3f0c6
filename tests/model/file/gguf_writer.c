#include "tests/model/file/gguf_writer.h"

#include <stdlib.h>
#include <string.h>

struct buffer {
    uint8_t *data;
    size_t bytes;
    size_t capacity;
};

struct gguf_writer {
    uint32_t version;
    uint32_t alignment;
    uint64_t key_count;
    uint64_t tensor_count;
    struct buffer keys;
    struct buffer table;
    struct buffer data;
};

static void put(struct buffer *b, const void *bytes, size_t count)
{
    if (b->bytes + count > b->capacity) {
        b->capacity = (b->bytes + count) * 2 + 64;
        b->data = realloc(b->data, b->capacity);
        if (b->data == NULL)
            abort();
    }
    if (count > 0)
        memcpy(b->data + b->bytes, bytes, count);
    b->bytes += count;
}

static void put_u32(struct buffer *b, uint32_t value)
{
    put(b, &value, sizeof(value));
}

static void put_u64(struct buffer *b, uint64_t value)
{
    put(b, &value, sizeof(value));
}

static void put_string(struct buffer *b, const char *text)
{
    put_u64(b, strlen(text));
    put(b, text, strlen(text));
}

static void pad(struct buffer *b, size_t alignment)
{
    static const uint8_t zero = 0;
    while (b->bytes % alignment != 0)
        put(b, &zero, 1);
}

struct gguf_writer *gguf_writer_open(uint32_t version, uint32_t alignment)
{
    struct gguf_writer *w = calloc(1, sizeof(*w));
    if (w == NULL)
        abort();
    w->version = version;
    w->alignment = alignment != 0 ? alignment : 32;
    if (alignment != 0)
        gguf_writer_u32(w, "general.alignment", alignment);
    return w;
}

void gguf_writer_raw_key(struct gguf_writer *w, const char *key, uint32_t type, const void *value,
                         size_t bytes)
{
    w->key_count++;
    put_string(&w->keys, key);
    put_u32(&w->keys, type);
    put(&w->keys, value, bytes);
}

void gguf_writer_u8(struct gguf_writer *w, const char *key, uint8_t value)
{
    gguf_writer_raw_key(w, key, 0, &value, sizeof(value));
}

void gguf_writer_i8(struct gguf_writer *w, const char *key, int8_t value)
{
    gguf_writer_raw_key(w, key, 1, &value, sizeof(value));
}

void gguf_writer_u16(struct gguf_writer *w, const char *key, uint16_t value)
{
    gguf_writer_raw_key(w, key, 2, &value, sizeof(value));
}

void gguf_writer_i16(struct gguf_writer *w, const char *key, int16_t value)
{
    gguf_writer_raw_key(w, key, 3, &value, sizeof(value));
}

void gguf_writer_u32(struct gguf_writer *w, const char *key, uint32_t value)
{
    gguf_writer_raw_key(w, key, 4, &value, sizeof(value));
}

void gguf_writer_i32(struct gguf_writer *w, const char *key, int32_t value)
{
    gguf_writer_raw_key(w, key, 5, &value, sizeof(value));
}

void gguf_writer_f32(struct gguf_writer *w, const char *key, float value)
{
    gguf_writer_raw_key(w, key, 6, &value, sizeof(value));
}

void gguf_writer_bool(struct gguf_writer *w, const char *key, bool value)
{
    uint8_t byte = value;
    gguf_writer_raw_key(w, key, 7, &byte, 1);
}

void gguf_writer_string(struct gguf_writer *w, const char *key, const char *value)
{
    gguf_writer_raw_key(w, key, 8, NULL, 0);
    put_string(&w->keys, value);
}

void gguf_writer_u64(struct gguf_writer *w, const char *key, uint64_t value)
{
    gguf_writer_raw_key(w, key, 10, &value, sizeof(value));
}

void gguf_writer_i64(struct gguf_writer *w, const char *key, int64_t value)
{
    gguf_writer_raw_key(w, key, 11, &value, sizeof(value));
}

void gguf_writer_f64(struct gguf_writer *w, const char *key, double value)
{
    gguf_writer_raw_key(w, key, 12, &value, sizeof(value));
}

static void put_array(struct gguf_writer *w, const char *key, uint32_t element, size_t count,
                      const void *values, size_t bytes)
{
    gguf_writer_raw_key(w, key, 9, NULL, 0);
    put_u32(&w->keys, element);
    put_u64(&w->keys, count);
    put(&w->keys, values, bytes);
}

void gguf_writer_u32_array(struct gguf_writer *w, const char *key, const uint32_t *values,
                           size_t count)
{
    put_array(w, key, 4, count, values, count * sizeof(*values));
}

void gguf_writer_i32_array(struct gguf_writer *w, const char *key, const int32_t *values,
                           size_t count)
{
    put_array(w, key, 5, count, values, count * sizeof(*values));
}

void gguf_writer_f32_array(struct gguf_writer *w, const char *key, const float *values,
                           size_t count)
{
    put_array(w, key, 6, count, values, count * sizeof(*values));
}

void gguf_writer_string_array(struct gguf_writer *w, const char *key, const char *const *values,
                              size_t count)
{
    put_array(w, key, 8, count, NULL, 0);
    for (size_t i = 0; i < count; i++)
        put_string(&w->keys, values[i]);
}

uint32_t gguf_writer_type(enum compute_type type)
{
    static const uint8_t numbers[COMPUTE_GGUF_COUNT] = {
        [COMPUTE_F32] = 0,    [COMPUTE_F16] = 1,     [COMPUTE_BF16] = 30,    [COMPUTE_Q8_0] = 8,
        [COMPUTE_Q4_0] = 2,   [COMPUTE_Q4_1] = 3,    [COMPUTE_Q5_0] = 6,     [COMPUTE_Q5_1] = 7,
        [COMPUTE_Q4_K] = 12,  [COMPUTE_Q5_K] = 13,   [COMPUTE_Q6_K] = 14,    [COMPUTE_Q2_K] = 10,
        [COMPUTE_Q3_K] = 11,  [COMPUTE_IQ4_NL] = 20, [COMPUTE_IQ4_XS] = 23,  [COMPUTE_MXFP4] = 39,
        [COMPUTE_TQ1_0] = 34, [COMPUTE_TQ2_0] = 35,  [COMPUTE_IQ3_S] = 21,   [COMPUTE_IQ3_XXS] = 18,
        [COMPUTE_IQ2_S] = 22, [COMPUTE_IQ2_XS] = 17, [COMPUTE_IQ2_XXS] = 16, [COMPUTE_IQ1_S] = 19,
        [COMPUTE_IQ1_M] = 29,
    };
    return numbers[type];
}

void gguf_writer_raw_tensor(struct gguf_writer *w, const char *name, uint32_t type,
                            uint32_t dim_count, const uint64_t *dims, uint64_t offset)
{
    w->tensor_count++;
    put_string(&w->table, name);
    put_u32(&w->table, dim_count);
    put(&w->table, dims, dim_count * sizeof(*dims));
    put_u32(&w->table, type);
    put_u64(&w->table, offset);
}

void gguf_writer_tensor(struct gguf_writer *w, const char *name, enum compute_type type,
                        uint32_t dim_count, const uint64_t *dims, const void *bytes, size_t size)
{
    pad(&w->data, w->alignment);
    gguf_writer_raw_tensor(w, name, gguf_writer_type(type), dim_count, dims, w->data.bytes);
    put(&w->data, bytes, size);
}

uint8_t *gguf_writer_finish(struct gguf_writer *w, size_t *bytes_out)
{
    struct buffer image = {0};
    put(&image, "GGUF", 4);
    put_u32(&image, w->version);
    put_u64(&image, w->tensor_count);
    put_u64(&image, w->key_count);
    put(&image, w->keys.data, w->keys.bytes);
    put(&image, w->table.data, w->table.bytes);
    pad(&image, w->alignment);
    put(&image, w->data.data, w->data.bytes);
    pad(&image, w->alignment);
    free(w->keys.data);
    free(w->table.data);
    free(w->data.data);
    free(w);
    *bytes_out = image.bytes;
    return image.data;
}
