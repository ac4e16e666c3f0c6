/* prompt_prefix: prompts and the prefix cache. The longest cached chain of a prompt's full blocks
 * is read instead of computed. The full blocks of a computed prompt are added to the cache. The
 * last prompt token is always computed, because its row gives the first token of the answer. A
 * prompt that wants scores is computed completely. If the KV stays in the blocks of this machine's
 * token pool, the token pool does the look-up and the adding. */
#include "prompt_pool/prompt_state.h"

#include <assert.h>

static bool prefix_is_used(const struct prompt_pool *pool, const struct prompt_request *request)
{
    return pool->options.prefix != NULL && !request->local && !prompt_request_is_whole(request);
}

uint32_t prompt_prefix_tokens_left(const struct prompt_pool *pool,
                                   const struct prompt_request *request)
{
    return request->prompt_count - request->cached_spans * pool->options.arena.block_tokens;
}

static void prefix_pin(struct prompt_pool *pool, struct prompt_request *request)
{
    if (prefix_is_used(pool, request))
        request->cached_spans =
            kv_prefix_read_begin(pool->options.prefix, request->prefix_salt, request->prompt,
                                 (request->prompt_count - 1) / pool->options.arena.block_tokens,
                                 request->tables.ids, &request->chain_end);
}

static void prefix_unpin(struct prompt_pool *pool, struct prompt_request *request)
{
    if (request->chain_end != KV_BLOCK_NONE)
        kv_prefix_read_end(pool->options.prefix, request->chain_end);
    request->chain_end = KV_BLOCK_NONE;
    request->cached_spans = 0;
}

/* Looks up the prompts at the head of the queue, as many as the batch can hold. So a look-up is
 * made only for a prompt that starts soon, however long the queue is. A prompt whose blocks do not
 * fit, together with those of the prompts before it, gives up its chain: it starts no earlier than
 * without a cache, and the blocks may be evicted to make room for it. */
void prompt_pool_prefixes_enter(struct prompt_pool *pool, uint32_t path, uint32_t batch_tokens)
{
    sched_slot slot = SCHED_NO_SLOT;
    uint32_t blocks = 0;
    uint32_t tokens = 0;
    assert(pool->pinned_count == 0);
    if (pool->options.prefix == NULL)
        return;
    while (pool->pinned_count < LIMIT_BATCH_SEQUENCES && tokens < batch_tokens &&
           sched_machine_prompt_after(pool->options.sched, path, slot, &slot)) {
        struct prompt_request *request = prompt_request_of(pool, slot);
        prefix_pin(pool, request);
        uint32_t needed = prompt_request_blocks(pool, request) - request->cached_spans;
        if (blocks + needed > kv_pool_available(pool->options.kv)) {
            prefix_unpin(pool, request);
            return;
        }
        blocks += needed;
        tokens += prompt_prefix_tokens_left(pool, request);
        sched_machine_prompt_left_set(pool->options.sched, slot,
                                      prompt_prefix_tokens_left(pool, request), needed);
        pool->pinned[pool->pinned_count++] = slot;
    }
}

void prompt_pool_prefixes_leave(struct prompt_pool *pool)
{
    for (uint32_t i = 0; i < pool->pinned_count; i++) {
        sched_slot slot = pool->pinned[i];
        struct prompt_request *request = prompt_request_of(pool, slot);
        if (sched_machine_in_batch(pool->options.sched, slot))
            continue;
        prefix_unpin(pool, request);
        sched_machine_prompt_left_set(pool->options.sched, slot, request->prompt_count,
                                      prompt_request_blocks(pool, request));
    }
    pool->pinned_count = 0;
}

void prompt_prefix_stats_add(struct prompt_pool *pool, const struct prompt_request *request)
{
    if (pool->options.prefix == NULL || prompt_request_is_whole(request))
        return;
    pool->stats.prefix_query_tokens += request->prompt_count;
    pool->stats.prefix_hit_tokens +=
        request->prompt_count - prompt_prefix_tokens_left(pool, request);
}

void prompt_prefix_add(struct prompt_pool *pool, struct prompt_request *request)
{
    kv_tables_mark(&request->tables, &pool->options.arena.groups, pool->options.kv, request->owner,
                   request->cached_spans, request->span_count, KV_LIVE);
    if (pool->options.prefix != NULL)
        kv_prefix_add(pool->options.prefix, request->owner, request->prefix_salt, request->prompt,
                      request->tables.ids, request->prompt_count / pool->options.arena.block_tokens,
                      &request->chain_end);
}

void prompt_prefix_keep(struct prompt_pool *pool, struct prompt_request *request)
{
    uint32_t spans = request->computed_tokens / pool->options.arena.block_tokens;
    if (pool->options.prefix == NULL || !prompt_request_has_blocks(request) ||
        spans <= request->cached_spans)
        return;
    kv_tables_mark(&request->tables, &pool->options.arena.groups, pool->options.kv, request->owner,
                   request->cached_spans, spans, KV_LIVE);
    kv_prefix_add(pool->options.prefix, request->owner, request->prefix_salt, request->prompt,
                  request->tables.ids, spans, &request->chain_end);
}

/* Blocks whose tokens the cache already had still belong to the request. */
void prompt_prefix_free(struct prompt_pool *pool, const struct prompt_request *request)
{
    const struct kv_prefix *prefix = pool->options.prefix;
    uint32_t end = prompt_request_has_blocks(request) ? request->span_count : request->cached_spans;
    if (prefix == NULL)
        kv_tables_free(&request->tables, &pool->options.arena.groups, pool->options.kv,
                       request->owner, 0, end);
    for (uint32_t i = request->cached_spans; i < end && prefix != NULL; i++)
        if (!kv_prefix_holds(prefix, request->tables.ids[i]))
            kv_pool_free(pool->options.kv, request->owner, &request->tables.ids[i], 1);
    if (request->chain_end != KV_BLOCK_NONE)
        kv_prefix_read_end(pool->options.prefix, request->chain_end);
}
