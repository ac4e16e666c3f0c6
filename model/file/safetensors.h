/* safetensors: reads and checks the header of one safetensors file. Every tensor's type, shape and
 * position are checked; as the format demands, tensors do not overlap, and no bytes lie between
 * them or after the last tensor. The data stays in the caller's mapping. folder.c calls it for each
 * file, on the thread that opens the model. It maps no files, reads no tensor data and knows
 * nothing of models. Internal to model/. */
#ifndef MODEL_FILE_SAFETENSORS_H
#define MODEL_FILE_SAFETENSORS_H

#include "common/status.h"
#include "model/file/mapped.h"

struct json_t;

struct safetensors {
    struct json_t *header; /* JSON document that owns the tensors' names. */
    struct mapped_tensor *tensors;
    size_t tensor_count;
    size_t data_start; /* Offset of the tensor data in the file. */
};

/* Reads the header of the file in data[0..bytes), which must stay mapped until safetensors_done.
 * `name` is the file's name for errors. */
enum status safetensors_read(const char *name, const void *data, size_t bytes,
                             struct safetensors *out, struct error *error);
void safetensors_done(struct safetensors *s); /* A zeroed struct is fine. */

#endif
