/* gateway_requests: a request between its route and its end.
 *
 *   route ─┬─► RESERVE to the token machine ─► RESERVED ─┬─► PREFILL to the ─► tokens ─► end
 *          └─► no token machine is needed ───────────────┘   prompt machine
 *
 * Machines number the tokens of a generation from 0. `delivered_before` is the number of tokens
 * that the client had when the generation began, so a token's index in the answer is base + index,
 * and the client gets each index once. When a generation is lost, the prompt of the next one is the
 * old prompt and all delivered tokens. Positions are then the same as before, and sampling depends
 * on (seed, position) only, so the answer continues unchanged. */
#include "server/gateway/requests.h"

#include "common/log.h"
#include "common/pooling.h"
#include "server/gateway/checkpoints.h"
#include "server/gateway/request_events.h"
#include "server/gateway/request_held.h"
#include "server/gateway/request_messages.h"
#include "server/gateway/request_metrics.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Most tokens that may overtake the first one, because they arrive over another connection. */
#define EARLY_MAX 512

#define STOPPING_TEXT "the server is stopping"

struct requests {
    struct requests_options options;
    bool stopping;
    uint64_t resumed_count;
    uint64_t probe_count; /* PROBEs sent so far. */
    struct requests_version versions[GATEWAY_VERSIONS];
    struct request_table table;
};

static int64_t now_us(const struct requests *q)
{
    return clock_now_us(q->options.clock);
}

enum status requests_open(const struct requests_options *options, struct requests **out)
{
    struct requests *q = calloc(1, sizeof(*q));
    if (q == NULL)
        return ST_NO_MEMORY;
    q->options = *options;
    request_table_init(&q->table, options->id_tag);
    *out = q;
    return ST_OK;
}

/* ---- ends ---- */

static void request_free(struct requests *q, struct gateway_request *r)
{
    request_checkpoint_end(q->options.connections, r);
    q->versions[r->version_index].open--;
    request_table_free(&q->table, r);
}

void requests_close(struct requests *q)
{
    struct gateway_request *r;
    while (q != NULL && (r = requests_next(q, NULL)) != NULL)
        request_free(q, r);
    free(q);
}

/* Tells the router that the request no longer needs its machines, if the scheduler knows it. The
 * caller then changes the state. */
static void request_unschedule(struct requests *q, struct gateway_request *r)
{
    if (r->state >= GATEWAY_REQUEST_SCHEDULED && r->state <= GATEWAY_REQUEST_PREFILLED)
        q->options.events.unscheduled(q->options.self, r);
}

/* Queues the end of a request; the iteration calls `ended`. Requires that its machines have been
 * told. */
static void request_end(struct requests *q, struct gateway_request *r, enum gateway_end end,
                        uint32_t retry_after_s, const char *text)
{
    bool done = end == GATEWAY_DONE;
    request_end_report(q->options.history, r, history_end_of(end), text, now_us(q));
    request_life_state_set(&r->life, done ? REQUEST_DONE : REQUEST_FAILED, now_us(q));
    if (end != GATEWAY_REFUSED)
        request_ended_report(q->options.metrics, r, now_us(q),
                             !done                      ? METRICS_ERROR
                             : r->finish == FINISH_STOP ? METRICS_STOP
                                                        : METRICS_LENGTH);
    r->end = end;
    r->retry_after_s = retry_after_s;
    snprintf(r->end_text, sizeof(r->end_text), "%s", text);
    request_checkpoint_end(q->options.connections, r);
    request_table_state_set(&q->table, r, GATEWAY_REQUEST_ENDING);
}

void requests_endings_report(struct requests *q)
{
    /* a request submitted from inside `ended` waits for the next iteration */
    const struct request_list *endings = &q->table.lists[GATEWAY_REQUEST_ENDING];
    uint32_t budget = q->table.open_count;
    while (endings->first != NULL && budget-- > 0) {
        struct gateway_request *r = endings->first;
        struct gateway_client client = r->client;
        enum gateway_end end = r->end;
        uint32_t retry_after_s = r->retry_after_s;
        char text[sizeof(r->end_text)];
        memcpy(text, r->end_text, sizeof(text));
        request_free(q, r);
        client.ended(client.self, end, text, retry_after_s);
    }
}

