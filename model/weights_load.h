/* weights_load: takes tensors from a model's files to the device: matrices repacked through
 * compute_ops, vectors (norms, biases) as fp32 in one piece of the device's memory; of a group's
 * rank only its slice. Every tensor is looked up by its role, its shape and type are checked;
 * errors name it as its file does. Internal to model/. */
#ifndef MODEL_WEIGHTS_LOAD_H
#define MODEL_WEIGHTS_LOAD_H

#include "model/weights.h"

struct loader {
    const struct model_file *file;
    struct model *m;
    struct error *error;
    float *host; /* one vector on its way to the device */
};

/* Some neighbours of `of` rows, columns or elements. */
struct load_part {
    uint32_t first, count, of;
};

static inline struct load_part load_whole(uint32_t count)
{
    return (struct load_part){0, count, count};
}

/* Whether the file has such a tensor. */
bool load_there(const struct loader *l, enum model_role role, uint32_t layer);

/* Of a tensor of [rows.of × cols.of]. ST_INVALID where a block of the tensor's type would be cut.
 */
enum status load_matrix(const struct loader *l, enum model_role role, uint32_t layer,
                        struct load_part cols, struct load_part rows, struct compute_matrix **out);

/* Reads a vector of `count` to `l->host`. */
enum status load_vector(const struct loader *l, enum model_role role, uint32_t layer,
                        uint32_t count);
/* Takes a part of what is there to the device. */
const float *load_keep(const struct loader *l, struct load_part part);

#endif
