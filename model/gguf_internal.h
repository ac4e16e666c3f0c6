/* gguf_internal: what gguf.c (files, look-ups, hash) and gguf_parse.c (reading the bytes) share.
 * Nobody else includes it. */
#ifndef MODEL_GGUF_INTERNAL_H
#define MODEL_GGUF_INTERNAL_H

#include "model/gguf.h"

/* Value types of metadata, numbered as in the file. */
enum gguf_value {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_VALUE_COUNT
};

struct gguf_key {
    struct mapped_text name;
    enum gguf_value type;
    enum gguf_value element; /* of an array */
    size_t count;            /* of an array */
    const uint8_t *value;    /* the scalar's bytes, unaligned, in the mapping */
    struct mapped_text string;
    struct mapped_text *strings; /* array of strings: owned */
    int32_t *numbers; /* array of I32 or U32: owned copy, for the file does not align it */
};

/* Open addressing from a name to an index, half full at most: slot 0 is empty, else index + 1. */
struct gguf_index {
    uint32_t *slots;
    size_t mask;
};

struct gguf {
    char name[128]; /* of the file, for errors */
    const uint8_t *data;
    size_t bytes;
    bool mapped;
    struct gguf_key *keys;
    size_t key_count;
    struct gguf_index key_index;
    struct mapped_tensor *tensors;
    size_t tensor_count;
    struct gguf_index tensor_index;
    size_t data_start; /* offset of the tensor data; of the file's end if there is none */
    uint64_t hash;
    bool hashed;
};

/* A name as an error shows it: printable and short. Returns `shown`. */
#define GGUF_SHOWN_BYTES 80
const char *gguf_show(struct mapped_text name, char shown[GGUF_SHOWN_BYTES]);

const char *gguf_value_name(enum gguf_value type);

/* Fills keys, tensors and data_start from data[0..bytes). On failure what was taken stays in g for
 * gguf_close; the error does not name the file. */
enum status gguf_parse(struct gguf *g, struct error *error);

/* The key, or NULL. */
const struct gguf_key *gguf_key_find(const struct gguf *g, const char *name, size_t bytes);
const struct mapped_tensor *gguf_tensor_find_bytes(const struct gguf *g, const char *name,
                                                   size_t bytes);

/* A value of any integer type; false for another type. An unsigned value over INT64_MAX sets *out
 * to INT64_MAX: no caller wants one as large. */
bool gguf_key_integer(const struct gguf_key *key, int64_t *out);

/* FNV-1a, for the index. */
static inline uint64_t gguf_name_hash(const char *text, size_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ (uint8_t)text[i]) * 0x100000001b3u;
    return hash ^ hash >> 29;
}

#endif
