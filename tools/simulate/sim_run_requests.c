/* sim_run, the requests: RESERVE, RESERVED, PREFILL, the prompt's chunks with their KV, the
 * answer's tokens, and every way in which a request can end. A message takes message_s. Messages to
 * the gateway arrive at once, but the times that a client sees include message_s. */
#include "tools/simulate/sim_run_state.h"

#include <assert.h>
#include <string.h>

static bool was_resumed(const struct run_request *q)
{
    return q->restarted + q->preempted + q->given_up > 0;
}

static struct sched_rank rank_of(const struct run_request *q)
{
    return (struct sched_rank){.weight = 1,
                               .resumed = was_resumed(q),
                               .born_us = (int64_t)(q->arrival.at_s * 1e6),
                               .request_number = q->number};
}

static uint32_t left_of(const struct run_request *q)
{
    return q->arrival.output_tokens - q->answer_tokens;
}

static void state_set(struct run_request *q, enum run_request_state to)
{
    /* Bit i: the state may change to state i. */
    static const uint32_t ends = 1 << RUN_ARRIVED | 1 << RUN_FREE;
    static const uint32_t legal[RUN_STATE_COUNT] = {
        [RUN_FREE] = 1 << RUN_ARRIVED,
        [RUN_ARRIVED] = 1 << RUN_RESERVE_SENT | 1 << RUN_PREFILL_SENT | 1 << RUN_FREE,
        [RUN_RESERVE_SENT] = 1 << RUN_RESERVING | ends,
        [RUN_RESERVING] = 1 << RUN_PREFILL_SENT | ends,
        [RUN_PREFILL_SENT] = 1 << RUN_PREFILLING | ends,
        [RUN_PREFILLING] = 1 << RUN_TRANSFERRING | ends,
        [RUN_TRANSFERRING] = 1 << RUN_DECODING | ends,
        [RUN_DECODING] = ends,
    };
    assert((legal[q->state] >> to & 1) != 0);
    q->state = to;
}

/* Changes to a state that the event of the slot ends. */
static void state_until(struct run *r, uint32_t slot, enum run_request_state to, double at_s)
{
    state_set(&r->requests[slot], to);
    event_heap_put(&r->events, event_of_slot(r, slot), at_s);
}

/* ---- ends ---- */

static void task_drop(struct run *r, uint32_t host, sched_slot *slot)
{
    if (*slot != SCHED_NO_SLOT && r->hosts[host].machine != NULL) {
        sim_machine_remove(r->hosts[host].machine, *slot);
        run_begin_later(r, host);
    }
    *slot = SCHED_NO_SLOT;
}

static void slot_give(struct run *r, uint32_t slot)
{
    event_heap_remove(&r->events, event_of_slot(r, slot));
    r->queued -= !r->requests[slot].prompt_began;
    state_set(&r->requests[slot], RUN_FREE);
    r->open--;
    r->free_slots[r->free_count++] = slot;
}

static void request_close(struct run *r, uint32_t slot, enum sim_outcome outcome)
{
    struct run_request *q = &r->requests[slot];
    double e2e_s = r->now_s + r->options.message_s - q->arrival.at_s;
    uint32_t gaps = q->arrival.output_tokens - 1;
    struct sim_result result = {.arrival = &q->arrival,
                                .outcome = outcome,
                                .prompt_machine = q->prompt_machine,
                                .token_machine = q->token_machine,
                                .preempted = q->preempted + q->given_up,
                                .restarted = q->restarted};
    if (outcome == SIM_DONE) {
        result.ttft_s = q->ttft_s;
        result.e2e_s = e2e_s;
        result.tbt_s = gaps > 0 ? (e2e_s - q->ttft_s) / gaps : 0;
        result.queue_s = q->queue_s;
        result.transfer_s = q->transfer_s;
    }
    sim_report_add(r->report, &result);
    slot_give(r, slot);
}