/* ---- messages to machines ---- */

/* Returns the request that a machine's message is about; NULL = it has ended, or the message
 * belongs to an old generation or comes from a machine that has no part in it. */
static struct gateway_request *request_named(struct requests *q,
                                             const struct fleet_machine *machine, uint64_t id,
                                             uint32_t generation)
{
    struct gateway_request *r = request_table_find(&q->table, id);
    if (r == NULL || r->generation != generation || request_state_ended(r->life.state))
        return NULL;
    return machine == r->prompt_machine || machine == r->token_machine ? r : NULL;
}

static void event_report(const struct requests *q, struct gateway_request *r,
                         const struct gateway_event *event)
{
    request_event_report(q->options.history, r, now_us(q), event);
}

static void prefill_send(struct requests *q, struct gateway_request *r,
                         const struct message_reserved *reserved)
{
    struct message message = request_prefill_message(r, reserved, now_us(q));
    request_table_state_set(&q->table, r, GATEWAY_REQUEST_PREFILLING);
    request_life_state_set(&r->life, REQUEST_PREFILLING, now_us(q));
    connections_send(q->options.connections, r->prompt_machine, &message);
    event_report(q, r, &(struct gateway_event){.kind = GATEWAY_EVENT_PREFILLING});
}

static void machines_set(const struct requests *q, struct gateway_request *r,
                         struct fleet_machine *prompt_machine, struct fleet_machine *token_machine)
{
    r->prompt_machine = prompt_machine;
    r->token_machine = token_machine;
    event_report(q, r, &(struct gateway_event){.kind = GATEWAY_EVENT_ROUTED});
}

/* Sends RESERVE to the token machine, or PREFILL if none is needed. */
void requests_pull_end(struct requests *q, struct gateway_request *r, bool prefix_cache)
{
    if (r->token_machine == NULL) {
        prefill_send(q, r, &(struct message_reserved){0});
        return;
    }
    struct message message = request_reserve_message(r, prefix_cache, now_us(q));
    request_table_state_set(&q->table, r, GATEWAY_REQUEST_RESERVING);
    r->reserve_us = now_us(q);
    connections_send(q->options.connections, r->token_machine, &message);
}

void requests_route(struct requests *q, struct gateway_request *r,
                    struct fleet_machine *prompt_machine, struct fleet_machine *token_machine,
                    bool prefix_cache)
{
    machines_set(q, r, prompt_machine, token_machine);
    requests_pull_end(q, r, prefix_cache);
}

void requests_pull_begin(struct requests *q, struct gateway_request *r,
                         struct fleet_machine *prompt_machine, struct fleet_machine *token_machine,
                         struct fleet_machine *source, uint32_t tokens)
{
    machines_set(q, r, prompt_machine, token_machine);
    r->pull_source = source;
    r->pull_tokens = tokens;
    request_table_state_set(&q->table, r, GATEWAY_REQUEST_PULLING);
}

const struct request_list *requests_in_state(const struct requests *q, enum gateway_request_state s)
{
    return &q->table.lists[s];
}

/* Sends CANCEL to the prompt machine, unless it has finished with the request, and to
 * `token_machine`; NULL = none. */
static void cancel_send(struct requests *q, const struct gateway_request *r,
                        struct fleet_machine *token_machine)
{
    struct message message = {
        .kind = MESSAGE_CANCEL,
        .cancel = {.request = request_attempt(r), .writes_pending = request_prompt_is_sent(r)},
    };
    bool prefilling = r->state == GATEWAY_REQUEST_PREFILLING;
    if (prefilling)
        connections_send(q->options.connections, r->prompt_machine, &message);
    if (token_machine != NULL && !(prefilling && r->prompt_machine == token_machine))
        connections_send(q->options.connections, token_machine, &message);
}

static void request_cancel(struct requests *q, const struct gateway_request *r)
{
    cancel_send(q, r, r->token_machine);
}

/* ---- lost generations ---- */

