/* gateway_machines: connections to the machines (started when an address is known, and again with
 * back-off when they are lost), and everything that does not concern a single request: links
 * between machines, STATS, health.
 *
 * A machine that computes prompts learns of every machine that generates tokens by a PEER message
 * as soon as both are connected here, and reports by LINK when it can write there. The latest
 * report is kept, so a token machine that lost its connection to the gateway, but not to its peers,
 * is usable again at once. */
#include "server/gateway/internal.h"

#include "scheduler/memory.h"

#include <stdio.h>
#include <string.h>

const char *gateway_machine_name(const struct gateway *g, uint32_t machine)
{
    return machine < g->options.config->machine_count ? g->options.config->machines[machine].name
                                                      : "?";
}

/* Machines of an adaptive cluster may get work of both phases; a draining machine pushes the KV of
 * its answers. */
static bool computes_prompts(const struct gateway *g, uint32_t machine)
{
    return g->options.config->scheduler.adaptive_pools || g->machines[machine].draining ||
           g->machines[machine].home != POOL_TOKEN;
}

static bool generates_tokens(const struct gateway *g, uint32_t machine)
{
    return g->options.config->scheduler.adaptive_pools || g->machines[machine].home != POOL_PROMPT;
}

void gateway_machine_home_read(struct gateway *g, uint32_t machine)
{
    g->machines[machine].home = g->options.config->machines[machine].pool;
    g->machines[machine].named = true;
}

/* ---- sending ---- */

void gateway_machine_send(struct gateway *g, uint32_t machine, const struct message *message)
{
    struct gateway_machine *m = &g->machines[machine];
    if (m->connection != CONNECTION_UP || m->broken)
        return; /* its requests are lost, or will be in this iteration */
    enum status status = message_encode(message, &g->buffer);
    assert(status == ST_OK || status == ST_NO_MEMORY);
    if (status == ST_OK)
        status = transport_send(g->transport, m->peer, g->buffer.data, g->buffer.bytes);
    g->sent = true;
    if (status == ST_OK)
        return;
    snprintf(m->why, sizeof(m->why), "sending %s: %s", message_kind_name(message->kind),
             status_name(status));
    m->broken = g->broken = true;
}

void gateway_machine_shutdown(struct gateway *g, uint32_t machine)
{
    struct message message = {.kind = MESSAGE_SHUTDOWN};
    gateway_machine_send(g, machine, &message);
}

/* ---- up and down ---- */

static void link_event(struct gateway *g, uint32_t from, uint32_t to, bool up)
{
    struct sched_event event = {.kind = up ? SCHED_LINK_UP : SCHED_LINK_DOWN,
                                .now_us = gateway_now(g),
                                .machine = from,
                                .peer = to};
    gateway_schedule(g, g->machines[from].version, &event);
}

static void peer_tell(struct gateway *g, uint32_t prompt, uint32_t token)
{
    if (prompt == token || !gateway_machine_is_up(g, prompt) || !gateway_machine_is_up(g, token) ||
        g->machines[prompt].version != g->machines[token].version || !computes_prompts(g, prompt) ||
        !generates_tokens(g, token))
        return;
    struct message message = {.kind = MESSAGE_PEER};
    snprintf(message.peer.name, sizeof(message.peer.name), "%s", gateway_machine_name(g, token));
    snprintf(message.peer.address, sizeof(message.peer.address), "%s", g->machines[token].address);
    gateway_machine_send(g, prompt, &message);
}

/* Checks that the peer is the expected machine with a model that we serve, and sets its version. */
static bool identity_fits(struct gateway *g, struct gateway_machine *m,
                          const struct transport_identity *identity)
{
    const char *name = gateway_machine_name(g, m->index);
    if (identity->role != TRANSPORT_MACHINE || strcmp(identity->name, name) != 0) {
        snprintf(m->why, sizeof(m->why), "%s answers as \"%s\", want \"%s\"", m->address,
                 identity->name, name);
        return false;
    }
    struct gateway_version *version = gateway_version_of(g, m, identity);
    if (version != NULL)
        gateway_machine_version_change(g, m, version);
    return version != NULL;
}

