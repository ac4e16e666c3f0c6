/* hyper_groups: finds the layer groups of a model (common/layer_groups.h), which follow from the
 * windows of its layers. It has no state; any thread may call it. Each part that opens a model
 * calls it. It does not count blocks: common/layer_groups.h does. */
#ifndef MODEL_FILE_HYPER_GROUPS_H
#define MODEL_FILE_HYPER_GROUPS_H

#include "common/layer_groups.h"
#include "model/file/hyper.h"

/* Returns the groups. Their number is the period of the windows: the smallest number with which all
 * layers of a group have equal windows, such as 6 if each sixth layer reads all tokens. Returns one
 * group without a window, whose layers keep the KV of all tokens, in three cases: the period is
 * above LAYER_GROUPS_MAX; it is above 1 and above half of the layers; or no context is longer than
 * the window. */
struct layer_groups model_layer_groups(const struct model_hyper *h);

#endif
