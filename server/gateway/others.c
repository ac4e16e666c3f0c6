/* gateway_others: other gateways on the same machines. Each machine reports the load that the
 * others have there (the scheduler counts it), its home pool as any gateway set it last, and which
 * gateway leads: the one with the least name. Only the leader changes home pools for the demand,
 * because it knows the demand of all gateways; the others adopt its changes. A gateway that sees
 * another leader on some machine does not lead. */
#include "server/gateway/internal.h"

#include <string.h>

/* Repurposing starts or stops with the lead. */
static void leader_set(struct gateway *g, struct fleet_machine *m, bool elsewhere)
{
    bool led = gateway_leads(g);
    if (m->another_leads == elsewhere)
        return;
    m->another_leads = elsewhere;
    g->led_elsewhere_count += elsewhere ? 1 : UINT32_MAX;
    metrics_leads_set(g->options.metrics, gateway_leads(g));
    if (gateway_leads(g) == led)
        return;
    log_info("gateway %s %s", g->name,
             led ? "does not lead: another gateway moves machines between the pools" : "leads");
    gateway_scheduler_configure(g);
}

/* Adopts a home pool that another gateway has set, unless ours is newer. If two gateways set it at
 * once, the machine has chosen one. */
static void home_adopt(struct gateway *g, struct fleet_machine *m,
                       const struct message_others *others)
{
    enum pool home = (enum pool)others->home_pool;
    if (others->home_serial == 0 || others->home_serial < m->home_serial)
        return;
    m->home_serial = others->home_serial;
    if (home == m->home)
        return;
    m->home = home;
    log_info("another gateway has moved machine %s to pool %s", m->config.name, pool_name(home));
    gateway_machine_peers_send(g, m);
    struct sched_event event = {
        .kind = SCHED_MACHINE_HOME, .now_us = gateway_now(g), .machine = m->index, .pool = home};
    gateway_schedule(g, m->version, &event);
}

static bool same_load(const struct message_others *a, const struct message_others *b)
{
    return a->prompt_tokens == b->prompt_tokens && a->kv_tokens == b->kv_tokens &&
           a->prompts == b->prompts && a->decodes == b->decodes &&
           a->is_in_mixed_pool == b->is_in_mixed_pool &&
           a->prompt_tokens_taken == b->prompt_tokens_taken && a->answers_taken == b->answers_taken;
}

/* Demand from before this gateway connected does not count. */
static void load_report(struct gateway *g, struct fleet_machine *m,
                        const struct message_others *now)
{
    const struct message_others *before = &m->others;
    struct sched_event event = {
        .kind = SCHED_MACHINE_LOAD,
        .now_us = gateway_now(g),
        .machine = m->index,
        .others = {.prompt_tokens = now->prompt_tokens,
                   .kv_tokens = now->kv_tokens,
                   .prompts = now->prompts,
                   .decodes = now->decodes,
                   .mixed = now->is_in_mixed_pool},
    };
    if (before->gateways > 0) {
        event.others.arrived_prompt_tokens = now->prompt_tokens_taken - before->prompt_tokens_taken;
        event.others.arrived_answers = (uint32_t)(now->answers_taken - before->answers_taken);
        if (same_load(before, now))
            return;
    }
    gateway_schedule(g, m->version, &event);
}

void gateway_machine_others(struct gateway *g, struct fleet_machine *m,
                            const struct message_others *others)
{
    load_report(g, m, others);
    m->others = *others;
    leader_set(g, m, others->leader[0] != 0 && strcmp(others->leader, g->name) != 0);
    home_adopt(g, m, others);
}

/* Returns the share that the machine with the most gateways reports; without machines, the latest
 * share. */
static struct gateway_share share_reported(const struct gateway *g)
{
    struct gateway_share share = {0, 0};
    for (const struct fleet_machine *m = fleet_next(g->fleet, NULL); m != NULL;
         m = fleet_next(g->fleet, m))
        if (m->others.gateways > share.gateways && m->others.rank < m->others.gateways)
            share = (struct gateway_share){m->others.gateways, m->others.rank};
    return share.gateways > 0 ? share : g->key_limits_share;
}

struct gateway_share gateway_share(struct gateway *g)
{
    struct gateway_share now = share_reported(g);
    if (now.gateways >= g->key_limits_share.gateways)
        g->fewer_since_us = -1;
    else if (g->fewer_since_us < 0)
        g->fewer_since_us = gateway_now(g);
    if (g->fewer_since_us >= 0 && gateway_now(g) - g->fewer_since_us < GATEWAY_SHARE_HOLD_US)
        return g->key_limits_share;
    if (now.gateways != g->key_limits_share.gateways)
        log_info("gateways that serve on these machines: %u, was %u; they divide the limits of API "
                 "keys",
                 now.gateways, g->key_limits_share.gateways);
    g->fewer_since_us = -1;
    g->key_limits_share = now;
    return g->key_limits_share;
}

void gateway_machine_others_gone(struct gateway *g, struct fleet_machine *m)
{
    memset(&m->others, 0, sizeof(m->others));
    leader_set(g, m, false);
}