void gateway_machine_role_tell(struct gateway *g, uint32_t machine)
{
    const struct gateway_machine *m = &g->machines[machine];
    struct message message = {
        .kind = MESSAGE_ROLE,
        .role = {.role = (uint8_t)m->pool, .home = (uint8_t)m->home, .serial = m->home_serial}};
    gateway_machine_send(g, machine, &message);
}

void gateway_machine_peers_tell(struct gateway *g, uint32_t machine)
{
    for (uint32_t other = 0; other < g->options.config->machine_count; other++) {
        peer_tell(g, machine, other);
        peer_tell(g, other, machine);
    }
}

/* Returns the tokens of the largest request of which a machine in the mixed pool does one phase. */
static uint64_t mixed_kv_tokens(const struct gateway_version *version, uint32_t block_count,
                                uint32_t block_tokens)
{
    uint32_t context = version->context_tokens;
    if (context == 0 || context > LIMIT_CONTEXT_TOKENS)
        context = LIMIT_CONTEXT_TOKENS;
    return (uint64_t)block_tokens * sched_memory_prompt_share(block_count, block_tokens, context);
}

static void stats_set(struct gateway *g, struct gateway_machine *m,
                      const struct message_stats *stats)
{
    g->prompts_waiting += stats->prompts_waiting;
    g->prompts_waiting -= m->stats.prompts_waiting;
    m->stats = *stats;
}

static void on_peer_up(void *self, struct transport_peer *peer)
{
    struct gateway *g = self;
    struct gateway_machine *m = transport_peer_user(peer);
    assert(m != NULL && m->peer == peer); /* a gateway does not listen */
    const struct transport_identity *identity = transport_peer_identity(peer);
    if (!identity_fits(g, m, identity)) {
        m->broken = g->broken = true;
        return;
    }
    const struct transport_region_info *region = transport_peer_region(peer);
    m->connection = CONNECTION_UP;
    m->backoff_us = GATEWAY_RETRY_FIRST_US;
    m->kv_tokens = (uint64_t)region->block_count * identity->block_tokens;
    m->links = (struct machine_bits){{0}};
    m->why[0] = 0;
    stats_set(g, m, &(struct message_stats){0});
    log_info("machine %s pool %s is up at %s, kv tokens %llu", identity->name, pool_name(m->home),
             m->address, (unsigned long long)m->kv_tokens);
    metrics_machine_up_set(g->options.metrics, m->index, true);
    gateway_event_machine(g, m->index);
    m->pool = m->home;
    metrics_machine_pool_set(g->options.metrics, m->index, m->pool);
    gateway_machine_role_tell(g, m->index);
    gateway_machine_peers_tell(g, m->index);
    struct sched_event event = {.kind = SCHED_MACHINE_UP,
                                .now_us = gateway_now(g),
                                .machine = m->index,
                                .pool = m->home,
                                .kv_tokens = m->kv_tokens,
                                .mixed_kv_tokens = mixed_kv_tokens(m->version, region->block_count,
                                                                   identity->block_tokens)};
    gateway_schedule(g, m->version, &event);
    for (uint32_t other = 0; other < g->options.config->machine_count; other++)
        if (machine_bits_has(&g->machines[other].links, m->index))
            link_event(g, other, m->index, true);
}

/* Handles a connection that is gone or did not come up. ST_TIMED_OUT = the machine was silent for
 * too long. */
