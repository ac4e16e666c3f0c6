/* gateway_blame: see the header. */
#include "server/gateway/blame.h"

static const uint32_t weights[] = {
    [BLAME_NONE] = 0, [BLAME_LINK] = 1, [BLAME_DEATH] = 8, [BLAME_FAILED] = 8};

bool blame_loss_add(struct request_blame *blame, enum blame_cause cause, uint32_t delivered,
                    int64_t now_us)
{
    if (delivered > blame->loss_tokens || blame->loss_count == 0) {
        blame->loss_count = 0;
        blame->weight_sum = 0;
        blame->first_loss_us = now_us;
    }
    blame->loss_tokens = delivered;
    blame->loss_count++;
    blame->weight_sum += weights[cause];
    return blame->weight_sum >= BLAME_MAX &&
           (cause == BLAME_FAILED || now_us - blame->first_loss_us >= BLAME_US_MIN);
}

bool blame_crash_add(struct request_blame *blame, uint32_t delivered, uint32_t crashes_max)
{
    blame->crashes++;
    blame->crash_tokens = delivered;
    return crashes_max > 0 && blame->crashes >= crashes_max;
}

bool blame_clear(struct request_blame *blame, uint32_t delivered)
{
    if (blame->crashes == 0 || delivered < blame->crash_tokens + BLAME_CLEAR_TOKENS)
        return false;
    blame->crashes = 0;
    return true;
}
