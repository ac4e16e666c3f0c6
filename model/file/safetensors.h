/* safetensors: reads and checks the header of one safetensors file: the type, shape and position of
 * every tensor. Tensors must not overlap, and no bytes may lie between or after them. The data
 * stays in the caller's mapping. folder.c and adapter.c call it for each file, on the thread that
 * uses the model_file; no state. It maps no files, reads no tensor data, and does not know the
 * tensors of a model. */
#ifndef MODEL_FILE_SAFETENSORS_H
#define MODEL_FILE_SAFETENSORS_H

#include "common/status.h"
#include "model/file/mapped.h"

struct json_t;

struct safetensors {
    struct json_t *header;         /* JSON document that owns the tensors' names. */
    struct mapped_tensor *tensors; /* [tensor_count], in the order of their data. */
    size_t tensor_count;
    size_t data_start; /* Offset of the tensor data in the file. */
};

/* Reads the header of the file data[0..bytes), which must stay mapped until safetensors_done.
 * Errors call the file `name`. On failure *error has the reason. *out is written only on
 * success. */
enum status safetensors_read(const char *name, const void *data, size_t bytes,
                             struct safetensors *out, struct error *error);
void safetensors_done(struct safetensors *s); /* A zeroed struct is fine. */

#endif
