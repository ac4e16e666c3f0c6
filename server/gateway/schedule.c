/* gateway_schedule: drives the cluster scheduler: its options from the config, the events with
 * their time, and its actions: routes, refusals, machines that change their pool. */
#include "server/gateway/internal.h"
#include "server/gateway/request_messages.h"

#include "common/prefix_hash.h"
#include "scheduler/options.h"
#include "server/gateway/request_events.h"
#include "transport/message_tier.h"

#include <stdio.h>
#include <string.h>

#define RESERVING_CHECK_US 50000 /* Interval of the checks of requests that wait for KV memory. */

/* Tokens from one hash of a prefix chain to the next, as in the machines' reports. */
static uint32_t prefix_step(const struct gateway_version *version)
{
    uint32_t block_tokens = version->kv.block_tokens;
    return block_tokens * prefix_step_blocks(block_tokens);
}

/* ---- options ---- */

struct sched_cluster_options gateway_sched_options(const struct gateway *g,
                                                   const struct gateway_version *version)
{
    const struct sched_cluster_facts facts = {.machine_count = LIMIT_MACHINES,
                                              .prefix_step_tokens = prefix_step(version),
                                              .prefix_cache = version->kv.prefix_cache,
                                              .may_repurpose = gateway_leads(g)};
    return sched_cluster_options_make(g->options.config, &facts);
}

/* ---- actions ---- */

static const char *refusal_text(const struct sched_action *action)
{
    switch (action->refusal) {
    case SCHED_REFUSED_FULL:
        return "too many requests are waiting";
    case SCHED_REFUSED_WAIT:
        return "the request would wait longer than scheduler/queue_ms allows";
    case SCHED_REFUSED_LATE:
        return "the first token would come later than slo/ttft_ms allows";
    case SCHED_REFUSED_TOO_LONG:
        return "the prompt alone takes longer than slo/ttft_ms allows, on any machine";
    case SCHED_REFUSED_LARGE:
        break;
    }
    return "the request is larger than any machine's KV memory";
}

static enum metrics_refusal refusal_metric(const struct sched_action *action)
{
    switch (action->refusal) {
    case SCHED_REFUSED_FULL:
        return METRICS_REFUSED_QUEUE;
    case SCHED_REFUSED_WAIT:
        return METRICS_REFUSED_WAIT;
    case SCHED_REFUSED_LATE:
        return METRICS_REFUSED_LATE;
    case SCHED_REFUSED_TOO_LONG:
        return METRICS_REFUSED_TOO_LONG;
    case SCHED_REFUSED_LARGE:
        break;
    }
    return METRICS_REFUSED_TOO_LARGE;
}

/* Ends a request that no machine took in time. */
static void request_expire(struct gateway *g, struct gateway_request *r)
{
    const struct gateway_version *version = gateway_request_version(g, r);
    char text[200] = "no machine that is up can hold the request";
    if (!sched_cluster_ready(version->scheduler))
        gateway_version_health_text(g, version->number, text, sizeof(text));
    requests_expire(g->requests, r, text);
}

static void machine_moved(struct gateway *g, const struct sched_action *action)
{
    struct fleet_machine *m = &g->fleet->machines[action->machine];
    bool new_home = action->home != m->home;
    m->home_serial += new_home ? 1 : 0;
    m->home = action->home;
    m->pool = action->pool;
    metrics_machine_pool_set(g->options.metrics, m->index, m->pool);
    if (new_home)
        log_info("machine %s belongs to pool %s now, and is in pool %s", m->config.name,
                 pool_name(m->home), pool_name(m->pool));
    else
        log_debug("machine %s moves to pool %s", m->config.name, pool_name(m->pool));
    gateway_machine_role_send(g, m);
    if (new_home)
        gateway_machine_peers_send(g, m);
}

static void request_route(struct gateway *g, struct gateway_request *r,
                          const struct sched_action *action)
{
    struct fleet_machine *machines = g->fleet->machines;
    struct fleet_machine *peer =
        action->token_machine == SCHED_NO_MACHINE ? NULL : &machines[action->token_machine];
    r->decision = event_decision_of(action, gateway_now(g));
    if (action->pull_source_plus_1 > 0)
        requests_pull_begin(g->requests, r, &machines[action->machine], peer,
                            &machines[action->pull_source_plus_1 - 1], action->prefix_tokens);
    else
        requests_route(g->requests, r, &machines[action->machine], peer,
                       gateway_request_version(g, r)->kv.prefix_cache);
}

