/* gateway_requests: a request between its route and its end.
 *
 *   route ─┬─► RESERVE to the token machine ─► RESERVED ─┬─► PREFILL to the ─► tokens ─► end
 *          └─► no token machine is needed ───────────────┘   prompt machine
 *
 * Machines number the tokens of a generation from 0. `base` is the number of tokens that the client
 * had when the generation began, so a token's index in the answer is base + index, and the client
 * gets each index once. When a generation is lost, the prompt of the next one is the old prompt and
 * all delivered tokens. Positions are then the same as before, and sampling depends on (seed,
 * position) only, so the answer continues unchanged. */
#include "server/gateway_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct message_request request_of(const struct gateway_request *r)
{
    return (struct message_request){.id = r->id, .generation = r->generation};
}

/* Returns the request that a machine's message is about; NULL = it has ended, or the message
 * belongs to an old generation or comes from a machine that has no part in it. */
static struct gateway_request *request_named(struct gateway *g, const struct fleet_machine *machine,
                                             uint64_t id, uint32_t generation)
{
    struct gateway_request *r = gateway_request_find(g, id);
    if (r == NULL || r->generation != generation || request_state_ended(r->life.state))
        return NULL;
    return machine == r->prompt_machine || machine == r->token_machine ? r : NULL;
}

/* ---- messages to machines ---- */

static uint32_t tokens_left(const struct gateway_request *r)
{
    return r->sampling.output_tokens_max - r->delivered;
}

uint32_t gateway_request_decodes(const struct gateway_request *r)
{
    return tokens_left(r) > 1 ? tokens_left(r)
                              : 0; /* the first one comes from the prompt machine */
}

static struct message_sampling sampling_left(const struct gateway_request *r)
{
    struct message_sampling sampling = r->sampling;
    uint32_t done = r->delivered;
    sampling.output_tokens_max -= done;
    sampling.output_tokens_min -=
        done < sampling.output_tokens_min ? done : sampling.output_tokens_min;
    return sampling;
}

/* True if scores of prompt positions are wanted: the whole prompt must then be computed. */
static bool scores_left(const struct gateway_request *r)
{
    return r->score_prompt && r->scored_next < r->prompt_count;
}

static struct message_rank rank_of(const struct gateway *g, const struct gateway_request *r)
{
    int64_t waited_ms = (gateway_now(g) - r->life.at_us[REQUEST_QUEUED]) / 1000;
    return (struct message_rank){
        .key = r->key_hash,
        .weight = r->weight,
        .priority = r->priority,
        .waited_ms = waited_ms < 0            ? 0
                     : waited_ms < UINT32_MAX ? (uint32_t)waited_ms
                                              : UINT32_MAX,
        .preemptions = r->preemptions,
    };
}

static void prefill_send(struct gateway *g, struct gateway_request *r,
                         const struct message_reserved *reserved)
{
    struct message message = {
        .kind = MESSAGE_PREFILL,
        .prefill = {.request = request_of(r),
                    .score_prompt = scores_left(r),
                    .kv_path = r->kv_path,
                    .rank = rank_of(g, r),
                    .sampling = sampling_left(r),
                    .path = reserved->path,
                    .held_count = reserved->held_count,
                    .block_count = reserved->block_count,
                    .blocks = reserved->blocks,
                    .prompt_count = r->prompt_count + r->delivered,
                    .prompt = r->tokens},
    };
    if (r->token_machine != NULL)
        snprintf(message.prefill.token_machine, sizeof(message.prefill.token_machine), "%s",
                 r->token_machine->config.name);
    r->prefill_sent = true;
    g->begun_count++;
    request_life_change(&r->life, REQUEST_PREFILLING, gateway_now(g));
    gateway_machine_send(g, r->prompt_machine, &message);
}

void gateway_request_route(struct gateway *g, struct gateway_request *r,
                           struct fleet_machine *prompt_machine,
                           struct fleet_machine *token_machine)
{
    r->prompt_machine = prompt_machine;
    r->token_machine = token_machine;
    if (token_machine == NULL) {
        prefill_send(g, r, &(struct message_reserved){0});
        return;
    }
    struct message message = {
        .kind = MESSAGE_RESERVE,
        .reserve = {.request = request_of(r),
                    .prompt_tokens = r->prompt_count + r->delivered,
                    .rank = rank_of(g, r),
                    .sampling = sampling_left(r)},
    };
    if (r->version->kv.prefix_cache && !scores_left(r)) {
        message.reserve.prompt = r->tokens;
        message.reserve.prompt_count = message.reserve.prompt_tokens;
    }
    snprintf(message.reserve.prompt_machine, sizeof(message.reserve.prompt_machine), "%s",
             prompt_machine->config.name);
    r->reserve_sent = true;
    r->reserve_us = gateway_now(g);
    gateway_machine_send(g, token_machine, &message);
}

