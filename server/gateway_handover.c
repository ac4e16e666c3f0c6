/* gateway_handover: a machine that drains gives its answers away instead of generating them to
 * their ends. Each of them is cancelled there, which leaves its KV in the machine's prefix cache,
 * and resumed with that machine as its prompt machine: all but the last, partial block is found, a
 * few rows are computed, and the KV is pushed to another token machine. So moving KV is a
 * resumption like any other; if something fails on the way, the answer is computed again elsewhere.
 *
 * An answer stays when nobody can take it at once (the scheduler is asked first), and when so
 * little of it is left that moving it is not worth while (scheduler/handover_tokens_min). */
#include "server/gateway_internal.h"

#define LOOK_US                                                                                    \
    50000 /* answers that could not go, or whose KV was on its way, are looked at again */

static bool draining(const struct gateway *g, uint32_t machine)
{
    return machine != SCHED_NO_MACHINE && g->machines[machine].draining;
}

/* It is being generated there, from KV that is all there, and the client has all tokens of its
 * prompt machine. A scored prompt's tokens were not told to it: nothing of it is kept. */
static bool runs_there(const struct gateway *g, const struct gateway_request *r)
{
    return r->id != 0 && r->version->kv.prefix_cache && !r->score_prompt && r->list == LIST_NONE &&
           r->scheduled && r->prefilled && draining(g, r->token_machine) &&
           gateway_machine_is_up(g, r->token_machine) && r->delivered > r->base &&
           !request_state_ended(r->life.state);
}

static bool worth_while(const struct gateway *g, const struct gateway_request *r)
{
    uint32_t left = gateway_request_decodes(r);
    return left > 0 && left >= g->options.config->scheduler.handover_tokens_min &&
           sched_cluster_movable(r->version->scheduler, request_slot(g, r),
                                 r->prompt_count + r->delivered, left);
}

int64_t gateway_handover_turn(struct gateway *g, int64_t now_us)
{
    if (g->draining_count == 0 || g->stopping)
        return INT64_MAX;
    if (now_us < g->handover_at_us)
        return g->handover_at_us;
    for (uint32_t slot = 0; slot < LIMIT_CLUSTER_REQUESTS; slot++) {
        struct gateway_request *r = &g->requests[slot];
        if (runs_there(g, r) && worth_while(g, r))
            gateway_request_hand_over(g, r);
    }
    g->handover_at_us = now_us + LOOK_US;
    return g->handover_at_us;
}
