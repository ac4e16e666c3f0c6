/* hyper_groups: divides the layers of a model into layer groups (common/layer_groups.h) by the
 * attention windows of the layers. It has no state, and any thread may call it. The gateway,
 * machines, stage processes, `cleave profile` and forward_open call it after they have read the
 * hyper-parameters. It counts no blocks (common/layer_groups.h does). */
#ifndef MODEL_FILE_HYPER_GROUPS_H
#define MODEL_FILE_HYPER_GROUPS_H

#include "common/layer_groups.h"
#include "model/file/hyper.h"

/* Returns the layer groups. The number of groups is the period of the windows: the smallest number
 * p for which the layers i and i + p always have equal windows, such as 6 if each sixth layer reads
 * all tokens. In three cases the function returns one group without a window, whose layers keep the
 * KV of all tokens: if the period is above LAYER_GROUPS_MAX, if the period is above 1 and above
 * half of the number of layers, or if the window is not shorter than h->context_tokens. */
struct layer_groups model_layer_groups(const struct model_hyper *h);

#endif
