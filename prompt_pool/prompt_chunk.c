/* prompt_chunk: one prompt item of a batch, from the input of the engine to its results. */
#include "common/token_rules.h"
#include "prompt_pool/prompt_state.h"

#include <assert.h>

/* Number of scores in one message: well below LIMIT_MESSAGE_BYTES, and often enough that the client
 * sees progress. */
#define SCORES_PER_MESSAGE 512

static void tokens_send(struct prompt_pool *pool, const struct prompt_request *request)
{
    if (pool->token_count > 0 && request->gateway != NULL)
        pool->options.calls.send_tokens(pool->options.self, request->gateway,
                                        &pool->tokens_message);
    pool->token_count = 0;
}

static void tokens_add(struct prompt_pool *pool, const struct prompt_request *request,
                       struct message_token *token)
{
    token->request = request->attempt.id;
    token->generation = request->attempt.generation;
    if (pool->token_count == 0)
        message_tokens_begin(&pool->tokens_message);
    enum status status = message_tokens_add(&pool->tokens_message, token);
    assert(status == ST_OK); /* Far below the limit of a message. */
    pool->token_count++;
}

static uint32_t cached_tokens(const struct prompt_pool *pool, const struct prompt_request *request)
{
    return request->tables.cached_spans * pool->options.arena.block_tokens;
}

/* Returns the first span of [begin, end) that is not before `least`; `end` if there is none. */
static uint32_t push_begin(uint32_t begin, uint32_t least, uint32_t end)
{
    if (begin < least)
        begin = least;
    return begin < end ? begin : end;
}

/* Sets the spans to push: those that the chunk completes. The first chunk also pushes the cached
 * spans, and the last chunk the incomplete last span. Without layer-wise transfer, the last chunk
 * pushes all spans of the prompt. Spans that the token machine already has are left out. */
static void chunk_push_range(struct prompt_pool *pool, struct prompt_request *request,
                             const struct sched_batch_item *item)
{
    uint32_t block_tokens = pool->options.arena.block_tokens;
    uint32_t first = cached_tokens(pool, request) + item->first_token;
    uint32_t end = first + item->token_count;
    uint32_t begin =
        prompt_is_layerwise(request) && !item->is_first_chunk ? first / block_tokens : 0;
    request->push_end_span = item->is_last_chunk ? request->span_count : end / block_tokens;
    request->push_first_span =
        push_begin(begin, request->target_held_spans, request->push_end_span);
    request->push_window_first = push_begin(begin, request->window_first, request->push_end_span);
    request->push_first_layer = 0;
}

static void chunk_start(struct prompt_pool *pool, struct prompt_request *request, int64_t now_us)
{
    prompt_request_state_set(request, PROMPT_COMPUTING);
    request->began_us = now_us;
    prompt_prefix_stats_add(pool, request);
    if (request->transfer_mode == TRANSFER_AUTO)
        prompt_push_decide(pool, request);
    /* The blocks belong to the token pool, which marks them as live when the KV is complete. */
    if (request->local)
        return;
    const struct kv_arena *arena = &pool->options.arena;
    if (request->target != NULL)
        pool->stats.transfer_held_bytes += prompt_push_bytes(
            arena, 0, arena->layer_count, request->target_held_spans,
            request->window_first - layer_groups_answer_first(&arena->groups, arena->block_tokens,
                                                              request->prompt_count),
            NULL);
    /* The scheduler knows how many blocks are available. */
    pool->stats.window_freed_blocks += kv_tables_take(
        &request->tables, &arena->groups, pool->options.kv, request->owner, 0, request->span_count);
    kv_tables_mark(&request->tables, &arena->groups, pool->options.kv, request->owner, 0,
                   request->span_count, KV_FILLING);
    pool->holder_count++;
}

static struct sample_context context_of(const struct prompt_request *request)
{
    bool reads =
        token_rules_depend_on_context(&request->sampling, request->rules, request->rule_count);
    return (struct sample_context){
        .rules = request->rules,
        .rule_count = request->rule_count,
        .tokens = request->prompt,
        .token_count = reads ? request->prompt_count : 0,
        .prompt_count = reads ? request->prompt_count - request->sampling.answer_tokens : 0,
    };
}

void prompt_pool_chunk_begin(struct prompt_pool *pool, const struct sched_batch_item *item,
                             int64_t now_us, struct prompt_chunk *out)
{
    struct prompt_request *request = prompt_request_of(pool, item->slot);
    assert(!prompt_request_is_stopped(request));
    if (item->is_first_chunk)
        chunk_start(pool, request, now_us);
    chunk_push_range(pool, request, item);
    if (!pool->options.stages_push) {
        assert(pool->running_count < LIMIT_BATCH_SEQUENCES);
        pool->running[pool->running_count++] = item->slot;
    }
    uint32_t first = cached_tokens(pool, request) + item->first_token;
    uint32_t followed = request->prompt_count - first - 1; /* Rows with a next prompt token. */
    uint32_t scored = followed < item->token_count ? followed : item->token_count;
    *out = (struct prompt_chunk){
        .request = request->attempt.id,
        .token_ids = request->prompt + first,
        .first_token = first,
        .blocks = request->tables.ids,
        .group_stride = request->tables.stride,
        .owner = request->owner,
        .sampling = &request->sampling,
        .answer = request->answer,
        .output_limit = request->output_limit,
        .samples_token = item->is_last_chunk && request->sampling.output_tokens_max > 0,
        .score_count = request->wants_scores ? scored : 0,
        .layerwise = prompt_is_layerwise(request),
    };
    if (out->samples_token)
        out->context = context_of(request);
    if (request->pooling == POOLING_MEAN)
        out->pooled_count = item->token_count;
    else if (request->pooling == POOLING_LAST && item->is_last_chunk)
        out->pooled_count = 1;
    out->pooled_first = item->token_count - out->pooled_count;
    out->pooled_sum = request->embedding;
    prompt_push_plan(pool, request, item->is_last_chunk, now_us, &out->push);
}

