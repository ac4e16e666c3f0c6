/* message: the tables of the control messages, and MESSAGE_TOKENS, whose elements have different
 * sizes. See message.h; message_layout.h explains the tables. */
#include "transport/message.h"

#include "common/pooling.h"
#include "common/token_rules.h"
#include "transport/message_layout.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- structs that are part of several messages ---- */

static const struct message_rule request_rules[] = {PADDING(message_request, padding)};
static const struct message_layout request_layout = {RULES(request_rules)};

static const struct message_rule rank_rules[] = {
    RANGE(message_rank, weight, 0, LIMIT_KEY_WEIGHT),
    RANGE(message_rank, priority, -LIMIT_PRIORITY, LIMIT_PRIORITY),
};
static const struct message_layout rank_layout = {RULES(rank_rules)};

static_assert(sizeof(struct sampling) == 128, "no hidden padding");
static const struct message_rule sampling_rules[] = {
    RANGE(sampling, temperature, 0, 1000000),
    RANGE(sampling, top_p, 0, 1),
    RANGE(sampling, min_p, 0, 1),
    RANGE(sampling, logprobs, -1, LIMIT_LOGPROBS),
    RANGE(sampling, output_tokens_max, 0, LIMIT_CONTEXT_TOKENS),
    RANGE(sampling, output_tokens_min, 0, LIMIT_CONTEXT_TOKENS),
    RANGE(sampling, presence_penalty, -2, 2),
    RANGE(sampling, frequency_penalty, -2, 2),
    RANGE(sampling, repetition_penalty, 0, LIMIT_REPETITION_PENALTY),
    RANGE(sampling, answer_tokens, 0, LIMIT_CONTEXT_TOKENS),
    RANGE(sampling, adapter, 0, LIMIT_ADAPTERS),
    RANGE(sampling, padding, 0, 0),
    RANGE(sampling, end_count, 0, LENGTH(((struct sampling *)0)->end_tokens)),
    COUNTED(sampling, end_tokens, end_count),
};
static const struct message_layout sampling_layout = {RULES(sampling_rules)};

static enum status output_tokens_check(const struct message_reader *reader,
                                       const struct sampling *sampling)
{
    return message_range_check(reader, "output_tokens_max", sampling->output_tokens_max, 1,
                               LIMIT_CONTEXT_TOKENS);
}

static enum status rules_check(const struct message_reader *reader, const struct sampling *sampling,
                               uint32_t prompt_tokens, const uint32_t *words, uint32_t count)
{
    struct token_rules rules;
    struct error error;
    if (token_rules_check(words, count, &rules, &error) != ST_OK)
        return error_set(reader->error, ST_INVALID, "%s message: %.200s", reader->message,
                         error.text);
    return message_range_check(reader, "answer_tokens", sampling->answer_tokens, 0,
                               prompt_tokens - 1);
}

/* ---- requests ---- */

static const struct message_rule reserve_rules[] = {
    STRUCT(message_reserve, request, request_layout),
    TEXT(message_reserve, prompt_machine),
    RANGE(message_reserve, prompt_tokens, 1, LIMIT_CONTEXT_TOKENS),
    RANGE(message_reserve, prompt_count, 0, LIMIT_CONTEXT_TOKENS),
    STRUCT(message_reserve, rank, rank_layout),
    STRUCT(message_reserve, sampling, sampling_layout),
    RANGE(message_reserve, rule_count, 0, LIMIT_RULE_WORDS),
    BOOL(message_reserve, prefix_cache),
    BOOL(message_reserve, copy),
    BOOL(message_reserve, copy_windows),
    PADDING(message_reserve, padding),
    RANGE(message_reserve, constraint_bytes, 0, LIMIT_CONSTRAINT_BYTES),
    RANGE(message_reserve, answer_count, 0, LIMIT_CONTEXT_TOKENS),
    TEXT(message_reserve, client_id),
};
static const struct message_growth reserve_growth[] = {SINCE(31, message_reserve, client_id, 4)};
static const struct message_array reserve_arrays[] = {
    ARRAY(message_reserve, prompt, prompt_count, NULL),
    ARRAY(message_reserve, rules, rule_count, NULL),
    ARRAY(message_reserve, answer, answer_count, NULL),
    ARRAY(message_reserve, constraint, constraint_bytes, NULL),
};

