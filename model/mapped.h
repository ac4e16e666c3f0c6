/* mapped: what the readers of model files hand out: texts and tensors that lie in the mapping of a
 * file, or in memory that the reader owns, and live as long as the file is open. */
#ifndef MODEL_MAPPED_H
#define MODEL_MAPPED_H

#include "compute/compute.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Not NUL-terminated. */
struct mapped_text {
    const char *text;
    size_t bytes;
};

struct mapped_tensor {
    struct mapped_text name;
    enum compute_type type;
    uint32_t dim_count;
    uint64_t dims[4]; /* dims[0] is the contiguous one (cols), dims[1] the rows */
    const void *data; /* checked to hold `bytes` */
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