void prompt_pool_score_add(struct prompt_pool *pool, sched_slot slot, struct message_token *token)
{
    const struct prompt_request *request = prompt_request_of(pool, slot);
    if (prompt_request_is_stopped(request))
        return;
    token->scored = true;
    tokens_add(pool, request, token);
    if (pool->token_count == SCORES_PER_MESSAGE)
        tokens_send(pool, request);
}

void prompt_pool_scores_end(struct prompt_pool *pool, sched_slot slot)
{
    tokens_send(pool, prompt_request_of(pool, slot));
}

/* Ends the computing of a prompt, whose last chunk has run. If the KV stays on this machine, the
 * token pool takes the request over at once, so that the next batch contains its first decode. */
static void prompt_end(struct prompt_pool *pool, struct prompt_request *request,
                       struct message_token *token, int64_t now_us)
{
    request->computed_us = now_us;
    request->answer_ended = token == NULL || token->finish != FINISH_NONE;
    if (token != NULL) {
        token->wait_us = (uint32_t)(request->began_us - request->arrived_us);
        token->run_us = (uint32_t)(now_us - request->began_us);
        token->cached_tokens = cached_tokens(pool, request);
        request->first_token = *token;
    }
    sched_machine_remove(pool->options.sched, prompt_slot_of(pool, request));
    prompt_request_state_set(request, PROMPT_COMPUTED);
    request->computed_tokens = 0;
    if (prompt_request_has_blocks(request))
        prompt_prefix_add(pool, request);
    if (!request->local)
        return;
    struct message_kv_ready ready = {.request = request->attempt,
                                     .prompt_tokens = request->prompt_count,
                                     .first_token = request->first_token.id};
    if (request->answer_ended)
        pool->options.calls.local_aborted(pool->options.self, &request->attempt);
    else
        pool->options.calls.local_ready(pool->options.self, &ready, now_us);
    request->local = false; /* The blocks now belong to the token pool alone. */
}

void prompt_pool_chunk_done(struct prompt_pool *pool, const struct sched_batch_item *item,
                            struct message_token *token, int64_t now_us)
{
    struct prompt_request *request = prompt_request_of(pool, item->slot);
    pool->running_count = 0; /* The whole batch is over. */
    pool->stats.prompt_tokens_done += item->token_count;
    request->computed_tokens = cached_tokens(pool, request) + item->first_token + item->token_count;
    if (prompt_request_is_stopped(request)) {
        prompt_request_stop(pool, request);
        return;
    }
    if (item->is_last_chunk) {
        prompt_end(pool, request, token, now_us);
        /* Several batches were done before their results were sent. */
        if (pool->computed_count == LIMIT_BATCH_SEQUENCES)
            prompt_pool_results_send(pool, now_us);
        pool->computed[pool->computed_count++] = item->slot;
    } else {
        if (prompt_is_layerwise(request))
            prompt_push_layers(pool, request, pool->options.arena.layer_count, now_us);
        prompt_push_progress(pool, request);
    }
}

void prompt_pool_chunk_abandoned(struct prompt_pool *pool, const struct sched_batch_item *item)
{
    struct prompt_request *request = prompt_request_of(pool, item->slot);
    pool->running_count = 0; /* The whole batch is over. */
    assert(prompt_request_is_stopped(request));
    prompt_request_stop(pool, request);
}

static void embedding_send(struct prompt_pool *pool, const struct prompt_request *request)
{
    struct message message = {.kind = MESSAGE_EMBEDDING,
                              .embedding = {.request = request->attempt,
                                            .count = pool->options.hidden,
                                            .values = request->embedding}};
    if (request->gateway != NULL)
        pool->options.calls.send(pool->options.self, request->gateway, &message);
}

static void results_send(struct prompt_pool *pool, struct prompt_request *request, int64_t now_us)
{
    if (request->sampling.output_tokens_max > 0 && !request->copy) {
        tokens_add(pool, request, &request->first_token);
        tokens_send(pool, request);
    }
    if (request->pooling != POOLING_NONE)
        embedding_send(pool, request);
    if (request->target == NULL) {
        prompt_request_complete(pool, request, now_us);
        return;
    }
    if (!request->answer_ended)
        prompt_push_layers(pool, request, pool->options.arena.layer_count, now_us);
    if (request->write_status < 0) {
        prompt_request_fail(pool, request, request->write_status, "a write of its KV was refused");
        return;
    }
    prompt_request_state_set(request, PROMPT_FLUSHING);
    prompt_push_flush(pool, request);
}

void prompt_pool_results_send(struct prompt_pool *pool, int64_t now_us)
{
    uint32_t count = pool->computed_count;
    pool->computed_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (pool->computed[i] != SCHED_NO_SLOT)
            results_send(pool, prompt_request_of(pool, pool->computed[i]), now_us);
    }
}