static enum status reserve_check(const struct message_reader *reader, const void *message)
{
    const struct message_reserve *reserve = message;
    if (reserve->prompt_count != 0 && reserve->prompt_count != reserve->prompt_tokens)
        return message_range_check(reader, "prompt_count", reserve->prompt_count,
                                   reserve->prompt_tokens, reserve->prompt_tokens);
    enum status status = rules_check(reader, &reserve->sampling, reserve->prompt_tokens,
                                     reserve->rules, reserve->rule_count);
    if (status != ST_OK)
        return status;
    if (reserve->prompt_count == 0 &&
        token_rules_depend_on_context(&reserve->sampling, reserve->rules, reserve->rule_count))
        return error_set(reader->error, ST_INVALID,
                         "%s message: no prompt, which the sampling rules need", reader->message);
    if (reserve->answer_count >= reserve->prompt_tokens)
        return message_range_check(reader, "answer_count", reserve->answer_count, 0,
                                   (int64_t)reserve->prompt_tokens - 1);
    return output_tokens_check(reader, &reserve->sampling);
}

static const struct message_rule reserved_rules[] = {
    STRUCT(message_reserved, request, request_layout),
    RANGE(message_reserved, held_span_count, 0, LIMIT_CONTEXT_TOKENS),
    RANGE(message_reserved, block_count, 0, LIMIT_CONTEXT_TOKENS),
    RANGE(message_reserved, path, 0, LIMIT_STAGE_PATHS - 1),
    RANGE(message_reserved, window_first, 0, LIMIT_CONTEXT_TOKENS),
};
static const struct message_array reserved_arrays[] = {
    ARRAY(message_reserved, blocks, block_count, NULL)};

static const struct message_rule prefill_rules[] = {
    STRUCT(message_prefill, request, request_layout),
    TEXT(message_prefill, token_machine),
    BOOL(message_prefill, score_prompt),
    RANGE(message_prefill, transfer_mode, 0, TRANSFER_ONE_PIECE),
    RANGE(message_prefill, path, 0, LIMIT_STAGE_PATHS - 1),
    RANGE(message_prefill, pooling, 0, POOLING_MEAN),
    RANGE(message_prefill, held_span_count, 0, LIMIT_CONTEXT_TOKENS),
    STRUCT(message_prefill, rank, rank_layout),
    STRUCT(message_prefill, sampling, sampling_layout),
    RANGE(message_prefill, block_count, 0, LIMIT_CONTEXT_TOKENS),
    RANGE(message_prefill, prompt_count, 1, LIMIT_CONTEXT_TOKENS),
    RANGE(message_prefill, rule_count, 0, LIMIT_RULE_WORDS),
    RANGE(message_prefill, constraint_bytes, 0, LIMIT_CONSTRAINT_BYTES),
    BELOW(message_prefill, answer_count, prompt_count),
    RANGE(message_prefill, window_first, 0, LIMIT_CONTEXT_TOKENS),
    PADDING(message_prefill, padding),
    TEXT(message_prefill, client_id),
};
static const struct message_growth prefill_growth[] = {SINCE(31, message_prefill, client_id, 4)};
static const struct message_array prefill_arrays[] = {
    ARRAY(message_prefill, blocks, block_count, NULL),
    ARRAY(message_prefill, prompt, prompt_count, NULL),
    ARRAY(message_prefill, rules, rule_count, NULL),
    ARRAY(message_prefill, constraint, constraint_bytes, NULL),
};

static enum status prefill_check(const struct message_reader *reader, const void *message)
{
    const struct message_prefill *prefill = message;
    enum status status = rules_check(reader, &prefill->sampling, prefill->prompt_count,
                                     prefill->rules, prefill->rule_count);
    if (status != ST_OK)
        return status;
    return prefill->score_prompt || prefill->pooling != POOLING_NONE
               ? ST_OK
               : output_tokens_check(reader, &prefill->sampling);
}

static const struct message_rule prefilled_rules[] = {
    STRUCT(message_prefilled, request, request_layout),
    RANGE(message_prefilled, layers, 0, LIMIT_LAYERS),
    BOOL(message_prefilled, layerwise),
    PADDING(message_prefilled, padding),
    RANGE(message_prefilled, layer_count, 0, LIMIT_LAYERS),
    PADDING(message_prefilled, padding2),
};
static const struct message_array prefilled_arrays[] = {
    ARRAY(message_prefilled, layer_us, layer_count, NULL)};

static const struct message_rule kv_ready_rules[] = {
    STRUCT(message_kv_ready, request, request_layout),
    RANGE(message_kv_ready, prompt_tokens, 1, LIMIT_CONTEXT_TOKENS),
};

static const struct message_rule progress_rules[] = {
    STRUCT(message_progress, request, request_layout),
    RANGE(message_progress, tokens, 1, LIMIT_CONTEXT_TOKENS),
    PADDING(message_progress, padding),
};