/* Forgets the machines of this generation. */
static void generation_clear(struct requests *q, struct gateway_request *r)
{
    request_checkpoint_end(q->options.connections, r);
    if (r->prompt_machine != NULL) {
        r->machines_before[0] = r->prompt_machine;
        r->machines_before[1] = r->token_machine;
    }
    r->prompt_machine = r->token_machine = NULL;
    r->prompt_progress = r->token_progress = 0;
    r->early_count = 0;
}

/* Asks the machine whether it is alive, and lets the request's next generation wait for the answer
 * or for the end of the machine's connection. No effect if this gateway knows that the connection
 * has ended. */
static void doubt_begin(struct requests *q, struct gateway_request *r,
                        struct fleet_machine *machine)
{
    if (machine == NULL || !fleet_machine_up(machine))
        return;
    const struct message message = {.kind = MESSAGE_PROBE, .probe = {.number = ++q->probe_count}};
    connections_send(q->options.connections, machine, &message);
    r->doubt = (struct gateway_doubt){.machine = machine, .probe = message.probe.number};
}

/* Ends the doubts about the machine that have a PROBE with this number or a lower one. */
static void doubts_end(struct requests *q, const struct fleet_machine *machine, uint64_t probe)
{
    struct gateway_request *next;
    for (struct gateway_request *r = q->table.lists[GATEWAY_REQUEST_DOUBTED].first; r != NULL;
         r = next) {
        next = r->list_next;
        if (r->doubt.machine != machine || r->doubt.probe > probe)
            continue;
        r->doubt = (struct gateway_doubt){0};
        request_table_state_set(&q->table, r, GATEWAY_REQUEST_ARRIVING);
    }
}

void requests_machine_down(struct requests *q, const struct fleet_machine *m)
{
    doubts_end(q, m, UINT64_MAX);
}

/* Queues the next generation, whose prompt includes the delivered tokens. Every resumption begins
 * here. */
static void generation_next(struct requests *q, struct gateway_request *r,
                            enum gateway_resume resume, const char *why)
{
    log_debug("request %s (%llx) generation %u is lost: %s; resumes at token %u", r->client_id,
              (unsigned long long)r->id, r->generation, why, r->delivered);
    r->generation++;
    r->delivered_before = r->delivered;
    if (r->life.state != REQUEST_RESUMING)
        request_life_state_set(&r->life, REQUEST_RESUMING, now_us(q));
    request_table_state_set(&q->table, r,
                            r->doubt.machine != NULL ? GATEWAY_REQUEST_DOUBTED
                                                     : GATEWAY_REQUEST_ARRIVING);
    event_report(q, r,
                 &(struct gateway_event){.kind = GATEWAY_EVENT_RESUMING, .resume_reason = resume});
}

/* Resumes a request that the scheduler no longer knows, or ends it after too many losses. gone: see
 * request_held_update. */
static void generation_lose(struct requests *q, struct gateway_request *r, enum blame_cause cause,
                            const struct fleet_machine *gone, const char *why)
{
    request_held_update(r, gone);
    generation_clear(q, r);
    if (blame_loss_add(&r->blame, cause, r->delivered, now_us(q))) {
        char text[sizeof(r->end_text)];
        snprintf(text, sizeof(text), "lost %u times in a row, the last time because %.190s",
                 r->blame.loss_count, why);
        request_end(q, r, GATEWAY_FAILED, 0, text);
        return;
    }
    q->resumed_count++;
    metrics_counter_add(q->options.metrics, METRICS_REQUESTS_RESUMED, 1);
    generation_next(q, r, GATEWAY_RESUME_FAILED, why);
}

static void request_resume(struct requests *q, struct gateway_request *r, enum blame_cause cause,
                           const char *why)
{
    request_cancel(q, r);
    request_unschedule(q, r);
    generation_lose(q, r, cause, NULL, why);
}

/* The machine reports that it has lost its link to the request's other machine, which may have
 * died. The router learns of the link before the request is routed again, and of the machine's
 * death, too (gateway_doubt). */
