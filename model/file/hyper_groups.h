/* hyper_groups: the layer groups of a model (common/layer_groups.h), which follow from the windows of
 * its layers. Machines, the gateway and `cleave profile` call it when they open a model; any thread.
 * It does not count blocks (layer_groups does). */
#ifndef MODEL_FILE_HYPER_GROUPS_H
#define MODEL_FILE_HYPER_GROUPS_H

#include "common/layer_groups.h"
#include "model/file/hyper.h"

/* Returns one group without a window: every layer keeps the KV of all tokens. */
struct layer_groups model_layer_groups(const struct model_hyper *h);

#endif