static const struct message_rule cancel_rules[] = {
    STRUCT(message_cancel, request, request_layout),
    BOOL(message_cancel, writes_pending),
    PADDING(message_cancel, padding),
};

static const struct message_rule failed_rules[] = {
    STRUCT(message_failed, request, request_layout),
    RANGE(message_failed, status, -100, -1),
    PADDING(message_failed, padding),
    TEXT(message_failed, text),
};

static const struct message_rule preempted_rules[] = {
    STRUCT(message_preempted, request, request_layout),
    RANGE(message_preempted, generated, 0, LIMIT_CONTEXT_TOKENS),
    PADDING(message_preempted, padding),
    TEXT(message_preempted, text),
};

/* ---- machines ---- */

static const struct message_rule copies_rules[] = {PADDING(message_copies, padding)};
const struct message_layout layout_of_message_copies = {RULES(copies_rules)};

static const struct message_rule stats_rules[] = {
    STRUCT(message_stats, device_copies, layout_of_message_copies),
};
static const struct message_growth stats_growth[] = {SINCE(31, message_stats, draft_tokens, 0)};

static const struct message_rule peer_rules[] = {
    TEXT(message_peer, name),
    TEXT(message_peer, address),
};

static const struct message_rule link_rules[] = {
    TEXT(message_link, name),
    BOOL(message_link, up),
    PADDING(message_link, padding),
    TEXT(message_link, text),
};
static const struct message_growth link_growth[] = {SINCE(31, message_link, bytes_per_s, 0)};

static const struct message_rule about_rules[] = {
    TEXT(message_about, device),    TEXT(message_about, host),       TEXT(message_about, build),
    BOOL(message_about, fell_back), PADDING(message_about, padding),
};

static const struct message_rule role_rules[] = {
    RANGE(message_role, pool, POOL_PROMPT, POOL_MIXED),
    RANGE(message_role, home, POOL_PROMPT, POOL_MIXED),
    PADDING(message_role, padding),
};

static const struct message_rule others_rules[] = {
    TEXT(message_others, leader),
    BOOL(message_others, is_in_mixed_pool),
    RANGE(message_others, home_pool, POOL_PROMPT, POOL_MIXED),
    PADDING(message_others, padding),
};

static const struct message_rule prefixes_rules[] = {
    RANGE(message_prefixes, count, 0, LIMIT_PREFIXES),
    BOOL(message_prefixes, replaces_all),
    PADDING(message_prefixes, padding),
};
static const struct message_array prefixes_arrays[] = {
    ARRAY(message_prefixes, hashes, count, NULL),
    ARRAY(message_prefixes, held, count, NULL),
};

static const struct message_rule loads_rules[] = {
    RANGE(message_loads, count, 0, LIMIT_STAGE_PROCESSES),
    PADDING(message_loads, padding),
};
static const struct message_array loads_arrays[] = {ARRAY(message_loads, loads, count, NULL)};

static const struct message_rule stage_rules[] = {
    RANGE(message_stage, end_layer, 1, LIMIT_LAYERS),
    BELOW(message_stage, first_layer, end_layer),
    RANGE(message_stage, end_head, 1, LIMIT_HEADS),
    BELOW(message_stage, first_head, end_head),
    TEXT(message_stage, address),
};
const struct message_layout layout_of_message_stage = {RULES(stage_rules)};

static const struct message_rule stages_rules[] = {
    RANGE(message_stages, count, 1, LIMIT_STAGE_PROCESSES),
    PADDING(message_stages, padding),
};
static const struct message_array stages_arrays[] = {
    ARRAY(message_stages, stages, count, &layout_of_message_stage)};

static const struct message_rule embedding_rules[] = {
    STRUCT(message_embedding, request, request_layout),
    RANGE(message_embedding, count, 1, LIMIT_EMBEDDING_ELEMENTS),
    PADDING(message_embedding, padding),
};
static const struct message_array embedding_arrays[] = {
    ARRAY(message_embedding, values, count, NULL)};

/* ---- tokens ---- */

static const struct message_rule token_rules[] = {
    RANGE(message_token, finish, 0, FINISH_CONSTRAINT),
    BOOL(message_token, scored),
    BOOL(message_token, has_logprob),
    RANGE(message_token, top_count, 0, LIMIT_LOGPROBS),
    FINITE(message_token, logprob),
};
static const struct message_layout token_layout = {.bytes = offsetof(struct message_token, top_ids),
                                                   RULES(token_rules)};

