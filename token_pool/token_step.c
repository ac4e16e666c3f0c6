/* token_step: one decode step of each request in a batch, and the messages that carry the
 * tokens. */
#include "token_pool/token_state.h"

#include <assert.h>
#include <string.h>

struct sample_context token_request_context(const struct token_request *request,
                                            uint32_t drafted_count)
{
    const bool reads = request->reads_tokens;
    const uint32_t known = request->prompt_tokens + request->generated;
    return (struct sample_context){
        .rules = request->token_rules,
        .rule_count = request->token_rule_words,
        .tokens = request->tokens,
        .token_count = reads ? known + drafted_count : 0,
        .prompt_count = reads ? request->prompt_tokens - request->sampling.answer_tokens : 0,
    };
}

void token_pool_decode_begin(struct token_pool *pool, sched_slot slot, int64_t now_us,
                             struct token_decode *out)
{
    struct token_request *request = token_request_of(pool, slot);
    assert(request->state == TOKEN_DECODING);
    if (request->began_us < 0)
        request->began_us = now_us;
    *out = (struct token_decode){
        .request = request->attempt.id,
        .input_id = request->last_token,
        .position = request->prompt_tokens + request->generated - 1,
        .blocks = request->tables.ids,
        .group_stride = request->tables.stride,
        .owner = request->owner,
        .sampling = &request->sampling,
        .context = token_request_context(request, 0),
        .answer = request->answer,
        .output_limit = request->output_limit,
        .answer_index = request->generated,
        .draft = request->draft_count > 0 ? token_request_drafts(request) : NULL,
    };
}

bool token_request_draft_allowed(struct token_request *request, uint32_t count)
{
    const uint32_t *draft = token_request_drafts(request);
    uint32_t allowed = 0;
    if (request->answer == NULL)
        return true;
    while (allowed < count && grammar_answer_draft_add(request->answer, draft[allowed]))
        allowed++;
    grammar_answer_draft_drop(request->answer);
    return allowed == count;
}

uint32_t token_request_draft_most(const struct token_pool *pool,
                                  const struct token_request *request)
{
    const uint32_t left = request->output_limit - request->generated;
    const uint32_t most = pool->options.memory.draft_tokens;
    return left == 0 ? 0 : left - 1 < most ? left - 1 : most;
}

void token_request_draft(struct token_pool *pool, struct token_request *request)
{
    const struct token_pool_options *options = &pool->options;
    const uint32_t known = request->prompt_tokens + request->generated;
    request->draft_count = request->draft.count = 0;
    token_request_drafted_drop(pool, request);
    if (!draft_index_is_open(&request->draft_index) || request->output_limit == request->generated)
        return;
    draft_index_add(&request->draft_index, request->tokens, known);
    draft_make(&request->draft_index, request->tokens, request->answer,
               token_request_draft_most(pool, request), &request->draft);
    request->draft_count = sched_drafts_length(options->drafts, &request->draft_trust,
                                               pool->state_counts[TOKEN_DECODING], &request->draft);
    sched_machine_draft_set(options->sched, token_slot_of(pool, request), request->draft_count);
}

/* Counts the drafted tokens of a step, if there are any, and learns from them. */
static void draft_count(struct token_pool *pool, struct token_request *request, uint32_t checked,
                        uint32_t accepted)
{
    const struct sched_draft *draft = &request->draft;
    const double cost =
        sched_drafts_cost(pool->options.drafts, pool->state_counts[TOKEN_DECODING], draft, checked);
    sched_draft_trust_add(&request->draft_trust, draft, checked, accepted, cost);
    if (checked == 0)
        return;
    const bool model = draft->classes[0] == SCHED_DRAFT_MODEL;
    pool->stats.drafts++;
    pool->stats.draft_tokens += checked;
    pool->stats.draft_tokens_accepted += accepted;
    pool->stats.draft_model_tokens += model ? checked : 0;
    pool->stats.draft_model_tokens_accepted += model ? accepted : 0;
    for (uint32_t i = 0; i < accepted; i++) {
        uint64_t *counter = (void *)((char *)&pool->stats + message_stats_draft_accepted(i));
        *counter += 1;
    }
    if (model)
        sched_draft_trust_add(&pool->draft_trust, draft, checked, accepted, cost);
}

/* Records a token of the answer, and queues it for the gateway. */
static void token_take(struct token_pool *pool, struct token_request *request,
                       struct message_token *token, int64_t now_us)
{
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
}

uint32_t token_pool_decode_done(struct token_pool *pool, sched_slot slot,
                                struct message_token *tokens, const float *finals,
                                uint32_t row_count, int64_t now_us)
{
    struct token_request *request = token_request_of(pool, slot);
    const uint32_t known = request->prompt_tokens + request->generated;
    if (request->state == TOKEN_STOPPED_IN_BATCH) {
        token_request_token_add(request, tokens[0].id);
        token_request_forget(pool, request);
        return 1;
    }
    /* A token was drawn from the right context if all drafted tokens before it were right. */
    uint32_t taken = 0;
    bool right;
    do {
        struct message_token *token = &tokens[taken++];
        right = taken < row_count && *token_request_drafts(request) == token->id;
        token_take(pool, request, token, now_us);
        if (token->finish != FINISH_NONE) {
            draft_count(pool, request, row_count - 1, taken - 1);
            token_request_forget(pool, request);
            return taken;
        }
    } while (right);
    draft_count(pool, request, row_count - 1, taken - 1);
    sched_machine_decode_advance(pool->options.sched, token_slot_of(pool, request), taken - 1);
    token_request_finals_add(pool, request, known, finals, taken);
    token_request_draft(pool, request);
    return taken;
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
