/* gguf_internal: the struct and the functions that gguf.c (files, look-ups, digests), gguf_parse.c
 * (parsing the bytes) and gguf_split.c (models in several files) share. They run on the thread that
 * uses the struct gguf. Other files use gguf.h. */
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

/* A metadata key with its value. */
struct gguf_key {
    struct mapped_text name;
    enum gguf_value type;        /* Type of the value. */
    enum gguf_value element;     /* Type of an array's elements. */
    size_t count;                /* Number of an array's elements. */
    const uint8_t *value;        /* Bytes of a number or of an array of numbers; not aligned. */
    struct mapped_text string;   /* The value of a GGUF_STRING. */
    struct mapped_text *strings; /* Elements of an array of strings. Owned. */
    /* Elements of an array of I32 or U32, as an aligned copy; NULL = another type. Owned. */
    int32_t *numbers;
};

/* Hash table from a name to the index of a key or tensor; open addressing, at most half full. A
 * slot holds index + 1; 0 = empty. */
struct gguf_index {
    uint32_t *slots;
    size_t mask;
};

struct gguf {
    char name[128];      /* Name of the file, for errors. */
    const uint8_t *data; /* The whole file. */
    size_t bytes;
    bool mapped; /* gguf_close unmaps `data`. */
    struct gguf_key *keys;
    size_t key_count;
    struct gguf_index key_index;
    struct mapped_tensor *tensors; /* In the first file of several: the tensors of all files. */
    size_t tensor_count;
    struct gguf_index tensor_index;
    size_t data_start;     /* Offset of the tensor data in the file, at most `bytes`. */
    uint64_t index_key[2]; /* Random key of the hash of both indices. */
    struct gguf **parts;   /* [part_count] the other files of a model in several files. Owned. */
    size_t part_count;
    struct digest metadata_digest; /* All zeros = not computed yet. */
    struct digest digest;          /* All zeros = not computed yet. */
};

/* Writes a name for an error text: cut, and with "?" for characters that are not printable. Returns
 * `shown`. */
#define GGUF_PRINTABLE_BYTES 80
const char *gguf_name_printable(struct mapped_text name, char shown[GGUF_PRINTABLE_BYTES]);

/* Returns the name of a type for error texts, such as "u32". */
const char *gguf_value_name(enum gguf_value type);

/* Maps and parses one file, without the other parts of its model. Returns the errors of
 * gguf_open. */
enum status gguf_open_file(const char *path, struct gguf **out, struct error *error);
/* Opens the other parts of a model whose first file is `first`, at `path`, and adds their tensors
 * to `first`. Does nothing if the model is one file. Returns the errors of gguf_open; a part that
 * is missing is ST_INVALID. After an error, gguf_close of `first` frees what was allocated. */
enum status gguf_split_open(struct gguf *first, const char *path, struct error *error);
/* Makes the index of g->tensors anew. Returns the number of tensors on success. If two tensors have
 * the same name, returns the number of the second one in g->tensors. Returns SIZE_MAX, and sets
 * *error, if there is no memory. */
size_t gguf_tensors_index(struct gguf *g, struct error *error);

/* Parses g->data and sets the keys, the tensors, the indices and data_start. The error's text does
 * not name the file. After an error, gguf_close frees what was allocated. */
enum status gguf_parse(struct gguf *g, struct error *error);

/* Return the key or tensor with this name; NULL = none. */
const struct gguf_key *gguf_key_find(const struct gguf *g, const char *name, size_t bytes);
const struct mapped_tensor *gguf_tensor_find_bytes(const struct gguf *g, const char *name,
                                                   size_t bytes);

/* Stores a value of any integer type. An unsigned value above INT64_MAX becomes INT64_MAX. Returns
 * false for other types. */
bool gguf_key_integer(const struct gguf_key *key, int64_t *out);

#endif
