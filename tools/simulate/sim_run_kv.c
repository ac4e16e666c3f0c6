/* sim_run, the KV: its way from the prompt machine to the token machine, and what machines keep of
 * it in their prefix caches when a request loses one of its machines. The rules are those of the
 * gateway (server/gateway/request_held.h) and of the machines (PROGRESS in
 * prompt_pool/prompt_push.c and token_pool/token_blocks.c). */
#include "scheduler/layerwise.h"
#include "tools/simulate/sim_run_state.h"

#include <math.h>
#include <string.h>

/* ---- links ---- */

#define TOKENS_PER_S_MAX 1000000000

/* Reports the link's speed when the link is used first. Machines measure it (push_meter.h); a
 * simulated link has always the same speed. */
static void link_measure(struct run *r, uint32_t from, uint32_t to, const struct sim_link *link)
{
    const struct sim_cost *cost = &r->options.machines->machines[from].cost;
    struct sched_event event = {.kind = SCHED_LINK_SPEED, .machine = from, .peer = to};
    sched_cluster_link_view(r->scheduler, from, to, &event.link);
    if (event.link.tokens_per_s > 0)
        return;
    double tokens_per_s = TOKENS_PER_S_MAX;
    if (link->bytes_per_s > 0)
        tokens_per_s = link->bytes_per_s / (double)(cost->kv_layer_bytes * cost->layer_count);
    event.link.latency_us = (uint32_t)fmin(link->latency_s * 1e6, UINT32_MAX);
    event.link.tokens_per_s = tokens_per_s < 1                  ? 1
                              : tokens_per_s < TOKENS_PER_S_MAX ? (uint32_t)tokens_per_s
                                                                : TOKENS_PER_S_MAX;
    run_event_apply(r, &event);
}

/* Transfers share the bandwidth of both links in the order in which they began. Returns when the
 * last byte of a transfer that takes `all_s` has left. */
static double link_use(struct run *r, uint32_t from, uint32_t to, double ready_s, double all_s)
{
    double *out_free_s = &r->hosts[from].out_free_s;
    double *in_free_s = &r->hosts[to].in_free_s;
    double free_s = *out_free_s > *in_free_s ? *out_free_s : *in_free_s;
    double through_s = (ready_s > free_s ? ready_s : free_s) + all_s;
    *out_free_s = *in_free_s = through_s;
    return through_s;
}

double run_kv_copy_s(struct run *r, uint32_t from, uint32_t to, uint64_t bytes)
{
    const struct sim_link link = sim_machines_link(r->options.machines, from, to);
    link_measure(r, from, to, &link);
    if (link.bytes_per_s <= 0)
        return r->now_s;
    return link_use(r, from, to, r->now_s, (double)bytes / link.bytes_per_s) + link.latency_s;
}

/* ---- chunks ---- */

/* Decides as the prompt machine does (transfer_mode_of in prompt_pool.c, prompt_push_decide). */
static bool layerwise(const struct run *r, const struct run_request *q)
{
    const struct config_kv *kv = &r->options.config->kv;
    const struct sim_cost *cost = &r->options.machines->machines[q->prompt_machine].cost;
    if (strcmp(kv->transfer, "auto") != 0)
        return strcmp(kv->transfer, "layerwise") == 0;
    if (kv->layerwise_threshold_tokens != CONFIG_AUTO)
        return q->attempt_prompt_tokens >= kv->layerwise_threshold_tokens;
    const struct sim_link link =
        sim_machines_link(r->options.machines, q->prompt_machine, q->token_machine);
    const double token_bytes = (double)cost->kv_layer_bytes * cost->layer_count;
    const struct sched_layerwise speeds = {
        .send_token_us = link.bytes_per_s > 0 ? token_bytes * 1e6 / link.bytes_per_s : 0,
        .prompt_token_us = sim_machine_prompt_token_us(r->hosts[q->prompt_machine].machine),
        .layer_count = cost->layer_count};
    return sched_layerwise_pays(&speeds, q->attempt_prompt_tokens - q->sent_tokens,
                                q->attempt_prompt_tokens - q->cached_tokens);
}

/* Returns when the KV of the prompt's tokens [first, end) is on the token machine; in layers with a
 * window, only the tokens that the answer reads. A layer is sent when it is computed and the links
 * of both machines are free. The last layer cannot be sent before the chunk's end. */
