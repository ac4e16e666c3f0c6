/* message_decode: decodes and checks control messages. See message.h and message_wire.h.
 *
 * A cursor hands out pieces of the message and cannot pass its end. Every count, enum, float and
 * text is checked before it is used. */
#include "transport/message_cursor.h"
#include "transport/message_wire.h"

#include <math.h>
#include <string.h>

static enum status check_float(struct cursor *cursor, const char *field, float value, float high)
{
    if (isfinite(value) && value >= 0 && value <= high)
        return ST_OK;
    return error_set(cursor->error, ST_INVALID, "%s message: %s = %g: want 0 to %g", cursor->kind,
                     field, (double)value, (double)high);
}

static struct message_request decode_request(const struct wire_request *from)
{
    return (struct message_request){.id = from->id, .generation = from->generation};
}

static enum status decode_sampling(struct cursor *cursor, const struct wire_sampling *from,
                                   uint32_t tokens_low, struct sampling *to)
{
    enum status status;
    if ((status = check_float(cursor, "temperature", from->temperature, 1e6f)) != ST_OK ||
        (status = check_float(cursor, "top_p", from->top_p, 1)) != ST_OK ||
        (status = check_float(cursor, "min_p", from->min_p, 1)) != ST_OK ||
        (status = check_range(cursor, "logprobs", from->logprobs, -1, LIMIT_LOGPROBS)) != ST_OK ||
        (status = check_range(cursor, "output_tokens_max", from->output_tokens_max, tokens_low,
                              LIMIT_CONTEXT_TOKENS)) != ST_OK ||
        (status = check_range(cursor, "output_tokens_min", from->output_tokens_min, 0,
                              LIMIT_CONTEXT_TOKENS)) != ST_OK ||
        (status = check_range(cursor, "ignore_end", from->ignore_end, 0, 1)) != ST_OK ||
        (status = check_range(cursor, "end_count", from->end_count, 0, 16)) != ST_OK)
        return status;
    *to = (struct sampling){
        .temperature = from->temperature,
        .top_p = from->top_p,
        .min_p = from->min_p,
        .top_k = from->top_k,
        .seed = from->seed,
        .logprobs = from->logprobs,
        .output_tokens_max = from->output_tokens_max,
        .output_tokens_min = from->output_tokens_min,
        .ignore_end = from->ignore_end,
        .end_count = from->end_count,
    };
    memcpy(to->ends, from->ends, from->end_count * sizeof(uint32_t));
    return ST_OK;
}

static enum status decode_rank(struct cursor *cursor, const struct wire_rank *from,
                               struct message_rank *to)
{
    *to = (struct message_rank){
        .key = from->key,
        .weight = from->weight,
        .priority = from->priority,
        .waited_ms = from->waited_ms,
        .preemptions = from->preemptions,
    };
    enum status status = check_range(cursor, "weight", from->weight, 0, LIMIT_WEIGHT);
    return status != ST_OK
               ? status
               : check_range(cursor, "priority", from->priority, -LIMIT_PRIORITY, LIMIT_PRIORITY);
}

static enum status decode_reserve(struct cursor *cursor, struct message_reserve *to)
{
    const struct wire_reserve *from = cursor_take(cursor, sizeof(*from), "fields");
    if (from == NULL)
        return ST_INVALID;
    to->request = decode_request(&from->request);
    memcpy(to->prompt_machine, from->prompt_machine, sizeof(to->prompt_machine));
    to->prompt_tokens = from->prompt_tokens;
    to->prompt_count = from->prompt_count;
    enum status status;
    if ((status = check_text(cursor, "prompt_machine", from->prompt_machine,
                             sizeof(from->prompt_machine))) != ST_OK ||
        (status = check_range(cursor, "prompt_tokens", from->prompt_tokens, 1,
                              LIMIT_CONTEXT_TOKENS)) != ST_OK ||
        (status = decode_rank(cursor, &from->rank, &to->rank)) != ST_OK ||
        (status = decode_sampling(cursor, &from->sampling, 1, &to->sampling)) != ST_OK)
        return status;
    if (from->prompt_count != 0 && from->prompt_count != from->prompt_tokens)
        return check_range(cursor, "prompt_count", from->prompt_count, from->prompt_tokens,
                           from->prompt_tokens);
    to->prompt = cursor_take(cursor, from->prompt_count * sizeof(uint32_t), "prompt");
    return to->prompt != NULL ? ST_OK : ST_INVALID;
}

