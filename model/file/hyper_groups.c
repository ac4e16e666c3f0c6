/* hyper_groups: see the header. */
#include "model/file/hyper_groups.h"

struct layer_groups model_layer_groups(const struct model_hyper *h)
{
    (void)h; /* Contexts are limited to the attention window (hyper.c), so all layers are alike. */
    return (struct layer_groups){.count = 1};
}