void gateway_request_cancel(struct gateway *g, struct gateway_request *r)
{
    struct message message = {
        .kind = MESSAGE_CANCEL,
        .cancel = {.request = request_of(r), .writer = r->prefill_sent},
    };
    if (r->prefill_sent && !r->prefilled)
        gateway_machine_send(g, r->prompt_machine, &message);
    bool told = r->prefill_sent && !r->prefilled && r->prompt_machine == r->token_machine;
    if (r->reserve_sent && !told)
        gateway_machine_send(g, r->token_machine, &message);
}

/* ---- lost generations ---- */

/* Forgets the state of this generation on its machines. */
static void generation_clear(struct gateway *g, struct gateway_request *r)
{
    if (r->prefill_sent)
        g->begun_count--;
    r->reserve_sent = r->prefill_sent = r->prefilled = false;
    r->prompt_machine = r->token_machine = NULL;
    r->early_count = 0;
}

/* Queues the next generation, whose prompt includes the delivered tokens. */
static void generation_next(struct gateway *g, struct gateway_request *r, const char *why)
{
    log_debug("request %llx generation %u is lost: %s; resumes at token %u",
              (unsigned long long)r->id, r->generation, why, r->delivered);
    r->generation++;
    r->base = r->delivered;
    if (r->life.state != REQUEST_RESUMING)
        request_life_change(&r->life, REQUEST_RESUMING, gateway_now(g));
    gateway_list_add(g, r, LIST_ARRIVING);
}

void gateway_request_resume(struct gateway *g, struct gateway_request *r, uint32_t suspicion,
                            const char *why)
{
    bool progress = r->delivered > r->base;
    r->losses = progress ? 1 : r->losses + 1;
    r->suspicion = progress ? suspicion : r->suspicion + suspicion;
    gateway_request_cancel(g, r);
    gateway_request_unschedule(g, r);
    generation_clear(g, r);
    if (r->suspicion >= GATEWAY_SUSPECT_MAX) {
        char text[sizeof(r->end_text)];
        snprintf(text, sizeof(text), "lost %u times in a row, lastly: %s", r->losses, why);
        gateway_request_end(g, r, GATEWAY_FAILED, 0, text);
        return;
    }
    g->resumed_count++;
    r->held_machine = NULL;
    metrics_request_resumed(g->options.metrics);
    generation_next(g, r, why);
}

void gateway_request_preempted(struct gateway *g, struct fleet_machine *machine,
                               const struct message_preempted *m)
{
    struct gateway_request *r = request_named(g, machine, m->request.id, m->request.generation);
    if (r == NULL || machine != r->token_machine || !r->prefill_sent)
        return;
    r->reserve_sent = false; /* the token machine has already forgotten it */
    gateway_request_cancel(g, r);
    gateway_request_unschedule(g, r);
    generation_clear(g, r);
    if (m->generated > 0) { /* otherwise it gave up memory that the answer had not used yet */
        r->preemptions++;
        r->held_machine = machine;
    }
    generation_next(g, r, m->text);
}

void gateway_request_hand_over(struct gateway *g, struct gateway_request *r)
{
    struct fleet_machine *machine = r->token_machine;
    gateway_request_cancel(g, r);
    gateway_request_unschedule(g, r);
    generation_clear(g, r);
    r->held_machine = machine;
    metrics_request_handed_over(g->options.metrics);
    generation_next(g, r, "its token machine drains");
}