static void action_do(struct gateway *g, const struct sched_action *action)
{
    if (action->kind == SCHED_MOVED) {
        machine_moved(g, action);
        return;
    }
    struct gateway_request *r = requests_at(g->requests, action->request);
    switch (action->kind) {
    case SCHED_ROUTE:
        if (action->token_machine != SCHED_NO_MACHINE)
            metrics_counter_add(g->options.metrics,
                                action->token_machine == action->machine ? METRICS_ROUTES_TOGETHER
                                                                         : METRICS_ROUTES_SPLIT,
                                1);
        request_route(g, r, action);
        break;
    case SCHED_REFUSE:
        requests_refuse(g->requests, r, refusal_metric(action),
                        (action->retry_after_ms + 999) / 1000, refusal_text(action));
        break;
    case SCHED_EXPIRED:
        request_expire(g, r);
        break;
    case SCHED_LOST:
        gateway_event_outcome(g, r, false);
        requests_lose(g->requests, r, g->dead_machine);
        break;
    case SCHED_MOVED:
        break;
    }
}

static void actions_do(struct gateway *g, const struct gateway_version *version,
                       struct sched_actions *actions, int64_t now_us)
{
    for (;;) {
        for (uint32_t i = 0; i < actions->count; i++)
            action_do(g, &actions->items[i]);
        if (!actions->more)
            return;
        sched_cluster_more_actions(version->scheduler, now_us, actions);
        gateway_event(g, version, now_us, NULL, actions);
    }
}

void gateway_schedule(struct gateway *g, const struct gateway_version *version,
                      const struct sched_event *event)
{
    struct sched_actions actions;
    sched_cluster_event(version->scheduler, event, &actions);
    gateway_event(g, version, event->now_us, event, &actions);
    actions_do(g, version, &actions, event->now_us);
}

/* ---- events ---- */

static void request_schedule(struct gateway *g, const struct gateway_request *r,
                             enum sched_event_kind kind)
{
    struct sched_event event = {.kind = kind,
                                .now_us = gateway_now(g),
                                .request = request_slot(r),
                                .output_tokens =
                                    kind == SCHED_ENDED ? r->delivered - r->delivered_before : 0};
    gateway_schedule(g, gateway_request_version(g, r), &event);
}

/* Refuses requests that have waited for scheduler/queue_ms, a part of it for memory of their token
 * machine. Returns the time of the next check; INT64_MAX = none. */
static int64_t reserving_refuse(struct gateway *g, int64_t now_us)
{
    const int64_t most_us = g->options.config->scheduler.queue_ms * 1000ll;
    struct gateway_request *r = requests_in_state(g->requests, GATEWAY_REQUEST_RESERVING)->first;
    struct gateway_request *next;
    if (most_us == 0 || r == NULL)
        return INT64_MAX;
    if (now_us < g->reserving_at_us)
        return g->reserving_at_us;
    /* If a refusal has taken the next request out of the list, the rest is checked the next
     * time. */
    for (; r != NULL && r->state == GATEWAY_REQUEST_RESERVING; r = next) {
        next = r->list_next;
        if (r->generation > 0 || now_us - r->life.entered_us[REQUEST_QUEUED] < most_us)
            continue;
        request_schedule(g, r, SCHED_OVERDUE);
    }
    g->reserving_at_us = now_us + RESERVING_CHECK_US;
    return g->reserving_at_us;
}

/* Each hash of the chain covers all tokens before it. */
static uint32_t prefix_hashes(uint64_t salt, const uint32_t *tokens, uint32_t count, uint32_t step,
                              uint64_t *out)
{
    uint64_t hash = salt;
    uint32_t hashes = 0;
    while (hashes < SCHED_PREFIX_MAX && (hashes + 1) * step <= count) {
        hash = prefix_hash(hash, tokens + (size_t)hashes * step, step);
        out[hashes++] = hash;
    }
    return hashes;
}

