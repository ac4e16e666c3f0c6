/* adapters: loads a model's low-rank adapters (model/file/adapter.h) and adds their products to the
 * products of the weights, for the rows of sequences that have an adapter. model_open and
 * model_close load and unload the adapters. The forward pass calls adapters_add, on the engine
 * thread or, if the batch runs in lanes, on a worker thread. struct model owns the matrices. This
 * part does not open the adapters' folders (model/file/model_file.h does). */
#ifndef MODEL_FORWARD_ADAPTERS_H
#define MODEL_FORWARD_ADAPTERS_H

#include "model/forward/weights_load.h"

struct forward;
struct forward_lane;

/* Loads the part of each adapter that belongs to the stage's layers and to the rank's slice. Fails,
 * for example, if the device or the model's family has no adapters, if an adapter changes what they
 * cannot change, or if a shape is wrong. */
enum status adapters_load(const struct loader *l);
void adapters_unload(struct model *m);

/* Adds the adapters' products of one matrix to y, for rows 0 to batch->row_count - 1 of `a`. Does
 * nothing if no sequence of the batch has an adapter. */
void adapters_add(const struct forward *f, const struct forward_lane *lane,
                  const struct model_layer *layer, enum adapter_matrix matrix,
                  const struct compute_batch *batch, const struct compute_activations *a, float *y);

#endif
