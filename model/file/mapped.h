/* mapped: the types of texts and tensors of model files. The readers of model/file/ fill both
 * types; their texts and elements are in the mapping of a file, or in memory that the reader owns,
 * and are valid until the file is closed. model/text/ and model/forward/ read them, on any thread;
 * model/text/ also uses mapped_text for its own texts. Types and look-ups only: nothing here maps
 * or frees memory. */
#ifndef MODEL_FILE_MAPPED_H
#define MODEL_FILE_MAPPED_H

#include "compute/source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Text that need not end in a NUL. (The names of a folder's tensors do.) */
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
    /* The elements, perhaps not aligned; the file has all `bytes` bytes, which the reader has
     * checked. NULL = packed_read (packed.h) must convert the elements. */
    const void *data;
    size_t bytes;
};

static inline struct mapped_text mapped_text_of(const char *text)
{
    return (struct mapped_text){text, strlen(text)};
}

static inline bool mapped_text_is(struct mapped_text t, const char *text)
{
    return t.bytes == strlen(text) && memcmp(t.text, text, t.bytes) == 0;
}

#endif
