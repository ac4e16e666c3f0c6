/* adapters: loads a model's low-rank adapters (model/file/adapter.h) to the device, and adds their
 * products to the products of the weights, for rows of sequences that have an adapter. model.c
 * loads and unloads the adapters in model_open and model_close, on the thread that calls these
 * functions. forward_lane.c calls adapters_add, on the engine thread or, if the batch has several
 * lanes, on a worker thread of the device. struct model owns the matrices. This part does not open
 * the adapters' folders (model/file/model_file.h does). */
#ifndef MODEL_FORWARD_ADAPTERS_H
#define MODEL_FORWARD_ADAPTERS_H

#include "model/forward/weights_load.h"

struct forward;
struct forward_lane;

/* Loads the part of each adapter of l->file that belongs to the stage's layers and to the rank's
 * slice. Does nothing if the file has no adapters. Returns ST_UNSUPPORTED if the device or the
 * model cannot have adapters, if the rank of an adapter is too large, or if an adapter changes a
 * matrix that adapters cannot change in this model (such as a gate of experts); ST_INVALID if a
 * matrix has a wrong shape or the model does not have a layer of an adapter; or ST_NO_MEMORY. After
 * an error, adapters_unload frees the memory. */
enum status adapters_load(const struct loader *l);
void adapters_unload(struct model *m); /* Frees the adapters of all layers. */

/* Adds to y, for each row of `batch` whose sequence has an adapter, the product of this adapter for
 * the matrix: scale · B · A · (row of `a`). Does nothing if no sequence has an adapter, or no
 * adapter changes the matrix. */
void adapters_add(const struct forward *f, const struct forward_lane *lane,
                  const struct model_layer *layer, enum adapter_matrix matrix,
                  const struct compute_batch *batch, const struct compute_activations *a, float *y);

#endif
