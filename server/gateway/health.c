/* gateway_health: what the gateway can serve now, and the text that says what is missing. */
#include "server/gateway/internal.h"

#include "scheduler/options.h"

#include <stdio.h>
#include <string.h>

bool gateway_ready(const struct gateway *g)
{
    return sched_cluster_ready(g->current->scheduler);
}

void gateway_note_set(struct gateway *g, const char *text)
{
    snprintf(g->health_note, sizeof(g->health_note), "%s", text);
}

void gateway_update_note_set(struct gateway *g, const char *text)
{
    snprintf(g->health_update_note, sizeof(g->health_update_note), "%s", text);
}

/* Lists the version's machines that are not connected, or that drain. Returns the bytes used in
 * `out`. */
static size_t missing_text(const struct gateway *g, const struct gateway_version *version,
                           size_t used, char *out, size_t capacity)
{
    for (const struct fleet_machine *m = fleet_next(g->fleet, NULL); m != NULL && used < capacity;
         m = fleet_next(g->fleet, m)) {
        if (m->version != version || (fleet_machine_up(m) && !fleet_machine_draining(m)))
            continue;
        if (fleet_machine_up(m)) {
            int more = snprintf(out + used, capacity - used, "%s%s machine %s drains",
                                used > 0 ? "; " : "", pool_name(m->home), m->config.name);
            used += more > 0 ? (size_t)more : 0;
            continue;
        }
        const char *why = m->connection.down_reason[0] != 0        ? m->connection.down_reason
                          : m->connection.state == CONNECTION_NONE ? "it has not started yet"
                                                                   : "not connected yet";
        int more = snprintf(out + used, capacity - used, "%s%s machine %s is missing: %s",
                            used > 0 ? "; " : "", pool_name(m->home), m->config.name, why);
        used += more > 0 ? (size_t)more : 0;
    }
    return used;
}

void gateway_version_health_text(const struct gateway *g, uint32_t number, char *out,
                                 size_t capacity)
{
    const struct gateway_version *version = gateway_version_at(g, number);
    size_t used = 0;
    if (sched_cluster_ready(version->scheduler)) {
        used = (size_t)snprintf(out, capacity, "ready");
        if (!sched_cluster_lacks_phase(version->scheduler))
            return;
    }
    used = missing_text(g, version, used, out, capacity);
    if (used > 0)
        return;
    used = (size_t)snprintf(out, capacity, "no prompt machine has its link to a token machine yet");
    for (const struct fleet_machine *m = fleet_next(g->fleet, NULL); m != NULL && used < capacity;
         m = fleet_next(g->fleet, m))
        if (m->link_down_reason[0] != 0 && m->version == version)
            used += (size_t)snprintf(out + used, capacity - used, "; %s to %s", m->config.name,
                                     m->link_down_reason);
}

void gateway_health_text(const struct gateway *g, char *out, size_t capacity)
{
    gateway_version_health_text(g, GATEWAY_CURRENT, out, capacity);
    const char *notes[] = {g->health_note, g->health_update_note};
    for (int i = 0; i < 2; i++) {
        size_t used = strlen(out);
        if (notes[i][0] != 0 && used + 1 < capacity)
            snprintf(out + used, capacity - used, "; %s", notes[i]);
    }
}

void gateway_health_summary(const struct gateway *g, char *out, size_t capacity)
{
    const struct gateway_version *version = gateway_version_at(g, GATEWAY_CURRENT);
    uint32_t up = 0, all = 0;
    for (const struct fleet_machine *m = fleet_next(g->fleet, NULL); m != NULL;
         m = fleet_next(g->fleet, m)) {
        all += m->version == version;
        up += m->version == version && fleet_machine_up(m) && !fleet_machine_draining(m);
    }
    snprintf(out, capacity, "%u of %u machines serve", up, all);
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
        if (m->version == version && gateway_machine_may_decode(g, m) && m->kv_tokens > largest)
            largest = m->kv_tokens;
    return (uint32_t)(largest > 0 && largest < least ? largest : least);
}

bool gateway_prompts_shared(const struct gateway *g, uint32_t number)
{
    const struct gateway_version *version = gateway_version_at(g, number);
    const char *policy = g->options.config->scheduler.policy;
    uint32_t machines = 0;
    for (const struct fleet_machine *m = fleet_next(g->fleet, NULL); m != NULL;
         m = fleet_next(g->fleet, m))
        machines += m->version == version && fleet_machine_up(m) && m->pool != POOL_TOKEN;
    return version->kv.prefix_cache && strcmp(policy, "deadline") != 0 &&
           (machines == 1 || sched_policy_is_prefix(g->options.config));
}
