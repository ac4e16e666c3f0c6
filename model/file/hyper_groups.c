/* hyper_groups: see the header. */
#include "model/file/hyper_groups.h"

struct layer_groups model_layer_groups(const struct model_hyper *h)
{
    (void)h; /* Layers with an attention window keep the KV of all tokens, as the others do. */
    return (struct layer_groups){.count = 1};
}