void gateway_request_failed(struct gateway *g, const struct fleet_machine *machine,
                            const struct message_failed *m)
{
    struct gateway_request *r = request_named(g, machine, m->request.id, m->request.generation);
    if (r == NULL)
        return;
    char why[sizeof(r->end_text)];
    snprintf(why, sizeof(why), "machine %s: %.200s", machine->config.name,
             m->text[0] != 0 ? m->text : status_name((enum status)m->status));
    bool begun = r->delivered > 0 || r->scored_next > 1;
    /* full of requests: the scheduler expects other machines to be as full */
    bool full = m->status == ST_NO_RESOURCE && !begun;
    if (m->status != ST_INVALID && m->status != ST_TOO_LARGE && !full) {
        log_info("request %llx failed: %s; resumes at token %u", (unsigned long long)r->id, why,
                 r->delivered);
        bool link = m->status == ST_UNREACHABLE || m->status == ST_TIMED_OUT;
        gateway_request_resume(g, r, link ? GATEWAY_SUSPECT_LINK : GATEWAY_SUSPECT_DEATH, why);
        return;
    }
    bool refused = full || (m->status == ST_TOO_LARGE && !begun);
    log_warn("request %llx failed: %s", (unsigned long long)r->id, why);
    gateway_request_cancel(g, r);
    gateway_request_unschedule(g, r);
    gateway_request_end(g, r, refused ? GATEWAY_REFUSED : GATEWAY_FAILED, full ? 1 : 0, why);
}

/* ---- messages from machines ---- */

void gateway_request_reserved(struct gateway *g, const struct fleet_machine *machine,
                              const struct message_reserved *m)
{
    struct gateway_request *r = request_named(g, machine, m->request.id, m->request.generation);
    if (r == NULL || machine != r->token_machine || !r->reserve_sent || r->prefill_sent)
        return;
    request_life_change(&r->life, REQUEST_RESERVED, gateway_now(g));
    prefill_send(g, r, m);
}

void gateway_request_prefilled(struct gateway *g, const struct fleet_machine *machine,
                               const struct message_prefilled *m)
{
    struct gateway_request *r = request_named(g, machine, m->request.id, m->request.generation);
    /* a short answer may have ended already: its transfer counts all the same */
    if (m->bytes > 0) {
        metrics_time_add(g->options.metrics, METRICS_EXPOSED, m->exposed_us);
        metrics_time_add(g->options.metrics, METRICS_TRANSFER, m->transfer_us);
    }
    if (r == NULL || machine != r->prompt_machine || !r->prefill_sent || r->prefilled)
        return;
    r->prefilled = true;
    if (r->token_machine != NULL &&
        (r->life.state == REQUEST_PREFILLING || r->life.state == REQUEST_TRANSFERRING))
        request_life_change(&r->life, REQUEST_DECODING, gateway_now(g));
    struct sched_event event = {
        .kind = SCHED_PREFILLED, .now_us = gateway_now(g), .request = request_slot(g, r)};
    gateway_schedule(g, r->version, &event);
}

/* Reports the parts of the time to the first token. */
static void first_token_report(struct gateway *g, const struct gateway_request *r,
                               const struct message_token *token, int64_t now_us)
{
    struct metrics *metrics = g->options.metrics;
    const int64_t *at = r->life.at_us;
    int64_t reserve = r->reserve_sent ? at[REQUEST_RESERVED] - r->reserve_us : 0;
    int64_t wait = at[REQUEST_PREFILLING] - at[REQUEST_QUEUED] + token->wait_us;
    metrics_time_add(metrics, METRICS_RESERVE, reserve);
    metrics_time_add(metrics, METRICS_QUEUE, wait - reserve);
    metrics_time_add(metrics, METRICS_WAIT, wait);
    metrics_time_add(metrics, METRICS_PROMPT, token->run_us);
    metrics_time_add(metrics, METRICS_TTFT, now_us - at[REQUEST_QUEUED]);
    metrics_prompt_tokens_add(metrics, r->prompt_count);
}

static void token_report(struct gateway *g, const struct gateway_request *r,
                         const struct message_token *token, int64_t now_us)
{
    struct metrics *metrics = g->options.metrics;
    if (r->first_us < 0)
        first_token_report(g, r, token, now_us);
    else
        metrics_time_add(metrics, METRICS_INTER_TOKEN, now_us - r->last_us);
    if (token->index == 1)
        metrics_time_add(metrics, METRICS_FIRST_DECODE, (int64_t)token->wait_us + token->run_us);
    metrics_generated_tokens_add(metrics, 1);
}

/* Ends a request that has everything that it asked for. */
static void request_finish(struct gateway *g, struct gateway_request *r)
{
    /* The prompt machine sampled an end token at once: the token machine's blocks, and the KV on
     * its way there, are not needed. */
    bool ended_early = r->delivered - r->base < 2 && r->token_machine != NULL;
    if (ended_early)
        gateway_request_cancel(g, r);
    gateway_request_unschedule(g, r);
    gateway_request_end(g, r, GATEWAY_DONE, 0, "");
}