static void machine_down(struct gateway *g, struct gateway_machine *m, enum status why)
{
    bool was_up = m->connection == CONNECTION_UP;
    m->peer = NULL;
    m->broken = false;
    g->machines_due_us = 0;
    bool again = m->address[0] != 0 && !g->stopping;
    m->connection = again ? CONNECTION_WAITING : CONNECTION_NONE;
    m->retry_us = gateway_now(g) + m->backoff_us;
    m->backoff_us =
        m->backoff_us * 2 < GATEWAY_RETRY_MAX_US ? m->backoff_us * 2 : GATEWAY_RETRY_MAX_US;
    if (!was_up) {
        if (strcmp(m->complaint, m->why) != 0 && !g->stopping)
            log_warn("machine %s cannot be reached: %s", gateway_machine_name(g, m->index), m->why);
        memcpy(m->complaint, m->why, sizeof(m->complaint));
        return;
    }
    m->complaint[0] = 0;
    m->link_why[0] = 0;
    metrics_machine_up_set(g->options.metrics, m->index, false);
    for (uint32_t other = 0; other < g->options.config->machine_count; other++)
        if (machine_bits_has(&m->links, other))
            metrics_link_set(g->options.metrics, m->index, other, false, "");
    m->links = (struct machine_bits){{0}};
    stats_set(g, m, &(struct message_stats){0});
    uint64_t resumed = g->resumed_count;
    struct sched_event event = {
        .kind = SCHED_MACHINE_DOWN, .now_us = gateway_now(g), .machine = m->index};
    g->dying = why != ST_TIMED_OUT;
    gateway_schedule(g, m->version, &event);
    g->dying = false;
    gateway_machine_others_gone(g, m);
    if (gateway_machine_draining(g, m->index))
        log_info("machine %s, which drained, is down: %s", gateway_machine_name(g, m->index),
                 m->why);
    else if (!g->stopping)
        log_warn("machine %s is down: %s; requests that resume elsewhere: %llu",
                 gateway_machine_name(g, m->index), m->why,
                 (unsigned long long)(g->resumed_count - resumed));
}

static void on_peer_down(void *self, struct transport_peer *peer, enum status why, const char *text)
{
    struct gateway_machine *m = transport_peer_user(peer);
    assert(m != NULL && m->peer == peer);
    snprintf(m->why, sizeof(m->why), "%s", text != NULL && text[0] != 0 ? text : status_name(why));
    machine_down(self, m, why);
}

/* ---- messages ---- */

/* Returns false if the reason is known already. */
static bool link_why_set(struct gateway *g, struct gateway_machine *m, uint32_t to,
                         const char *text)
{
    char why[sizeof(m->link_why)];
    snprintf(why, sizeof(why), "%s: %s", gateway_machine_name(g, to), text);
    if (strcmp(why, m->link_why) == 0)
        return false;
    memcpy(m->link_why, why, sizeof(why));
    return true;
}

/* Logs a link that does not come up, if that is news: if this gateway does not reach the other end
 * either, the log says so already. */
static void link_failed(struct gateway *g, struct gateway_machine *m, uint32_t to, const char *text)
{
    if (gateway_machine_is_up(g, to) && link_why_set(g, m, to, text))
        log_warn("no link %s to %s: %s", gateway_machine_name(g, m->index),
                 gateway_machine_name(g, to), text);
}

static void on_link(struct gateway *g, struct gateway_machine *m, const struct message_link *link)
{
    int found = config_machine_find(g->options.config, link->name);
    if (found < 0 || (uint32_t)found == m->index ||
        g->machines[found].version != m->version) /* it has changed its version since */
        return;
    uint32_t to = (uint32_t)found;
    bool was_up = machine_bits_has(&m->links, to);
    if (!was_up && !link->up)
        link_failed(g, m, to, link->text);
    if (was_up == link->up)
        return;
    machine_bits_put(&m->links, to, link->up);
    if (link->up)
        log_info("link %s to %s is up: %s", gateway_machine_name(g, m->index), link->name,
                 link->text);
    else
        log_warn("link %s to %s is down: %s", gateway_machine_name(g, m->index), link->name,
                 link->text);
    if (link->up)
        m->link_why[0] = 0;
    else
        link_why_set(g, m, to, link->text);
    metrics_link_set(g->options.metrics, m->index, to, link->up, link->text);
    link_event(g, m->index, to, link->up);
}

