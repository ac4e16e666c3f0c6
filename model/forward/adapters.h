/* adapters: loads a model's low-rank adapters (model/file/adapter.h) and adds their products to
 * those of the weights, for the rows of sequences that have an adapter. model_open loads them, on
 * one thread; the functions for a batch run on the thread of its lane. */
#ifndef MODEL_FORWARD_ADAPTERS_H
#define MODEL_FORWARD_ADAPTERS_H

#include "model/forward/weights_load.h"

struct forward;
struct forward_lane;

/* Loads the part of each adapter that belongs to the stage's layers and to the rank's slice. */
enum status adapters_load(const struct loader *l);
void adapters_unload(struct model *m);

/* y += the adapters' products of one matrix, for rows 0 to batch->row_count - 1 of `a`. Does nothing
 * if no sequence of the batch has an adapter. */
void adapters_add(const struct forward *f, const struct forward_lane *lane,
                  const struct model_layer *layer, enum adapter_matrix matrix,
                  const struct compute_batch *batch, const struct compute_activations *a, float *y);

#endif