static enum status decode_reserved(struct cursor *cursor, struct message_reserved *to)
{
    const struct wire_reserved *from = cursor_take(cursor, sizeof(*from), "fields");
    if (from == NULL)
        return ST_INVALID;
    to->request = decode_request(&from->request);
    to->held_count = from->held_count;
    to->block_count = from->block_count;
    to->path = from->path;
    enum status status = check_range(cursor, "path", from->path, 0, LIMIT_STAGE_PATHS - 1);
    if (status == ST_OK)
        status = check_range(cursor, "held_count", from->held_count, 0, LIMIT_CONTEXT_TOKENS);
    if (status == ST_OK)
        status = check_range(cursor, "block_count", from->block_count, 0, LIMIT_CONTEXT_TOKENS);
    if (status != ST_OK)
        return status;
    to->blocks = cursor_take(cursor, from->block_count * sizeof(uint32_t), "blocks");
    return to->blocks != NULL ? ST_OK : ST_INVALID;
}

static enum status decode_prefill(struct cursor *cursor, struct message_prefill *to)
{
    const struct wire_prefill *from = cursor_take(cursor, sizeof(*from), "fields");
    if (from == NULL)
        return ST_INVALID;
    enum status status;
    if ((status = check_text(cursor, "token_machine", from->token_machine,
                             sizeof(from->token_machine))) != ST_OK ||
        (status = check_range(cursor, "score_prompt", from->score_prompt, 0, 1)) != ST_OK ||
        (status = check_range(cursor, "kv_path", from->kv_path, 0, KV_PATH_ONE_PIECE)) != ST_OK ||
        (status = check_range(cursor, "path", from->path, 0, LIMIT_STAGE_PATHS - 1)) != ST_OK ||
        (status = decode_rank(cursor, &from->rank, &to->rank)) != ST_OK ||
        (status = decode_sampling(cursor, &from->sampling, from->score_prompt ? 0 : 1,
                                  &to->sampling)) != ST_OK ||
        (status = check_range(cursor, "held_count", from->held_count, 0, LIMIT_CONTEXT_TOKENS)) !=
            ST_OK ||
        (status = check_range(cursor, "block_count", from->block_count, 0, LIMIT_CONTEXT_TOKENS)) !=
            ST_OK ||
        (status = check_range(cursor, "prompt_count", from->prompt_count, 1,
                              LIMIT_CONTEXT_TOKENS)) != ST_OK)
        return status;
    to->request = decode_request(&from->request);
    memcpy(to->token_machine, from->token_machine, sizeof(to->token_machine));
    to->score_prompt = from->score_prompt;
    to->kv_path = from->kv_path;
    to->path = from->path;
    to->held_count = from->held_count;
    to->block_count = from->block_count;
    to->prompt_count = from->prompt_count;
    to->blocks = cursor_take(cursor, from->block_count * sizeof(uint32_t), "blocks");
    if (to->blocks == NULL)
        return ST_INVALID;
    to->prompt = cursor_take(cursor, from->prompt_count * sizeof(uint32_t), "prompt");
    return to->prompt != NULL ? ST_OK : ST_INVALID;
}

enum status message_token_check(const struct wire_token *token, const float *logprobs,
                                struct error *error)
{
    struct cursor cursor = {.kind = "TOKENS", .error = error};
    enum status status;
    if ((status = check_range(&cursor, "finish", token->finish, 0, FINISH_LENGTH)) != ST_OK ||
        (status = check_range(&cursor, "scored", token->scored, 0, 1)) != ST_OK ||
        (status = check_range(&cursor, "has_logprob", token->has_logprob, 0, 1)) != ST_OK)
        return status;
    bool finite = isfinite(token->logprob);
    for (uint32_t i = 0; i < token->top_count; i++)
        finite = finite && isfinite(logprobs[i]);
    if (!finite)
        return error_set(error, ST_INVALID, "TOKENS message: a logprob is not finite");
    return ST_OK;
}

