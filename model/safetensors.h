/* safetensors: the header of one file of that format, read and checked: every tensor's type, shape
 * and place, no two at one place, nothing between them or after the last, as the format wants it.
 * It knows no model. The data stays in the caller's mapping. Internal to model/. */
#ifndef MODEL_SAFETENSORS_H
#define MODEL_SAFETENSORS_H

#include "common/status.h"
#include "model/mapped.h"

struct json_t;

struct safetensors {
    struct json_t *header; /* keeps the names */
    struct mapped_tensor *tensors;
    size_t tensor_count;
    size_t data_start; /* offset of the tensor data */
};

/* `name` is the file's, for errors. */
enum status safetensors_read(const char *name, const void *data, size_t bytes,
                             struct safetensors *out, struct error *error);
void safetensors_done(struct safetensors *s); /* zeroed is fine */

#endif
