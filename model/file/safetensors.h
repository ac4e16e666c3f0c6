/* safetensors: reads and checks the header of one safetensors file: the type, shape and position of
 * every tensor. A struct safetensors owns the table of the tensors; their data stay in the caller's
 * mapping. folder.c and adapter.c call the functions, on the thread that uses the struct
 * model_file. This part maps no files, and does not know which tensors a model has. */
#ifndef MODEL_FILE_SAFETENSORS_H
#define MODEL_FILE_SAFETENSORS_H

#include "common/status.h"
#include "model/file/mapped.h"

struct json_t;

/* The tensors of one file. */
struct safetensors {
    struct json_t *header;         /* JSON document that owns the tensors' names. */
    struct mapped_tensor *tensors; /* [tensor_count] tensors in the order of their data. */
    size_t tensor_count;
    size_t data_start; /* Offset of the tensor data in the file. */
};

/* Reads the header of the file data[0..bytes), which must stay mapped while the tensors are used.
 * Errors call the file `name`. The caller frees *out with safetensors_done. Returns ST_INVALID if
 * the header is malformed, if tensors overlap, or if bytes of the data belong to no tensor;
 * ST_UNSUPPORTED if the type of a tensor is not F32, F16, BF16, F8_E4M3, I8, U8, I32 or I64; or
 * ST_NO_MEMORY. *out is written only on success. */
enum status safetensors_read(const char *name, const void *data, size_t bytes,
                             struct safetensors *out, struct error *error);
/* Frees the table and the tensors' names. A struct of zeros is fine. */
void safetensors_done(struct safetensors *s);

#endif
