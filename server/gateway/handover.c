/* gateway_handover: a draining machine hands its answers over instead of generating them to their
 * ends. Each answer is cancelled there, which leaves its KV in the machine's prefix cache, and
 * resumed with that machine as its prompt machine: all blocks except the last, partial one are
 * found, a few rows are computed, and the KV is pushed to another token machine. So a hand-over is
 * a resumption like any other. If something fails on the way, the answer is computed again on other
 * machines.
 *
 * An answer stays if no machine can take it at once (the scheduler is asked first), or if fewer
 * than scheduler/handover_tokens_min tokens are left. */
#include "server/gateway/internal.h"
#include "server/gateway/request_messages.h"

/* Interval of the checks for answers that could not be handed over, or whose KV was on its way. */
#define CHECK_US 50000

/* True if the answer is being generated on a draining machine from complete KV, and the client has
 * the tokens of its prompt machine. Requests with a scored prompt stay: their token machine was not
 * sent the prompt, so it keeps no KV of them. */
static bool decodes_on_draining(const struct gateway *g, const struct gateway_request *r)
{
    return gateway_request_version(g, r)->kv.prefix_cache && !r->score_prompt &&
           r->state == GATEWAY_REQUEST_PREFILLED && r->token_machine != NULL &&
           fleet_machine_draining(r->token_machine) && fleet_machine_up(r->token_machine) &&
           r->delivered > r->delivered_before;
}

static bool handover_pays(const struct gateway *g, const struct gateway_request *r)
{
    uint32_t left = request_decode_tokens(r);
    return left > 0 && left >= g->options.config->scheduler.handover_tokens_min &&
           sched_cluster_can_hand_over(gateway_request_version(g, r)->scheduler, request_slot(r),
                                       r->prompt_count + r->delivered, left);
}

int64_t gateway_handover_turn(struct gateway *g, int64_t now_us)
{
    if (!fleet_any_draining(g->fleet) || connections_stopping(g->connections))
        return INT64_MAX;
    if (now_us < g->handover_at_us)
        return g->handover_at_us;
    for (struct gateway_request *r = requests_next(g->requests, NULL); r != NULL;
         r = requests_next(g->requests, r))
        if (decodes_on_draining(g, r) && handover_pays(g, r))
            requests_hand_over(g->requests, r);
    gateway_ends_grant(g);
    g->handover_at_us = now_us + CHECK_US;
    return g->handover_at_us;
}
