/* gateway_machines: what the router does when a machine comes up or goes down, and about its
 * messages that do not concern a single request. */
#include "server/gateway/checkpoints.h"
#include "server/gateway/internal.h"

#include "common/cores.h"
#include "common/random.h"
#include "scheduler/options.h"

#include <stdio.h>
#include <string.h>

/* ---- up and down ---- */

static void link_schedule(struct gateway *g, const struct fleet_machine *from, uint32_t to, bool up)
{
    struct sched_event event = {.kind = up ? SCHED_LINK_UP : SCHED_LINK_DOWN,
                                .now_us = gateway_now(g),
                                .machine = from->index,
                                .peer = to};
    gateway_schedule(g, from->version, &event);
}

/* Tells the scheduler the machine's host, as a number: machines of one host get the same one. */
static void host_schedule(struct gateway *g, const struct fleet_machine *m)
{
    struct sched_event event = {
        .kind = SCHED_MACHINE_HOST, .now_us = gateway_now(g), .machine = m->index};
    for (const char *at = m->about.host; *at != 0; at++)
        event.host = (uint32_t)random_mix(event.host ^ (uint8_t)*at);
    gateway_schedule(g, m->version, &event);
}

/* Checks that the machine has a model that we serve, and sets its version. */
static bool on_accept(void *self, struct fleet_machine *m,
                      const struct transport_identity *identity)
{
    struct gateway *g = self;
    struct gateway_version *version = gateway_version_match(g, m, identity);
    if (version != NULL)
        gateway_machine_version_change(g, m, version);
    return version != NULL;
}

/* Returns how the machine counts its memory. */
static struct sched_memory_options memory_of(const struct gateway *g,
                                             const struct gateway_version *version,
                                             const struct transport_identity *identity,
                                             const struct transport_region_info *region)
{
    uint32_t context = version->context_tokens;
    if (context == 0 || context > LIMIT_CONTEXT_TOKENS)
        context = LIMIT_CONTEXT_TOKENS;
    struct sched_memory_options memory = sched_memory_options_make(
        g->options.config, &version->groups, region->block_count, context);
    memory.block_tokens = identity->block_tokens;
    return memory;
}

/* True if the machine computes in its own process, on cores of this host. */
static bool uses_cores(const struct config_machine *machine)
{
    return machine->local && machine->stages[0] == 0 && strcmp(machine->device, "cpu") == 0;
}

uint32_t gateway_machine_threads(const struct fleet_machine *m)
{
    uint32_t cores = cores_usable();
    return m->config.threads > 0 && m->config.threads < cores ? m->config.threads : cores;
}

uint32_t gateway_machine_cores(const struct gateway *g, const struct fleet_machine *m)
{
    uint32_t cores = cores_usable(), threads = 0;
    if (g->options.config->scheduler.turn_ms == 0)
        return 0;
    for (const struct fleet_machine *other = fleet_next(g->fleet, NULL); other != NULL;
         other = fleet_next(g->fleet, other))
        if (uses_cores(&other->config))
            threads += gateway_machine_threads(other);
    return uses_cores(&m->config) && threads > cores ? 1 : 0;
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
    const struct sched_memory_options memory = memory_of(g, m->version, identity, region);
    m->kv_tokens = sched_memory_tokens_most(&memory, region->block_count);
    const uint32_t cores = gateway_machine_cores(g, m);
    m->links = (struct machine_bits){{0}};
    stats_set(g, m, &(struct message_stats){0});
    char after[64] = "";
    if (m->down_us > 0)
        snprintf(after, sizeof(after), ", %d ms after it was lost",
                 (int)((gateway_now(g) - m->down_us) / 1000));
    log_info("machine %s pool %s is up at %s, kv tokens %llu%s", identity->name, pool_name(m->home),
             m->connection.address, (unsigned long long)m->kv_tokens, after);
    metrics_machine_up_set(g->options.metrics, m->index, true);
    gateway_event_machine(g, m);
    m->pool = m->home;
    metrics_machine_pool_set(g->options.metrics, m->index, m->pool);
    gateway_machine_role_send(g, m);
    gateway_machine_peers_send(g, m);
    struct sched_event event = {
        .kind = SCHED_MACHINE_UP,
        .now_us = gateway_now(g),
        .machine = m->index,
        .pool = m->home,
        .kv_tokens = m->kv_tokens,
        .kv = sched_memory_kv(&memory),
        .cores = cores,
        .core_count = cores > 0 ? cores_usable() : 0,
        .threads = cores > 0 ? gateway_machine_threads(m) : 0,
        /* The largest request of which a mixed machine does one phase. */
        .mixed_kv_tokens = sched_memory_tokens_most(&memory, sched_memory_prompt_share(&memory))};
    gateway_schedule(g, m->version, &event);
    for (const struct fleet_machine *other = fleet_next(g->fleet, NULL); other != NULL;
         other = fleet_next(g->fleet, other))
        if (machine_bits_has(&other->links, m->index))
            link_schedule(g, other, m->index, true);
}