/* Delivers the next token. Returns false when the request is over; `r` may then belong to another
 * request. */
static bool token_deliver(struct gateway *g, struct gateway_request *r,
                          const struct message_token *token)
{
    int64_t now = gateway_now(g);
    uint64_t id = r->id;
    struct message_token copy = *token;
    copy.index = r->delivered;
    if (copy.finish == FINISH_NONE && tokens_left(r) == 1)
        copy.finish = FINISH_LENGTH; /* its machine should have said so; the client must not wait */
    token_report(g, r, token, now);
    r->tokens[r->prompt_count + r->delivered++] = token->id;
    r->finish = copy.finish;
    r->last_us = now;
    if (r->first_us < 0)
        r->first_us = now;
    if (r->life.state == REQUEST_PREFILLING)
        request_life_change(&r->life, REQUEST_TRANSFERRING, now);
    else if (r->life.state == REQUEST_TRANSFERRING)
        request_life_change(&r->life, REQUEST_DECODING, now);
    r->client.token(r->client.self, &copy);
    if (r->id != id)
        return false; /* released from inside the callback */
    if (copy.finish == FINISH_NONE)
        return true;
    request_finish(g, r);
    return false;
}

/* Keeps a token that overtook the first one: the tokens of the token machine come over another
 * connection. */
static void token_keep(struct gateway *g, struct gateway_request *r,
                       const struct message_token *token)
{
    uint32_t expected = 1 + r->early_count;
    if (token->index < expected)
        return; /* a repetition */
    if (token->index > expected || r->early_count == GATEWAY_EARLY_MAX) {
        gateway_request_resume(g, r, GATEWAY_SUSPECT_DEATH, "a token is missing");
        return;
    }
    if (r->early == NULL)
        r->early = malloc(GATEWAY_EARLY_MAX * sizeof(*r->early));
    if (r->early == NULL) {
        gateway_request_resume(g, r, GATEWAY_SUSPECT_DEATH, "out of memory");
        return;
    }
    r->early[r->early_count++] = *token;
}

static void token_take(struct gateway *g, struct gateway_request *r,
                       const struct message_token *token)
{
    uint32_t next = r->delivered - r->base;
    if (token->index < next || tokens_left(r) == 0)
        return;
    if (token->index == 0) { /* its prompt is computed; some of its KV may not have moved yet */
        struct sched_event event = {
            .kind = SCHED_COMPUTED, .now_us = gateway_now(g), .request = request_slot(g, r)};
        gateway_schedule(g, r->version, &event);
    }
    if (token->index > next && next == 0) {
        token_keep(g, r, token);
        return;
    }
    if (token->index > next) {
        gateway_request_resume(g, r, GATEWAY_SUSPECT_DEATH, "a token is missing");
        return;
    }
    if (!token_deliver(g, r, token) || token->index > 0)
        return;
    uint32_t count = r->early_count;
    for (uint32_t i = 0; i < count; i++)
        if (!token_deliver(g, r, &r->early[i]))
            return; /* r->early has been freed */
    r->early_count = 0;
}

/* Takes the score of a prompt position. A resumed prompt is longer than the client's, and repeats
 * the first scores. */
static void score_take(struct gateway *g, struct gateway_request *r,
                       const struct message_token *token)
{
    if (!r->score_prompt || token->index != r->scored_next || token->index >= r->prompt_count)
        return;
    uint64_t id = r->id;
    r->scored_next++;
    r->client.token(r->client.self, token);
    if (r->id != id || r->scored_next < r->prompt_count || r->sampling.output_tokens_max > 0)
        return;
    metrics_prompt_tokens_add(g->options.metrics, r->prompt_count);
    request_finish(g, r);
}

void gateway_request_tokens(struct gateway *g, const struct fleet_machine *machine,
                            struct message_tokens *tokens)
{
    struct message_token token;
    while (message_tokens_next(tokens, &token)) {
        struct gateway_request *r = request_named(g, machine, token.request, token.generation);
        if (r == NULL || !r->prefill_sent)
            continue;
        if (token.scored)
            score_take(g, r, &token);
        else
            token_take(g, r, &token);
    }
}
