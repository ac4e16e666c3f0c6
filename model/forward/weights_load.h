/* weights_load: copies tensors from a model's files to the device. Matrices are repacked by
 * compute_ops.matrix_open; vectors (norms, biases) become fp32 in one allocation of device memory.
 * A rank loads only its slice. Every tensor is found by its role, and its shape and type are
 * checked; errors name the tensor as its file does. Used by model.c while a model is opened.
 * Internal to model/. */
#ifndef MODEL_FORWARD_WEIGHTS_LOAD_H
#define MODEL_FORWARD_WEIGHTS_LOAD_H

#include "model/forward/weights.h"

struct loader {
    const struct model_file *file;
    struct model *m;
    struct error *error;
    float *host; /* One vector on its way to the device. */
};

/* A range of neighbouring rows, columns or elements: `count` from `first` on, out of `of`. */
struct load_part {
    uint32_t first, count, of;
};

static inline struct load_part load_whole(uint32_t count)
{
    return (struct load_part){0, count, count};
}

/* Whether the model's files have this tensor. */
bool tensor_is_there(const struct loader *l, enum model_role role, uint32_t layer);

/* Loads the given part of a matrix of [rows.of × cols.of]. ST_INVALID: the tensor is missing, has
 * another shape, or the part would cut a quantisation block of its type. */
enum status load_matrix(const struct loader *l, enum model_role role, uint32_t layer,
                        struct load_part cols, struct load_part rows, struct compute_matrix **out);

/* Reads a vector of `count` elements into l->host. */
enum status load_vector(const struct loader *l, enum model_role role, uint32_t layer,
                        uint32_t count);
/* Copies a part of the vector in l->host to the device. Returns its device address, valid until
 * model_close. */
const float *load_keep(const struct loader *l, struct load_part part);

#endif
