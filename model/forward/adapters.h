/* adapters: loads a model's low-rank adapters (model/file/adapter.h) to the device, and adds their
 * products to the products of the weights. struct model owns the loaded matrices. model_open
 * calls adapters_load, and model_close calls adapters_unload. The forward pass calls adapters_add,
 * for several lanes on several threads (forward_state.h). This part does not open the adapters'
 * folders. */
#ifndef MODEL_FORWARD_ADAPTERS_H
#define MODEL_FORWARD_ADAPTERS_H

#include "model/forward/weights_load.h"

struct forward;
struct forward_lane;

/* Loads the part of each adapter of l->file that belongs to the stage's layers and to the rank's
 * slice. Returns ST_UNSUPPORTED if the device or the model cannot have adapters, if the rank of an
 * adapter is out of range, or if adapters cannot change one of the matrices (such as a gate of
 * experts); ST_INVALID if a matrix has a wrong shape or the model lacks a layer of an adapter;
 * ST_NO_MEMORY; or an error of the device. After an error, adapters_unload frees the memory. */
enum status adapters_load(const struct loader *l);
void adapters_unload(struct model *m); /* Frees the adapters of all layers. */

/* Adds scale · B · A · (row of `a`) to each row of y whose sequence in `batch` has an adapter that
 * changes the matrix. */
void adapters_add(const struct forward *f, const struct forward_lane *lane,
                  const struct model_layer *layer, enum adapter_matrix matrix,
                  const struct compute_batch *batch, const struct compute_activations *a, float *y);

#endif
