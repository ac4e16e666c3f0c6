/* gateway_machines: what the router does about machines as such: their models, pools and links when
 * they come up and go down, their messages that do not concern a single request, and the health text.
 *
 * A machine that computes prompts learns of every machine that generates tokens by a PEER message
 * as soon as both are connected here, and reports by LINK when it can write there. The latest
 * report is kept, so a token machine that lost its connection to the gateway, but not to its peers,
 * is usable again at once. */
#include "server/gateway_internal.h"

#include <stdio.h>
#include <string.h>

/* Machines of an adaptive cluster may get work of both phases; a draining machine pushes the KV of
 * its answers. */
static bool computes_prompts(const struct gateway *g, const struct fleet_machine *m)
{
    return g->options.config->scheduler.adaptive_pools || fleet_machine_draining(m) ||
           m->home != POOL_TOKEN;
}

static bool generates_tokens(const struct gateway *g, const struct fleet_machine *m)
{
    return g->options.config->scheduler.adaptive_pools || m->home != POOL_PROMPT;
}

/* ---- up and down ---- */

static void link_schedule(struct gateway *g, const struct fleet_machine *from, uint32_t to, bool up)
{
    struct sched_event event = {.kind = up ? SCHED_LINK_UP : SCHED_LINK_DOWN,
                                .now_us = gateway_now(g),
                                .machine = from->index,
                                .peer = to};
    gateway_schedule(g, from->version, &event);
}

static void peer_send(struct gateway *g, struct fleet_machine *prompt,
                      const struct fleet_machine *token)
{
    if (prompt == token || !fleet_machine_up(prompt) || !fleet_machine_up(token) ||
        prompt->version != token->version || !computes_prompts(g, prompt) ||
        !generates_tokens(g, token))
        return;
    struct message message = {.kind = MESSAGE_PEER};
    snprintf(message.peer.name, sizeof(message.peer.name), "%s", token->config.name);
    snprintf(message.peer.address, sizeof(message.peer.address), "%s", token->connection.address);
    connections_send(g->connections, prompt, &message);
}

/* Checks that the machine has a model that we serve, and sets its version. */
static bool on_accept(void *self, struct fleet_machine *m,
                      const struct transport_identity *identity)
{
    struct gateway *g = self;
    struct gateway_version *version = gateway_version_of(g, m, identity);
    if (version != NULL)
        gateway_machine_version_change(g, m, version);
    return version != NULL;
}

void gateway_machine_role_send(struct gateway *g, struct fleet_machine *m)
{
    struct message message = {
        .kind = MESSAGE_ROLE,
        .role = {.role = (uint8_t)m->pool, .home = (uint8_t)m->home, .serial = m->home_serial}};
    connections_send(g->connections, m, &message);
}

void gateway_machine_peers_send(struct gateway *g, struct fleet_machine *m)
{
    for (struct fleet_machine *other = fleet_next(g->fleet, NULL); other != NULL;
         other = fleet_next(g->fleet, other)) {
        peer_send(g, m, other);
        peer_send(g, other, m);
    }
}

/* Largest request of which a machine in the mixed pool does one phase. It keeps the blocks of one
 * context, or half of all blocks, for prompts (machine/machine_open.c). */
static uint64_t mixed_kv_tokens(const struct gateway_version *version, uint32_t block_count,
                                uint32_t block_tokens)
{
    uint32_t context = version->context_tokens;
    if (context == 0 || context > LIMIT_CONTEXT_TOKENS)
        context = LIMIT_CONTEXT_TOKENS;
    uint32_t share = (context + block_tokens - 1) / block_tokens;
    return (uint64_t)block_tokens * (share <= block_count / 2 ? share : block_count / 2);
}

static void stats_set(struct gateway *g, struct fleet_machine *m, const struct message_stats *stats)
{
    g->prompts_waiting += stats->prompts_waiting;
    g->prompts_waiting -= m->stats.prompts_waiting;
    m->stats = *stats;
}