static void request_resume_elsewhere(struct requests *q, struct gateway_request *r,
                                     const struct fleet_machine *machine, const char *why)
{
    bool by_prompt = machine == r->prompt_machine;
    struct fleet_machine *gone = by_prompt ? r->token_machine : r->prompt_machine;
    struct fleet_machine *prompt_machine = r->prompt_machine;
    struct fleet_machine *token_machine = r->token_machine;
    request_cancel(q, r);
    request_unschedule(q, r);
    if (gone != machine)
        doubt_begin(q, r, gone);
    generation_lose(q, r, BLAME_LINK, gone, why);
    if (!by_prompt && prompt_machine != NULL && prompt_machine != token_machine)
        q->options.events.link_lost(q->options.self, prompt_machine, token_machine);
}

static void progress_take(struct requests *q, const struct fleet_machine *machine,
                          const struct message_progress *m)
{
    struct gateway_request *r = request_named(q, machine, m->request.id, m->request.generation);
    if (r == NULL || !request_prompt_is_sent(r) ||
        m->tokens > r->prompt_count + r->delivered_before)
        return;
    log_debug("request %s (%llx): machine %s has the KV of %u tokens", r->client_id,
              (unsigned long long)r->id, machine->config.name, m->tokens);
    if (machine == r->token_machine)
        r->token_progress = m->tokens;
    else
        r->prompt_progress = m->tokens;
}

static void preempted_take(struct requests *q, struct fleet_machine *machine,
                           const struct message_preempted *m)
{
    struct gateway_request *r = request_named(q, machine, m->request.id, m->request.generation);
    if (r == NULL || machine != r->token_machine || !request_prompt_is_sent(r))
        return;
    cancel_send(q, r, NULL); /* the token machine has already forgotten it */
    request_unschedule(q, r);
    generation_clear(q, r);
    if (m->generated > 0) { /* otherwise it gave up memory that the answer had not used yet */
        r->preemptions++;
        r->held = (struct gateway_held){.machine = machine};
    }
    generation_next(q, r, GATEWAY_RESUME_PREEMPTED, m->text);
}

void requests_hand_over(struct requests *q, struct gateway_request *r)
{
    struct fleet_machine *machine = r->token_machine;
    request_cancel(q, r);
    request_unschedule(q, r);
    generation_clear(q, r);
    r->held = (struct gateway_held){.machine = machine};
    metrics_counter_add(q->options.metrics, METRICS_REQUESTS_HANDED_OVER, 1);
    generation_next(q, r, GATEWAY_RESUME_HANDED_OVER, "its token machine drains");
}

static void failed_take(struct requests *q, const struct fleet_machine *machine,
                        const struct message_failed *m)
{
    struct gateway_request *r = request_named(q, machine, m->request.id, m->request.generation);
    if (r == NULL)
        return;
    char why[sizeof(r->end_text)];
    snprintf(why, sizeof(why), "machine %s: %.200s", machine->config.name,
             m->text[0] != 0 ? m->text : status_name((enum status)m->status));
    bool begun = r->delivered > 0 || r->scored_next > 1;
    /* full of requests: the scheduler expects other machines to be as full */
    bool full = m->status == ST_NO_RESOURCE && !begun;
    if (m->status != ST_INVALID && m->status != ST_TOO_LARGE && !full) {
        log_info("request %s (%llx) failed: %s; resumes at token %u", r->client_id,
                 (unsigned long long)r->id, why, r->delivered);
        bool link = m->status == ST_UNREACHABLE || m->status == ST_TIMED_OUT;
        if (link)
            request_resume_elsewhere(q, r, machine, why);
        else
            request_resume(q, r, BLAME_FAILED, why);
        return;
    }
    bool refused = full || (m->status == ST_TOO_LARGE && !begun);
    if (refused)
        metrics_request_refused(q->options.metrics,
                                full ? METRICS_REFUSED_QUEUE : METRICS_REFUSED_TOO_LARGE);
    log_warn("request %s (%llx) failed: %s", r->client_id, (unsigned long long)r->id, why);
    request_cancel(q, r);
    request_unschedule(q, r);
    request_end(q, r, refused ? GATEWAY_REFUSED : GATEWAY_FAILED, full ? 1 : 0, why);
}

/* ---- messages from machines ---- */

