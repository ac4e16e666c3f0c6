/* weights_load: copies tensors from a model's files to the device. compute_ops.matrix_open repacks
 * matrices; vectors (norms, biases) become fp32 in one allocation of device memory. A rank loads
 * only its slice. Shapes and types are checked; errors name the tensor. The files of model/forward/
 * call it in model_open, on one thread, and decide which tensors a model needs. */
#ifndef MODEL_FORWARD_WEIGHTS_LOAD_H
#define MODEL_FORWARD_WEIGHTS_LOAD_H

#include "model/forward/weights.h"

/* The state of one model_open. */
struct loader {
    const struct model_file *file;
    struct model *m;
    struct error *error; /* Receives the errors of all functions. */
    float *host_vector;  /* Room for one vector in the host's memory. */
};

/* Rows, columns or elements [first, first + count) of a tensor that has `total` of them. */
struct load_part {
    uint32_t first, count, total;
};

static inline struct load_part load_whole(uint32_t count)
{
    return (struct load_part){0, count, count};
}

/* Returns the rows, or columns, of the rank's query heads in a matrix that has `each` rows, or
 * columns, for a head. */
static inline struct load_part load_heads_part(const struct model *m, uint32_t each)
{
    return (struct load_part){m->shard.head_first * each, m->shard.head_count * each,
                              m->hyper.head_count * each};
}

/* Returns true if the model's files have this tensor. */
bool tensor_is_there(const struct loader *l, enum model_role role, uint32_t layer);

/* Returns `data`, or a copy of its `bytes` bytes if `data` is not aligned for reading fp32 numbers.
 * (Some writers of safetensors do not align data.) The caller frees *copy_out, which is NULL if
 * there is no copy. Returns NULL if there is no memory. */
const void *load_aligned(const void *data, size_t bytes, void **copy_out);

/* Loads the given part of a matrix of [rows.total × cols.total] to the device. Returns ST_INVALID
 * if the tensor is missing or has another shape, or if the part would cut a quantisation block, or
 * an error of model_file_source or of the device. */
enum status load_matrix(const struct loader *l, enum model_role role, uint32_t layer,
                        struct load_part cols, struct load_part rows, struct compute_matrix **out);

/* Loads a matrix of this shape as fp32. It is for the routers, whose products decide which experts
 * are used. Returns the errors of load_matrix, or ST_UNSUPPORTED if the tensor's type is not F32,
 * F16 or BF16. */
enum status load_f32_matrix(const struct loader *l, enum model_role role, uint32_t layer,
                            uint32_t cols, uint32_t rows, struct compute_matrix **out);
/* Returns ST_OK if `t` has this shape, otherwise ST_INVALID. rows: 0 = `t` is a vector. experts:
 * number of matrices that are stacked in the tensor; 0 = the tensor is one matrix. */
enum status load_check_shape(const struct loader *l, const char *name,
                             const struct mapped_tensor *t, uint32_t cols, uint32_t rows,
                             uint32_t experts);
/* Repacks `source`, which is the tensor of this name or a part of the tensor, for the device.
 * Returns the errors of compute_ops.matrix_open. */
enum status load_source(const struct loader *l, const char *name,
                        const struct compute_source *source, struct compute_matrix **out);
/* Loads the given part of tensor `t`. The rows of a stack are the rows of all its matrices. Returns
 * the errors of load_matrix, except that the shape is not checked. */
enum status load_tensor_part(const struct loader *l, const struct mapped_tensor *t,
                             const char *name, struct load_part cols, struct load_part rows,
                             struct compute_matrix **out);

/* Reads a vector of `count` elements into l->host_vector, as fp32. Returns ST_INVALID if the tensor
 * is missing or has another shape, ST_UNSUPPORTED if its type is not F32, F16 or BF16,
 * ST_NO_MEMORY. */
enum status load_vector(const struct loader *l, enum model_role role, uint32_t layer,
                        uint32_t count);
/* Does what load_vector does, for a tensor of `stack` vectors of `count` elements each. stack: 0 =
 * the tensor is one vector. */
enum status load_vectors(const struct loader *l, enum model_role role, uint32_t layer,
                         uint32_t count, uint32_t stack);
/* Copies a part of the vector in l->host_vector to the device. Returns its device address, valid
 * until model_close. */
const float *load_vector_copy(const struct loader *l, struct load_part part);

/* experts_load.c: loads the router, the experts and the shared experts of a layer. Returns the
 * errors of load_matrix, load_vectors and compute_experts_ops.open. */
enum status load_experts(const struct loader *l, uint32_t layer, struct model_layer *into);
void experts_unload(struct model *m, struct model_layer_experts *experts);
/* latent_load.c: loads the matrices of latent attention, except the output's. Returns the errors of
 * load_matrix and load_vector, or ST_UNSUPPORTED if the device has no latent attention. */
enum status load_latent(const struct loader *l, uint32_t layer, struct model_layer *into);

#endif