static void on_message(void *self, struct transport_peer *peer, const uint8_t *data, size_t bytes)
{
    struct gateway *g = self;
    struct gateway_machine *m = transport_peer_user(peer);
    if (m->connection != CONNECTION_UP || m->broken)
        return;
    struct message message;
    struct error error;
    if (message_decode(data, bytes, &message, &error) != ST_OK) {
        snprintf(m->why, sizeof(m->why), "it sent a message that is not valid: %.200s", error.text);
        m->broken = g->broken = true;
        return;
    }
    switch (message.kind) {
    case MESSAGE_RESERVED:
        gateway_request_reserved(g, m->index, &message.reserved);
        break;
    case MESSAGE_TOKENS:
        gateway_request_tokens(g, m->index, &message.tokens);
        break;
    case MESSAGE_PREFILLED:
        gateway_request_prefilled(g, m->index, &message.prefilled);
        break;
    case MESSAGE_PREEMPTED:
        gateway_request_preempted(g, m->index, &message.preempted);
        break;
    case MESSAGE_FAILED:
        gateway_request_failed(g, m->index, &message.failed);
        break;
    case MESSAGE_STATS:
        gateway_machine_rates(g, m, &message.stats);
        stats_set(g, m, &message.stats);
        metrics_stats_set(g->options.metrics, m->index, &message.stats);
        break;
    case MESSAGE_LOADS:
        metrics_loads_set(g->options.metrics, m->index, &message.loads);
        break;
    case MESSAGE_OTHERS:
        gateway_machine_others(g, m, &message.others);
        break;
    case MESSAGE_PREFIXES:
        gateway_machine_prefixes(g, m, &message.prefixes);
        break;
    case MESSAGE_LINK:
        on_link(g, m, &message.link);
        break;
    default:
        snprintf(m->why, sizeof(m->why), "it sent %s, which is not for a gateway",
                 message_kind_name(message.kind));
        m->broken = g->broken = true;
    }
}

const struct transport_events gateway_transport_events = {
    .peer_up = on_peer_up,
    .peer_down = on_peer_down,
    .message = on_message,
};

/* ---- the iteration ---- */

void gateway_machine_drop(struct gateway *g, struct gateway_machine *m, const char *why)
{
    if (m->peer == NULL)
        return;
    transport_disconnect(g->transport, m->peer);
    snprintf(m->why, sizeof(m->why), "%s", why);
    machine_down(g, m, ST_UNREACHABLE);
}

void gateway_machine_links_forget(struct gateway *g, uint32_t machine)
{
    struct message message = {.kind = MESSAGE_PEER};
    snprintf(message.peer.name, sizeof(message.peer.name), "%s", gateway_machine_name(g, machine));
    for (uint32_t other = 0; other < g->options.config->machine_count; other++) {
        if (other == machine)
            continue;
        if (g->machines[other].version == g->machines[machine].version)
            gateway_machine_send(g, other, &message);
        machine_bits_put(&g->machines[other].links, machine, false);
    }
}

void gateway_machine_address(struct gateway *g, uint32_t machine, const char *address)
{
    assert(machine < g->options.config->machine_count);
    struct gateway_machine *m = &g->machines[machine];
    if (!m->named)
        gateway_machine_home_read(g, machine);
    gateway_machine_drop(g, m,
                         address[0] != 0 ? "it has another address now" : "its process has ended");
    snprintf(m->address, sizeof(m->address), "%s", address);
    m->complaint[0] = 0;
    m->backoff_us = GATEWAY_RETRY_FIRST_US;
    m->retry_us = gateway_now(g);
    g->machines_due_us = 0;
    m->connection = address[0] != 0 ? CONNECTION_WAITING : CONNECTION_NONE;
}

