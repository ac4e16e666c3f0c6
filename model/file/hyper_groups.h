/* hyper_groups: the layer groups of a model (common/layer_groups.h), which follow from the windows of
 * its layers. Machines, the gateway and `cleave profile` call it when they open a model; any thread.
 * It does not count blocks (layer_groups does). */
#ifndef MODEL_FILE_HYPER_GROUPS_H
#define MODEL_FILE_HYPER_GROUPS_H

#include "common/layer_groups.h"
#include "model/file/hyper.h"

/* Returns the smallest number of groups with which all layers of a group have equal windows: the
 * period of the windows, such as 6 if each sixth layer reads all tokens. If that is more than
 * LAYER_GROUPS_MAX, or more than half of the layers, all layers are one group without a window: they
 * compute with their windows, and keep the KV of all tokens. So are they if no context is longer
 * than the window. */
struct layer_groups model_layer_groups(const struct model_hyper *h);

#endif