/* The size of a token in the lowest version of the protocol, in front of its top_ids. */
#define TOKEN_BYTES_MIN 40u
#define TOKEN_BYTES_MAX 1024u
static const struct message_rule tokens_rules[] = {
    RANGE(message_tokens, token_bytes, TOKEN_BYTES_MIN, TOKEN_BYTES_MAX)};

/* Copies the fields of a token up to top_ids; those that are not among the first `bytes` are 0. */
static void token_copy(struct message_token *to, const void *from, uint32_t bytes)
{
    const size_t known = bytes < token_layout.bytes ? bytes : token_layout.bytes;
    memcpy(to, from, known);
    memset((uint8_t *)to + known, 0, token_layout.bytes - known);
}

static enum status logprobs_check(const struct message_reader *reader, const float *logprobs,
                                  uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (!isfinite(logprobs[i]))
            return error_set(reader->error, ST_INVALID,
                             "TOKENS message: top_logprobs[%u] = %g: want a finite number", i,
                             (double)logprobs[i]);
    return ST_OK;
}

/* Reads the tokens, which follow the message's fields. */
static enum status tokens_read(struct message_reader *reader, void *message)
{
    struct message_tokens *tokens = message;
    const uint32_t aligned = tokens->token_bytes & ~7u; /* Fields are read in place. */
    if (tokens->token_bytes != aligned)
        return message_range_check(reader, "token_bytes", tokens->token_bytes, aligned, aligned);
    tokens->cursor = reader->next;
    for (uint32_t i = 0; i < tokens->count; i++) {
        struct message_token token;
        const void *from = message_take(reader, tokens->token_bytes, "token");
        if (from == NULL)
            return ST_INVALID;
        token_copy(&token, from, tokens->token_bytes);
        if (message_rules_check(reader, &token_layout, &token) != ST_OK)
            return ST_INVALID;
        const uint32_t count = token.top_count;
        const float *top = message_take(reader, 8 * count, "top_ids and top_logprobs");
        if (top == NULL || logprobs_check(reader, top + count, count) != ST_OK)
            return ST_INVALID;
    }
    tokens->end = reader->next;
    return ST_OK;
}

bool message_tokens_next(struct message_tokens *tokens, struct message_token *out)
{
    if (tokens->cursor == tokens->end)
        return false;
    token_copy(out, tokens->cursor, tokens->token_bytes);
    const uint8_t *top = tokens->cursor + tokens->token_bytes;
    const size_t bytes = out->top_count * sizeof(uint32_t);
    memcpy(out->top_ids, top, bytes);
    memcpy(out->top_logprobs, top + bytes, bytes);
    tokens->cursor = top + 2 * bytes;
    return true;
}

void message_tokens_begin(struct message_buffer *buffer)
{
    buffer->bytes = 0;
}

enum status message_tokens_add(struct message_buffer *buffer, const struct message_token *token)
{
    struct message_reader reader = {.message = "TOKENS"};
    const size_t before = buffer->bytes;
    const size_t bytes = token->top_count * sizeof(uint32_t);
    const size_t front = sizeof(struct wire_header) + 8; /* The fields of struct message_tokens. */
    const size_t add = token_layout.bytes + 2 * bytes + (before == 0 ? front : 0);
    if (token->top_count > LIMIT_LOGPROBS)
        return ST_INVALID;
    if (before + add > LIMIT_MESSAGE_BYTES) /* The caller sends the message and begins another. */
        return ST_TOO_LARGE;
    if (message_rules_check(&reader, &token_layout, token) != ST_OK ||
        logprobs_check(&reader, token->top_logprobs, token->top_count) != ST_OK)
        return ST_INVALID;
    uint8_t *to = message_buffer_add(buffer, add);
    if (to == NULL)
        return ST_NO_MEMORY;
    struct wire_header *header = (struct wire_header *)buffer->data;
    uint32_t *fields = (uint32_t *)(header + 1); /* Of struct message_tokens. */
    if (before == 0) {
        to += front;
        *header = (struct wire_header){.kind = MESSAGE_TOKENS, .struct_bytes = 8};
        fields[0] = 0;
        fields[1] = token_layout.bytes;
    }
    header->bytes = (uint32_t)buffer->bytes;
    fields[0]++;
    memcpy(to, token, token_layout.bytes);
    memcpy(to + token_layout.bytes, token->top_ids, bytes);
    memcpy(to + token_layout.bytes + bytes, token->top_logprobs, bytes);
    return ST_OK;
}

/* ---- all kinds ---- */

