/* hyper_groups: the layer groups of a model (common/layer_groups.h), which follow from the windows
 * of its layers. The gateway, machines, `cleave profile`, `cleave check` and the forward pass call
 * it when they open a model. Any thread; no state. It does not count blocks: common/layer_groups.h
 * does. */
#ifndef MODEL_FILE_HYPER_GROUPS_H
#define MODEL_FILE_HYPER_GROUPS_H

#include "common/layer_groups.h"
#include "model/file/hyper.h"

/* Returns the smallest number of groups with which all layers of a group have equal windows: the
 * period of the windows, such as 6 if each sixth layer reads all tokens. Returns one group without
 * a window, whose layers keep the KV of all tokens, if the period is above LAYER_GROUPS_MAX or half
 * of the layers, or if no context is longer than the window. */
struct layer_groups model_layer_groups(const struct model_hyper *h);

#endif
