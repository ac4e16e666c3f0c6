/* gateway_operate: changes by an operator while requests run: machines that drain, change their
 * pool or leave, and the scheduler's limits. */
#include "server/gateway/internal.h"

#include <stdio.h>
#include <string.h>

void gateway_machine_drain(struct gateway *g, uint32_t machine, bool drain)
{
    struct sched_event event = {.kind = drain ? SCHED_MACHINE_DRAIN : SCHED_MACHINE_UNDRAIN,
                                .now_us = gateway_now(g),
                                .machine = machine};
    if (gateway_machine_draining(g, machine) == drain)
        return;
    g->machines[machine].draining = drain;
    g->draining_count += drain ? 1 : UINT32_MAX;
    g->handover_at_us = 0;
    gateway_schedule(g, g->machines[machine].version, &event);
    gateway_machine_peers_tell(g, machine); /* it may push the KV of its answers now */
}

bool gateway_machine_draining(const struct gateway *g, uint32_t machine)
{
    struct sched_machine_view view;
    sched_cluster_view(g->machines[machine].version->scheduler, machine, &view);
    return view.draining;
}

bool gateway_machine_idle(const struct gateway *g, uint32_t machine)
{
    struct sched_machine_view view;
    sched_cluster_view(g->machines[machine].version->scheduler, machine, &view);
    return view.prompts == 0 && view.decodes == 0;
}

void gateway_machine_home(struct gateway *g, uint32_t machine)
{
    gateway_machine_home_read(g, machine);
    g->machines[machine].home_serial++;
    struct sched_event event = {.kind = SCHED_MACHINE_HOME,
                                .now_us = gateway_now(g),
                                .machine = machine,
                                .pool = g->machines[machine].home};
    gateway_machine_peers_tell(g, machine);
    gateway_schedule(g, g->machines[machine].version, &event);
}

void gateway_machine_forget(struct gateway *g, uint32_t machine)
{
    struct gateway_machine *m = &g->machines[machine];
    gateway_machine_address(g, machine, "");
    gateway_machine_others_gone(g, m);
    gateway_machine_links_forget(g, machine);
    gateway_machine_drain(g, machine, false); /* for the next machine with this index */
    metrics_machine_forget(g->options.metrics, machine);
    *m = (struct gateway_machine){.gateway = g, .index = machine, .version = g->current};
}

static void configure(struct gateway *g, const struct gateway_version *version)
{
    struct sched_cluster_options options = gateway_sched_options(g, version);
    struct sched_actions actions;
    int64_t now = gateway_now(g);
    enum status status = sched_cluster_configure(version->scheduler, &options, now, &actions);
    assert(status == ST_OK); /* because the counts have not changed */
    gateway_event_configure(g, version, now, &options, &actions);
    gateway_actions_do(g, version, &actions, now);
}

void gateway_scheduler_configure(struct gateway *g)
{
    for (uint32_t i = 0; i < GATEWAY_VERSIONS; i++)
        if (g->versions[i].number > 0)
            configure(g, &g->versions[i]);
}

void gateway_configure(struct gateway *g)
{
    g->current->kv = g->options.config->kv;
    gateway_scheduler_configure(g);
    /* adaptive_pools may have changed */
    for (uint32_t i = 0; i < g->options.config->machine_count; i++)
        gateway_machine_peers_tell(g, i);
}
