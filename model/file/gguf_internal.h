/* gguf_internal: struct gguf, and the functions that gguf.c, gguf_parse.c (the parser) and
 * gguf_split.c (models in several files) share. The functions run on the thread that uses the
 * struct gguf. gguf.h is the interface for other parts. */
#ifndef MODEL_FILE_GGUF_INTERNAL_H
#define MODEL_FILE_GGUF_INTERNAL_H

#include "model/file/gguf.h"

/* Types of metadata values, with the numbers that GGUF files have for them. */
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
    const uint8_t *value;        /* Number, bool, or array of them, in the file; not aligned. */
    struct mapped_text string;   /* The value of a GGUF_STRING. */
    struct mapped_text *strings; /* Elements of an array of strings. The key owns the list. */
    int32_t *numbers; /* Copy of an array of I32 or U32. The key owns it; NULL = another type. */
};

/* Hash table that finds a key or a tensor by its name, with open addressing. */
struct gguf_index {
    uint32_t *slots; /* [mask + 1] 1 + number of the key or tensor; 0 = empty. */
    size_t mask;     /* Number of slots, a power of two, minus 1. */
};

struct gguf {
    char name[128];      /* Name of the file, for errors. */
    const uint8_t *data; /* The whole file. */
    size_t bytes;
    bool mapped; /* `data` is a mapping, which gguf_close closes. */
    struct gguf_key *keys;
    size_t key_count;
    struct gguf_index key_index;
    struct mapped_tensor *tensors; /* The first file of a model has the tensors of all files. */
    size_t tensor_count;
    struct gguf_index tensor_index;
    size_t data_start;     /* Offset of the tensor data in the file, at most `bytes`. */
    uint64_t index_key[2]; /* Random key of the hashes in key_index and tensor_index. */
    struct gguf **parts;   /* [part_count] the model's other files, which the first file owns. */
    size_t part_count;
    struct digest metadata_digest; /* All zeros = not computed yet. */
    struct digest digest;          /* All zeros = not computed yet. */
};

#define GGUF_PRINTABLE_BYTES 80 /* Text of gguf_name_printable, with its NUL. */
/* Writes a name for an error text. Characters that are not printable become "?", and a long name is
 * cut. Returns `shown`. */
const char *gguf_name_printable(struct mapped_text name, char shown[GGUF_PRINTABLE_BYTES]);

/* Returns the name of a type for error texts, such as "u32". */
const char *gguf_value_name(enum gguf_value type);

/* Maps and parses one file, without the other files of the model. The caller closes *out with
 * gguf_close. Returns an error of gguf_open. */
enum status gguf_open_file(const char *path, struct gguf **out, struct error *error);
/* Opens the other files of the model whose first file is `first`, at `path`, and adds their tensors
 * to `first`. Does nothing if the model is one file. `first` owns the other files, also after an
 * error. Returns ST_INVALID if `first` is not the first file, or if another file is missing or
 * belongs to another model; or an error of gguf_open_file. */
enum status gguf_split_open(struct gguf *first, const char *path, struct error *error);
/* Builds g->tensor_index again, after g->tensors has changed. Returns g->tensor_count on success.
 * If two tensors have one name, returns the index of the second tensor. Returns SIZE_MAX, and sets
 * *error, if there is no memory. */
size_t gguf_tensors_index(struct gguf *g, struct error *error);

/* Parses g->data, and sets the keys, the tensors, the two indices and data_start. Returns
 * ST_INVALID, ST_UNSUPPORTED or ST_NO_MEMORY. The error's text does not name the file. */
enum status gguf_parse(struct gguf *g, struct error *error);

/* Return the key, or the tensor, with this name; NULL = none. */
const struct gguf_key *gguf_key_find(const struct gguf *g, const char *name, size_t bytes);
const struct mapped_tensor *gguf_tensor_find_bytes(const struct gguf *g, const char *name,
                                                   size_t bytes);

/* Stores the value of a key of an integer type; a value above INT64_MAX becomes INT64_MAX. Returns
 * false, and stores nothing, for a key of another type. */
bool gguf_key_integer(const struct gguf_key *key, int64_t *out);

#endif
