/* token_blocks: the blocks of a request on its token machine. The blocks of the prompt that the
 * prefix cache has are read there. The others belong to the request until their KV is complete;
 * then they go to the cache: full blocks of the prompt when its KV has arrived (also if the rest of
 * the prompt is lost), full blocks of the answer when the request ends. So the next turn of a
 * conversation finds both on this machine, whichever machine computes its prompt.
 *
 * A prompt machine gets only the ids of the blocks after the cached ones, so no process writes into
 * a block that other requests read. */
#include "token_pool/token_state.h"

#include <assert.h>

static const struct layer_groups *groups_of(const struct token_pool *pool)
{
    return &pool->options.memory.groups;
}

/* A prompt that is computed on this machine needs at least one token to compute: the one whose row
 * gives the first token of the answer. */
uint32_t token_blocks_prefix_pin(struct token_pool *pool, struct token_request *request)
{
    const struct sched_memory_blocks *blocks = token_blocks_of(pool, request);
    uint32_t tokens = request->prompt_tokens - (request->local ? 1 : 0);
    assert(request->chain_end == KV_BLOCK_NONE && !blocks->granted);
    if (request->cached)
        request->cached_spans = kv_prefix_read_begin(
            pool->options.prefix, request->prefix_salt, request->tokens,
            tokens / pool->options.memory.block_tokens, request->tables.ids, &request->chain_end);
    return blocks->count - request->cached_spans;
}

void token_blocks_prefix_unpin(struct token_pool *pool, struct token_request *request)
{
    if (request->chain_end != KV_BLOCK_NONE)
        kv_prefix_read_end(pool->options.prefix, request->chain_end);
    request->chain_end = KV_BLOCK_NONE;
    request->cached_spans = 0;
}

void token_blocks_take(struct token_pool *pool, struct token_request *request)
{
    kv_tables_take(&request->tables, groups_of(pool), pool->options.kv, request->owner,
                   request->cached_spans, token_blocks_of(pool, request)->spans);
}

void token_blocks_grow(struct token_pool *pool, struct token_request *request)
{
    const uint32_t spans = token_blocks_of(pool, request)->spans;
    kv_tables_take(&request->tables, groups_of(pool), pool->options.kv, request->owner, spans - 1,
                   spans);
    kv_tables_mark(&request->tables, groups_of(pool), pool->options.kv, request->owner, spans - 1,
                   spans, KV_LIVE);
}

void token_blocks_keep(struct token_pool *pool, struct token_request *request)
{
    uint32_t first = request->cached_spans;
    uint32_t end = request->arrived_spans;
    if (!request->cached || end <= first)
        return;
    kv_tables_mark(&request->tables, groups_of(pool), pool->options.kv, request->owner, first, end,
                   KV_LIVE);
    kv_prefix_add(pool->options.prefix, request->owner, request->prefix_salt, request->tokens,
                  request->tables.ids, end, &request->chain_end);
    for (uint32_t i = first; i < end; i++) /* The cache has another block with these tokens. */
        if (!kv_prefix_holds(pool->options.prefix, request->tables.ids[i]))
            kv_pool_free(pool->options.kv, request->owner, &request->tables.ids[i], 1);
    kv_prefix_read_end(pool->options.prefix, request->chain_end);
    request->chain_end = KV_BLOCK_NONE;
    request->cached_spans = end;
    pool->stats.kept_tokens += (uint64_t)(end - first) * pool->options.memory.block_tokens;
}

void token_blocks_quarantine(struct token_pool *pool, const struct token_request *request)
{
    kv_tables_mark(&request->tables, groups_of(pool), pool->options.kv, request->owner,
                   request->cached_spans, token_blocks_of(pool, request)->spans, KV_QUARANTINED);
}

/* Adds the full blocks of the first `tokens` tokens to the prefix cache. Requires that their K and
 * V are complete and that all blocks are live. */
static void prefix_add(struct token_pool *pool, struct token_request *request, uint32_t tokens)
{
    if (request->cached)
        kv_prefix_add(pool->options.prefix, request->owner, request->prefix_salt, request->tokens,
                      request->tables.ids, tokens / pool->options.memory.block_tokens,
                      &request->chain_end);
}

void token_blocks_prompt_done(struct token_pool *pool, struct token_request *request)
{
    kv_tables_mark(&request->tables, groups_of(pool), pool->options.kv, request->owner,
                   request->cached_spans, token_blocks_of(pool, request)->spans, KV_LIVE);
    prefix_add(pool, request, request->prompt_tokens);
}

void token_blocks_publish(struct token_pool *pool, struct token_request *request)
{
    prefix_add(pool, request, request->prompt_tokens + request->generated - 1);
}

/* Frees the blocks that the request has taken and not handed to the prefix cache. */
static void blocks_free(struct token_pool *pool, const struct token_request *request,
                        uint32_t spans)
{
    const struct kv_prefix *prefix = pool->options.prefix;
    struct kv_pool *kv = pool->options.kv;
    if (prefix == NULL) {
        kv_tables_free(&request->tables, groups_of(pool), kv, request->owner, 0, spans);
        return;
    }
    for (uint32_t i = request->cached_spans; i < spans; i++)
        if (!kv_prefix_holds(prefix, request->tables.ids[i]))
            kv_pool_free(kv, request->owner, &request->tables.ids[i], 1);
}

void token_blocks_leave(struct token_pool *pool, struct token_request *request)
{
    const struct sched_memory_blocks *blocks = token_blocks_of(pool, request);
    token_blocks_keep(pool, request);
    /* The last token was sampled, but no batch has computed its K and V yet. */
    if (request->generated > 0)
        prefix_add(pool, request, request->prompt_tokens + request->generated - 1);
    if (blocks->granted)
        blocks_free(pool, request, blocks->spans);
    token_blocks_prefix_unpin(pool, request);
}
