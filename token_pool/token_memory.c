/* token_memory: carries out the decisions of scheduler/memory.h: takes and frees blocks, and sends
 * RESERVED and PREEMPTED to the gateways. */
#include "token_pool/token_state.h"

#include <stdio.h>

void token_pool_mixed_set(struct token_pool *pool, bool mixed)
{
    sched_memory_mixed_set(pool->memory, mixed);
}

/* ---- the first blocks ---- */

/* Returns the first span that the prompt machine writes in layers with a window: the first one that
 * the answer reads and that the prefix cache does not have. */
static uint32_t window_awaited(const struct token_pool *pool, const struct token_request *request)
{
    const struct sched_memory_options *memory = &pool->options.memory;
    const uint32_t first = token_blocks_window_first(pool, request);
    const uint32_t held = request->tables.window_cached_spans;
    if (memory->groups.windowed != 0 && request->copy && !request->copy_windows)
        return sched_memory_spans_of(memory, request->prompt_tokens);
    return held > first ? held : first;
}

/* Returns what the prompt machine writes: the blocks that the prompt fills; in layers with a
 * window, only the blocks that later tokens read. The ids are valid until the next call. */
static struct token_await await_of(const struct token_pool *pool,
                                   const struct token_request *request)
{
    const struct sched_memory_options *memory = &pool->options.memory;
    const uint32_t spans = sched_memory_spans_of(memory, request->prompt_tokens);
    const uint32_t count =
        kv_tables_list(&request->tables, &memory->groups, request->tables.cached_spans, spans,
                       window_awaited(pool, request), pool->awaited_blocks);
    return (struct token_await){
        .request = request->attempt,
        .owner = request->owner,
        .slot = token_slot_of(pool, request),
        .path = request->path,
        .writer = request->prompt_machine,
        .blocks = pool->awaited_blocks,
        .block_count = count,
    };
}

static bool await_wanted(const struct token_pool *pool, const struct token_request *request)
{
    return pool->options.calls.await_changed != NULL && !request->local;
}

void token_await_end(struct token_pool *pool, const struct token_request *request)
{
    if (request->state != TOKEN_RESERVED || !await_wanted(pool, request))
        return;
    const struct token_await await = await_of(pool, request);
    pool->options.calls.await_changed(pool->options.self, &await, true);
}

static void reserved_send(struct token_pool *pool, const struct token_request *request)
{
    const struct token_await await = await_of(pool, request);
    struct message message = {
        .kind = MESSAGE_RESERVED,
        .reserved = {.request = request->attempt,
                     .path = request->path,
                     .held_span_count = request->tables.cached_spans,
                     .window_first = window_awaited(pool, request),
                     .block_count = await.block_count,
                     .blocks = await.blocks},
    };
    pool->options.calls.send(pool->options.self, request->gateway, &message);
}

void token_pool_await_known(struct token_pool *pool, kv_owner_id owner)
{
    sched_slot slot = (sched_slot)(owner & 0xffff);
    if (!sched_slots_used(pool->slots, slot))
        return;
    const struct token_request *request = token_request_of(pool, slot);
    if (request->owner == owner && request->state == TOKEN_RESERVED)
        reserved_send(pool, request);
}

static void request_granted(struct token_pool *pool, struct token_request *request, int64_t now_us)
{
    const struct token_pool_options *options = &pool->options;
    token_blocks_take(pool, request);
    kv_pool_lease_set(options->kv, request->owner, now_us + TOKEN_LEASE_US);
    token_request_state_set(pool, request, TOKEN_RESERVED);
    request->reserved_us = now_us;
    if (!await_wanted(pool, request)) {
        reserved_send(pool, request);
        return;
    }
    const struct token_await await = await_of(pool, request);
    options->calls.await_changed(options->self, &await, false);
}

bool token_copy_grant(struct token_pool *pool, struct token_request *request, int64_t now_us)
{
    sched_slot slot = token_slot_of(pool, request);
    uint32_t needed = token_blocks_prefix_pin(pool, request);
    if (!sched_memory_copy_grant(pool->memory, slot, needed, kv_pool_available(pool->options.kv)))
        return false;
    if (needed > 0) {
        request_granted(pool, request, now_us);
        return true;
    }
    reserved_send(pool, request);
    token_request_forget(pool, request);
    return true;
}

static bool request_grant(struct token_pool *pool, struct token_request *request)
{
    const sched_slot slot = token_slot_of(pool, request);
    uint32_t needed = token_blocks_prefix_pin(pool, request);
    if (sched_memory_grant(pool->memory, slot, needed, kv_pool_available(pool->options.kv)))
        return true;
    token_blocks_prefix_unpin(pool, request);
    sched_memory_window_held_set(pool->memory, slot, 0);
    /* In layers with a window, the request needs its own blocks besides the pinned ones. So the
     * request may fit if it does not pin any. */
    needed = token_blocks_of(pool, request)->count;
    return pool->options.memory.groups.windowed != 0 &&
           sched_memory_grant(pool->memory, slot, needed, kv_pool_available(pool->options.kv));
}

void token_pool_waiting_grant(struct token_pool *pool, int64_t now_us)
{
    sched_slot slot;
    while (sched_memory_candidate_find(pool->memory, &slot)) {
        struct token_request *request = token_request_of(pool, slot);
        if (!request_grant(pool, request))
            return;
        request_granted(pool, request, now_us);
    }
}

/* ---- giving up a reservation before its KV arrives ---- */

/* The gateway resumes the request like a preempted one, and cancels it at the prompt machine, which
 * then sends KV_ABORTED. */
void token_pool_deadlock_break(struct token_pool *pool, uint32_t prompt_holders, int64_t now_us)
{
    const struct token_pool_options *options = &pool->options;
    sched_slot slot;
    if (!sched_memory_deadlock_victim(pool->memory, kv_pool_available(options->kv), prompt_holders,
                                      &slot))
        return;
    struct token_request *request = token_request_of(pool, slot);
    struct message message = {.kind = MESSAGE_PREEMPTED,
                              .preempted = {.request = request->attempt}};
    snprintf(message.preempted.text, sizeof(message.preempted.text),
             "prompts on machine %s wait for KV blocks of %u requests that wait for their KV",
             options->name, sched_memory_counts(pool->memory)->holders);
    options->calls.send(options->self, request->gateway, &message);
    pool->stats.preemptions++;
    token_request_quarantine(pool, request, now_us);
}

/* ---- growth ---- */

static void request_preempt(struct token_pool *pool, struct token_request *request)
{
    struct message message = {
        .kind = MESSAGE_PREEMPTED,
        .preempted = {.request = request->attempt, .generated = request->generated},
    };
    snprintf(message.preempted.text, sizeof(message.preempted.text),
             "machine %s has no KV block left for %u answers that grow", pool->options.name,
             sched_memory_counts(pool->memory)->growing);
    /* The request's tokens of the last batch go before PREEMPTED. */
    token_pool_tokens_send(pool);
    if (request->gateway != NULL)
        pool->options.calls.send(pool->options.self, request->gateway, &message);
    pool->stats.preemptions++;
    token_request_forget(pool, request);
}

void token_pool_answers_grow(struct token_pool *pool)
{
    sched_slot slot;
    for (;;) {
        switch (sched_memory_grow(pool->memory, kv_pool_available(pool->options.kv), &slot)) {
        case SCHED_GROWTH_DONE:
            return;
        case SCHED_GROWTH_SPAN:
            token_blocks_grow(pool, token_request_of(pool, slot));
            break;
        case SCHED_GROWTH_PREEMPT:
            request_preempt(pool, token_request_of(pool, slot));
            break;
        }
    }
}
