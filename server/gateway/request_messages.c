/* gateway_request_messages: see the header. */
#include "server/gateway/request_messages.h"

#include "common/pooling.h"

#include <stdio.h>
#include <string.h>

struct message_request request_attempt(const struct gateway_request *r)
{
    return (struct message_request){.id = r->id, .generation = r->generation};
}

uint32_t request_tokens_left(const struct gateway_request *r)
{
    return r->sampling.output_tokens_max - r->delivered;
}

uint32_t request_decode_tokens(const struct gateway_request *r)
{
    return request_tokens_left(r) > 1 ? request_tokens_left(r) : 0;
}

static struct sampling sampling_left(const struct gateway_request *r)
{
    struct sampling sampling = r->sampling;
    uint32_t done = r->delivered;
    sampling.answer_tokens = done;
    sampling.output_tokens_max -= done;
    sampling.output_tokens_min -=
        done < sampling.output_tokens_min ? done : sampling.output_tokens_min;
    return sampling;
}

/* True if scores of prompt positions are wanted. */
static bool scores_left(const struct gateway_request *r)
{
    return r->score_prompt && r->scored_next < r->prompt_count;
}

bool request_wants_whole_prompt(const struct gateway_request *r)
{
    return scores_left(r) || r->pooling != POOLING_NONE;
}

static struct message_rank rank_of(const struct gateway_request *r, int64_t now_us)
{
    int64_t waited_ms = (now_us - r->life.entered_us[REQUEST_QUEUED]) / 1000;
    return (struct message_rank){
        .key = r->key_hash,
        .weight = r->weight,
        .priority = r->priority,
        .waited_ms = waited_ms < 0            ? 0
                     : waited_ms < UINT32_MAX ? (uint32_t)waited_ms
                                              : UINT32_MAX,
        .preemptions = r->preemptions,
    };
}

/* Writes the client's id, for the machine's log; it stays empty if the client has none. */
static void client_id_write(const struct gateway_request *r, char out[LIMIT_CLIENT_ID_BYTES])
{
    _Static_assert(sizeof(r->client_id) <= LIMIT_CLIENT_ID_BYTES, "the id fits");
    if (strcmp(r->client_id, "-") != 0)
        memcpy(out, r->client_id, strlen(r->client_id));
}

struct message request_prefill_message(const struct gateway_request *r,
                                       const struct message_reserved *reserved, int64_t now_us)
{
    struct message message = {
        .kind = MESSAGE_PREFILL,
        .prefill = {.request = request_attempt(r),
                    .score_prompt = scores_left(r),
                    .pooling = r->pooling,
                    .transfer_mode = r->transfer_mode,
                    .prefix_salt = r->prefix_salt,
                    .rank = rank_of(r, now_us),
                    .sampling = sampling_left(r),
                    .constraint = r->constraint,
                    .constraint_bytes = r->constraint_bytes,
                    .answer_count = r->constraint != NULL ? r->delivered : 0,
                    .path = (uint8_t)reserved->path,
                    .held_span_count = reserved->held_span_count,
                    .window_first = reserved->window_first,
                    .block_count = reserved->block_count,
                    .blocks = reserved->blocks,
                    .prompt_count = r->prompt_count + r->delivered,
                    .prompt = r->tokens,
                    .rule_count = r->token_rule_words,
                    .rules = r->token_rules},
    };
    if (r->token_machine != NULL)
        snprintf(message.prefill.token_machine, sizeof(message.prefill.token_machine), "%s",
                 r->token_machine->config.name);
    client_id_write(r, message.prefill.client_id);
    return message;
}

struct message request_reserve_message(const struct gateway_request *r, bool prefix_cache,
                                       int64_t now_us)
{
    struct message message = {
        .kind = MESSAGE_RESERVE,
        .reserve = {.request = request_attempt(r),
                    .prompt_tokens = r->prompt_count + r->delivered,
                    .prompt = r->tokens,
                    .prompt_count = r->prompt_count + r->delivered,
                    .prefix_salt = r->prefix_salt,
                    .rank = rank_of(r, now_us),
                    .sampling = sampling_left(r),
                    .rule_count = r->token_rule_words,
                    .prefix_cache = prefix_cache && !request_wants_whole_prompt(r),
                    .rules = r->token_rules,
                    .constraint = r->constraint,
                    .constraint_bytes = r->constraint_bytes,
                    .answer = r->tokens + r->prompt_count,
                    .answer_count = r->constraint != NULL ? r->delivered : 0},
    };
    snprintf(message.reserve.prompt_machine, sizeof(message.reserve.prompt_machine), "%s",
             r->prompt_machine->config.name);
    client_id_write(r, message.reserve.client_id);
    return message;
}