static double push_s(struct run *r, const struct run_request *q, const struct sim_chunk *chunk,
                     uint32_t first, uint32_t end)
{
    const struct sim_machine_facts *host = &r->options.machines->machines[q->prompt_machine];
    const struct sim_link link =
        sim_machines_link(r->options.machines, q->prompt_machine, q->token_machine);
    link_measure(r, q->prompt_machine, q->token_machine, &link);
    if (link.bytes_per_s <= 0)
        return chunk->end_s;
    double layers = host->cost.layer_count;
    uint32_t block_tokens = r->options.config->kv.block_tokens;
    uint32_t window_first =
        layer_groups_answer_first(&host->cost.groups, block_tokens, q->attempt_prompt_tokens) *
        block_tokens;
    window_first = window_first > first ? window_first : first;
    double all_s =
        (double)sim_cost_kv_bytes(&host->cost, first, end, window_first) / link.bytes_per_s;
    double ready_s = chunk->end_s;
    double last_s = all_s;
    if (q->layerwise) {
        ready_s = chunk->begin_s + (chunk->end_s - chunk->begin_s) / layers;
        last_s = all_s / layers;
    }
    double through_s = link_use(r, q->prompt_machine, q->token_machine, ready_s, all_s);
    double end_s = chunk->end_s + last_s;
    return (through_s > end_s ? through_s : end_s) + link.latency_s;
}

/* The prompt machine reports what has arrived only if it sends layer by layer and has neither
 * stages nor ranks. */
static bool progress_reported(const struct run *r, const struct run_request *q)
{
    const struct sim_cost *cost = &r->options.machines->machines[q->prompt_machine].cost;
    const bool ranks = cost->devices[0] != NULL && cost->devices[0]->ranks > 1;
    return r->options.config->kv.prefix_cache && q->layerwise && cost->stage_count == 1 && !ranks;
}

static void arrivals_past(const struct run *r, struct run_request *q)
{
    uint32_t past = 0;
    while (past < q->arrival_count && q->arrivals[past].at_s <= r->now_s)
        q->arrived_tokens = q->arrivals[past++].tokens;
    q->arrival_count -= past;
    memmove(q->arrivals, q->arrivals + past, q->arrival_count * sizeof(q->arrivals[0]));
}

static void arrival_add(const struct run *r, struct run_request *q, double at_s, uint32_t tokens)
{
    arrivals_past(r, q);
    if (!progress_reported(r, q))
        return;
    if (q->arrival_count == RUN_ARRIVALS_MAX) /* The machine flushes once for both chunks. */
        q->arrival_count--;
    q->arrivals[q->arrival_count++] = (struct run_arrival){.at_s = at_s, .tokens = tokens};
}

double run_kv_chunk(struct run *r, struct run_request *q, const struct sim_chunk *chunk)
{
    uint32_t end = chunk->first_token + chunk->tokens;
    bool first = q->computed_tokens == q->cached_tokens;
    q->computed_tokens = end;
    if (q->token_machine == SCHED_NO_MACHINE || q->token_machine == q->prompt_machine)
        return r->now_s;
    if (first)
        q->layerwise = layerwise(r, q);
    double at_s = push_s(r, q, chunk, q->sent_tokens, end);
    q->sent_tokens = end > q->sent_tokens ? end : q->sent_tokens;
    if (!chunk->ends)
        arrival_add(r, q, at_s, end);
    return at_s;
}

/* ---- what machines keep ---- */

static bool same_life(const struct run *r, uint32_t machine, uint32_t failures)
{
    return r->hosts[machine].machine != NULL && r->hosts[machine].failures == failures;
}

static uint32_t full_blocks(const struct run *r, uint32_t tokens)
{
    uint32_t block_tokens = r->options.config->kv.block_tokens;
    return tokens / block_tokens * block_tokens;
}

/* Returns the machine's entry. If the machine has none, returns an entry that is not in use, or the
 * entry with the fewest tokens. */
static struct run_kept *kept_entry(const struct run *r, struct run_request *q, uint32_t machine)
{
    struct run_kept *out = &q->kept[0];
    for (uint32_t i = 0; i < RUN_KEPT_MAX; i++) {
        struct run_kept *kept = &q->kept[i];
        if (kept->kv.tokens > 0 && !same_life(r, kept->machine, kept->failures))
            *kept = (struct run_kept){.kv = {.tokens = 0}};
        if (kept->kv.tokens > 0 && kept->machine == machine)
            return kept;
        if (kept->kv.tokens < out->kv.tokens)
            out = kept;
    }
    return out;
}

