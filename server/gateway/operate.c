/* gateway_operate: changes by an operator while requests run: machines that drain, change their
 * pool or leave, and the scheduler's limits. */
#include "server/gateway/internal.h"

#include <stdio.h>
#include <string.h>

void gateway_machine_address_set(struct gateway *g, struct fleet_machine *m, const char *address)
{
    connections_address_set(g->connections, m, address, "it has another address now");
}

void gateway_machine_ended(struct gateway *g, struct fleet_machine *m, const char *reason)
{
    connections_address_set(g->connections, m, "", reason);
}

void gateway_machine_crashed(struct gateway *g, struct fleet_machine *m, const char *crash_text,
                             const uint64_t *ids, uint32_t id_count)
{
    char text[160];
    m->crashes++;
    snprintf(m->crash_reason, sizeof(m->crash_reason), "%s; requests in its batches: %u",
             crash_text, id_count);
    snprintf(text, sizeof(text), "machine %s crashed (%s)", m->config.name, crash_text);
    metrics_counter_add(g->options.metrics, METRICS_MACHINE_CRASHES, 1);
    connections_drop(g->connections, m, text); /* Its end may not have been noticed yet. */
    requests_crash_handle(g->requests, m, ids, id_count, g->options.config->scheduler.crashes_max,
                          text);
}

void gateway_machine_shutdown(struct gateway *g, struct fleet_machine *m)
{
    connections_send(g->connections, m, &(struct message){.kind = MESSAGE_SHUTDOWN});
}

/* Tells the machine's scheduler whether the machine drains, and the machine which others it may
 * write KV to: a draining machine pushes the KV of its answers. */
static void drain_report(struct gateway *g, struct fleet_machine *m, bool drains)
{
    struct sched_event event = {.kind = drains ? SCHED_MACHINE_DRAIN : SCHED_MACHINE_UNDRAIN,
                                .now_us = gateway_now(g),
                                .machine = m->index};
    g->handover_at_us = 0;
    gateway_schedule(g, m->version, &event);
    gateway_machine_peers_send(g, m);
}

void gateway_machine_phase_set(struct gateway *g, struct fleet_machine *m, enum fleet_phase phase)
{
    bool drained = fleet_machine_draining(m);
    fleet_phase_set(g->fleet, m, phase);
    if (fleet_machine_draining(m) != drained)
        drain_report(g, m, !drained);
}

void gateway_machine_wants_end_set(struct gateway *g, struct fleet_machine *m, bool wants_end)
{
    const bool drained = fleet_machine_draining(m);
    fleet_wants_end_set(g->fleet, m, wants_end);
    if (fleet_machine_draining(m) != drained)
        drain_report(g, m, !drained);
}

/* Returns true if a request waits for a machine, or for its KV, and the machine that wants to end
 * has KV of the request. */
static bool has_awaited_kv(const struct gateway *g, const struct fleet_machine *m)
{
    for (struct gateway_request *r = requests_next(g->requests, NULL); r != NULL;
         r = requests_next(g->requests, r))
        if ((r->held.machine == m && r->prompt_machine == NULL) ||
            (r->state == GATEWAY_REQUEST_PULLING && r->pull_source == m))
            return true;
    return false;
}

void gateway_ends_grant(struct gateway *g)
{
    if (g->fleet->wants_end_count == 0)
        return;
    for (struct fleet_machine *m = fleet_next(g->fleet, NULL); m != NULL;
         m = fleet_next(g->fleet, m)) {
        if (!m->connection.wants_end || m->connection.end_granted || !gateway_machine_idle(g, m) ||
            has_awaited_kv(g, m))
            continue;
        m->connection.end_granted = true;
        gateway_machine_shutdown(g, m);
    }
}

bool gateway_machine_idle(const struct gateway *g, const struct fleet_machine *m)
{
    struct sched_machine_view view;
    (void)g;
    sched_cluster_view(m->version->scheduler, m->index, &view);
    return view.prompts == 0 && view.decodes == 0;
}

void gateway_machine_home_set(struct gateway *g, struct fleet_machine *m, enum pool home)
{
    m->config.pool = m->home = home;
    m->home_serial++;
    struct sched_event event = {
        .kind = SCHED_MACHINE_HOME, .now_us = gateway_now(g), .machine = m->index, .pool = home};
    gateway_machine_peers_send(g, m);
    gateway_schedule(g, m->version, &event);
}

void gateway_machine_add(struct gateway *g, struct fleet_machine *m, uint32_t version)
{
    m->version = gateway_version_at(g, version);
    m->fixed_version = version;
}

void gateway_machine_remove(struct gateway *g, struct fleet_machine *m)
{
    connections_address_set(g->connections, m, "", "it has left the cluster");
    gateway_machine_others_gone(g, m);
    gateway_machine_links_forget(g, m);
    if (fleet_machine_draining(m)) /* the next machine with this index does not drain */
        drain_report(g, m, false);
    metrics_machine_forget(g->options.metrics, m->index);
    fleet_remove(g->fleet, m);
}

void gateway_configure(struct gateway *g)
{
    const struct config *config = g->options.config;
    g->current->kv = config->kv;
    metrics_slo_set(g->options.metrics, config->slo.ttft_ms, config->slo.tbt_ms);
    gateway_scheduler_configure(g);
    /* adaptive_pools may have changed */
    for (struct fleet_machine *m = fleet_next(g->fleet, NULL); m != NULL;
         m = fleet_next(g->fleet, m))
        gateway_machine_peers_send(g, m);
}

void gateway_events_set(struct gateway *g, struct event_log *log, bool from_start)
{
    g->event_log = log;
    g->events_warned = false;
    metrics_events_set(g->options.metrics, log != NULL, 0, 0);
    if (log == NULL)
        return;
    struct sched_cluster_options options = gateway_sched_options(g, g->current);
    gateway_event_begin(g, from_start, &options);
    for (uint32_t i = 0; i < GATEWAY_VERSIONS; i++) {
        if (g->versions[i].number <= EVENT_VERSION_FIRST)
            continue;
        options = gateway_sched_options(g, &g->versions[i]);
        gateway_event_version(g, &g->versions[i], &options);
    }
    for (struct fleet_machine *m = fleet_next(g->fleet, NULL); m != NULL;
         m = fleet_next(g->fleet, m))
        gateway_event_machine(g, m);
}