static enum status decode_tokens(struct cursor *cursor, struct message_tokens *to)
{
    const struct wire_tokens *front = cursor_take(cursor, sizeof(*front), "fields");
    if (front == NULL)
        return ST_INVALID;
    to->count = front->count;
    to->cursor = cursor->at;
    for (uint32_t i = 0; i < front->count; i++) {
        const struct wire_token *token = cursor_take(cursor, sizeof(*token), "token");
        if (token == NULL)
            return ST_INVALID;
        enum status status = check_range(cursor, "top_count", token->top_count, 0, LIMIT_LOGPROBS);
        if (status != ST_OK)
            return status;
        size_t tops = token->top_count * sizeof(uint32_t);
        const uint8_t *top = cursor_take(cursor, 2 * tops, "top_ids and top_logprobs");
        if (top == NULL)
            return ST_INVALID;
        status = message_token_check(token, (const float *)(top + tops), cursor->error);
        if (status != ST_OK)
            return status;
    }
    to->end = cursor->at;
    return ST_OK;
}

bool message_tokens_next(struct message_tokens *tokens, struct message_token *out)
{
    if (tokens->cursor == tokens->end)
        return false;
    const struct wire_token *from = (const struct wire_token *)tokens->cursor;
    *out = (struct message_token){
        .request = from->request,
        .generation = from->generation,
        .index = from->index,
        .id = from->id,
        .finish = from->finish,
        .scored = from->scored,
        .wait_us = from->wait_us,
        .run_us = from->run_us,
        .cached_tokens = from->cached_tokens,
        .has_logprob = from->has_logprob,
        .logprob = from->logprob,
        .top_count = from->top_count,
    };
    size_t tops = from->top_count * sizeof(uint32_t);
    memcpy(out->top_ids, tokens->cursor + sizeof(*from), tops);
    memcpy(out->top_logprobs, tokens->cursor + sizeof(*from) + tops, tops);
    tokens->cursor += sizeof(*from) + 2 * tops;
    return true;
}

static enum status decode_prefilled(struct cursor *cursor, struct message_prefilled *to)
{
    const struct wire_prefilled *from = cursor_take(cursor, sizeof(*from), "fields");
    if (from == NULL)
        return ST_INVALID;
    *to = (struct message_prefilled){
        .request = decode_request(&from->request),
        .queue_us = from->queue_us,
        .prefill_us = from->prefill_us,
        .exposed_us = from->exposed_us,
        .transfer_us = from->transfer_us,
        .layers = from->layers,
        .layerwise = from->layerwise != 0,
        .bytes = from->bytes,
    };
    enum status status = check_range(cursor, "layers", from->layers, 0, LIMIT_LAYERS);
    return status != ST_OK ? status : check_range(cursor, "layerwise", from->layerwise, 0, 1);
}

static enum status decode_failed(struct cursor *cursor, struct message_failed *to)
{
    const struct wire_failed *from = cursor_take(cursor, sizeof(*from), "fields");
    if (from == NULL)
        return ST_INVALID;
    to->request = decode_request(&from->request);
    to->status = from->status;
    memcpy(to->text, from->text, sizeof(to->text));
    enum status status = check_range(cursor, "status", from->status, -100, -1);
    return status != ST_OK ? status : check_text(cursor, "text", from->text, sizeof(from->text));
}

static enum status decode_preempted(struct cursor *cursor, struct message_preempted *to)
{
    const struct wire_preempted *from = cursor_take(cursor, sizeof(*from), "fields");
    if (from == NULL)
        return ST_INVALID;
    to->request = decode_request(&from->request);
    to->generated = from->generated;
    memcpy(to->text, from->text, sizeof(to->text));
    enum status status = check_range(cursor, "generated", from->generated, 0, LIMIT_CONTEXT_TOKENS);
    return status != ST_OK ? status : check_text(cursor, "text", from->text, sizeof(from->text));
}

static enum status decode_stats(struct cursor *cursor, struct message_stats *to)
{
    const struct message_stats *from = cursor_take(cursor, sizeof(*from), "fields");
    if (from == NULL)
        return ST_INVALID;
    *to = *from;
    return ST_OK;
}