static void request_done(struct run *r, uint32_t slot)
{
    struct run_request *q = &r->requests[slot];
    task_drop(r, q->prompt_machine, &q->prompt_slot);
    if (q->token_machine != SCHED_NO_MACHINE)
        task_drop(r, q->token_machine, &q->token_slot);
    struct sched_event ended = {.kind = SCHED_ENDED,
                                .request = slot,
                                .output_tokens = q->answer_tokens - q->answer_tokens_before};
    request_close(r, slot, SIM_DONE);
    run_event_apply(r, &ended);
}

/* ---- arrivals ---- */

static void arrive(struct run *r, uint32_t slot)
{
    struct run_request *q = &r->requests[slot];
    uint32_t left = left_of(q);
    state_set(q, RUN_ARRIVED);
    q->prompt = q->arrival.prompt_tokens + q->answer_tokens;
    q->answer_tokens_before = q->answer_tokens;
    q->prompt_machine = q->token_machine = SCHED_NO_MACHINE;
    q->prompt_slot = q->token_slot = SCHED_NO_SLOT;
    run_event_apply(r, &(struct sched_event){.kind = SCHED_ARRIVED,
                                             .request = slot,
                                             .resumed = was_resumed(q),
                                             .prompt_tokens = q->prompt,
                                             .output_tokens = left > 1 ? left : 0,
                                             .key = UINT32_MAX,
                                             .weight = 1});
}

void run_request_arrive(struct run *r, const struct sim_arrival *arrival)
{
    if (r->free_count == 0) { /* A gateway has no free slot either. */
        sim_report_add(r->report, &(struct sim_result){.arrival = arrival,
                                                       .outcome = SIM_REFUSED,
                                                       .prompt_machine = SCHED_NO_MACHINE,
                                                       .token_machine = SCHED_NO_MACHINE});
        return;
    }
    uint32_t slot = r->free_slots[--r->free_count];
    r->requests[slot] = (struct run_request){.arrival = *arrival, .number = r->number_next++};
    r->open++;
    r->queued++;
    r->totals->open_max = r->open > r->totals->open_max ? r->open : r->totals->open_max;
    arrive(r, slot);
}

void run_request_not_served(struct run *r, const struct sched_action *action)
{
    struct run_request *q = &r->requests[action->request];
    bool failed = was_resumed(q) || action->kind == SCHED_EXPIRED;
    if (failed || action->why != SCHED_REFUSED_LARGE) {
        request_close(r, action->request, failed ? SIM_FAILED : SIM_REFUSED);
        return;
    }
    enum status status =
        sim_trace_reject(r->trace, &q->arrival, "larger than any machine", r->error);
    r->status = r->status == ST_OK ? status : r->status;
    slot_give(r, action->request);
}

void run_requests_abandon(struct run *r)
{
    for (uint32_t slot = 0; slot < LIMIT_CLUSTER_REQUESTS; slot++)
        if (r->requests[slot].state != RUN_FREE)
            request_close(r, slot, SIM_FAILED);
}

void run_request_lost(struct run *r, uint32_t slot)
{
    struct run_request *q = &r->requests[slot];
    task_drop(r, q->prompt_machine, &q->prompt_slot);
    if (q->token_machine != SCHED_NO_MACHINE)
        task_drop(r, q->token_machine, &q->token_slot);
    event_heap_remove(&r->events, event_of_slot(r, slot));
    q->restarted++;
    arrive(r, slot);
}

/* ---- steps of a request ---- */

void run_request_route(struct run *r, const struct sched_action *action)
{
    uint32_t slot = action->request;
    struct run_request *q = &r->requests[slot];
    q->prompt_machine = action->machine;
    q->token_machine = action->peer;
    state_until(r, slot, action->peer == SCHED_NO_MACHINE ? RUN_PREFILL_SENT : RUN_RESERVE_SENT,
                r->now_s + r->options.message_s);
}

