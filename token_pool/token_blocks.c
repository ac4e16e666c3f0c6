/* token_blocks: the blocks of a request on its token machine. If the prefix cache has blocks of the
 * prompt, the request reads these. The other blocks belong to the request until their KV is
 * complete, and then go to the cache: full blocks of the prompt when the KV has arrived (also if
 * the rest of the prompt is lost), full blocks of the answer when the request ends. So the next
 * message of a conversation finds both on this machine, whichever machine computes its prompt.
 * Blocks of layers with a window go to the cache only when the request ends, because the request
 * uses them again for later tokens. A copy has no later tokens, so all its blocks go to the cache
 * when the KV has arrived.
 *
 * A prompt machine gets only the ids of the blocks after the cached ones, so no process writes into
 * a block that other requests read. */
#include "token_pool/token_state.h"

#include <assert.h>

static const struct layer_groups *groups_of(const struct token_pool *pool)
{
    return &pool->options.memory.groups;
}

uint32_t token_blocks_window_first(const struct token_pool *pool,
                                   const struct token_request *request)
{
    return layer_groups_answer_first(groups_of(pool), pool->options.memory.block_tokens,
                                     request->prompt_tokens);
}

/* If this machine computes the prompt, the last token must not be found in the cache, because its
 * row gives the first token of the answer. If another machine computes the prompt, this machine
 * needs only those blocks of layers with a window that the answer reads. */
uint32_t token_blocks_prefix_pin(struct token_pool *pool, struct token_request *request)
{
    const uint32_t tokens = request->prompt_tokens - (request->local ? 1 : 0);
    struct kv_tables *tables = &request->tables;
    assert(request->reader.spans == 0 && !token_blocks_of(pool, request)->granted);
    if (request->uses_prefix_cache)
        kv_prefix_read_begin(pool->options.prefix, request->prefix_salt, request->tokens,
                             tokens / pool->options.memory.block_tokens,
                             request->local ? KV_PREFIX_WHOLE_WINDOW
                                            : token_blocks_window_first(pool, request),
                             tables, &request->reader);
    sched_memory_window_held_set(pool->memory, token_slot_of(pool, request),
                                 tables->window_cached_spans);
    return layer_groups_blocks_to_take(groups_of(pool), token_blocks_of(pool, request)->spans,
                                       tables->cached_spans, tables->window_cached_spans,
                                       tables->keep);
}

void token_blocks_prefix_unpin(struct token_pool *pool, struct token_request *request)
{
    if (pool->options.prefix != NULL)
        kv_prefix_read_end(pool->options.prefix, &request->reader);
    request->tables.cached_spans = request->tables.window_cached_spans = 0;
}

void token_blocks_take(struct token_pool *pool, struct token_request *request)
{
    pool->stats.window_freed_blocks +=
        kv_tables_take(&request->tables, groups_of(pool), pool->options.kv, request->owner, 0,
                       token_blocks_of(pool, request)->spans);
}

void token_blocks_grow(struct token_pool *pool, struct token_request *request)
{
    const struct sched_memory_options *memory = &pool->options.memory;
    const uint32_t spans = token_blocks_of(pool, request)->spans;
    const uint32_t next = (spans - 1) * memory->block_tokens; /* The request's next token. */
    pool->stats.window_freed_blocks += kv_tables_take(
        &request->tables, groups_of(pool), pool->options.kv, request->owner, spans - 1, spans);
    kv_tables_mark(&request->tables, groups_of(pool), pool->options.kv, request->owner, spans - 1,
                   spans, KV_LIVE);
    if (request->reader.window_end > 0 &&
        layer_groups_window_first(groups_of(pool), memory->block_tokens, next) >=
            request->reader.window_end)
        kv_prefix_windows_read_end(pool->options.prefix, &request->reader);
}

void token_blocks_quarantine(struct token_pool *pool, const struct token_request *request)
{
    kv_tables_mark(&request->tables, groups_of(pool), pool->options.kv, request->owner, 0,
                   token_blocks_of(pool, request)->spans, KV_QUARANTINED);
}

/* Returns the first span whose blocks of layers with a window have the KV of this span, if the KV
 * of the first `tokens` tokens is complete. Blocks of earlier spans were not sent, or later spans
 * use them now: also spans with KV of drafted tokens that were wrong. */
static uint32_t window_valid_first(const struct token_pool *pool,
                                   const struct token_request *request, uint32_t tokens)
{
    const struct sched_memory_options *memory = &pool->options.memory;
    const uint32_t written = sched_memory_spans_of(memory, tokens + memory->draft_tokens);
    const uint32_t granted = token_blocks_of(pool, request)->spans;
    const uint32_t spans = written < granted ? written : granted;
    const uint32_t keep = request->tables.keep;
    const uint32_t kept = spans > keep ? spans - keep : 0;
    const uint32_t sent = request->local ? 0 : token_blocks_window_first(pool, request);
    return sent > kept ? sent : kept;
}

/* Adds the first `spans` spans to the prefix cache; of layers with a window only those from span
 * window_valid_first on. Requires that their K and V are complete and their blocks live. */
