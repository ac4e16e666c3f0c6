/* weights_load: copies tensors from a model's files to the device. compute_ops.matrix_open repacks
 * matrices; vectors (norms, biases) become fp32, and share one allocation of device memory. The
 * functions check shapes and types. model_open and its parts call the functions, on the thread of
 * model_open. struct model owns the loaded matrices and vectors. This part does not decide which
 * tensors a model needs. */
#ifndef MODEL_FORWARD_WEIGHTS_LOAD_H
#define MODEL_FORWARD_WEIGHTS_LOAD_H

#include "model/forward/weights.h"

/* The state of one call of model_open. */
struct loader {
    const struct model_file *file;
    struct model *m;     /* The model that is being opened. */
    struct error *error; /* Receives the errors. */
    float *host_vector;  /* Host memory for the model's longest vector or stack of vectors. */
};

/* Rows, columns or elements [first, first + count) of a tensor that has `total` rows, columns or
 * elements. */
struct load_part {
    uint32_t first, count, total;
};

/* Returns the part with all `count` rows, columns or elements. */
static inline struct load_part load_whole(uint32_t count)
{
    return (struct load_part){0, count, count};
}

/* Returns the part with the rank's query heads, of a matrix that has `each` rows (or columns) for
 * each head. */
static inline struct load_part load_heads_part(const struct model *m, uint32_t each)
{
    return (struct load_part){m->shard.head_first * each, m->shard.head_count * each,
                              m->hyper.head_count * each};
}

/* Returns true if the model's files have this tensor. */
bool loader_has_tensor(const struct loader *l, enum model_role role, uint32_t layer);

/* Returns `data`, or a copy of data[0..bytes) if `data` is not aligned to 4 bytes. The caller frees
 * *copy_out, the copy; NULL = no copy was needed. Returns NULL if there is no memory. */
const void *load_aligned(const void *data, size_t bytes, void **copy_out);

/* Loads a part of a matrix of [rows.total × cols.total] to the device. Returns ST_INVALID if the
 * tensor is missing or has another shape, or if its rows or the part's rows are not whole
 * quantisation blocks; or an error of model_file_source or load_source. */
enum status load_matrix(const struct loader *l, enum model_role role, uint32_t layer,
                        struct load_part cols, struct load_part rows, struct compute_matrix **out);

/* Loads a matrix of [rows × cols] to the device as fp32. Returns ST_INVALID if the tensor is
 * missing or has another shape, ST_UNSUPPORTED if its type is not F32, F16 or BF16, ST_NO_MEMORY,
 * or an error of compute_ops.matrix_open. */
enum status load_f32_matrix(const struct loader *l, enum model_role role, uint32_t layer,
                            uint32_t cols, uint32_t rows, struct compute_matrix **out);
/* Returns ST_OK if `t` has `experts` matrices of [rows × cols]; otherwise ST_INVALID. rows: 0 = a
 * vector of `cols` elements. experts: 0 = one matrix or vector. */
enum status load_check_shape(const struct loader *l, const char *name,
                             const struct mapped_tensor *t, uint32_t cols, uint32_t rows,
                             uint32_t experts);
/* Loads `source` to the device. `name` is the tensor's name, for the text of an error. Returns
 * ST_NO_MEMORY, or an error of compute_ops.matrix_open. */
enum status load_source(const struct loader *l, const char *name,
                        const struct compute_source *source, struct compute_matrix **out);
/* Loads a part of tensor `t`, whose shape the caller has checked. If the tensor has several
 * matrices, row numbers count on from one matrix to the next. Returns the errors of load_matrix. */
enum status load_tensor_part(const struct loader *l, const struct mapped_tensor *t,
                             const char *name, struct load_part cols, struct load_part rows,
                             struct compute_matrix **out);

/* Reads a vector of `count` elements into l->host_vector, as fp32. Returns ST_INVALID if the tensor
 * is missing or has another shape, ST_UNSUPPORTED if its type is not F32, F16 or BF16, or
 * ST_NO_MEMORY. */
enum status load_vector_to_host(const struct loader *l, enum model_role role, uint32_t layer,
                                uint32_t count);
/* Reads a tensor of `stack` vectors of `count` elements each into l->host_vector, as fp32. stack: 0
 * = the tensor is one vector. Returns the errors of load_vector_to_host. */
enum status load_vectors_to_host(const struct loader *l, enum model_role role, uint32_t layer,
                                 uint32_t count, uint32_t stack);
/* Copies a part of the vector in l->host_vector to the device. Returns the device address of the
 * copy, which is valid until model_close. */
const float *load_vector_to_device(const struct loader *l, struct load_part part);

/* Loads the router, the routed experts and the shared experts of a layer into into->experts.
 * Returns the errors of load_matrix, load_f32_matrix, load_vectors_to_host and
 * compute_experts_ops.open. */
enum status load_experts(const struct loader *l, uint32_t layer, struct model_layer *into);
/* Frees the experts of a layer, also after an error of load_experts. */
void experts_unload(struct model *m, struct model_layer_experts *experts);
/* Loads the matrices and norm vectors of a layer's latent attention into into->q and into->latent.
 * Returns the errors of load_matrix and load_vector_to_host, or ST_UNSUPPORTED if the device has no
 * latent attention. */
enum status load_latent(const struct loader *l, uint32_t layer, struct model_layer *into);

#endif
