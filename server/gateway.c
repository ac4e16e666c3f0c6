/* gateway: the table of open requests, and the iteration (gateway_turn): receive what the machines
 * sent; drop and start connections; schedule arrived requests; call `ended` for finished ones.
 * gateway_submit only puts a request on the arriving list, so a client's callback never runs inside
 * its own call. */
#include "server/gateway_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* A request id has 32 bits of this gateway's tag, 19 bits of a counter and 13 bits of the slot. So
 * no gateway meets ids of another one, or of its predecessor, on a machine, and a look-up is one
 * comparison. The tag is also in the gateway's name, because a machine connects only one gateway
 * per name. */
#define SLOT_BITS 13
static_assert(LIMIT_CLUSTER_REQUESTS == 1u << SLOT_BITS, "a request's id holds its slot");
#define COUNTER_MASK ((1ull << (32 - SLOT_BITS)) - 1)

#define STOPPING_TEXT "the server is stopping"

static uint64_t request_id_next(struct gateway *g, uint32_t slot)
{
    g->id_counter++;
    return g->id_tag << 32 | (g->id_counter & COUNTER_MASK) << SLOT_BITS | slot;
}

struct gateway_request *gateway_request_find(struct gateway *g, uint64_t id)
{
    struct gateway_request *r = &g->requests[id & (LIMIT_CLUSTER_REQUESTS - 1)];
    return id != 0 && r->id == id ? r : NULL;
}

/* ---- lists ---- */

static struct gateway_list *list_of(struct gateway *g, enum gateway_list_id list)
{
    return list == LIST_ARRIVING ? &g->arriving : &g->ending;
}

void gateway_list_add(struct gateway *g, struct gateway_request *r, enum gateway_list_id list)
{
    assert(r->list == LIST_NONE && list != LIST_NONE);
    struct gateway_list *l = list_of(g, list);
    r->list = list;
    r->before = l->last;
    r->after = NULL;
    if (l->last != NULL)
        l->last->after = r;
    else
        l->first = r;
    l->last = r;
}

void gateway_list_remove(struct gateway *g, struct gateway_request *r)
{
    if (r->list == LIST_NONE)
        return;
    struct gateway_list *l = list_of(g, r->list);
    if (r->before != NULL)
        r->before->after = r->after;
    else
        l->first = r->after;
    if (r->after != NULL)
        r->after->before = r->before;
    else
        l->last = r->before;
    r->list = LIST_NONE;
}

/* ---- opening and closing ---- */

static enum status connections_open(struct gateway *g, struct error *error)
{
    const struct config *config = g->options.config;
    struct transport_options options = {
        .identity = {.role = TRANSPORT_GATEWAY, .metadata_hash = g->options.metadata_hash},
        .events = gateway_transport_events,
        .self = g,
        .heartbeat_ms = config->transport.heartbeat_ms,
        .silence_ms = config->transport.silence_ms,
        .connect_ms = config->transport.connect_ms,
        .key = g->options.cluster_key,
    };
    memcpy(options.identity.name, g->name, sizeof(options.identity.name));
    return transport_open(g->options.transport, &options, &g->transport, error);
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
    g->id_tag = tag;
    snprintf(g->name, sizeof(g->name), "gateway-%08x", tag);
    metrics_gateway_name_set(options->metrics, g->name);
    for (uint32_t slot = 0; slot < LIMIT_CLUSTER_REQUESTS; slot++)
        g->free_slots[slot] = LIMIT_CLUSTER_REQUESTS - 1 - slot;
    g->free_count = LIMIT_CLUSTER_REQUESTS;
    enum status status = gateway_versions_open(g, error);
    if (status != ST_OK)
        goto undo_gateway;
    for (struct fleet_machine *m = fleet_next(g->fleet, NULL); m != NULL;
         m = fleet_next(g->fleet, m))
        m->version = g->current;
    status = connections_open(g, error);
    g->options.cluster_key = NULL; /* the caller's key may be gone */
    if (status != ST_OK)
        goto undo_versions;
    *out = g;
    return ST_OK;

undo_versions:
    gateway_versions_close(g);
undo_gateway:
    free(g);
    return status;
}

/* ---- a request's slot ---- */

static void request_free(struct gateway *g, struct gateway_request *r)
{
    gateway_list_remove(g, r);
    free(r->tokens);
    free(r->early);
    r->tokens = NULL;
    r->early = NULL;
    r->id = 0;
    g->begun_count -= r->prefill_sent ? 1 : 0;
    g->free_slots[g->free_count++] = request_slot(g, r);
    g->open_count--;
    r->version->open_count--;
}