static void machine_full(struct run *r, uint32_t host)
{
    r->status = error_set(r->error, ST_NO_RESOURCE, "machine %s: more than %d requests at a time",
                          r->options.hosts->hosts[host].name, LIMIT_MACHINE_REQUESTS / 2);
}

static void reserve_reaches(struct run *r, uint32_t slot)
{
    struct run_request *q = &r->requests[slot];
    uint32_t host = q->token_machine;
    state_set(q, RUN_RESERVING);
    const struct sim_reserve reserve = {
        .request = slot,
        .prompt_tokens = q->prompt,
        .output_tokens = left_of(q),
        .rank = rank_of(q),
        .local = q->prompt_machine == host,
        .preemptions = q->preempted,
    };
    if (sim_machine_reserve(r->hosts[host].machine, &reserve, &q->token_slot) != ST_OK)
        machine_full(r, host);
    run_begin_later(r, host);
}

static void prompt_reaches(struct run *r, uint32_t slot)
{
    struct run_request *q = &r->requests[slot];
    const struct sched_rank rank = rank_of(q);
    state_set(q, RUN_PREFILLING);
    sched_slot reserved = q->prompt_machine == q->token_machine ? q->token_slot : SCHED_NO_SLOT;
    if (sim_machine_prompt(r->hosts[q->prompt_machine].machine, slot, q->prompt, reserved, &rank,
                           &q->prompt_slot) != ST_OK)
        machine_full(r, q->prompt_machine);
    run_begin_later(r, q->prompt_machine);
}

static void kv_reaches(struct run *r, uint32_t slot)
{
    struct run_request *q = &r->requests[slot];
    state_set(q, RUN_DECODING);
    q->transfer_s = r->now_s - q->prompt_end_s;
    if (q->prompt_machine != q->token_machine)
        sim_machine_push_record(r->hosts[q->prompt_machine].machine, q->prompt, q->transfer_s);
    sim_machine_decode(r->hosts[q->token_machine].machine, q->token_slot, left_of(q));
    run_begin_later(r, q->token_machine);
    task_drop(r, q->prompt_machine, &q->prompt_slot);
    run_event_apply(r, &(struct sched_event){.kind = SCHED_PREFILLED, .request = slot});
}

void run_request_step_end(struct run *r, uint32_t slot)
{
    switch (r->requests[slot].state) {
    case RUN_RESERVE_SENT:
        reserve_reaches(r, slot);
        break;
    case RUN_PREFILL_SENT:
        prompt_reaches(r, slot);
        break;
    case RUN_TRANSFERRING:
        kv_reaches(r, slot);
        break;
    default:
        assert(false);
    }
}

/* ---- calls from machines ---- */

static void on_reserved(void *self, uint32_t machine, uint32_t slot)
{
    struct run *r = self;
    (void)machine;
    state_until(r, slot, RUN_PREFILL_SENT, r->now_s + 2 * r->options.message_s);
}

static void on_began(void *self, uint32_t machine, uint32_t slot)
{
    struct run *r = self;
    struct run_request *q = &r->requests[slot];
    (void)machine;
    if (q->prompt_began)
        return;
    q->queue_s = r->now_s - q->arrival.at_s;
    q->prompt_began = true;
    r->queued--;
}

static bool layerwise(const struct run *r, const struct run_request *q)
{
    const struct config_kv *kv = &r->options.config->kv;
    if (strcmp(kv->transfer, "auto") != 0)
        return strcmp(kv->transfer, "layerwise") == 0;
    return q->prompt >= kv->layerwise_threshold_tokens;
}

/* Returns when all KV of a chunk is on the token machine. A layer is sent when it is computed and
 * the links of both machines are free. Transfers share the bandwidth in the order in which they
 * began. The last layer cannot be sent before the chunk's end. */
