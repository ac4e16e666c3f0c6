/* mapped: the types of the texts and tensors of model files. Both types only point to memory, which
 * another part owns. The readers of model/file/ fill them; then texts and elements are valid until
 * the model's file is closed. model/text/ and model/forward/ read them, on any thread. model/text/
 * also uses mapped_text for its own texts. This part neither maps nor frees memory. */
#ifndef MODEL_FILE_MAPPED_H
#define MODEL_FILE_MAPPED_H

#include "compute/source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Text that need not end in a NUL. Names of tensors in a Hugging Face folder end in a NUL. */
struct mapped_text {
    const char *text;
    size_t bytes;
};

/* Integer types that packed weights have in safetensors files (packed.h). */
enum mapped_integer { MAPPED_NO_INTEGER, MAPPED_I8, MAPPED_U8, MAPPED_I32, MAPPED_I64 };

/* A tensor of a model file. */
struct mapped_tensor {
    struct mapped_text name;
    enum compute_type type;      /* Type of the elements, if `integer` is MAPPED_NO_INTEGER. */
    enum mapped_integer integer; /* Type of integer elements. */
    uint32_t dim_count;          /* Number of dimensions. */
    uint64_t dims[4]; /* dims[0] is the contiguous dimension (columns), dims[1] the rows. */
    /* The elements, not necessarily aligned. All `bytes` bytes lie in the file. NULL = packed
     * weights: packed_read (packed.h) converts the elements. */
    const void *data;
    size_t bytes; /* Bytes at `data`; 0 for packed weights. */
};

/* Returns the NUL-terminated text, which is not copied, as a mapped_text. */
static inline struct mapped_text mapped_text_of(const char *text)
{
    return (struct mapped_text){text, strlen(text)};
}

static inline bool mapped_text_equals(struct mapped_text t, const char *text)
{
    return t.bytes == strlen(text) && memcmp(t.text, text, t.bytes) == 0;
}

#endif