/* Sends one event for each run of entries of the same kind. */
void gateway_machine_prefixes(struct gateway *g, const struct fleet_machine *m,
                              const struct message_prefixes *prefixes)
{
    struct sched_event event = {
        .kind = SCHED_EVICTED, .now_us = gateway_now(g), .machine = m->index};
    if (!sched_policy_is_prefix(g->options.config))
        return;
    if (prefixes->replaces_all)
        gateway_schedule(g, m->version, &event); /* evicts all of them first */
    for (uint32_t i = 0, count; i < prefixes->count; i += count) {
        bool held = prefixes->held[i] != 0;
        for (count = 1; i + count < prefixes->count && count < SCHED_PREFIX_MAX; count++)
            if ((prefixes->held[i + count] != 0) != held)
                break;
        event.kind = held ? SCHED_CACHED : SCHED_EVICTED;
        event.prefix = (struct sched_prefix){.hashes = prefixes->hashes + i, .count = count};
        gateway_schedule(g, m->version, &event);
    }
}

static void on_computed(void *self, struct gateway_request *r)
{
    gateway_event_outcome(self, r, true);
    request_schedule(self, r, SCHED_COMPUTED);
}

static void on_prefilled(void *self, const struct gateway_request *r)
{
    request_schedule(self, r, SCHED_PREFILLED);
}

static void on_left(void *self, struct gateway_request *r)
{
    gateway_event_outcome(self, r, false);
    request_schedule(self, r, SCHED_ENDED);
}

/* If the prompt machine has died, this keeps requests from being sent to it again until the gateway
 * notices that. If it lives, it answers PEER with the state of its link. */
static void on_link_lost(void *self, struct fleet_machine *prompt_machine,
                         struct fleet_machine *token_machine)
{
    struct gateway *g = self;
    struct sched_event event = {.kind = SCHED_LINK_DOWN,
                                .now_us = gateway_now(g),
                                .machine = prompt_machine->index,
                                .peer = token_machine->index};
    if (!machine_bits_has(&prompt_machine->links, token_machine->index) ||
        prompt_machine->version != token_machine->version)
        return;
    machine_bits_set(&prompt_machine->links, token_machine->index, false);
    metrics_link_set(g->options.metrics, prompt_machine->index, token_machine->index, false,
                     "lost by the token machine");
    gateway_machine_peer_send(g, prompt_machine, token_machine);
    gateway_schedule(g, prompt_machine->version, &event);
}

const struct requests_events gateway_requests_events = {
    .computed = on_computed,
    .prefilled = on_prefilled,
    .unscheduled = on_left,
    .link_lost = on_link_lost,
};

/* Clients send the same body when they come again. */
static uint64_t request_identity(const struct gateway_request *r)
{
    const uint64_t key_and_answer = (uint64_t)r->key << 32 | request_decode_tokens(r);
    return random_at(prefix_hash(r->prefix_salt, r->tokens, r->prompt_count), key_and_answer);
}

static void arrivals_schedule(struct gateway *g, int64_t now_us)
{
    uint64_t hashes[SCHED_PREFIX_MAX];
    bool prefix = sched_policy_is_prefix(g->options.config);
    struct gateway_request *r;
    while ((r = requests_arrived_take(g->requests)) != NULL) {
        const struct gateway_version *version = gateway_request_version(g, r);
        struct sched_event event = {
            .kind = SCHED_ARRIVED,
            .now_us = now_us,
            .request = request_slot(r),
            .resumed = r->generation > 0,
            .prompt_tokens = r->prompt_count + r->delivered,
            .output_tokens = request_decode_tokens(r),
            .key_index = r->key,
            .weight = r->weight,
            .priority = r->priority,
            .holder_plus_1 = r->held.machine == NULL ? 0 : r->held.machine->index + 1,
            .held_tokens = version->kv.prefix_cache ? r->held.tokens : 0,
            .identity = request_identity(r),
            .prefix = {.hashes = hashes},
        };
        if (prefix)
            event.prefix.count = prefix_hashes(r->prefix_salt, r->tokens, event.prompt_tokens,
                                               prefix_step(version), hashes);
        if (r->generation == 0)
            gateway_event_request(g, version, r);
        gateway_schedule(g, version, &event);
        if (r->state == GATEWAY_REQUEST_SCHEDULED)
            request_event_report(g->history, r, now_us,
                                 &(struct gateway_event){.kind = GATEWAY_EVENT_QUEUED});
    }
}