static const struct message_layout layouts[MESSAGE_KIND_COUNT] = {
    [MESSAGE_RESERVE] = {"RESERVE", UP_TO(message_reserve, prompt), RULES(reserve_rules),
                         ARRAYS(reserve_arrays), GROWTH(reserve_growth), .check = reserve_check},
    [MESSAGE_RESERVED] = {"RESERVED", UP_TO(message_reserved, blocks), RULES(reserved_rules),
                          ARRAYS(reserved_arrays)},
    [MESSAGE_PREFILL] = {"PREFILL", UP_TO(message_prefill, blocks), RULES(prefill_rules),
                         ARRAYS(prefill_arrays), GROWTH(prefill_growth), .check = prefill_check},
    [MESSAGE_TOKENS] = {"TOKENS", UP_TO(message_tokens, cursor), RULES(tokens_rules),
                        .read_rest = tokens_read},
    [MESSAGE_PREFILLED] = {"PREFILLED", UP_TO(message_prefilled, layer_us), RULES(prefilled_rules),
                           ARRAYS(prefilled_arrays)},
    [MESSAGE_KV_READY] = {"KV_READY", SIZE(message_kv_ready), RULES(kv_ready_rules)},
    [MESSAGE_KV_ABORTED] = {"KV_ABORTED", SIZE(message_request), RULES(request_rules)},
    [MESSAGE_CANCEL] = {"CANCEL", SIZE(message_cancel), RULES(cancel_rules)},
    [MESSAGE_FAILED] = {"FAILED", SIZE(message_failed), RULES(failed_rules)},
    [MESSAGE_STATS] = {"STATS", SIZE(message_stats), RULES(stats_rules), GROWTH(stats_growth)},
    [MESSAGE_PEER] = {"PEER", SIZE(message_peer), RULES(peer_rules)},
    [MESSAGE_LINK] = {"LINK", SIZE(message_link), RULES(link_rules), GROWTH(link_growth)},
    [MESSAGE_SHUTDOWN] = {.name = "SHUTDOWN"},
    [MESSAGE_LEAVING] = {.name = "LEAVING"},
    [MESSAGE_ROLE] = {"ROLE", SIZE(message_role), RULES(role_rules)},
    [MESSAGE_OTHERS] = {"OTHERS", SIZE(message_others), RULES(others_rules)},
    [MESSAGE_PREEMPTED] = {"PREEMPTED", SIZE(message_preempted), RULES(preempted_rules)},
    [MESSAGE_PREFIXES] = {"PREFIXES", UP_TO(message_prefixes, hashes), RULES(prefixes_rules),
                          ARRAYS(prefixes_arrays)},
    [MESSAGE_LOADS] = {"LOADS", UP_TO(message_loads, loads), RULES(loads_rules),
                       ARRAYS(loads_arrays)},
    [MESSAGE_EMBEDDING] = {"EMBEDDING", UP_TO(message_embedding, values), RULES(embedding_rules),
                           ARRAYS(embedding_arrays)},
    [MESSAGE_ABOUT] = {"ABOUT", SIZE(message_about), RULES(about_rules)},
    [MESSAGE_PROGRESS] = {"PROGRESS", SIZE(message_progress), RULES(progress_rules)},
    [MESSAGE_PROBE] = {"PROBE", SIZE(message_probe)},
    [MESSAGE_STAGES] = {"STAGES", UP_TO(message_stages, stages), RULES(stages_rules),
                        ARRAYS(stages_arrays)},
};

const struct message_layout *message_layout_of_kind(uint32_t kind)
{
    return kind < MESSAGE_KIND_COUNT && layouts[kind].name != NULL ? &layouts[kind] : NULL;
}

const char *message_kind_name(enum message_kind kind)
{
    const struct message_layout *layout = message_layout_of_kind(kind);
    return layout != NULL ? layout->name : "unknown";
}

enum status message_encode(const struct message *message, uint32_t version,
                           struct message_buffer *buffer)
{
    const struct message_layout *layout = message_layout_of_kind(message->kind);
    if (layout == NULL || message->kind == MESSAGE_TOKENS)
        return ST_INVALID;
    const void *fields = &message->reserve; /* All structs of the union begin at this address. */
    enum status status = message_check(layout, fields);
    return status != ST_OK ? status : message_write(layout, message->kind, version, fields, buffer);
}

enum status message_decode(const uint8_t *data, size_t bytes, struct message *out,
                           struct error *error)
{
    enum status status = message_read(message_layout_of_kind, data, bytes, &out->reserve, error);
    if (status == ST_OK)
        out->kind = ((const struct wire_header *)data)->kind;
    return status;
}