static void machine_try(struct gateway *g, struct gateway_machine *m)
{
    struct error error = {""};
    m->connection = CONNECTION_TRYING;
    enum status status = transport_connect(g->transport, m->address, m, &m->peer, &error);
    g->sent = true;
    if (status == ST_OK || status == ST_IN_PROGRESS)
        return;
    snprintf(m->why, sizeof(m->why), "%.200s", error.text);
    machine_down(g, m, ST_UNREACHABLE);
}

int64_t gateway_machines_turn(struct gateway *g, int64_t now_us)
{
    int64_t due = INT64_MAX;
    if (!g->broken && g->machines_due_us > now_us)
        return g->machines_due_us; /* the usual case: nothing is broken or due */
    g->broken = false;
    for (uint32_t i = 0; i < g->options.config->machine_count; i++) {
        struct gateway_machine *m = &g->machines[i];
        if (m->broken) {
            transport_disconnect(g->transport, m->peer);
            machine_down(g, m, ST_UNREACHABLE);
        }
        if (m->connection == CONNECTION_WAITING && m->retry_us <= now_us)
            machine_try(g, m);
        if (m->connection == CONNECTION_WAITING && m->retry_us < due)
            due = m->retry_us;
    }
    g->machines_due_us = due;
    return due;
}

/* ---- queries ---- */

bool gateway_machine_up(const struct gateway *g, uint32_t machine)
{
    return gateway_machine_is_up(g, machine);
}

void gateway_note_set(struct gateway *g, const char *text)
{
    snprintf(g->note, sizeof(g->note), "%s", text);
}

void gateway_update_note_set(struct gateway *g, const char *text)
{
    snprintf(g->update_note, sizeof(g->update_note), "%s", text);
}

static bool of_version(const struct gateway *g, uint32_t machine,
                       const struct gateway_version *version)
{
    return config_machine_present(g->options.config, machine) &&
           g->machines[machine].version == version;
}

/* Lists the version's machines that are not connected. Returns the bytes used in `out`. */
static size_t missing_text(const struct gateway *g, const struct gateway_version *version,
                           size_t used, char *out, size_t capacity)
{
    const struct config *config = g->options.config;
    for (uint32_t i = 0; i < config->machine_count && used < capacity; i++) {
        const struct gateway_machine *m = &g->machines[i];
        if (m->connection == CONNECTION_UP || !of_version(g, i, version))
            continue;
        const char *why = m->why[0] != 0                     ? m->why
                          : m->connection == CONNECTION_NONE ? "it has not started yet"
                                                             : "not connected yet";
        int more =
            snprintf(out + used, capacity - used, "%s%s machine %s is missing: %s",
                     used > 0 ? "; " : "", pool_name(m->home), config->machines[i].name, why);
        used += more > 0 ? (size_t)more : 0;
    }
    return used;
}

void gateway_version_text(const struct gateway *g, uint32_t number, char *out, size_t capacity)
{
    const struct gateway_version *version = gateway_version_at(g, number);
    const struct config *config = g->options.config;
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
    for (uint32_t i = 0; i < config->machine_count && used < capacity; i++)
        if (g->machines[i].link_why[0] != 0 && of_version(g, i, version))
            used += (size_t)snprintf(out + used, capacity - used, "; %s to %s",
                                     config->machines[i].name, g->machines[i].link_why);
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
    const struct config *config = g->options.config;
    const struct gateway_version *version = gateway_version_at(g, number);
    uint64_t least = LIMIT_CONTEXT_TOKENS;
    if (version->context_tokens > 0 && version->context_tokens < least)
        least = version->context_tokens;
    uint64_t largest = 0; /* a request goes to a token machine that can hold it */
    for (uint32_t i = 0; i < config->machine_count; i++)
        if (of_version(g, i, version) && generates_tokens(g, i) &&
            g->machines[i].kv_tokens > largest)
            largest = g->machines[i].kv_tokens;
    return (uint32_t)(largest > 0 && largest < least ? largest : least);
}