uint32_t gateway_waiting_count(const struct gateway *g)
{
    uint32_t unrouted = 0;
    for (uint32_t i = 0; i < GATEWAY_VERSIONS; i++)
        if (g->versions[i].number > 0)
            unrouted += sched_cluster_waiting(g->versions[i].scheduler);
    return unrouted;
}

int64_t gateway_schedule_turn(struct gateway *g, int64_t now_us)
{
    arrivals_schedule(g, now_us);
    int64_t due_us = reserving_refuse(g, now_us);
    for (uint32_t i = 0; i < GATEWAY_VERSIONS; i++) {
        const struct gateway_version *version = &g->versions[i];
        if (version->number == 0)
            continue;
        if (sched_cluster_due_us(version->scheduler) <= now_us)
            gateway_schedule(g, version,
                             &(struct sched_event){.kind = SCHED_TICK, .now_us = now_us});
        int64_t next_us = sched_cluster_due_us(version->scheduler);
        due_us = next_us < due_us ? next_us : due_us;
    }
    return due_us;
}

uint64_t gateway_kv_tokens(const struct fleet_machine *m, uint64_t bytes)
{
    const struct transport_identity *identity = transport_peer_identity(m->connection.peer);
    uint64_t block_bytes = identity->block_bytes * identity->layer_count;
    return block_bytes > 0 ? bytes * identity->block_tokens / block_bytes : 0;
}

/* Machines count in 64 bits. */
static uint32_t limited(uint64_t value)
{
    return value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}

/* Passes the state of the machine's tiers to the scheduler if it has changed since the previous
 * STATS. */
static void tiers_schedule(struct gateway *g, const struct fleet_machine *m,
                           const struct message_stats *stats)
{
    struct sched_event event = {
        .kind = SCHED_MACHINE_TIERS, .now_us = gateway_now(g), .machine = m->index};
    bool changed = false;
    for (int kind = 0; kind < TIER_KIND_COUNT; kind++) {
        const struct message_tier now = message_stats_tier(stats, (enum tier_kind)kind);
        const struct message_tier before = message_stats_tier(&m->stats, (enum tier_kind)kind);
        changed |= now.state != before.state || now.load_fixed_us != before.load_fixed_us ||
                   now.load_token_ns != before.load_token_ns;
        event.tiers[kind] = (struct sched_tier){.works = now.state == MESSAGE_TIER_WORKS,
                                                .load_fixed_us = limited(now.load_fixed_us),
                                                .load_token_ns = limited(now.load_token_ns)};
    }
    if (changed) /* Under every policy, because the config can change the policy later. */
        gateway_schedule(g, m->version, &event);
}

/* Measures the machine's speed from its work since the previous STATS. */
void gateway_machine_rates(struct gateway *g, struct fleet_machine *m,
                           const struct message_stats *stats)
{
    const struct message_stats *before = &m->stats;
    sched_rates_prompts_add(&m->rates, stats->prompt_batches - before->prompt_batches,
                            stats->prompt_batch_rows - before->prompt_batch_rows,
                            stats->prompt_batch_us - before->prompt_batch_us);
    sched_rates_decodes_add(&m->rates, stats->token_batches - before->token_batches,
                            stats->token_batch_rows - before->token_batch_rows,
                            stats->token_batch_us - before->token_batch_us);
    struct sched_event event = sched_rates_event(g->options.config, &m->rates);
    event.now_us = gateway_now(g);
    event.machine = m->index;
    gateway_schedule(g, m->version, &event);
    tiers_schedule(g, m, stats);
}

/* ---- options that change ---- */

static void version_configure(struct gateway *g, const struct gateway_version *version)
{
    struct sched_cluster_options options = gateway_sched_options(g, version);
    struct sched_actions actions;
    int64_t now = gateway_now(g);
    enum status status = sched_cluster_configure(version->scheduler, &options, now, &actions);
    assert(status == ST_OK); /* because the counts have not changed */
    gateway_event_configure(g, version, now, &options, &actions);
    actions_do(g, version, &actions, now);
}

void gateway_scheduler_configure(struct gateway *g)
{
    for (uint32_t i = 0; i < GATEWAY_VERSIONS; i++)
        if (g->versions[i].number > 0)
            version_configure(g, &g->versions[i]);
}
