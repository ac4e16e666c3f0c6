/* gateway: opening, and the iteration (gateway_turn): receive what the machines sent; drop and
 * start connections; schedule arrived requests; call `ended` for finished ones. gateway_submit only
 * puts a request on the arriving list, so a client's callback never runs inside its own call. */
#include "server/gateway/checkpoints.h"
#include "server/gateway/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define RING_BYTES (256u << 10) /* Of the scheduler's latest events, about 200 bytes each. */

/* ---- opening and closing ---- */

static enum status parts_open(struct gateway *g, uint32_t tag, struct error *error)
{
    const struct gateway_options *options = &g->options;
    enum status status = gateway_versions_open(g, error);
    if (status != ST_OK)
        return status;
    const struct connections_options connections = {.config = options->config,
                                                    .clock = options->clock,
                                                    .transport = options->transport,
                                                    .fleet = g->fleet,
                                                    .metadata_hash = options->metadata_hash,
                                                    .name = g->name,
                                                    .cluster_keys = options->cluster_keys,
                                                    .events = gateway_connections_events,
                                                    .self = g};
    status = connections_open(&connections, &g->connections, error);
    if (status != ST_OK)
        return status;
    const uint32_t kept = options->config->log.requests_kept;
    status = history_open(kept > 0 ? kept : 1, &g->history);
    if (status == ST_OK)
        status = line_ring_open(RING_BYTES, &g->event_ring);
    if (status != ST_OK)
        return error_set(error, status, "gateway: out of memory");
    const struct requests_options requests = {.clock = options->clock,
                                              .metrics = options->metrics,
                                              .connections = g->connections,
                                              .history = g->history,
                                              .id_tag = tag,
                                              .events = gateway_requests_events,
                                              .self = g};
    status = requests_open(&requests, &g->requests);
    return status == ST_OK ? status : error_set(error, status, "gateway: out of memory");
}

static void parts_close(struct gateway *g)
{
    connections_close(g->connections);
    requests_close(g->requests);
    gateway_versions_close(g);
    text_done(&g->event_line);
    line_ring_close(g->event_ring);
    history_close(g->history);
    free(g);
}

enum status gateway_open(const struct gateway_options *options, struct gateway **out,
                         struct error *error)
{
    struct gateway *g = calloc(1, sizeof(*g));
    if (g == NULL)
        return error_set(error, ST_NO_MEMORY, "gateway: out of memory");
    g->options = *options;
    g->fleet = options->fleet;
    uint32_t tag = 0;
    if (getrandom(&tag, sizeof(tag), 0) != sizeof(tag))
        tag = (uint32_t)gateway_now(g);
    snprintf(g->name, sizeof(g->name), "gateway-%08x", tag);
    g->key_limits_share = (struct gateway_share){.gateways = 1, .rank = 0};
    g->fewer_since_us = -1;
    enum status status = parts_open(g, tag, error);
    g->options.cluster_keys = NULL; /* the caller's keys may be gone */
    if (status != ST_OK) {
        parts_close(g);
        return status;
    }
    metrics_gateway_name_set(options->metrics, g->name);
    metrics_slo_set(options->metrics, options->config->slo.ttft_ms, options->config->slo.tbt_ms);
    for (struct fleet_machine *m = fleet_next(g->fleet, NULL); m != NULL;
         m = fleet_next(g->fleet, m))
        m->version = g->current;
    *out = g;
    return ST_OK;
}

void gateway_stop(struct gateway *g)
{
    connections_stop(g->connections);
    requests_stop(g->requests);
}

enum status gateway_cluster_keys_set(struct gateway *g, const struct secret_keys *keys,
                                     struct error *error)
{
    return connections_keys_set(g->connections, keys, error);
}

void gateway_close(struct gateway *g)
{
    if (g == NULL)
        return;
    gateway_stop(g);
    connections_receive(g->connections); /* sends the cancels, for machines that stay */
    requests_endings_report(g->requests);
    parts_close(g);
}

/* ---- the iteration ---- */

static void load_report(struct gateway *g)
{
    struct requests_counts requests = requests_counts(g->requests);
    uint32_t waiting = requests.open - requests.prompts_sent;
    if (g->prompts_waiting < requests.prompts_sent)
        waiting += (uint32_t)g->prompts_waiting;
    else /* STATS are a little older than our counts, and include requests of other gateways */
        waiting = requests.open;
    metrics_value_set(g->options.metrics, METRICS_REQUESTS_RUNNING, requests.open - waiting);
    metrics_value_set(g->options.metrics, METRICS_REQUESTS_WAITING, waiting);
    metrics_value_set(g->options.metrics, METRICS_READY, gateway_ready(g));
    metrics_value_set(g->options.metrics, METRICS_REQUESTS_UNROUTED, gateway_waiting_count(g));
}

int gateway_turn(struct gateway *g)
{
    connections_receive(g->connections);
    int64_t now = gateway_now(g);
    int64_t due = connections_turn(g->connections, now);
    int64_t handover_due = gateway_handover_turn(g, now);
    int64_t scheduler_due = gateway_schedule_turn(g, now);
    int64_t headroom_due = gateway_headroom_turn(g, now);
    int64_t checkpoint_due = gateway_checkpoint_turn(g, now);
    requests_endings_report(g->requests);
    connections_flush(g->connections);
    load_report(g);
    gateway_events_turn(g);
    if (gateway_pending(g))
        return 0;
    if (scheduler_due < due)
        due = scheduler_due;
    if (checkpoint_due < due)
        due = checkpoint_due;
    if (handover_due < due)
        due = handover_due;
    if (headroom_due < due)
        due = headroom_due;
    if (due == INT64_MAX)
        return -1;
    int64_t wait_us = due - gateway_now(g);
    return wait_us <= 0 ? 0 : (int)((wait_us + 999) / 1000);
}

bool gateway_pending(const struct gateway *g)
{
    return requests_pending(g->requests) || connections_pending(g->connections);
}

int gateway_fd(struct gateway *g)
{
    return connections_fd(g->connections);
}

/* ---- calls by the HTTP side ---- */

enum status gateway_submit(struct gateway *g, const struct gateway_submit *submit,
                           struct gateway_request **out)
{
    const struct gateway_version *version = gateway_version_at(g, submit->version);
    return requests_submit(g->requests, submit, (uint32_t)(version - g->versions), out);
}

void gateway_release(struct gateway *g, struct gateway_request *r, enum gateway_release why)
{
    requests_release(g->requests, r, why);
}
