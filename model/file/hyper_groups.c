/* hyper_groups: see the header. */
#include "model/file/hyper_groups.h"

/* Returns true if layers `period` apart have equal windows. */
static bool is_period(const struct model_hyper *h, uint32_t period)
{
    for (uint32_t i = period; i < h->layer_count; i++)
        if (model_layer_window(h, i) != model_layer_window(h, i - period))
            return false;
    return true;
}

struct layer_groups model_layer_groups(const struct model_hyper *h)
{
    const struct layer_groups one = {.count = 1, .latent = h->latent.rank != 0};
    struct layer_groups groups = one;
    if (h->window >= h->context_tokens)
        return groups;
    while (groups.count <= LAYER_GROUPS_MAX && !is_period(h, groups.count))
        groups.count++;
    if (groups.count > LAYER_GROUPS_MAX || (groups.count > 1 && groups.count > h->layer_count / 2))
        return one;
    for (uint32_t i = 0; i < groups.count && i < h->layer_count; i++) {
        const uint32_t window = model_layer_window(h, i);
        if (window == 0)
            continue;
        groups.windowed |= 1u << i;
        groups.window_tokens = window > groups.window_tokens ? window : groups.window_tokens;
    }
    return groups;
}
