/* token_step: one decode step of each request in a batch, and the messages that carry the
 * tokens. */
#include "token_pool/token_state.h"

#include <assert.h>

void token_pool_decode_begin(struct token_pool *pool, sched_slot slot, int64_t now_us,
                             struct token_decode *out)
{
    struct token_request *request = token_request_of(pool, slot);
    assert(request->state == TOKEN_DECODING);
    if (request->began_us < 0)
        request->began_us = now_us;
    bool reads = request->reads_tokens;
    *out = (struct token_decode){
        .request = request->attempt.id,
        .input_id = request->last_token,
        .position = request->prompt_tokens + request->generated - 1,
        .blocks = request->tables.ids,
        .group_stride = request->tables.stride,
        .owner = request->owner,
        .sampling = &request->sampling,
        .context = {.rules = request->rules,
                    .rule_count = request->rule_count,
                    .tokens = request->tokens,
                    .token_count = reads ? request->prompt_tokens + request->generated : 0,
                    .prompt_count =
                        reads ? request->prompt_tokens - request->sampling.answer_tokens : 0},
        .answer = request->answer,
        .output_limit = request->output_limit,
        .answer_index = request->generated,
    };
}

void token_pool_decode_done(struct token_pool *pool, sched_slot slot, struct message_token *token,
                            int64_t now_us)
{
    struct token_request *request = token_request_of(pool, slot);
    if (request->state == TOKEN_STOPPED_IN_BATCH) {
        token_request_token_add(request, token->id);
        token_request_forget(pool, request);
        return;
    }
    token->request = request->attempt.id;
    token->generation = request->attempt.generation;
    token->index = request->generated;
    if (request->generated == 1) {
        token->wait_us = (uint32_t)(request->began_us - request->decoding_us);
        token->run_us = (uint32_t)(now_us - request->began_us);
    }
    token_request_token_add(request, token->id);
    pool->stats.generated_tokens_done++;
    /* Several batches were done before the tokens of one were sent. */
    if (pool->outgoing_count == LIMIT_BATCH_SEQUENCES)
        token_pool_tokens_send(pool);
    pool->outgoing[pool->outgoing_count++] =
        (struct token_outgoing){.gateway = request->gateway, .token = *token};
    if (token->finish != FINISH_NONE)
        token_request_forget(pool, request);
}

/* Sends all tokens for the gateway of outgoing[first]. */
static void gateway_tokens_send(struct token_pool *pool, uint32_t first)
{
    struct transport_peer *gateway = pool->outgoing[first].gateway;
    message_tokens_begin(&pool->tokens_message);
    for (uint32_t i = first; i < pool->outgoing_count; i++) {
        if (pool->outgoing[i].gateway != gateway)
            continue;
        enum status status = message_tokens_add(&pool->tokens_message, &pool->outgoing[i].token);
        assert(status == ST_OK); /* A batch is far below the limit of a message. */
        pool->outgoing[i].gateway = NULL;
    }
    pool->options.calls.send_tokens(pool->options.self, gateway, &pool->tokens_message);
}

void token_pool_tokens_send(struct token_pool *pool)
{
    for (uint32_t i = 0; i < pool->outgoing_count; i++)
        if (pool->outgoing[i].gateway != NULL)
            gateway_tokens_send(pool, i);
    pool->outgoing_count = 0;
}
