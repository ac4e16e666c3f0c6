/* prompt_prefix: prompts and the prefix cache. The longest cached chain of a prompt's full blocks
 * is read instead of computed. The full blocks of a computed prompt are added to the cache; in
 * layers with a window, only the last spans still have their blocks. The last prompt token is
 * always computed, because its row gives the first token of the answer. A prompt whose scores or
 * embedding are wanted is computed completely. If the KV stays in the blocks of this machine's
 * token pool, the token pool does the look-up and the adding. */
#include "prompt_pool/prompt_state.h"

#include <assert.h>

static bool prefix_is_used(const struct prompt_pool *pool, const struct prompt_request *request)
{
    return pool->options.prefix != NULL && !request->local && !prompt_request_is_uncached(request);
}

uint32_t prompt_prefix_tokens_left(const struct prompt_pool *pool,
                                   const struct prompt_request *request)
{
    return request->prompt_count - request->tables.cached_spans * pool->options.arena.block_tokens;
}

static void prefix_pin(struct prompt_pool *pool, struct prompt_request *request)
{
    if (prefix_is_used(pool, request))
        kv_prefix_read_begin(pool->options.prefix, request->prefix_salt, request->prompt,
                             (request->prompt_count - 1) / pool->options.arena.block_tokens,
                             KV_PREFIX_WHOLE_WINDOW, &request->tables, &request->reader);
}

static void prefix_unpin(struct prompt_pool *pool, struct prompt_request *request)
{
    kv_prefix_read_end(pool->options.prefix, &request->reader);
    request->tables.cached_spans = request->tables.window_cached_spans = 0;
}

/* Looks up the first prompts of the queue, up to the number that the batch can hold. So only
 * prompts that start soon are looked up, however long the queue is. If the blocks of a prompt do
 * not fit in the pool together with those of the prompts before it, the prompt gives up its chain
 * again: the prompt cannot start yet, and the chain's blocks may be evicted to make room. */
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
        uint32_t needed = prompt_request_blocks_left(pool, request);
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
                                      prompt_request_blocks_left(pool, request));
    }
    pool->pinned_count = 0;
}

void prompt_prefix_stats_add(struct prompt_pool *pool, const struct prompt_request *request)
{
    if (pool->options.prefix == NULL || prompt_request_is_uncached(request))
        return;
    pool->stats.prefix_query_tokens += request->prompt_count;
    pool->stats.prefix_hit_tokens +=
        request->prompt_count - prompt_prefix_tokens_left(pool, request);
}

/* Adds the full blocks of the first `tokens` tokens, which are computed, to the prefix cache; in
 * layers with a window, the blocks that no later span uses. After that, the request reads the
 * blocks of layers with a window from span window_read_first on. */
static void blocks_add(struct prompt_pool *pool, struct prompt_request *request, uint32_t tokens,
                       uint32_t window_read_first)
{
    const struct kv_arena *arena = &pool->options.arena;
    const uint32_t spans = layer_groups_spans(tokens, arena->block_tokens);
    const uint32_t keep = request->tables.keep;
    const struct kv_prefix_blocks blocks = {
        .owner = request->owner,
        .salt = request->prefix_salt,
        .tokens = request->prompt,
        .tables = &request->tables,
        .spans = tokens / arena->block_tokens,
        .window_valid_first = spans > keep ? spans - keep : 0,
        .window_read_first = window_read_first,
    };
    kv_tables_mark(&request->tables, &arena->groups, pool->options.kv, request->owner, 0, spans,
                   KV_LIVE);
    if (pool->options.prefix != NULL)
        kv_prefix_add(pool->options.prefix, &blocks, &request->reader);
}

void prompt_prefix_add(struct prompt_pool *pool, struct prompt_request *request)
{
    const struct kv_arena *arena = &pool->options.arena;
    blocks_add(
        pool, request, request->prompt_count,
        layer_groups_answer_first(&arena->groups, arena->block_tokens, request->prompt_count));
}

void prompt_prefix_keep(struct prompt_pool *pool, struct prompt_request *request)
{
    const uint32_t spans = request->computed_tokens / pool->options.arena.block_tokens;
    if (pool->options.prefix != NULL && prompt_request_has_blocks(request) &&
        spans > request->tables.cached_spans)
        blocks_add(pool, request, request->computed_tokens, spans);
}

/* Blocks whose tokens the cache already had still belong to the request. */
void prompt_prefix_free(struct prompt_pool *pool, struct prompt_request *request)
{
    struct kv_prefix *prefix = pool->options.prefix;
    const uint32_t spans = prompt_request_has_blocks(request) ? request->span_count : 0;
    if (prefix == NULL)
        kv_tables_free(&request->tables, &pool->options.arena.groups, pool->options.kv,
                       request->owner, 0, spans);
    if (prefix == NULL || request->local)
        return;
    kv_prefix_own_blocks_free(prefix, request->owner, &request->tables, spans);
    kv_prefix_read_end(prefix, &request->reader);
}
