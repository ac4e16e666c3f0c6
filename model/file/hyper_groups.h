/* hyper_groups: divides the layers of a model into layer groups (common/layer_groups.h) by the
 * attention windows of the layers, for all processes that count blocks. Any thread; no state. This
 * part counts no blocks. */
#ifndef MODEL_FILE_HYPER_GROUPS_H
#define MODEL_FILE_HYPER_GROUPS_H

#include "common/layer_groups.h"
#include "model/file/hyper.h"

/* Returns the layer groups. Their number is the period p of the windows: the smallest p with which
 * layers i and i + p have equal windows, for each i. p is 6 if every sixth layer reads all tokens.
 * Returns one group that keeps the KV of all tokens if p is above LAYER_GROUPS_MAX, if p is above 1
 * and above half of the layers, or if h->window is not shorter than h->context_tokens. */
struct layer_groups model_layer_groups(const struct model_hyper *h);

#endif