static enum status decode_others(struct cursor *cursor, struct message_others *to)
{
    const struct wire_others *from = cursor_take(cursor, sizeof(*from), "fields");
    if (from == NULL)
        return ST_INVALID;
    *to = (struct message_others){
        .gateways = from->gateways,
        .prompts = from->prompts,
        .decodes = from->decodes,
        .mixed = from->mixed != 0,
        .home = from->home,
        .prompt_tokens = from->prompt_tokens,
        .kv_tokens = from->kv_tokens,
        .home_serial = from->home_serial,
        .prompt_tokens_taken = from->prompt_tokens_taken,
        .answers_taken = from->answers_taken,
    };
    memcpy(to->leader, from->leader, sizeof(to->leader));
    enum status status = check_text(cursor, "leader", from->leader, sizeof(from->leader));
    if (status == ST_OK)
        status = check_range(cursor, "mixed", from->mixed, 0, 1);
    return status != ST_OK ? status
                           : check_range(cursor, "home", from->home, POOL_PROMPT, POOL_MIXED);
}

static enum status decode_peer(struct cursor *cursor, struct message_peer *to)
{
    const struct wire_peer *from = cursor_take(cursor, sizeof(*from), "fields");
    if (from == NULL)
        return ST_INVALID;
    memcpy(to->name, from->name, sizeof(to->name));
    memcpy(to->address, from->address, sizeof(to->address));
    enum status status = check_text(cursor, "name", from->name, sizeof(from->name));
    return status != ST_OK ? status
                           : check_text(cursor, "address", from->address, sizeof(from->address));
}

static enum status decode_link(struct cursor *cursor, struct message_link *to)
{
    const struct wire_link *from = cursor_take(cursor, sizeof(*from), "fields");
    if (from == NULL)
        return ST_INVALID;
    memcpy(to->name, from->name, sizeof(to->name));
    to->up = from->up != 0;
    memcpy(to->text, from->text, sizeof(to->text));
    enum status status;
    if ((status = check_text(cursor, "name", from->name, sizeof(from->name))) != ST_OK ||
        (status = check_range(cursor, "up", from->up, 0, 1)) != ST_OK)
        return status;
    return check_text(cursor, "text", from->text, sizeof(from->text));
}

static enum status decode_prefixes(struct cursor *cursor, struct message_prefixes *to)
{
    const struct wire_prefixes *from = cursor_take(cursor, sizeof(*from), "fields");
    if (from == NULL)
        return ST_INVALID;
    enum status status;
    if ((status = check_range(cursor, "count", from->count, 0, LIMIT_PREFIXES)) != ST_OK ||
        (status = check_range(cursor, "all", from->all, 0, 1)) != ST_OK)
        return status;
    to->all = from->all != 0;
    to->count = from->count;
    to->hashes = cursor_take(cursor, from->count * sizeof(uint64_t), "hashes");
    if (to->hashes == NULL)
        return ST_INVALID;
    to->held = cursor_take(cursor, from->count * sizeof(uint32_t), "held");
    return to->held != NULL ? ST_OK : ST_INVALID;
}

static enum status decode_loads(struct cursor *cursor, struct message_loads *to)
{
    const struct wire_stages *from = cursor_take(cursor, sizeof(*from), "fields");
    if (from == NULL)
        return ST_INVALID;
    enum status status = check_range(cursor, "count", from->count, 0, LIMIT_STAGES);
    if (status != ST_OK)
        return status;
    to->count = from->count;
    to->loads = cursor_take(cursor, from->count * sizeof(*to->loads), "loads");
    return to->loads != NULL ? ST_OK : ST_INVALID;
}

static enum status decode_stages(struct cursor *cursor, struct message_stages *to)
{
    const struct wire_stages *from = cursor_take(cursor, sizeof(*from), "fields");
    if (from == NULL)
        return ST_INVALID;
    enum status status = check_range(cursor, "count", from->count, 1, LIMIT_STAGES);
    return status != ST_OK ? status : cursor_stages(cursor, from->count, to);
}

