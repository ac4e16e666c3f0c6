/* gguf_internal: the struct and the functions that gguf.c (files, look-ups, hash), gguf_parse.c
 * (parsing the bytes) and gguf_split.c (models in several files) share. They run on the thread that
 * uses the struct gguf (gguf.h). Other files use gguf.h. */
#ifndef MODEL_FILE_GGUF_INTERNAL_H
#define MODEL_FILE_GGUF_INTERNAL_H

#include "model/file/gguf.h"

/* Types of metadata values, numbered as in the file. */
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
    enum gguf_value element; /* Type of an array's elements. */
    size_t count;            /* Number of an array's elements. */
    const uint8_t *value;    /* Bytes of a number or of an array of numbers; unaligned. */
    struct mapped_text string;
    struct mapped_text *strings; /* Elements of an array of strings. Owned. */
    /* Elements of an array of I32 or U32. An owned copy, because the file does not align them. */
    int32_t *numbers;
};

/* Hash table from a name to the index of a key or tensor; open addressing, at most half full. A
 * slot holds index + 1; 0 = empty. */
struct gguf_index {
    uint32_t *slots;
    size_t mask;
};

struct gguf {
    char name[128]; /* Name of the file, for errors. */
    const uint8_t *data;
    size_t bytes;
    bool mapped;
    struct gguf_key *keys;
    size_t key_count;
    struct gguf_index key_index;
    struct mapped_tensor *tensors;
    size_t tensor_count;
    struct gguf_index tensor_index;
    size_t data_start;     /* Offset of the tensor data, which is at most `bytes`. */
    uint64_t index_key[2]; /* Secret key of both indices. */
    struct gguf **parts;   /* The other files of a model in several files. Owned. */
    size_t part_count;
    struct digest metadata_digest; /* All zeros = not computed yet. */
    struct digest digest;          /* All zeros = not computed yet. */
};

/* Writes a name for an error text: cut, and with "?" for characters that are not printable. Returns
 * `shown`. */
#define GGUF_PRINTABLE_BYTES 80
const char *gguf_name_printable(struct mapped_text name, char shown[GGUF_PRINTABLE_BYTES]);

const char *gguf_value_name(enum gguf_value type);

/* Maps and parses one file, without the other parts of its model. Returns the errors of
 * gguf_open. */
enum status gguf_open_file(const char *path, struct gguf **out, struct error *error);
/* Opens the other parts of a model whose first file is `first`, at `path`, and adds their tensors.
 * Does nothing if the model is one file. After an error, gguf_close frees what was allocated. */
enum status gguf_split_open(struct gguf *first, const char *path, struct error *error);
/* Makes the index of all g->tensors anew. Returns the number of tensors. If two tensors have the
 * same name, returns the index of the second tensor instead. Returns SIZE_MAX, with an error, if
 * there is no memory. */
size_t gguf_tensors_index(struct gguf *g, struct error *error);

/* Parses data[0..bytes) into keys, tensors and data_start. After an error, gguf_close frees what
 * was allocated. The error does not name the file. */
enum status gguf_parse(struct gguf *g, struct error *error);

/* Return the key or tensor with this name; NULL = none. */
const struct gguf_key *gguf_key_find(const struct gguf *g, const char *name, size_t bytes);
const struct mapped_tensor *gguf_tensor_find_bytes(const struct gguf *g, const char *name,
                                                   size_t bytes);

/* Stores a value of any integer type. Returns false for other types. An unsigned value above
 * INT64_MAX becomes INT64_MAX, which every caller rejects as too large. */
bool gguf_key_integer(const struct gguf_key *key, int64_t *out);

#endif
