/* mapped: the types of the texts and tensors of model files. The readers of model/file/ fill both
 * types; the texts and elements lie in the mapping of a file, in memory of the reader, or in memory
 * that the reader's caller gave it, and are valid until the file is closed. model/text/ and
 * model/forward/ read them, on any thread; model/text/ also uses mapped_text for its own texts. It
 * has types and a comparison, and neither maps nor frees memory. */
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

struct mapped_tensor {
    struct mapped_text name;
    enum compute_type type;      /* Not used if the elements are integers. */
    enum mapped_integer integer; /* MAPPED_NO_INTEGER = the elements are of `type`. */
    uint32_t dim_count;
    uint64_t dims[4]; /* dims[0] is the contiguous dimension (columns), dims[1] the rows. */
    /* The elements, not necessarily aligned. The reader has checked that all `bytes` bytes lie in
     * the file. NULL = packed weights: packed_read (packed.h) converts the elements. */
    const void *data;
    size_t bytes; /* Bytes at `data`; 0 for packed weights. */
};

static inline struct mapped_text mapped_text_of(const char *text)
{
    return (struct mapped_text){text, strlen(text)};
}

static inline bool mapped_text_equals(struct mapped_text t, const char *text)
{
    return t.bytes == strlen(text) && memcmp(t.text, text, t.bytes) == 0;
}

#endif