static void reserved_take(struct requests *q, const struct fleet_machine *machine,
                          const struct message_reserved *m)
{
    struct gateway_request *r = request_named(q, machine, m->request.id, m->request.generation);
    if (r == NULL || machine != r->token_machine || r->state != GATEWAY_REQUEST_RESERVING)
        return;
    request_life_state_set(&r->life, REQUEST_RESERVED, now_us(q));
    prefill_send(q, r, m);
}

static void prefilled_take(struct requests *q, const struct fleet_machine *machine,
                           const struct message_prefilled *m)
{
    struct gateway_request *r = request_named(q, machine, m->request.id, m->request.generation);
    /* A short answer may have ended already; its transfer is counted nevertheless. */
    if (m->bytes > 0) {
        metrics_time_add(q->options.metrics, METRICS_EXPOSED, m->exposed_us);
        metrics_time_add(q->options.metrics, METRICS_TRANSFER, m->transfer_us);
    }
    if (r == NULL || machine != r->prompt_machine || r->state != GATEWAY_REQUEST_PREFILLING)
        return;
    request_table_state_set(&q->table, r, GATEWAY_REQUEST_PREFILLED);
    if (r->token_machine != NULL &&
        (r->life.state == REQUEST_PREFILLING || r->life.state == REQUEST_TRANSFERRING))
        request_life_state_set(&r->life, REQUEST_DECODING, now_us(q));
    if (r->token_machine != NULL)
        event_report(q, r,
                     &(struct gateway_event){.kind = GATEWAY_EVENT_TRANSFERRED, .transfer = m});
    q->options.events.prefilled(q->options.self, r);
}

/* Ends a request that has everything that it asked for. */
static void request_finish(struct requests *q, struct gateway_request *r)
{
    /* The prompt machine sampled an end token at once: the token machine's blocks, and the KV on
     * its way there, are not needed. */
    bool ended_early = r->delivered - r->delivered_before < 2 && r->token_machine != NULL;
    if (ended_early)
        request_cancel(q, r);
    request_unschedule(q, r);
    request_end(q, r, GATEWAY_DONE, 0, "");
}

/* Delivers the next token, which arrived at `now`. Returns false when the request is over; `r` may
 * then belong to another request. */
static bool token_deliver(struct requests *q, struct gateway_request *r,
                          const struct message_token *token, int64_t now)
{
    uint64_t id = r->id;
    struct message_token copy = *token;
    if (token->finish == FINISH_CONSTRAINT) {
        request_cancel(q, r);
        request_unschedule(q, r);
        request_end(q, r, GATEWAY_FAILED, 0,
                    "the answer's constraint cannot be followed: the machine's log has the reason");
        return false;
    }
    copy.index = r->delivered;
    if (copy.finish == FINISH_NONE && request_tokens_left(r) == 1)
        copy.finish = FINISH_LENGTH; /* its machine should have said so; the client must not wait */
    request_token_report(q->options.metrics, r, token, now);
    if (token->index == 0)
        event_report(q, r,
                     &(struct gateway_event){.kind = GATEWAY_EVENT_FIRST_TOKEN, .token = token});
    r->tokens[r->prompt_count + r->delivered++] = token->id;
    if (blame_clear(&r->blame, r->delivered))
        log_info("request %s (%llx) is no suspect any more", r->client_id, (unsigned long long)id);
    r->finish = copy.finish;
    r->last_us = now;
    if (r->first_us < 0)
        r->first_us = now;
    if (r->life.state == REQUEST_PREFILLING)
        request_life_state_set(&r->life, REQUEST_TRANSFERRING, now);
    else if (r->life.state == REQUEST_TRANSFERRING)
        request_life_state_set(&r->life, REQUEST_DECODING, now);
    r->client.token(r->client.self, &copy);
    if (r->id != id)
        return false; /* released from inside the callback */
    if (copy.finish == FINISH_NONE)
        return true;
    request_finish(q, r);
    return false;
}

/* Keeps a token that overtook the first one: the tokens of the token machine come over another
 * connection. */
