/* token_memory: decides how many blocks each request has: its first blocks, in the order of the
 * scheduler; one more whenever its answer has filled them; and what happens if there is none.
 *
 * No request waits for ever. Blocks are held by four kinds of requests:
 * - Running answers. They end, grow or are preempted, and none of this needs a block that another
 *   answer must free first. (The victim may be in a batch; then the pool waits for the batch, and
 *   scheduler/machine/machine.h says why that wait ends.)
 * - Reservations whose KV is awaited. Their prompts run on this machine in the reserved blocks; or
 *   on machines that keep a part of their memory for such prompts (machine/open.c); or on machines
 *   where the prompts wait for such reservations, and then one reservation is given up in time
 *   (scheduler/machine/machine.h says why no circle is left).
 * - Prompts that are decoded elsewhere. They leave with their KV.
 * - Quarantined requests. A message of the prompt machine frees them, or the end of their lease.
 *
 * So all blocks come back. The first waiting reservation gets its blocks, because no later one is
 * served before it, and because the reserve for growth does not count when no request holds a
 * block. A request is preempted at most preemptions_max times; then its whole answer is reserved,
 * and it needs no further block. */
#include "token_pool/token_state.h"

#include <assert.h>
#include <stdio.h>

static uint32_t blocks_of(const struct token_pool *pool, uint32_t tokens)
{
    return (tokens + pool->options.block_tokens - 1) / pool->options.block_tokens;
}

uint32_t token_memory_first(const struct token_pool *pool, const struct token_request *request)
{
    uint32_t answer = pool->options.growth_tokens;
    if (request->pinned || answer >= request->output_limit)
        return request->blocks_whole;
    return blocks_of(pool, request->prompt_tokens + (answer > 0 ? answer : 1));
}

/* ---- the first blocks ---- */

static void request_grant(struct token_pool *pool, struct token_request *request, int64_t now_us)
{
    const struct token_pool_options *options = &pool->options;
    token_blocks_take(pool, request);
    kv_pool_lease(options->kv, request->owner, now_us + TOKEN_LEASE_US);
    request_life_change(&request->life, REQUEST_RESERVED, now_us);
    pool->awaited++;
    pool->leased++;
    if (!request->local)
        sched_machine_awaits(options->sched, token_slot_of(pool, request));
    /* The prompt machine needs only the blocks that the prompt fills. */
    struct message message = {
        .kind = MESSAGE_RESERVED,
        .reserved = {.request = request->name,
                     .path = request->path,
                     .held_count = request->held,
                     .block_count = blocks_of(pool, request->prompt_tokens) - request->held,
                     .blocks = request->blocks + request->held},
    };
    options->calls.send(options->self, request->gateway, &message);
}

void token_pool_blocks_max(struct token_pool *pool, uint32_t blocks_max)
{
    pool->options.blocks_max = blocks_max;
}

/* Returns the number of blocks that a new request leaves to growing answers: the configured
 * percentage, and at least one block per growing answer. Else the new request would soon preempt
 * another one or be preempted. */
static uint32_t growth_reserve(const struct token_pool *pool)
{
    uint64_t share = (uint64_t)kv_pool_block_count(pool->options.kv) *
                     pool->options.growth_reserve_percent / 100;
    if (pool->growing == 0 || pool->holders == 0)
        return 0;
    return share > pool->growing ? (uint32_t)share : pool->growing;
}

/* May the next request in the order have its blocks? A local request may take all memory: its
 * prompt runs here, in its own blocks, so it delays only requests that wait for memory on this
 * machine. Other requests share blocks_max. A request that is larger than blocks_max, because
 * blocks_max was lowered after its arrival, may run when no other request holds a part of it. (A
 * block that several requests read counts for each of them.) */
static bool room_for(const struct token_pool *pool, const struct token_request *request)
{
    uint32_t most = pool->options.blocks_max;
    uint32_t room = most > pool->blocks_held ? most - pool->blocks_held : 0;
    bool older = request->block_count > most && pool->blocks_held == 0;
    return request->local || older || request->block_count <= room;
}

void token_pool_grant(struct token_pool *pool, int64_t now_us)
{
    struct sched_machine *sched = pool->options.sched;
    sched_slot slot;
    while (sched_machine_reserve_head(sched, &slot)) {
        struct token_request *request = token_request_of(pool, slot);
        if (!room_for(pool, request))
            return;
        sched_machine_reserve_left(sched, slot, token_blocks_look(pool, request));
        uint32_t available = kv_pool_available(pool->options.kv);
        uint32_t reserve = growth_reserve(pool);
        if (!sched_machine_reserve_next(sched, available > reserve ? available - reserve : 0,
                                        &slot)) {
            token_blocks_look_end(pool, request);
            return;
        }
        request_grant(pool, request, now_us);
    }
}

/* ---- giving up a reservation before its KV arrives ---- */

/* The gateway resumes the request like a preempted one, and cancels it at the prompt machine, which
 * then sends KV_ABORTED. */
void token_pool_yield(struct token_pool *pool, uint32_t prompt_holders, int64_t now_us)
{
    const struct token_pool_options *options = &pool->options;
    sched_slot slot;
    if (!sched_machine_yields(options->sched, kv_pool_available(options->kv),
                              pool->holders + prompt_holders, &slot))
        return;
    struct token_request *request = token_request_of(pool, slot);
    struct message message = {.kind = MESSAGE_PREEMPTED, .preempted = {.request = request->name}};
    snprintf(message.preempted.text, sizeof(message.preempted.text),
             "prompts on machine %s wait for KV blocks of %u requests that wait for their KV",
             options->name, pool->holders);
    options->calls.send(options->self, request->gateway, &message);
    pool->stats.preemptions++;
    token_request_quarantine(pool, request, REQUEST_CANCELLED, now_us);
}

/* ---- growth ---- */

static void request_preempt(struct token_pool *pool, struct token_request *request)
{
    struct message message = {
        .kind = MESSAGE_PREEMPTED,
        .preempted = {.request = request->name, .generated = request->generated},
    };
    snprintf(message.preempted.text, sizeof(message.preempted.text),
             "machine %s has no KV block left for %u answers that grow", pool->options.name,
             pool->growing);
    token_pool_settle(pool); /* Sends the request's tokens of the last batch before PREEMPTED. */
    if (request->gateway != NULL)
        pool->options.calls.send(pool->options.self, request->gateway, &message);
    pool->stats.preemptions++;
    token_request_forget(pool, request);
}

void token_pool_grow(struct token_pool *pool)
{
    sched_slot slot;
    while (sched_machine_short(pool->options.sched, &slot)) {
        if (kv_pool_available(pool->options.kv) > 0) {
            token_blocks_grow(pool, token_request_of(pool, slot));
            sched_machine_grown(pool->options.sched, slot, pool->options.block_tokens);
            continue;
        }
        /* The victim is in a batch, which will end. */
        if (!sched_machine_victim(pool->options.sched, &slot))
            return;
        request_preempt(pool, token_request_of(pool, slot));
    }
}