void run_kv_keep(struct run *r, struct run_request *q, uint32_t machine, sched_slot slot,
                 uint32_t tokens, bool windows)
{
    if (slot == SCHED_NO_SLOT || r->hosts[machine].machine == NULL ||
        !r->options.config->kv.prefix_cache)
        return;
    const struct sim_kept kv = sim_machine_keep(r->hosts[machine].machine, slot, tokens, windows);
    run_tiers_store(r, q, machine, tokens);
    if (kv.tokens == 0)
        return;
    struct run_kept *entry = kept_entry(r, q, machine);
    if (entry->kv.tokens > 0)
        sim_machine_forget(r->hosts[entry->machine].machine, &entry->kv);
    *entry = (struct run_kept){
        .machine = machine, .failures = r->hosts[machine].failures, .windows = windows, .kv = kv};
}

void run_kv_share(struct run *r, struct run_request *q, uint32_t machine, sched_slot slot,
                  uint32_t tokens, bool windows)
{
    if (r->prefixes)
        run_kv_keep(r, q, machine, slot, tokens, windows);
}

const struct run_kept *run_kv_kept(const struct run *r, const struct run_request *q,
                                   uint32_t machine)
{
    for (uint32_t i = 0; i < RUN_KEPT_MAX; i++)
        if (q->kept[i].kv.tokens > 0 && q->kept[i].machine == machine &&
            same_life(r, machine, q->kept[i].failures))
            return &q->kept[i];
    return NULL;
}

uint32_t run_kv_kept_tokens(const struct run *r, const struct run_request *q, uint32_t machine)
{
    const struct run_kept *kept = run_kv_kept(r, q, machine);
    bool windowed = r->options.machines->machines[machine].cost.groups.windowed != 0;
    return kept != NULL && (kept->windows || !windowed)
               ? sim_machine_kept_tokens(r->hosts[machine].machine, &kept->kv)
               : 0;
}

void run_kv_forget(struct run *r, struct run_request *q)
{
    for (uint32_t i = 0; i < RUN_KEPT_MAX; i++)
        if (q->kept[i].kv.tokens > 0 && same_life(r, q->kept[i].machine, q->kept[i].failures))
            sim_machine_forget(r->hosts[q->kept[i].machine].machine, &q->kept[i].kv);
}

/* ---- which kept KV the gateway knows of ---- */

static void held_add(const struct run *r, struct run_request *q, uint32_t machine, uint32_t tokens)
{
    if (machine != SCHED_NO_MACHINE && r->hosts[machine].machine != NULL && tokens > q->held.tokens)
        q->held = (struct run_held){
            .machine = machine, .failures = r->hosts[machine].failures, .tokens = tokens};
}

/* Does what request_held_update of the gateway does. */
static void held_update(const struct run *r, struct run_request *q)
{
    if (q->held.tokens > 0 && !same_life(r, q->held.machine, q->held.failures))
        q->held = (struct run_held){.tokens = 0};
    bool computed = q->state == RUN_TRANSFERRING || q->state == RUN_DECODING;
    if (q->prompt_machine != q->token_machine)
        held_add(r, q, q->prompt_machine,
                 computed ? q->attempt_prompt_tokens : full_blocks(r, q->computed_tokens));
    held_add(r, q, q->token_machine, full_blocks(r, q->arrived_tokens));
    const struct run_copy *copy = &q->copy;
    if (copy->resumable_tokens > q->held.tokens && same_life(r, copy->machine, copy->failures)) {
        held_add(r, q, copy->machine, copy->resumable_tokens);
        q->held.checkpoint = true;
    }
}

void run_kv_lost(struct run *r, struct run_request *q)
{
    if (!r->options.config->kv.prefix_cache)
        return;
    /* Before the window of the answer, the token machine gets no KV of layers with a window. */
    bool windowed = r->options.machines->machines[0].cost.groups.windowed != 0;
    arrivals_past(r, q);
    held_update(r, q);
    switch (q->state) {
    case RUN_PREFILLING:
        run_kv_keep(r, q, q->prompt_machine, q->prompt_slot, q->computed_tokens, true);
        if (!windowed)
            run_kv_keep(r, q, q->token_machine, q->token_slot, q->arrived_tokens, true);
        break;
    case RUN_TRANSFERRING:
        run_kv_keep(r, q, q->prompt_machine, q->prompt_slot, q->attempt_prompt_tokens, true);
        if (!windowed)
            run_kv_keep(r, q, q->token_machine, q->token_slot, q->arrived_tokens, true);
        break;
    case RUN_DECODING:
        run_kv_keep(r, q, q->token_machine, q->token_slot,
                    q->arrival.prompt_tokens + q->answer_tokens - 1, true);
        break;
    default:
        break;
    }
}