static void token_keep(struct requests *q, struct gateway_request *r,
                       const struct message_token *token)
{
    uint32_t expected = 1 + r->early_count;
    if (token->index < expected)
        return; /* a repetition */
    if (token->index > expected || r->early_count == EARLY_MAX) {
        request_resume(q, r, BLAME_FAILED, "a token is missing");
        return;
    }
    if (r->early_tokens == NULL)
        r->early_tokens = malloc(EARLY_MAX * sizeof(*r->early_tokens));
    if (r->early_tokens == NULL) {
        request_resume(q, r, BLAME_FAILED, "out of memory");
        return;
    }
    r->early_tokens[r->early_count++] = *token;
}

static void token_take(struct requests *q, struct gateway_request *r,
                       const struct message_token *token, int64_t now)
{
    uint32_t next = r->delivered - r->delivered_before;
    if (token->index < next || request_tokens_left(r) == 0)
        return;
    if (token->index == 0)
        q->options.events.computed(q->options.self, r);
    if (token->index > next && next == 0) {
        token_keep(q, r, token);
        return;
    }
    if (token->index > next) {
        request_resume(q, r, BLAME_FAILED, "a token is missing");
        return;
    }
    if (!token_deliver(q, r, token, now) || token->index > 0)
        return;
    uint32_t count = r->early_count;
    for (uint32_t i = 0; i < count; i++)
        if (!token_deliver(q, r, &r->early_tokens[i], now))
            return; /* r->early_tokens has been freed */
    r->early_count = 0;
}

/* Takes the score of a prompt position. A resumed prompt is longer than the client's, and repeats
 * the first scores. */
static void score_take(struct requests *q, struct gateway_request *r,
                       const struct message_token *token)
{
    if (!r->score_prompt || token->index != r->scored_next || token->index >= r->prompt_count)
        return;
    uint64_t id = r->id;
    r->scored_next++;
    r->client.token(r->client.self, token);
    if (r->id != id || r->scored_next < r->prompt_count || r->sampling.output_tokens_max > 0)
        return;
    metrics_counter_add(q->options.metrics, METRICS_PROMPT_TOKENS, r->prompt_count);
    request_finish(q, r);
}

static void embedding_take(struct requests *q, const struct fleet_machine *machine,
                           const struct message_embedding *m)
{
    struct gateway_request *r = request_named(q, machine, m->request.id, m->request.generation);
    if (r == NULL || !request_prompt_is_sent(r) || r->pooling == POOLING_NONE)
        return;
    uint64_t id = r->id;
    r->client.embedding(r->client.self, m->values, m->count);
    if (r->id != id)
        return;
    metrics_counter_add(q->options.metrics, METRICS_PROMPT_TOKENS, r->prompt_count);
    request_finish(q, r);
}

static void tokens_take(struct requests *q, const struct fleet_machine *machine,
                        struct message_tokens *tokens)
{
    struct message_token token;
    int64_t now = now_us(q); /* One reading of the clock for all tokens. */
    while (message_tokens_next(tokens, &token)) {
        struct gateway_request *r = request_named(q, machine, token.request, token.generation);
        if (r == NULL || !request_prompt_is_sent(r))
            continue;
        if (token.scored)
            score_take(q, r, &token);
        else
            token_take(q, r, &token, now);
    }
}
/* ---- the end of many requests ---- */

static void request_stop(struct requests *q, struct gateway_request *r, const char *text)
{
    if (r->state == GATEWAY_REQUEST_ENDING)
        return;
    request_cancel(q, r);
    request_unschedule(q, r);
    request_end(q, r, GATEWAY_FAILED, 0, text);
}

void requests_version_stop(struct requests *q, uint32_t version_index, const char *reason)
{
    for (struct gateway_request *r = requests_next(q, NULL); r != NULL; r = requests_next(q, r))
        if (r->version_index == version_index)
            request_stop(q, r, reason);
}

void requests_stop(struct requests *q)
{
    q->stopping = true;
    for (struct gateway_request *r = requests_next(q, NULL); r != NULL; r = requests_next(q, r))
        request_stop(q, r, STOPPING_TEXT);
}

/* ---- calls for clients ---- */

