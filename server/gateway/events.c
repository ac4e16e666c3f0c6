/* gateway_events: writes the cluster scheduler's events and actions to the event log, if there is
 * one, and most of them to a ring in memory (event_tells). */
#include "server/gateway/internal.h"

#include "events/event_text.h"

/* keep: the line goes to the ring, too. */
static void line_end(struct gateway *g, bool keep)
{
    struct text *line = &g->event_line;
    if (!line->broken && g->event_log != NULL)
        event_log_add(g->event_log, line->data, line->bytes);
    if (!line->broken && keep)
        line_ring_add(g->event_ring, line->data, line->bytes);
    text_clear(line);
    line->broken = false;
}

void gateway_event_machine(struct gateway *g, const struct fleet_machine *m)
{
    event_text_machine(&g->event_line, m->index, m->config.name);
    line_end(g, true);
}

void gateway_event_request(struct gateway *g, const struct gateway_version *version,
                           const struct gateway_request *r)
{
    event_text_request(&g->event_line, version->number, request_slot(r), r->client_id);
    line_end(g, true);
}

void gateway_event_begin(struct gateway *g, bool from_start,
                         const struct sched_cluster_options *options)
{
    if (g->event_log == NULL)
        return;
    event_text_begin(&g->event_line, from_start, options);
    line_end(g, false);
}

void gateway_event_version(struct gateway *g, const struct gateway_version *version,
                           const struct sched_cluster_options *options)
{
    if (g->event_log == NULL)
        return;
    event_text_version(&g->event_line, version->number, options);
    line_end(g, false);
}

void gateway_event_version_gone(struct gateway *g, const struct gateway_version *version)
{
    event_text_version_gone(&g->event_line, version->number);
    line_end(g, true);
}

/* True if the event's line goes to the ring. Events without actions whose kind is after
 * SCHED_MACHINE_HOME, such as measured rates and changes of prefix caches, are so frequent that
 * their lines would displace all other lines. */
static bool event_tells(const struct sched_event *event, const struct sched_actions *actions)
{
    if (actions->count > 0 || event == NULL)
        return actions->count > 0;
    return event->kind <= SCHED_MACHINE_HOME;
}

void gateway_event(struct gateway *g, const struct gateway_version *version, int64_t now_us,
                   const struct sched_event *event, const struct sched_actions *actions)
{
    bool keep = event_tells(event, actions);
    if (!keep && g->event_log == NULL)
        return;
    event_text_event(&g->event_line, version->number, now_us, event, actions);
    line_end(g, keep);
}

void gateway_event_configure(struct gateway *g, const struct gateway_version *version,
                             int64_t now_us, const struct sched_cluster_options *options,
                             const struct sched_actions *actions)
{
    event_text_configure(&g->event_line, version->number, now_us, options, actions);
    line_end(g, true);
}

void gateway_event_outcome(struct gateway *g, struct gateway_request *r, bool prompt_computed)
{
    if (r->decision.choice == EVENT_CHOICE_NONE)
        return;
    event_text_outcome(&g->event_line, gateway_request_version(g, r)->number, gateway_now(g),
                       request_slot(r), &r->decision, prompt_computed);
    line_end(g, true);
    r->decision = (struct event_decision){.choice = EVENT_CHOICE_NONE};
}

void gateway_events_turn(struct gateway *g)
{
    if (g->event_log == NULL)
        return;
    struct event_log_counts counts = event_log_counts(g->event_log);
    metrics_events_set(g->options.metrics, true, counts.written, counts.dropped);
    if (counts.dropped == 0 || g->events_warned)
        return;
    g->events_warned = true; /* the counter shows how many */
    log_warn("log/events_file loses lines: %s; serving goes on", counts.drop_reason);
}