static void spans_add(struct token_pool *pool, struct token_request *request, uint32_t spans,
                      uint32_t window_valid_first)
{
    const struct kv_prefix_blocks blocks = {
        .owner = request->owner,
        .salt = request->prefix_salt,
        .tokens = request->tokens,
        .tables = &request->tables,
        .spans = spans,
        .window_valid_first = window_valid_first,
        .window_read_first = spans,
    };
    kv_prefix_add(pool->options.prefix, &blocks, &request->reader);
}

/* Adds the full blocks of the first `tokens` tokens to the prefix cache; if `ends`, also those of
 * layers with a window. */
static void prefix_add(struct token_pool *pool, struct token_request *request, uint32_t tokens,
                       bool ends)
{
    const uint32_t spans = tokens / pool->options.memory.block_tokens;
    if (request->uses_prefix_cache)
        spans_add(pool, request, spans, ends ? window_valid_first(pool, request, tokens) : spans);
}

/* Blocks of layers with a window are not kept, because no blocks before the answer's window were
 * sent. */
void token_blocks_keep(struct token_pool *pool, struct token_request *request)
{
    const struct layer_groups *groups = groups_of(pool);
    const uint32_t first = request->tables.cached_spans;
    const uint32_t end = request->arrived_spans;
    if (!request->uses_prefix_cache || end <= first)
        return;
    for (uint32_t group = 0; group < layer_groups_count(groups); group++)
        if (!layer_groups_windowed(groups, group))
            kv_pool_state_set(pool->options.kv, request->owner,
                              request->tables.ids + (size_t)group * request->tables.stride + first,
                              end - first, KV_LIVE);
    spans_add(pool, request, end, end);
    for (uint32_t group = 0; group < layer_groups_count(groups); group++)
        for (uint32_t i = first; i < end && !layer_groups_windowed(groups, group); i++) {
            const kv_block_id block = kv_tables_id(&request->tables, group, i);
            /* Otherwise the cache has another block with these tokens. */
            if (kv_pool_owns(pool->options.kv, request->owner, block))
                kv_pool_free(pool->options.kv, request->owner, &block, 1);
        }
    kv_prefix_read_end(pool->options.prefix, &request->reader);
    request->tables.cached_spans = end;
    pool->stats.kept_tokens += (uint64_t)(end - first) * pool->options.memory.block_tokens;
}

void token_blocks_prompt_done(struct token_pool *pool, struct token_request *request)
{
    kv_tables_mark(&request->tables, groups_of(pool), pool->options.kv, request->owner, 0,
                   token_blocks_of(pool, request)->spans, KV_LIVE);
    prefix_add(pool, request, request->prompt_tokens, request->copy && request->copy_windows);
}

/* The blocks before window_cached_spans belong to the prefix cache, which keeps them as long as the
 * request reads them. After that, span i + keep uses the block of span i again. If another machine
 * computed the prompt, it sent only the spans that the answer reads. */
bool token_blocks_windows_find(const struct token_pool *pool, const struct token_request *request,
                               uint32_t first, uint32_t end, struct kv_tables *out)
{
    const struct layer_groups *groups = groups_of(pool);
    const struct kv_tables *tables = &request->tables;
    const uint32_t block_tokens = pool->options.memory.block_tokens;
    const uint32_t sent = request->local ? 0 : token_blocks_window_first(pool, request);
    const uint32_t spans = token_blocks_of(pool, request)->spans;
    const uint32_t own_first =
        first > tables->window_cached_spans ? first : tables->window_cached_spans;
    const bool cached = request->reader.window_end > 0 && first >= request->reader.window_first;
    if (first >= end || first < sent ||
        end > (request->prompt_tokens + request->generated - 1) / block_tokens ||
        spans > (uint64_t)own_first + tables->keep ||
        (first < tables->window_cached_spans && !cached))
        return false;
    for (uint32_t group = 0; out != NULL && group < layer_groups_count(groups); group++)
        for (uint32_t i = first; i < end && layer_groups_windowed(groups, group); i++)
            out->ids[(size_t)group * out->stride + i] = kv_tables_id(tables, group, i);
    return true;
}

void token_blocks_publish(struct token_pool *pool, struct token_request *request)
{
    prefix_add(pool, request, request->prompt_tokens + request->generated - 1, false);
}

void token_blocks_leave(struct token_pool *pool, struct token_request *request)
{
    const struct kv_prefix *prefix = pool->options.prefix;
    const struct sched_memory_blocks *blocks = token_blocks_of(pool, request);
    const uint32_t spans = blocks->granted ? blocks->spans : 0;
    token_blocks_keep(pool, request);
    /* The last token was sampled, but no batch has computed its K and V yet. */
    if (request->generated > 0)
        prefix_add(pool, request, request->prompt_tokens + request->generated - 1, true);
    if (prefix != NULL)
        kv_prefix_own_blocks_free(prefix, request->owner, &request->tables, spans);
    else
        kv_tables_free(&request->tables, groups_of(pool), pool->options.kv, request->owner, 0,
                       spans);
    token_blocks_prefix_unpin(pool, request);
}