enum status requests_submit(struct requests *q, const struct gateway_submit *submit,
                            uint32_t version_index, struct gateway_request **out)
{
    assert(submit->prompt_count >= 1);
    uint64_t capacity = (uint64_t)submit->prompt_count + submit->sampling.output_tokens_max;
    if (capacity > LIMIT_CONTEXT_TOKENS)
        return ST_TOO_LARGE;
    if (q->table.open_count == LIMIT_CLUSTER_REQUESTS) {
        metrics_request_refused(q->options.metrics, METRICS_REFUSED_OPEN);
        return ST_NO_RESOURCE;
    }
    struct gateway_request *r;
    enum status status = request_table_add(&q->table, submit, &r);
    if (status != ST_OK)
        return status;
    r->version_index = version_index;
    q->versions[version_index].open++;
    q->versions[version_index].total++;
    request_life_init(&r->life, submit->arrived_us > 0 ? submit->arrived_us : now_us(q));
    bool nothing_to_do = submit->sampling.output_tokens_max == 0 && !request_wants_whole_prompt(r);
    if (q->stopping) {
        r->end = GATEWAY_FAILED;
        snprintf(r->end_text, sizeof(r->end_text), "%s", STOPPING_TEXT);
    }
    request_table_state_set(&q->table, r,
                            nothing_to_do || q->stopping ? GATEWAY_REQUEST_ENDING
                                                         : GATEWAY_REQUEST_ARRIVING);
    r->history_number = history_begin(q->options.history, r, submit, now_us(q));
    *out = r;
    return ST_OK;
}

void requests_release(struct requests *q, struct gateway_request *r, enum gateway_release why)
{
    assert(r->id != 0);
    if (r->state != GATEWAY_REQUEST_ENDING) { /* otherwise it was reported when it ended */
        bool stopped = why == GATEWAY_STOPPED && request_state_legal(r->life.state, REQUEST_DONE);
        request_end_report(q->options.history, r, stopped ? HISTORY_STOPPED : HISTORY_LEFT, "",
                           now_us(q));
        request_cancel(q, r);
        request_life_state_set(&r->life, stopped ? REQUEST_DONE : REQUEST_CANCELLED, now_us(q));
        request_ended_report(q->options.metrics, r, now_us(q),
                             stopped ? METRICS_STOP : METRICS_ABORT);
        request_unschedule(q, r);
    }
    request_free(q, r);
}

bool requests_pending(const struct requests *q)
{
    return q->table.lists[GATEWAY_REQUEST_ARRIVING].count > 0 ||
           q->table.lists[GATEWAY_REQUEST_ENDING].count > 0 ||
           (q->table.lists[GATEWAY_REQUEST_SUSPECTED].count > 0 &&
            !request_table_suspect_is_scheduled(&q->table, NULL));
}

/* ---- calls by the router ---- */

struct gateway_request *requests_arrived_take(struct requests *q)
{
    return request_table_arrived_take(&q->table);
}

void requests_refuse(struct requests *q, struct gateway_request *r, enum metrics_refusal refusal,
                     uint32_t retry_after_s, const char *reason)
{
    if (r->delivered > 0 || r->scored_next > 1) { /* It was lost, and no machine can resume it. */
        request_end(q, r, GATEWAY_FAILED, 0, reason);
        return;
    }
    metrics_request_refused(q->options.metrics, refusal);
    request_cancel(q, r);
    if (r->state != GATEWAY_REQUEST_SCHEDULED) /* Otherwise the scheduler has forgotten it. */
        request_unschedule(q, r);
    request_end(q, r, GATEWAY_REFUSED, retry_after_s, reason);
}

void requests_expire(struct requests *q, struct gateway_request *r, const char *reason)
{
    request_end(q, r, GATEWAY_FAILED, 0, reason);
}

/* True if the machine may have computed the request when the connection ended. */
static bool may_have_computed(const struct gateway_request *r, const struct fleet_machine *machine)
{
    return (r->state == GATEWAY_REQUEST_PREFILLING && machine == r->prompt_machine) ||
           (request_prompt_is_sent(r) && machine == r->token_machine &&
            r->delivered > r->delivered_before);
}

