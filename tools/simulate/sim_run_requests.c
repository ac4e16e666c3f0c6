/* sim_run, the requests: RESERVE, RESERVED, PREFILL, the prompt's chunks with their KV, the
 * answer's tokens, and every way in which a request can end. A message takes message_s. Messages to
 * the gateway arrive at once, but the times that a client sees include message_s. */
#include "tools/simulate/sim_run_state.h"

#include <assert.h>
#include <math.h>

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
        [RUN_ARRIVED] =
            1 << RUN_PULLING | 1 << RUN_RESERVE_SENT | 1 << RUN_PREFILL_SENT | 1 << RUN_FREE,
        [RUN_PULLING] = 1 << RUN_RESERVE_SENT | 1 << RUN_PREFILL_SENT | ends,
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
    run_outcome_log(r, slot, false);
    run_copy_end(r, slot);
    run_kv_forget(r, &r->requests[slot]);
    run_contents_close(&r->requests[slot]);
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
                                .restarted = q->restarted,
                                .gap_s = q->gap_s,
                                .recomputed_tokens = q->recomputed_tokens,
                                .reused_tokens = q->reused_tokens,
                                .checkpoint_tokens = q->checkpoint_tokens};
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
    /* The last token was sampled, but no batch has computed its KV. */
    uint32_t tokens = q->arrival.prompt_tokens + q->answer_tokens - 1;
    if (q->token_machine != SCHED_NO_MACHINE)
        run_kv_share(r, q, q->token_machine, q->token_slot, tokens, true);
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
    q->attempt_prompt_tokens = q->arrival.prompt_tokens + q->answer_tokens;
    q->answer_tokens_before = q->answer_tokens;
    q->prompt_machine = q->token_machine = SCHED_NO_MACHINE;
    q->prompt_slot = q->token_slot = SCHED_NO_SLOT;
    q->cached_tokens = q->computed_tokens = q->sent_tokens = q->arrived_tokens = 0;
    q->arrival_count = 0;
    q->transfer_s = 0;
    q->load_pending = false;
    uint64_t hashes[SCHED_PREFIX_MAX];
    uint32_t hash_count = run_prefix_hashes(r, q, hashes);
    run_event_apply(
        r, &(struct sched_event){.kind = SCHED_ARRIVED,
                                 .request = slot,
                                 .holder_plus_1 = q->held.tokens > 0 ? q->held.machine + 1 : 0,
                                 .held_tokens = q->held.tokens,
                                 .resumed = was_resumed(q),
                                 .prompt_tokens = q->attempt_prompt_tokens,
                                 .output_tokens = left > 1 ? left : 0,
                                 .prefix = {.hashes = hashes, .count = hash_count},
                                 .key_index = UINT32_MAX,
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
    r->requests[slot] = (struct run_request){
        .arrival = *arrival, .number = r->number_next++, .copy = {.slot = SCHED_NO_SLOT}};
    r->slots_used = slot >= r->slots_used ? slot + 1 : r->slots_used;
    r->open++;
    r->queued++;
    r->totals->open_max = r->open > r->totals->open_max ? r->open : r->totals->open_max;
    if (!run_contents_open(r, &r->requests[slot])) {
        r->status = error_set(r->error, ST_NO_MEMORY, "out of memory");
        return;
    }
    arrive(r, slot);
    run_copies_begin(r);
}

void run_request_not_served(struct run *r, const struct sched_action *action)
{
    struct run_request *q = &r->requests[action->request];
    bool failed = was_resumed(q) || action->kind == SCHED_EXPIRED;
    if (failed || action->refusal != SCHED_REFUSED_LARGE) {
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
    run_outcome_log(r, slot, false);
    run_kv_lost(r, q);
    run_copy_end(r, slot);
    task_drop(r, q->prompt_machine, &q->prompt_slot);
    if (q->token_machine != SCHED_NO_MACHINE)
        task_drop(r, q->token_machine, &q->token_slot);
    event_heap_remove(&r->events, event_of_slot(r, slot));
    q->restarted++;
    arrive(r, slot);
}

/* ---- steps of a request ---- */

void run_request_send(struct run *r, uint32_t slot)
{
    if (r->requests[slot].state == RUN_PULLING)
        r->requests[slot].decision.pulled_us = run_now_us(r);
    state_until(r, slot,
                r->requests[slot].token_machine == SCHED_NO_MACHINE ? RUN_PREFILL_SENT
                                                                    : RUN_RESERVE_SENT,
                r->now_s + r->options.message_s);
}

void run_request_route(struct run *r, const struct sched_action *action)
{
    const uint32_t block_tokens = r->options.config->kv.block_tokens;
    const uint32_t pulled = action->prefix_tokens / block_tokens * block_tokens;
    uint32_t slot = action->request;
    struct run_request *q = &r->requests[slot];
    q->prompt_machine = action->machine;
    q->token_machine = action->token_machine;
    q->decision = event_decision_of(action, run_now_us(r));
    /* As in the gateway, nothing is pulled with windows. */
    if (action->pull_source_plus_1 > 0 && pulled > 0 &&
        r->options.machines->machines[action->machine].cost.groups.windowed == 0) {
        state_set(q, RUN_PULLING);
        run_pull_begin(r, slot, action->pull_source_plus_1 - 1, pulled);
    } else {
        run_request_send(r, slot);
    }
}

/* A machine has not taken a request: ST_NO_RESOURCE or ST_NO_MEMORY. */
static void machine_refused(struct run *r, uint32_t host, enum status status)
{
    const char *name = r->options.machines->machines[host].name;
    r->status = status == ST_NO_MEMORY
                    ? error_set(r->error, status, "machine %s: out of memory", name)
                    : error_set(r->error, status, "machine %s: more than %d requests at a time",
                                name, LIMIT_MACHINE_REQUESTS / 2);
}

static sim_cache_id kept_id(const struct run *r, const struct run_request *q, uint32_t machine)
{
    const struct run_kept *kept = run_kv_kept(r, q, machine);
    return kept != NULL ? kept->kv.id : 0;
}

static void reserve_reaches(struct run *r, uint32_t slot)
{
    struct run_request *q = &r->requests[slot];
    uint32_t host = q->token_machine;
    if (q->prompt_machine == host && run_tiers_wait(r, slot, host))
        return;
    double queue_s = r->options.config->scheduler.queue_ms / 1e3;
    if (queue_s > 0 && !was_resumed(q)) /* Until then, a new request may wait for KV memory. */
        state_until(r, slot, RUN_RESERVING, fmax(r->now_s, q->arrival.at_s + queue_s));
    else
        state_set(q, RUN_RESERVING);
    const struct sim_reserve reserve = {
        .request = slot,
        .prompt_tokens = q->attempt_prompt_tokens,
        .output_tokens = left_of(q),
        .rank = rank_of(q),
        .local = q->prompt_machine == host,
        .preemptions = q->preempted,
        .cached = run_kv_kept_tokens(r, q, host),
        .kept = kept_id(r, q, host),
    };
    q->sent_tokens = reserve.cached;
    enum status status = sim_machine_reserve(r->hosts[host].machine, &reserve, &q->token_slot);
    if (status != ST_OK)
        machine_refused(r, host, status);
    run_begin_later(r, host);
}

/* Returns the first tokens that the prompt machine need not compute. */
static uint32_t tokens_cached(const struct run *r, const struct run_request *q)
{
    uint32_t block_tokens = r->options.config->kv.block_tokens;
    uint32_t most = (q->attempt_prompt_tokens - 1) / block_tokens * block_tokens;
    /* A machine that does both phases has looked up the prompt with the reservation. */
    uint32_t kept = q->prompt_machine == q->token_machine
                        ? q->sent_tokens
                        : run_kv_kept_tokens(r, q, q->prompt_machine);
    return kept < most ? kept : most;
}

static void prompt_reaches(struct run *r, uint32_t slot)
{
    struct run_request *q = &r->requests[slot];
    if (q->prompt_machine != q->token_machine && run_tiers_wait(r, slot, q->prompt_machine))
        return;
    state_set(q, RUN_PREFILLING);
    q->cached_tokens = q->computed_tokens = tokens_cached(r, q);
    const struct sim_prompt prompt = {
        .request = slot,
        .tokens = q->attempt_prompt_tokens,
        .cached = q->cached_tokens,
        .kept = kept_id(r, q, q->prompt_machine),
        .reserved = q->prompt_machine == q->token_machine ? q->token_slot : SCHED_NO_SLOT,
        .rank = rank_of(q),
    };
    enum status status =
        sim_machine_prompt(r->hosts[q->prompt_machine].machine, &prompt, &q->prompt_slot);
    if (status != ST_OK)
        machine_refused(r, q->prompt_machine, status);
    run_begin_later(r, q->prompt_machine);
}

static void kv_reaches(struct run *r, uint32_t slot)
{
    struct run_request *q = &r->requests[slot];
    state_set(q, RUN_DECODING);
    q->transfer_s = r->now_s - q->prompt_end_s;
    sim_machine_decode(r->hosts[q->token_machine].machine, q->token_slot, left_of(q));
    run_begin_later(r, q->token_machine);
    run_kv_share(r, q, q->token_machine, q->token_slot, q->attempt_prompt_tokens, false);
    if (q->prompt_machine != q->token_machine)
        run_kv_keep(r, q, q->prompt_machine, q->prompt_slot, q->attempt_prompt_tokens, true);
    task_drop(r, q->prompt_machine, &q->prompt_slot);
    run_event_apply(r, &(struct sched_event){.kind = SCHED_PREFILLED, .request = slot});
}

/* Refuses a request that has waited for scheduler/queue_ms, in the gateway and for KV memory
 * together (reserving_refuse in server/gateway/schedule.c). */
static void reserving_refuse(struct run *r, uint32_t slot)
{
    struct run_request *q = &r->requests[slot];
    task_drop(r, q->token_machine, &q->token_slot);
    run_event_apply(r, &(struct sched_event){.kind = SCHED_OVERDUE, .request = slot});
}

void run_request_step_end(struct run *r, uint32_t slot)
{
    switch (r->requests[slot].state) {
    case RUN_RESERVE_SENT:
        reserve_reaches(r, slot);
        break;
    case RUN_RESERVING:
        reserving_refuse(r, slot);
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

static void on_reserved(void *self, uint32_t machine, uint32_t slot, uint32_t cached)
{
    struct run *r = self;
    (void)machine;
    r->requests[slot].sent_tokens = cached; /* These are not sent. */
    state_until(r, slot, RUN_PREFILL_SENT, r->now_s + 2 * r->options.message_s);
}

static void on_began(void *self, uint32_t machine, uint32_t slot, uint32_t cached)
{
    struct run *r = self;
    struct run_request *q = &r->requests[slot];
    (void)machine;
    if (q->state == RUN_PREFILLING) { /* It is the prompt. */
        q->cached_tokens = q->computed_tokens = cached;
        r->totals->prefix_query_tokens += r->prefixes ? q->attempt_prompt_tokens : 0;
        r->totals->prefix_hit_tokens += r->prefixes ? cached : 0;
    }
    if (q->prompt_began)
        return;
    q->queue_s = r->now_s - q->arrival.at_s;
    q->prompt_began = true;
    r->queued--;
}

static void token_generated(struct run *r, struct run_request *q, uint32_t machine)
{
    if (q->answer_tokens > 0 && r->now_s - q->token_s > q->gap_s)
        q->gap_s = r->now_s - q->token_s;
    q->token_s = r->now_s;
    q->answer_tokens++;
    r->totals->machines[machine].output_tokens++;
}

/* Does what resumed_report of the gateway does. */
static void resumed_count(struct run_request *q)
{
    q->reused_tokens += q->cached_tokens;
    q->recomputed_tokens += q->attempt_prompt_tokens - q->cached_tokens;
    q->checkpoint_tokens += q->held.checkpoint ? q->cached_tokens : 0;
}

static void prompt_ends(struct run *r, uint32_t slot, double kv_s)
{
    struct run_request *q = &r->requests[slot];
    run_outcome_log(r, slot, true);
    q->prompt_end_s = r->now_s;
    if (q->prompt_machine != q->token_machine)
        run_kv_share(r, q, q->prompt_machine, q->prompt_slot, q->attempt_prompt_tokens, true);
    token_generated(r, q, q->prompt_machine);
    if (was_resumed(q))
        resumed_count(q);
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
    struct run_request *q = &r->requests[chunk->request];
    r->totals->machines[machine].prompt_tokens += chunk->tokens;
    double kv_s = run_kv_chunk(r, q, chunk);
    if (chunk->ends)
        prompt_ends(r, chunk->request, kv_s);
}

static void on_decoded(void *self, uint32_t machine, uint32_t slot)
{
    struct run *r = self;
    struct run_request *q = &r->requests[slot];
    token_generated(r, q, machine);
    if (q->answer_tokens == q->arrival.output_tokens)
        request_done(r, slot);
}

/* Lets a preempted request arrive again. The machine keeps none of its KV, because the memory is
 * needed at once. A reservation that was given up does not count towards preemptions_max, and
 * leaves its blocks to prompts that wait on the machine. */
static void on_preempted(void *self, uint32_t machine, uint32_t slot, bool decoding)
{
    struct run *r = self;
    struct run_request *q = &r->requests[slot];
    q->token_slot = SCHED_NO_SLOT;
    run_outcome_log(r, slot, false);
    run_copy_end(r, slot);
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

static void on_drafted(void *self, uint32_t checked, uint32_t accepted)
{
    struct run *r = self;
    r->totals->draft_tokens += checked;
    r->totals->draft_tokens_accepted += accepted;
}

static const uint32_t *on_contents(void *self, uint32_t slot)
{
    const struct run *r = self;
    return r->requests[slot].contents;
}

static void on_prefix_changed(void *self, uint32_t machine, uint64_t hash, bool held)
{
    run_prefix_changed(self, machine, hash, held);
}

const struct sim_machine_calls run_machine_calls = {
    .reserved = on_reserved,
    .began = on_began,
    .chunk_done = on_chunk_done,
    .decoded = on_decoded,
    .drafted = on_drafted,
    .preempted = on_preempted,
    .contents = on_contents,
    .prefix_changed = on_prefix_changed,
};