static void on_up(void *self, struct fleet_machine *m, const struct transport_identity *identity,
                  const struct transport_region_info *region)
{
    struct gateway *g = self;
    m->kv_tokens = (uint64_t)region->block_count * identity->block_tokens;
    m->links = (struct machine_bits){{0}};
    stats_set(g, m, &(struct message_stats){0});
    log_info("machine %s pool %s is up at %s, kv tokens %llu", identity->name, pool_name(m->home),
             m->connection.address, (unsigned long long)m->kv_tokens);
    metrics_machine_up_set(g->options.metrics, m->index, true);
    gateway_event_machine(g, m);
    m->pool = m->home;
    metrics_machine_pool_set(g->options.metrics, m->index, m->pool);
    gateway_machine_role_send(g, m);
    gateway_machine_peers_send(g, m);
    struct sched_event event = {.kind = SCHED_MACHINE_UP,
                                .now_us = gateway_now(g),
                                .machine = m->index,
                                .pool = m->home,
                                .kv_tokens = m->kv_tokens,
                                .mixed_kv_tokens = mixed_kv_tokens(m->version, region->block_count,
                                                                   identity->block_tokens)};
    gateway_schedule(g, m->version, &event);
    for (const struct fleet_machine *other = fleet_next(g->fleet, NULL); other != NULL;
         other = fleet_next(g->fleet, other))
        if (machine_bits_has(&other->links, m->index))
            link_schedule(g, other, m->index, true);
}

static void on_down(void *self, struct fleet_machine *m, bool silent)
{
    struct gateway *g = self;
    m->link_why[0] = 0;
    metrics_machine_up_set(g->options.metrics, m->index, false);
    for (uint32_t other = 0; other < g->fleet->count; other++)
        if (machine_bits_has(&m->links, other))
            metrics_link_set(g->options.metrics, m->index, other, false, "");
    m->links = (struct machine_bits){{0}};
    stats_set(g, m, &(struct message_stats){0});
    uint64_t resumed = requests_counts(g->requests).resumed;
    struct sched_event event = {
        .kind = SCHED_MACHINE_DOWN, .now_us = gateway_now(g), .machine = m->index};
    g->dying = !silent;
    gateway_schedule(g, m->version, &event);
    g->dying = false;
    gateway_machine_others_gone(g, m);
    if (fleet_machine_draining(m))
        log_info("machine %s, which drained, is down: %s", m->config.name, m->connection.why);
    else if (!connections_stopping(g->connections))
        log_warn("machine %s is down: %s; requests that resume elsewhere: %llu", m->config.name,
                 m->connection.why,
                 (unsigned long long)(requests_counts(g->requests).resumed - resumed));
}

/* ---- messages ---- */

/* Returns false if the reason is known already. */
static bool link_why_set(struct fleet_machine *m, const struct fleet_machine *to, const char *text)
{
    char why[sizeof(m->link_why)];
    snprintf(why, sizeof(why), "%s: %s", to->config.name, text);
    if (strcmp(why, m->link_why) == 0)
        return false;
    memcpy(m->link_why, why, sizeof(why));
    return true;
}

/* Logs a link that does not come up, if that is news: if this gateway does not reach the other end
 * either, the log says so already. */
static void link_failure_log(struct fleet_machine *m, const struct fleet_machine *to,
                             const char *text)
{
    if (fleet_machine_up(to) && link_why_set(m, to, text))
        log_warn("no link %s to %s: %s", m->config.name, to->config.name, text);
}

static void on_link(struct gateway *g, struct fleet_machine *m, const struct message_link *link)
{
    const struct fleet_machine *to = fleet_find(g->fleet, link->name);
    if (to == NULL || to == m || to->version != m->version) /* it has changed its version since */
        return;
    bool was_up = machine_bits_has(&m->links, to->index);
    if (!was_up && !link->up)
        link_failure_log(m, to, link->text);
    if (was_up == link->up)
        return;
    machine_bits_put(&m->links, to->index, link->up);
    if (link->up)
        log_info("link %s to %s is up: %s", m->config.name, link->name, link->text);
    else
        log_warn("link %s to %s is down: %s", m->config.name, link->name, link->text);
    if (link->up)
        m->link_why[0] = 0;
    else
        link_why_set(m, to, link->text);
    metrics_link_set(g->options.metrics, m->index, to->index, link->up, link->text);
    link_schedule(g, m, to->index, link->up);
}