void requests_lose(struct requests *q, struct gateway_request *r, const struct fleet_machine *dead)
{
    enum blame_cause cause = dead == NULL         ? BLAME_LINK
                             : dead->config.local ? BLAME_NONE /* See requests_crash_handle. */
                             : may_have_computed(r, dead) ? BLAME_DEATH
                                                          : BLAME_NONE;
    request_cancel(q, r);
    generation_lose(q, r, cause, dead, "its machine or its link is gone");
}

/* A new suspect, which lost its machine before, runs alone among suspects. If there is another one
 * on machines, the suspect is taken back; else it goes on where it is. */
static void suspect_take_back(struct requests *q, struct gateway_request *r, const char *crash_text)
{
    if (r->state == GATEWAY_REQUEST_SCHEDULED) { /* It is on no machine: nothing is lost. */
        request_unschedule(q, r);
        request_table_state_set(&q->table, r, GATEWAY_REQUEST_ARRIVING);
    } else if (r->state > GATEWAY_REQUEST_SCHEDULED) {
        request_resume(q, r, BLAME_NONE, crash_text);
    }
}

void requests_crash_handle(struct requests *q, const struct fleet_machine *m, const uint64_t *ids,
                           uint32_t id_count, uint32_t crashes_max, const char *crash_text)
{
    for (uint32_t i = 0; i < id_count; i++) {
        struct gateway_request *r = request_table_find(&q->table, ids[i]);
        if (r == NULL || r->state == GATEWAY_REQUEST_ENDING || !request_had_machine(r, m))
            continue;
        bool over = blame_crash_add(&r->blame, r->delivered, crashes_max);
        log_warn("request %s (%llx) was computed when %s; crashes in a row: %u", r->client_id,
                 (unsigned long long)r->id, crash_text, r->blame.crashes);
        if (!over) {
            if (request_table_suspect_is_scheduled(&q->table, r))
                suspect_take_back(q, r, crash_text);
            continue;
        }
        char text[sizeof(r->end_text)];
        snprintf(text, sizeof(text), "machines crashed %u times while they computed it: %s",
                 r->blame.crashes, crash_text);
        request_cancel(q, r);
        request_unschedule(q, r);
        metrics_counter_add(q->options.metrics, METRICS_REQUESTS_BLAMED, 1);
        request_end(q, r, GATEWAY_BLAMED, 0, text);
    }
}

bool requests_message_handle(struct requests *q, struct fleet_machine *m, struct message *message)
{
    switch (message->kind) {
    case MESSAGE_RESERVED:
        reserved_take(q, m, &message->reserved);
        return true;
    case MESSAGE_TOKENS:
        tokens_take(q, m, &message->tokens);
        return true;
    case MESSAGE_EMBEDDING:
        embedding_take(q, m, &message->embedding);
        return true;
    case MESSAGE_PREFILLED:
        prefilled_take(q, m, &message->prefilled);
        return true;
    case MESSAGE_PROGRESS:
        progress_take(q, m, &message->progress);
        return true;
    case MESSAGE_PREEMPTED:
        preempted_take(q, m, &message->preempted);
        return true;
    case MESSAGE_FAILED:
        failed_take(q, m, &message->failed);
        return true;
    case MESSAGE_PROBE:
        doubts_end(q, m, message->probe.number);
        return true;
    default:
        return false;
    }
}

struct gateway_request *requests_find(struct requests *q, uint64_t id)
{
    return request_table_find(&q->table, id);
}

struct gateway_request *requests_at(struct requests *q, uint32_t slot)
{
    struct gateway_request *r = &q->table.slots[slot];
    assert(r->id != 0);
    return r;
}

struct gateway_request *requests_next(struct requests *q, const struct gateway_request *r)
{
    return request_table_next(&q->table, r);
}

struct requests_counts requests_counts(const struct requests *q)
{
    return (struct requests_counts){.open = q->table.open_count,
                                    .prompts_sent =
                                        q->table.lists[GATEWAY_REQUEST_PREFILLING].count +
                                        q->table.lists[GATEWAY_REQUEST_PREFILLED].count,
                                    .resumed = q->resumed_count};
}

struct requests_version *requests_version(struct requests *q, uint32_t version_index)
{
    return &q->versions[version_index];
}
