/* token_blocks: the blocks of a request on its token machine. What the prefix cache has of the
 * prompt is read there; the others are the request's until their KV is whole: full blocks of the
 * prompt when it has arrived, those of the answer when the request ends. So the next turn of a
 * conversation finds both, on this machine, whoever computes it.
 *
 * A prompt machine is told of the blocks behind the found ones only: nobody writes into a block
 * that others read. */
#include "token_pool/token_state.h"

#include <assert.h>

/* The request's own blocks: what it has taken, less what it has handed to the cache. */
static bool owns(const struct token_pool *pool, const struct token_request *request, uint32_t i)
{
    const struct kv_prefix *prefix = pool->options.prefix;
    return i >= request->held && (prefix == NULL || !kv_prefix_holds(prefix, request->blocks[i]));
}

/* A prompt that is computed here has a row at least: the one that gives the first token. */
uint32_t token_blocks_look(struct token_pool *pool, struct token_request *request)
{
    uint32_t tokens = request->prompt_tokens - (request->local ? 1 : 0);
    assert(request->chain == KV_BLOCK_NONE && !request->taken);
    if (request->tokens != NULL)
        request->held =
            kv_prefix_enter(pool->options.prefix, request->tokens,
                            tokens / pool->options.block_tokens, request->blocks, &request->chain);
    return request->block_count - request->held;
}

void token_blocks_look_end(struct token_pool *pool, struct token_request *request)
{
    if (request->chain != KV_BLOCK_NONE)
        kv_prefix_leave(pool->options.prefix, request->chain);
    request->chain = KV_BLOCK_NONE;
    request->held = 0;
}

void token_blocks_take(struct token_pool *pool, struct token_request *request)
{
    enum status status =
        kv_pool_take(pool->options.kv, request->owner, request->block_count - request->held,
                     request->blocks + request->held);
    assert(status == ST_OK); /* the scheduler was told how many are available */
    request->taken = true;
    pool->blocks_held += request->local ? 0 : request->block_count;
    pool->holders++;
    pool->growing += token_request_grows(request) ? 1 : 0;
}

void token_blocks_grow(struct token_pool *pool, struct token_request *request)
{
    kv_block_id *block = &request->blocks[request->block_count];
    assert(request->taken && token_request_grows(request));
    enum status status = kv_pool_take(pool->options.kv, request->owner, 1, block);
    assert(status == ST_OK);
    kv_pool_mark(pool->options.kv, request->owner, block, 1, KV_LIVE);
    request->block_count++;
    pool->blocks_held += request->local ? 0 : 1;
    pool->growing -= token_request_grows(request) ? 0 : 1;
}

void token_blocks_quarantine(struct token_pool *pool, const struct token_request *request)
{
    kv_pool_mark(pool->options.kv, request->owner, request->blocks + request->held,
                 request->block_count - request->held, KV_QUARANTINED);
}

/* K and V of the first `tokens` are in the blocks, which are all live. */
static void keep(struct token_pool *pool, struct token_request *request, uint32_t tokens)
{
    if (request->tokens != NULL)
        kv_prefix_add(pool->options.prefix, request->owner, request->tokens, request->blocks,
                      tokens / pool->options.block_tokens, &request->chain);
}

void token_blocks_whole(struct token_pool *pool, struct token_request *request)
{
    kv_pool_mark(pool->options.kv, request->owner, request->blocks + request->held,
                 request->block_count - request->held, KV_LIVE);
    keep(pool, request, request->prompt_tokens);
}

void token_blocks_leave(struct token_pool *pool, struct token_request *request)
{
    /* The last token was sampled, and no batch has had it yet. */
    if (request->generated > 0)
        keep(pool, request, request->prompt_tokens + request->generated - 1);
    for (uint32_t i = 0; i < request->block_count && request->taken; i++)
        if (owns(pool, request, i))
            kv_pool_free(pool->options.kv, request->owner, &request->blocks[i], 1);
    if (request->taken) {
        pool->blocks_held -= request->local ? 0 : request->block_count;
        pool->holders--;
        pool->growing -= token_request_grows(request) ? 1 : 0;
    }
    request->taken = false;
    token_blocks_look_end(pool, request);
}