void gateway_request_unschedule(struct gateway *g, struct gateway_request *r)
{
    if (!r->scheduled)
        return;
    r->scheduled = false;
    struct sched_event event = {
        .kind = SCHED_ENDED,
        .now_us = gateway_now(g),
        .request = request_slot(g, r),
        .output_tokens = r->delivered - r->base,
    };
    gateway_schedule(g, r->version, &event);
}

/* Reports a finished request to the metrics. */
static void request_report(struct gateway *g, const struct gateway_request *r,
                           enum metrics_reason reason)
{
    struct metrics *metrics = g->options.metrics;
    int64_t now = gateway_now(g);
    metrics_request_ended(metrics, reason);
    metrics_time_add(metrics, METRICS_E2E, now - r->life.at_us[REQUEST_QUEUED]);
    if (r->delivered > 1)
        metrics_time_add(metrics, METRICS_DECODE, r->last_us - r->first_us);
    if (r->delivered > 1)
        metrics_time_add(metrics, METRICS_PER_TOKEN,
                         (r->last_us - r->first_us) / (r->delivered - 1));
    if (reason == METRICS_STOP || reason == METRICS_LENGTH)
        metrics_request_sizes(metrics, r->prompt_count, r->delivered);
}

void gateway_request_end(struct gateway *g, struct gateway_request *r, enum gateway_end end,
                         uint32_t retry_after_s, const char *text)
{
    bool done = end == GATEWAY_DONE;
    request_life_change(&r->life, done ? REQUEST_DONE : REQUEST_FAILED, gateway_now(g));
    if (end == GATEWAY_REFUSED)
        metrics_request_refused(g->options.metrics);
    else
        request_report(g, r,
                       !done                      ? METRICS_ERROR
                       : r->finish == FINISH_STOP ? METRICS_STOP
                                                  : METRICS_LENGTH);
    r->end = end;
    r->retry_after_s = retry_after_s;
    snprintf(r->end_text, sizeof(r->end_text), "%s", text);
    gateway_list_remove(g, r);
    gateway_list_add(g, r, LIST_ENDING);
}

/* ---- the iteration ---- */

static void endings_report(struct gateway *g)
{
    uint32_t budget =
        g->open_count; /* a request submitted from inside `ended` waits for the next iteration */
    while (g->ending.first != NULL && budget-- > 0) {
        struct gateway_request *r = g->ending.first;
        struct gateway_client client = r->client;
        enum gateway_end end = r->end;
        uint32_t retry_after_s = r->retry_after_s;
        char text[sizeof(r->end_text)];
        memcpy(text, r->end_text, sizeof(text));
        request_free(g, r);
        client.ended(client.self, end, text, retry_after_s);
    }
}

static void load_report(struct gateway *g)
{
    uint32_t waiting = g->open_count - g->begun_count;
    uint32_t unrouted = 0;
    for (uint32_t i = 0; i < GATEWAY_VERSIONS; i++)
        if (g->versions[i].number > 0)
            unrouted += sched_cluster_waiting(g->versions[i].scheduler);
    if (g->prompts_waiting < g->open_count - waiting)
        waiting += (uint32_t)g->prompts_waiting;
    else /* STATS are a little older than our counts, and include requests of other gateways */
        waiting = g->open_count;
    metrics_open_set(g->options.metrics, g->open_count, waiting, unrouted);
}

int gateway_turn(struct gateway *g)
{
    transport_progress(g->transport);
    g->sent = false;
    int64_t now = gateway_now(g);
    int64_t due = gateway_machines_turn(g, now);
    int64_t handover_due = gateway_handover_turn(g, now);
    int64_t scheduler_due = gateway_schedule_turn(g, now);
    endings_report(g);
    if (g->sent) {
        g->sent = false;
        transport_progress(g->transport);
    }
    load_report(g);
    gateway_events_turn(g);
    if (gateway_pending(g))
        return 0;
    if (scheduler_due < due)
        due = scheduler_due;
    if (handover_due < due)
        due = handover_due;
    if (due == INT64_MAX)
        return -1;
    int64_t wait_us = due - gateway_now(g);
    return wait_us <= 0 ? 0 : (int)((wait_us + 999) / 1000);
}

bool gateway_pending(const struct gateway *g)
{
    return g->arriving.first != NULL || g->ending.first != NULL || g->broken || g->sent;
}