static void on_down(void *self, struct fleet_machine *m, bool silent)
{
    struct gateway *g = self;
    m->link_down_reason[0] = 0;
    m->down_us = gateway_now(g);
    metrics_machine_up_set(g->options.metrics, m->index, false);
    for (uint32_t other = 0; other < g->fleet->count; other++)
        if (machine_bits_has(&m->links, other))
            metrics_link_set(g->options.metrics, m->index, other, false, "");
    m->links = (struct machine_bits){{0}};
    stats_set(g, m, &(struct message_stats){0});
    uint64_t resumed = requests_counts(g->requests).resumed;
    struct sched_event event = {
        .kind = SCHED_MACHINE_DOWN, .now_us = gateway_now(g), .machine = m->index};
    g->dead_machine = silent ? NULL : m;
    gateway_schedule(g, m->version, &event);
    g->dead_machine = NULL;
    requests_machine_down(g->requests, m);
    gateway_copies_machine_down(g, m);
    gateway_machine_others_gone(g, m);
    const bool drained = fleet_machine_draining(m);
    gateway_machine_wants_end_set(g, m, false);
    if (drained)
        log_info("drained machine %s is down: %s", m->config.name, m->connection.down_reason);
    else if (!connections_stopping(g->connections))
        log_warn("machine %s is down: %s; requests that resume elsewhere: %llu", m->config.name,
                 m->connection.down_reason,
                 (unsigned long long)(requests_counts(g->requests).resumed - resumed));
}

/* ---- messages ---- */

/* Returns false if the reason is known already. */
static bool link_why_set(struct fleet_machine *m, const struct fleet_machine *to, const char *text)
{
    char why[sizeof(m->link_down_reason)];
    snprintf(why, sizeof(why), "%s: %s", to->config.name, text);
    if (strcmp(why, m->link_down_reason) == 0)
        return false;
    memcpy(m->link_down_reason, why, sizeof(why));
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

#define TOKENS_PER_S_MAX 1000000000

static void link_speed_take(struct gateway *g, struct fleet_machine *m,
                            const struct fleet_machine *to, const struct message_link *link)
{
    if (link->bytes_per_s == 0)
        return;
    const uint64_t rate = gateway_kv_tokens(m, link->bytes_per_s);
    struct sched_event event = {.kind = SCHED_LINK_SPEED,
                                .now_us = gateway_now(g),
                                .machine = m->index,
                                .peer = to->index,
                                .link = {.latency_us = link->latency_us,
                                         .tokens_per_s = rate < 1 ? 1
                                                         : rate < TOKENS_PER_S_MAX
                                                             ? (uint32_t)rate
                                                             : TOKENS_PER_S_MAX,
                                         .error_percent = link->error_percent}};
    metrics_link_speed_set(g->options.metrics, m->index, to->index, link->bytes_per_s);
    gateway_schedule(g, m->version, &event);
}

static void on_link(struct gateway *g, struct fleet_machine *m, const struct message_link *link)
{
    const struct fleet_machine *to = fleet_find(g->fleet, link->name);
    if (to == NULL || to == m || to->version != m->version) /* it has changed its version since */
        return;
    link_speed_take(g, m, to, link);
    bool was_up = machine_bits_has(&m->links, to->index);
    if (!was_up && !link->up) {
        link_failure_log(m, to, link->text);
        metrics_link_set(g->options.metrics, m->index, to->index, false, "");
    }
    if (was_up == link->up)
        return;
    machine_bits_set(&m->links, to->index, link->up);
    if (link->up)
        log_info("link %s to %s is up: %s", m->config.name, link->name, link->text);
    else
        log_warn("link %s to %s is down: %s", m->config.name, link->name, link->text);
    if (link->up)
        m->link_down_reason[0] = 0;
    else
        link_why_set(m, to, link->text);
    metrics_link_set(g->options.metrics, m->index, to->index, link->up, link->text);
    link_schedule(g, m, to->index, link->up);
}

static void on_about(struct gateway *g, struct fleet_machine *m, const struct message_about *about)
{
    m->about = *about;
    host_schedule(g, m);
    metrics_about_set(g->options.metrics, m->index, about);
    if (about->fell_back)
        log_warn("machine %s computes on the CPU (%s), because %s cannot be used on its host, %s; "
                 "with fallback: false it would not start",
                 m->config.name, about->device, m->config.device, about->host);
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
    case MESSAGE_ABOUT:
        on_about(g, m, &message->about);
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
    case MESSAGE_LEAVING:
        log_info("machine %s was asked to end: it drains first", m->config.name);
        gateway_machine_wants_end_set(g, m, true);
        return true;
    default:
        return gateway_checkpoint_message(g, m, message) ||
               requests_message_handle(g->requests, m, message);
    }
}

const struct connections_events gateway_connections_events = {
    .accept = on_accept,
    .up = on_up,
    .down = on_down,
    .message = on_message,
};
