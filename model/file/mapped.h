/* mapped: the types of the texts and tensors of model files. A text or tensor is a plain value that
 * points to memory which it does not own. The readers in model/file/ make texts and tensors, which
 * are valid until model_file_close. Any thread may read the values. This part neither maps nor
 * frees memory. */
#ifndef MODEL_FILE_MAPPED_H
#define MODEL_FILE_MAPPED_H

#include "compute/source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A text, which need not end with a NUL. The names of a folder's or an adapter's tensors end with a
 * NUL. */
struct mapped_text {
    const char *text; /* NULL = there is no text. */
    size_t bytes;     /* Length, without a NUL. */
};

/* Integer types that packed weights have in safetensors files (packed.h). */
enum mapped_integer { MAPPED_NO_INTEGER, MAPPED_I8, MAPPED_U8, MAPPED_I32, MAPPED_I64 };

/* A tensor of a model file. */
struct mapped_tensor {
    struct mapped_text name;
    enum compute_type type;      /* Type of the elements, if `integer` is MAPPED_NO_INTEGER. */
    enum mapped_integer integer; /* Type of integer elements. */
    uint32_t dim_count;          /* Number of dimensions. */
    /* dims[0] is the contiguous dimension (columns), dims[1] the rows. Dimensions from dim_count on
     * are 1. */
    uint64_t dims[4];
    /* The elements in the file's mapping, not necessarily aligned. NULL = the weights are packed,
     * and packed_read (packed.h) converts them. */
    const void *data;
    size_t bytes; /* Bytes at `data`; 0 = the weights are packed. */
};

/* Returns a NUL-terminated text as a mapped_text, without copying the text. */
static inline struct mapped_text mapped_text_of(const char *text)
{
    return (struct mapped_text){text, strlen(text)};
}

/* Returns true if `t` has the bytes of the NUL-terminated `text`. Requires t.text. */
static inline bool mapped_text_equals(struct mapped_text t, const char *text)
{
    return t.bytes == strlen(text) && memcmp(t.text, text, t.bytes) == 0;
}

#endif