static bool on_message(void *self, struct fleet_machine *m, struct message *message)
{
    struct gateway *g = self;
    switch (message->kind) {
    case MESSAGE_STATS:
        gateway_machine_rates(g, m, &message->stats);
        stats_set(g, m, &message->stats);
        metrics_stats_set(g->options.metrics, m->index, &message->stats);
        return true;
    case MESSAGE_LOADS:
        metrics_loads_set(g->options.metrics, m->index, &message->loads);
        return true;
    case MESSAGE_OTHERS:
        gateway_machine_others(g, m, &message->others);
        return true;
    case MESSAGE_PREFIXES:
        gateway_machine_prefixes(g, m, &message->prefixes);
        return true;
    case MESSAGE_LINK:
        on_link(g, m, &message->link);
        return true;
    default:
        return requests_message(g->requests, m, message);
    }
}

const struct connections_events gateway_connections_events = {
    .accept = on_accept,
    .up = on_up,
    .down = on_down,
    .message = on_message,
};

void gateway_machine_links_forget(struct gateway *g, const struct fleet_machine *m)
{
    struct message message = {.kind = MESSAGE_PEER};
    snprintf(message.peer.name, sizeof(message.peer.name), "%s", m->config.name);
    for (struct fleet_machine *other = fleet_next(g->fleet, NULL); other != NULL;
         other = fleet_next(g->fleet, other)) {
        if (other == m)
            continue;
        if (other->version == m->version)
            connections_send(g->connections, other, &message);
        machine_bits_put(&other->links, m->index, false);
    }
}

/* ---- queries ---- */

void gateway_note_set(struct gateway *g, const char *text)
{
    snprintf(g->note, sizeof(g->note), "%s", text);
}

void gateway_update_note_set(struct gateway *g, const char *text)
{
    snprintf(g->update_note, sizeof(g->update_note), "%s", text);
}

/* Lists the version's machines that are not connected. Returns the bytes used in `out`. */
static size_t missing_text(const struct gateway *g, const struct gateway_version *version,
                           size_t used, char *out, size_t capacity)
{
    for (const struct fleet_machine *m = fleet_next(g->fleet, NULL); m != NULL && used < capacity;
         m = fleet_next(g->fleet, m)) {
        if (fleet_machine_up(m) || m->version != version)
            continue;
        const char *why = m->connection.why[0] != 0                ? m->connection.why
                          : m->connection.state == CONNECTION_NONE ? "it has not started yet"
                                                                   : "not connected yet";
        int more = snprintf(out + used, capacity - used, "%s%s machine %s is missing: %s",
                            used > 0 ? "; " : "", pool_name(m->home), m->config.name, why);
        used += more > 0 ? (size_t)more : 0;
    }
    return used;
}

void gateway_version_text(const struct gateway *g, uint32_t number, char *out, size_t capacity)
{
    const struct gateway_version *version = gateway_version_at(g, number);
    size_t used = 0;
    if (sched_cluster_ready(version->scheduler)) {
        used = (size_t)snprintf(out, capacity, "ready");
        if (!sched_cluster_covering(version->scheduler))
            return;
    }
    used = missing_text(g, version, used, out, capacity);
    if (used > 0)
        return;
    used = (size_t)snprintf(out, capacity, "no prompt machine has its link to a token machine yet");
    for (const struct fleet_machine *m = fleet_next(g->fleet, NULL); m != NULL && used < capacity;
         m = fleet_next(g->fleet, m))
        if (m->link_why[0] != 0 && m->version == version)
            used += (size_t)snprintf(out + used, capacity - used, "; %s to %s", m->config.name,
                                     m->link_why);
}

void gateway_health_text(const struct gateway *g, char *out, size_t capacity)
{
    gateway_version_text(g, GATEWAY_CURRENT, out, capacity);
    const char *notes[] = {g->note, g->update_note};
    for (int i = 0; i < 2; i++) {
        size_t used = strlen(out);
        if (notes[i][0] != 0 && used + 1 < capacity)
            snprintf(out + used, capacity - used, "; %s", notes[i]);
    }
}

uint32_t gateway_context_tokens(const struct gateway *g, uint32_t number)
{
    const struct gateway_version *version = gateway_version_at(g, number);
    uint64_t least = LIMIT_CONTEXT_TOKENS;
    if (version->context_tokens > 0 && version->context_tokens < least)
        least = version->context_tokens;
    uint64_t largest = 0; /* a request goes to a token machine that can hold it */
    for (const struct fleet_machine *m = fleet_next(g->fleet, NULL); m != NULL;
         m = fleet_next(g->fleet, m))
        if (m->version == version && generates_tokens(g, m) && m->kv_tokens > largest)
            largest = m->kv_tokens;
    return (uint32_t)(largest > 0 && largest < least ? largest : least);
}