static double push_s(struct run *r, const struct run_request *q, const struct sim_chunk *chunk)
{
    const struct sim_host *host = &r->options.hosts->hosts[q->prompt_machine];
    const struct sim_host *to_host = &r->options.hosts->hosts[q->token_machine];
    struct run_host *from = &r->hosts[q->prompt_machine];
    struct run_host *to = &r->hosts[q->token_machine];
    double slower = host->link_bytes_per_s;
    if (to_host->link_bytes_per_s > 0 && to_host->link_bytes_per_s < slower)
        slower = to_host->link_bytes_per_s;
    if (slower <= 0)
        return chunk->end_s;
    double layers = host->cost.layer_count;
    double all_s = (double)(chunk->tokens * host->cost.kv_bytes_per_token) / slower;
    double ready_s = chunk->end_s;
    double last_s = all_s;
    if (layerwise(r, q)) {
        ready_s = chunk->begin_s + (chunk->end_s - chunk->begin_s) / layers;
        last_s = all_s / layers;
    }
    double free_s = from->out_free_s > to->in_free_s ? from->out_free_s : to->in_free_s;
    double through_s = (ready_s > free_s ? ready_s : free_s) + all_s;
    from->out_free_s = to->in_free_s = through_s;
    double end_s = chunk->end_s + last_s;
    return (through_s > end_s ? through_s : end_s) + host->link_latency_s;
}

static void prompt_ends(struct run *r, uint32_t slot, double kv_s)
{
    struct run_request *q = &r->requests[slot];
    q->prompt_end_s = r->now_s;
    q->answer_tokens++;
    r->totals->hosts[q->prompt_machine].output_tokens++;
    if (q->answer_tokens == 1)
        q->ttft_s = r->now_s + r->options.message_s - q->arrival.at_s;
    run_event_apply(r, &(struct sched_event){.kind = SCHED_COMPUTED, .request = slot});
    if (q->answer_tokens == q->arrival.output_tokens)
        request_done(r, slot);
    else
        state_until(r, slot, RUN_TRANSFERRING, kv_s > r->now_s ? kv_s : r->now_s);
}

static void on_chunk_done(void *self, uint32_t machine, const struct sim_chunk *chunk)
{
    struct run *r = self;
    const struct run_request *q = &r->requests[chunk->request];
    double kv_s = r->now_s;
    r->totals->hosts[machine].prompt_tokens += chunk->tokens;
    if (q->token_machine != SCHED_NO_MACHINE && q->token_machine != machine)
        kv_s = push_s(r, q, chunk);
    if (chunk->ends)
        prompt_ends(r, chunk->request, kv_s);
}

static void on_decoded(void *self, uint32_t machine, uint32_t slot)
{
    struct run *r = self;
    struct run_request *q = &r->requests[slot];
    r->totals->hosts[machine].output_tokens++;
    if (++q->answer_tokens == q->arrival.output_tokens)
        request_done(r, slot);
}

/* The KV is lost, because prefix caches are not simulated. A reservation that was given up does not
 * count towards preemptions_max, and leaves its blocks to prompts that wait on the machine. */
static void on_preempted(void *self, uint32_t machine, uint32_t slot, bool decoding)
{
    struct run *r = self;
    struct run_request *q = &r->requests[slot];
    q->token_slot = SCHED_NO_SLOT;
    task_drop(r, q->prompt_machine, &q->prompt_slot);
    event_heap_remove(&r->events, event_of_slot(r, slot));
    q->preempted += decoding;
    q->given_up += !decoding;
    if (!decoding)
        run_begin_later(r, machine);
    run_event_apply(
        r, &(struct sched_event){.kind = SCHED_ENDED,
                                 .request = slot,
                                 .output_tokens = q->answer_tokens - q->answer_tokens_before});
    arrive(r, slot);
}

const struct sim_machine_calls run_machine_calls = {
    .reserved = on_reserved,
    .began = on_began,
    .chunk_done = on_chunk_done,
    .decoded = on_decoded,
    .preempted = on_preempted,
};