static enum status decode_body(struct cursor *cursor, struct message *out)
{
    switch (out->kind) {
    case MESSAGE_RESERVE:
        return decode_reserve(cursor, &out->reserve);
    case MESSAGE_RESERVED:
        return decode_reserved(cursor, &out->reserved);
    case MESSAGE_PREFILL:
        return decode_prefill(cursor, &out->prefill);
    case MESSAGE_TOKENS:
        return decode_tokens(cursor, &out->tokens);
    case MESSAGE_PREFILLED:
        return decode_prefilled(cursor, &out->prefilled);
    case MESSAGE_KV_READY: {
        const struct wire_kv_ready *from = cursor_take(cursor, sizeof(*from), "fields");
        if (from == NULL)
            return ST_INVALID;
        out->kv_ready.request = decode_request(&from->request);
        out->kv_ready.prompt_tokens = from->prompt_tokens;
        out->kv_ready.first_token = from->first_token;
        return check_range(cursor, "prompt_tokens", from->prompt_tokens, 1, LIMIT_CONTEXT_TOKENS);
    }
    case MESSAGE_KV_ABORTED: {
        const struct wire_request *from = cursor_take(cursor, sizeof(*from), "fields");
        if (from == NULL)
            return ST_INVALID;
        out->kv_aborted = decode_request(from);
        return ST_OK;
    }
    case MESSAGE_CANCEL: {
        const struct wire_cancel *from = cursor_take(cursor, sizeof(*from), "fields");
        if (from == NULL)
            return ST_INVALID;
        out->cancel.request = decode_request(&from->request);
        out->cancel.writer = from->writer != 0;
        return check_range(cursor, "writer", from->writer, 0, 1);
    }
    case MESSAGE_FAILED:
        return decode_failed(cursor, &out->failed);
    case MESSAGE_PREEMPTED:
        return decode_preempted(cursor, &out->preempted);
    case MESSAGE_STATS:
        return decode_stats(cursor, &out->stats);
    case MESSAGE_PEER:
        return decode_peer(cursor, &out->peer);
    case MESSAGE_LINK:
        return decode_link(cursor, &out->link);
    case MESSAGE_ROLE: {
        const struct wire_role *from = cursor_take(cursor, sizeof(*from), "fields");
        if (from == NULL)
            return ST_INVALID;
        out->role =
            (struct message_role){.role = from->role, .home = from->home, .serial = from->serial};
        enum status status = check_range(cursor, "role", from->role, POOL_PROMPT, POOL_MIXED);
        return status != ST_OK ? status
                               : check_range(cursor, "home", from->home, POOL_PROMPT, POOL_MIXED);
    }
    case MESSAGE_OTHERS:
        return decode_others(cursor, &out->others);
    case MESSAGE_PREFIXES:
        return decode_prefixes(cursor, &out->prefixes);
    case MESSAGE_LOADS:
        return decode_loads(cursor, &out->loads);
    case MESSAGE_STAGES:
        return decode_stages(cursor, &out->stages);
    case MESSAGE_SHUTDOWN:
        return ST_OK;
    case MESSAGE_KIND_COUNT:
        break;
    }
    return error_set(cursor->error, ST_INVALID, "message of unknown kind %u", (unsigned)out->kind);
}

enum status message_decode(const uint8_t *data, size_t bytes, struct message *out,
                           struct error *error)
{
    assert((uintptr_t)data % 8 == 0);
    struct cursor cursor = {.at = data, .end = data + bytes, .kind = "a", .error = error};
    if (bytes > LIMIT_MESSAGE_BYTES)
        return error_set(error, ST_INVALID, "message of %zu bytes: want at most %u", bytes,
                         LIMIT_MESSAGE_BYTES);
    const struct wire_header *header = cursor_take(&cursor, sizeof(*header), "header");
    if (header == NULL)
        return ST_INVALID;
    struct message message;
    memset(&message, 0, sizeof(message));
    message.kind = header->kind;
    cursor.kind = message_kind_name(message.kind);
    if (header->bytes != bytes)
        return error_set(error, ST_INVALID, "%s message: bytes = %u: %zu have come", cursor.kind,
                         header->bytes, bytes);
    enum status status = decode_body(&cursor, &message);
    if (status != ST_OK)
        return status;
    if (cursor.at != cursor.end)
        return error_set(error, ST_INVALID, "%s message: %zu bytes follow its end", cursor.kind,
                         (size_t)(cursor.end - cursor.at));
    *out = message;
    return ST_OK;
}