int gateway_fd(struct gateway *g)
{
    return transport_fd(g->transport);
}

/* Stops the requests of a version; NULL = of all versions. */
static void requests_stop(struct gateway *g, const struct gateway_version *version,
                          const char *text)
{
    for (uint32_t slot = 0; slot < LIMIT_CLUSTER_REQUESTS; slot++) {
        struct gateway_request *r = &g->requests[slot];
        if (r->id == 0 || r->list == LIST_ENDING || (version != NULL && r->version != version))
            continue;
        gateway_request_cancel(g, r);
        gateway_request_unschedule(g, r);
        gateway_request_end(g, r, GATEWAY_FAILED, 0, text);
    }
}

void gateway_stop(struct gateway *g)
{
    g->stopping = true;
    requests_stop(g, NULL, STOPPING_TEXT);
}

void gateway_version_stop(struct gateway *g, uint32_t version, const char *text)
{
    requests_stop(g, gateway_version_at(g, version), text);
}

void gateway_close(struct gateway *g)
{
    if (g == NULL)
        return;
    gateway_stop(g);
    transport_progress(g->transport); /* sends the cancels, for machines that stay */
    endings_report(g);
    /* submitted from inside `ended` */
    for (uint32_t slot = 0; slot < LIMIT_CLUSTER_REQUESTS; slot++)
        if (g->requests[slot].id != 0)
            request_free(g, &g->requests[slot]);
    transport_close(g->transport);
    gateway_versions_close(g);
    message_buffer_done(&g->buffer);
    text_done(&g->event_line);
    free(g);
}

/* ---- calls by the HTTP side ---- */

bool gateway_ready(const struct gateway *g)
{
    return sched_cluster_ready(g->current->scheduler);
}

enum status gateway_submit(struct gateway *g, const struct gateway_submit *submit,
                           struct gateway_request **out)
{
    assert(submit->prompt_count >= 1);
    uint64_t capacity = (uint64_t)submit->prompt_count + submit->sampling.output_tokens_max;
    if (capacity > LIMIT_CONTEXT_TOKENS)
        return ST_TOO_LARGE;
    if (g->free_count == 0)
        return ST_NO_RESOURCE;
    uint32_t *tokens = malloc(capacity * sizeof(*tokens));
    if (tokens == NULL)
        return ST_NO_MEMORY;
    memcpy(tokens, submit->prompt, submit->prompt_count * sizeof(*tokens));

    uint32_t slot = g->free_slots[--g->free_count];
    struct gateway_request *r = &g->requests[slot];
    g->open_count++;
    *r = (struct gateway_request){
        .id = request_id_next(g, slot),
        .version = gateway_version_at(g, submit->version),
        .client = submit->client,
        .sampling = submit->sampling,
        .score_prompt = submit->score_prompt && submit->prompt_count > 1,
        .kv_path = submit->kv_path,
        .key = submit->key,
        .key_hash = submit->key_hash,
        .weight = submit->weight > 0 ? submit->weight : 1,
        .priority = submit->priority,
        .tokens = tokens,
        .prompt_count = submit->prompt_count,
        .scored_next = 1,
        .first_us = -1,
        .end = GATEWAY_DONE, /* the default */
    };
    r->version->open_count++;
    r->version->total++;
    request_life_init(&r->life, submit->arrived_us > 0 ? submit->arrived_us : gateway_now(g));
    bool nothing_to_do = submit->sampling.output_tokens_max == 0 && !r->score_prompt;
    if (g->stopping) {
        r->end = GATEWAY_FAILED;
        snprintf(r->end_text, sizeof(r->end_text), "%s", STOPPING_TEXT);
    }
    gateway_list_add(g, r, nothing_to_do || g->stopping ? LIST_ENDING : LIST_ARRIVING);
    *out = r;
    return ST_OK;
}

void gateway_release(struct gateway *g, struct gateway_request *r, enum gateway_release why)
{
    assert(r->id != 0);
    if (r->list != LIST_ENDING) { /* otherwise it was reported when it ended */
        bool stopped = why == GATEWAY_STOPPED && request_state_legal(r->life.state, REQUEST_DONE);
        gateway_request_cancel(g, r);
        request_life_change(&r->life, stopped ? REQUEST_DONE : REQUEST_CANCELLED, gateway_now(g));
        request_report(g, r, stopped ? METRICS_STOP : METRICS_ABORT);
        gateway_request_unschedule(g, r);
    }
    request_free(g, r);
}
