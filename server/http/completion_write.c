/* completion_write: the JSON of events and bodies. Events are built by hand into one buffer that is
 * reused: building a JSON tree per token costs twenty times as much (1.5 µs against 0.07). */
#include "server/http/completion_internal.h"

#include <stdlib.h>
#include <string.h>

static bool is_chat(const struct completion *c)
{
    return api_is_chat(c->request.kind);
}

static void add_separator(struct text *list)
{
    if (list->bytes > 0)
        text_add(list, ",", 1);
}

/* Writes the text of a token as a JSON string. */
static void add_token_string(struct text *out, const struct completion *c, uint32_t id)
{
    size_t bytes = 0;
    const char *piece = tokenizer_piece(c->model->tokenizer, id, &bytes);
    if (c->request.tokens_as_ids)
        text_format_add(out, "\"token_id:%u\"", id);
    else
        text_add_json_string(out, piece != NULL ? piece : "", bytes);
}

static void add_chat_entry(struct text *out, const struct completion *c, uint32_t id, float logprob)
{
    size_t bytes = 0;
    const char *piece = tokenizer_piece(c->model->tokenizer, id, &bytes);
    text_string_add(out, "{\"token\":");
    add_token_string(out, c, id);
    text_string_add(out, ",\"logprob\":");
    text_add_logprob(out, logprob);
    text_string_add(out, ",\"bytes\":[");
    for (size_t i = 0; i < bytes; i++)
        text_format_add(out, "%s%u", i > 0 ? "," : "", (unsigned char)piece[i]);
    text_string_add(out, "]");
}

static void add_chat_logprob(struct choice *choice, uint32_t id, const struct message_token *score)
{
    const struct completion *c = choice->completion;
    struct text *list = &choice->logprob_tokens;
    uint32_t wanted = (uint32_t)c->request.sampling.logprobs;
    add_separator(list);
    add_chat_entry(list, c, id, score->logprob);
    text_string_add(list, ",\"top_logprobs\":[");
    for (uint32_t i = 0; i < score->top_count && i < wanted; i++) {
        if (i > 0)
            text_string_add(list, ",");
        add_chat_entry(list, c, score->top_ids[i], score->top_logprobs[i]);
        text_string_add(list, "}");
    }
    text_string_add(list, "]}");
}

/* Writes the alternatives of one position as an object. The token itself is always included, as in
 * OpenAI's API. */
static void add_top_object(struct choice *choice, uint32_t id, const struct message_token *score)
{
    const struct completion *c = choice->completion;
    struct text *list = &choice->logprob_tops;
    uint32_t wanted = (uint32_t)c->request.sampling.logprobs, i;
    bool itself = false;
    text_string_add(list, "{");
    for (i = 0; i < score->top_count && i < wanted; i++) {
        if (i > 0)
            text_string_add(list, ",");
        add_token_string(list, c, score->top_ids[i]);
        text_string_add(list, ":");
        text_add_logprob(list, score->top_logprobs[i]);
        itself |= score->top_ids[i] == id;
    }
    if (!itself) {
        text_string_add(list, i > 0 ? "," : "");
        add_token_string(list, c, id);
        text_string_add(list, ":");
        text_add_logprob(list, score->logprob);
    }
    text_string_add(list, "}");
}

static uint32_t count_characters(const char *piece, size_t bytes)
{
    uint32_t count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += ((unsigned char)piece[i] & 0xc0) != 0x80;
    return count;
}

/* Writes vLLM's object of one token. rank 0 = unknown. */
static void add_prompt_entry(struct text *out, const struct completion *c, uint32_t id,
                             float logprob, uint32_t rank)
{
    size_t bytes = 0;
    const char *piece = tokenizer_piece(c->model->tokenizer, id, &bytes);
    text_format_add(out, "\"%u\":{\"logprob\":", id);
    text_add_logprob(out, logprob);
    text_format_add(out, rank > 0 ? ",\"rank\":%u" : ",\"rank\":null", rank);
    text_string_add(out, ",\"decoded_token\":");
    text_add_json_string(out, piece != NULL ? piece : "", bytes);
    text_string_add(out, "}");
}

void choice_add_id(struct choice *choice, uint32_t id)
{
    if (!choice->completion->request.return_token_ids)
        return;
    add_separator(&choice->ids);
    text_number_add(&choice->ids, id);
}

void choice_add_logprob(struct choice *choice, uint32_t id, const struct message_token *score)
{
    const struct completion *c = choice->completion;
    if (is_chat(c)) {
        if (score != NULL)
            add_chat_logprob(choice, id, score);
        return;
    }
    size_t bytes = 0;
    const char *piece = tokenizer_piece(c->model->tokenizer, id, &bytes);
    add_separator(&choice->logprob_tokens);
    add_token_string(&choice->logprob_tokens, c, id);
    add_separator(&choice->logprob_offsets);
    text_format_add(&choice->logprob_offsets, "%u", choice->characters);
    add_separator(&choice->logprob_values);
    add_separator(&choice->logprob_tops);
    if (score == NULL) {
        text_string_add(&choice->logprob_values, "null");
        text_string_add(&choice->logprob_tops, "null");
    } else {
        text_add_logprob(&choice->logprob_values, score->logprob);
        add_top_object(choice, id, score);
    }
    choice->characters += count_characters(piece, bytes);
}

void choice_add_prompt_logprob(struct choice *choice, uint32_t id,
                               const struct message_token *score)
{
    const struct completion *c = choice->completion;
    struct text *list = &choice->prompt_logprobs;
    uint32_t wanted = (uint32_t)c->request.prompt_logprobs, rank = 0;
    add_separator(list);
    if (score == NULL) {
        text_string_add(list, "null");
        return;
    }
    for (uint32_t i = 0; i < score->top_count && rank == 0; i++)
        rank = score->top_ids[i] == id ? i + 1 : 0;
    text_string_add(list, "{");
    add_prompt_entry(list, c, id, score->logprob, rank);
    for (uint32_t i = 0; i < score->top_count && i < wanted; i++) {
        if (score->top_ids[i] == id)
            continue;
        text_string_add(list, ",");
        add_prompt_entry(list, c, score->top_ids[i], score->top_logprobs[i], i + 1);
    }
    text_string_add(list, "}");
}

void choice_echo_prompt(struct choice *choice)
{
    struct completion *c = choice->completion;
    struct detokenizer whole = {0};
    char *room = NULL;
    for (uint32_t i = 0; i < choice->prompt->count; i++) {
        size_t bytes = 0;
        tokenizer_piece(c->model->tokenizer, choice->prompt->ids[i], &bytes);
        char *more = realloc(room, DETOKENIZER_OUT_BYTES(bytes));
        if (more == NULL) {
            c->output.broken = true; /* the answer must not look complete */
            break;
        }
        room = more;
        bytes = detokenizer_feed(&whole, c->model->tokenizer, choice->prompt->ids[i], false, room);
        text_add(&choice->text, room, bytes);
    }
    free(room);
    char tail[3];
    text_add(&choice->text, tail, detokenizer_finish(&whole, tail));
    if (c->request.sampling.logprobs >= 0)
        choice_add_logprob(choice, choice->prompt->ids[0], NULL);
}

static void write_list(struct text *out, const char *before, const struct text *list)
{
    text_string_add(out, before);
    text_add(out, list->data, list->bytes);
    text_string_add(out, "]");
}

static void write_logprobs(struct text *out, const struct choice *choice)
{
    text_string_add(out, ",\"logprobs\":");
    if (choice->completion->request.sampling.logprobs < 0) {
        text_string_add(out, "null");
    } else if (is_chat(choice->completion)) {
        write_list(out, "{\"content\":[", &choice->logprob_tokens);
        text_string_add(out, "}");
    } else {
        write_list(out, "{\"tokens\":[", &choice->logprob_tokens);
        write_list(out, ",\"token_logprobs\":[", &choice->logprob_values);
        write_list(out, ",\"top_logprobs\":[", &choice->logprob_tops);
        write_list(out, ",\"text_offset\":[", &choice->logprob_offsets);
        text_string_add(out, "}");
    }
}

/* Writes, as vLLM does, the stop string or the token of stop_token_ids that ended the answer, or
 * null. */
static void write_stop_reason(struct text *out, const struct choice *choice)
{
    const struct stop_strings *stops = &choice->completion->request.stops;
    text_string_add(out, ",\"stop_reason\":");
    if (choice->stop_string != STOP_NONE)
        text_add_json_string(out, stops->strings[choice->stop_string],
                             stops->lengths[choice->stop_string]);
    else if (choice->stop_token != STOP_NONE)
        text_format_add(out, "%u", choice->stop_token);
    else
        text_string_add(out, "null");
}

static void write_finish_and_ids(struct text *out, const struct choice *choice)
{
    static const char *const names[] = {"null", "\"stop\"", "\"length\""};
    text_string_add(out, ",\"finish_reason\":");
    text_string_add(out,
                    choice_ended_with_calls(choice) ? "\"tool_calls\"" : names[choice->finish]);
    if (choice->finish != CHOICE_RUNNING)
        write_stop_reason(out, choice);
    if (!choice->completion->request.return_token_ids)
        return;
    write_list(out, ",\"token_ids\":[", &choice->ids);
    if (choice->first_event_written)
        return;
    text_string_add(out, ",\"prompt_token_ids\":[");
    for (uint32_t i = 0; i < choice->prompt->count; i++)
        text_format_add(out, i > 0 ? ",%u" : "%u", choice->prompt->ids[i]);
    text_string_add(out, "]");
}

static void write_head(struct text *out, const struct completion *c, const char *object)
{
    text_string_add(out, "{\"id\":");
    text_add_json_string(out, c->id, strlen(c->id));
    text_format_add(out, ",\"object\":\"%s\",\"created\":%lld,\"model\":", object,
                    (long long)c->created);
    const char *name = served_model_name(c->model, c->request.sampling.adapter);
    text_add_json_string(out, name, strlen(name));
}

static const char *stream_object(const struct completion *c)
{
    return is_chat(c) ? "chat.completion.chunk" : "text_completion";
}

struct completion_usage completion_usage(const struct completion *c)
{
    struct completion_usage usage = {0};
    for (uint32_t i = 0; i < c->prompt_count; i++)
        usage.prompt += c->prompts[i].count;
    for (uint32_t i = 0; i < c->choice_count; i++) {
        const struct choice *choice = &c->choices[i];
        usage.generated += choice->tokens;
        usage.reasoning += choice->reasoning_tokens;
        if (i == 0 || choice->prompt != c->choices[i - 1].prompt)
            usage.cached += choice->cached_tokens;
    }
    return usage;
}

static void write_usage(struct text *out, const struct completion *c)
{
    const struct completion_usage usage = completion_usage(c);
    text_format_add(
        out,
        ",\"usage\":{\"prompt_tokens\":%llu,\"completion_tokens\":%llu,\"total_tokens\":%llu,"
        "\"prompt_tokens_details\":{\"cached_tokens\":%llu}",
        (unsigned long long)usage.prompt, (unsigned long long)usage.generated,
        (unsigned long long)(usage.prompt + usage.generated), (unsigned long long)usage.cached);
    if (completion_has_parts(c))
        text_format_add(out, ",\"completion_tokens_details\":{\"reasoning_tokens\":%llu}",
                        (unsigned long long)usage.reasoning);
    text_string_add(out, "}");
}

/* Writes the beginning of an event, up to the choice's index. All events of a stream have the same
 * beginning, so it is formatted once. */
static void event_begin(struct text *out, struct completion *c)
{
    struct text *head = &c->event_head;
    if (head->bytes == 0) {
        text_string_add(head, "data: ");
        write_head(head, c, stream_object(c));
        text_string_add(head, ",\"choices\":[{\"index\":");
    }
    text_add(out, head->data, head->bytes);
    out->broken |= head->broken;
}

/* If memory has run out for a text of the choice, marks the output as broken, so that the answer
 * does not look complete. */
static void check_memory(struct text *out, const struct choice *choice)
{
    out->broken |= choice->text.broken || choice->reasoning.broken || choice->ids.broken ||
                   choice->logprob_tokens.broken || choice->logprob_values.broken ||
                   choice->logprob_tops.broken || choice->logprob_offsets.broken ||
                   choice->prompt_logprobs.broken;
    for (uint32_t i = 0; i < choice->call_count; i++)
        out->broken |= choice->calls[i].arguments.broken;
}

void completion_write_event(struct completion *c, struct choice *choice)
{
    struct text *out = &c->output;
    if (c->form != NULL) {
        completion_form_step(c);
        return;
    }
    check_memory(out, choice);
    event_begin(out, c);
    text_number_add(out, choice->index);
    text_string_add(out, ",");
    if (is_chat(c)) {
        text_string_add(out, choice->first_event_written ? "\"delta\":{"
                                                         : "\"delta\":{\"role\":\"assistant\",");
        choice_write_parts(out, choice, true);
        text_string_add(out, "}");
    } else {
        text_string_add(out, "\"text\":");
        text_add_json_string(out, choice->text.data, choice->text.bytes);
    }
    write_logprobs(out, choice);
    write_finish_and_ids(out, choice);
    text_string_add(out, "}]");
    if (c->request.continuous_usage)
        write_usage(out, c);
    else if (c->request.include_usage)
        text_string_add(out, ",\"usage\":null");
    text_string_add(out, "}\n\n");
    choice->first_event_written = true;
    text_clear(&choice->text);
    text_clear(&choice->ids);
    text_clear(&choice->logprob_tokens);
    text_clear(&choice->logprob_values);
    text_clear(&choice->logprob_tops);
    text_clear(&choice->logprob_offsets);
}

void completion_write_stream_end(struct completion *c)
{
    struct text *out = &c->output;
    if (c->form != NULL) {
        completion_form_end(c);
        return;
    }
    if (c->error.status != 0) {
        text_string_add(out, "data: ");
        api_error_write(&c->error, out);
        text_string_add(out, "\n\n");
    } else if (c->request.include_usage) {
        text_string_add(out, "data: ");
        write_head(out, c, stream_object(c));
        text_string_add(out, ",\"choices\":[]");
        write_usage(out, c);
        text_string_add(out, "}\n\n");
    }
    text_string_add(out, "data: [DONE]\n\n");
}

/* Returns the mean log-probability of the choice's tokens. */
static double likelihood(const struct choice *choice)
{
    return choice->tokens > 0 ? choice->logprob_sum / choice->tokens : 0;
}

void completion_choices_select(struct completion *c)
{
    uint32_t group = c->request.best_of, n = c->request.n;
    if (group == n)
        return;
    for (uint32_t i = 0; i < c->choice_count; i++) {
        struct choice *choice = &c->choices[i];
        uint32_t first = i / group * group, better = 0;
        for (uint32_t k = first; k < first + group; k++)
            better += likelihood(&c->choices[k]) > likelihood(choice) ||
                      (k < i && likelihood(&c->choices[k]) >= likelihood(choice));
        choice->left_out = better >= n;
        choice->index = i / group * n + better;
    }
}

static void write_prompt_logprobs(struct text *out, const struct choice *choice)
{
    if (choice->completion->request.prompt_logprobs >= 0)
        write_list(out, ",\"prompt_logprobs\":[", &choice->prompt_logprobs);
}

static void write_choice(struct text *out, struct choice *choice)
{
    const struct completion *c = choice->completion;
    check_memory(out, choice);
    text_format_add(out, "{\"index\":%u,", choice->index);
    if (is_chat(c)) {
        text_string_add(out, "\"message\":{\"role\":\"assistant\",");
        choice_write_parts(out, choice, false);
        text_string_add(out, "}");
    } else {
        text_string_add(out, "\"text\":");
        text_add_json_string(out, choice->text.data, choice->text.bytes);
    }
    write_logprobs(out, choice);
    write_finish_and_ids(out, choice);
    if (!is_chat(c))
        write_prompt_logprobs(out, choice);
    text_string_add(out, "}");
}

/* Returns the choice that has this index in the body. */
static struct choice *choice_at(const struct completion *c, uint32_t index)
{
    uint32_t i = 0;
    while (c->choices[i].left_out || c->choices[i].index != index)
        i++;
    return &c->choices[i];
}

void completion_write_body(struct completion *c)
{
    struct text *out = &c->output;
    uint32_t count = c->prompt_count * c->request.n;
    if (c->form != NULL) {
        completion_form_body(c);
        return;
    }
    if (c->request.kind == API_EMBEDDINGS) {
        completion_write_embeddings(c);
        return;
    }
    write_head(out, c, is_chat(c) ? "chat.completion" : "text_completion");
    text_string_add(out, ",\"choices\":[");
    for (uint32_t i = 0; i < count; i++) {
        text_string_add(out, i > 0 ? "," : "");
        write_choice(out, choice_at(c, i));
    }
    text_string_add(out, "]");
    if (is_chat(c)) /* vLLM's place of it */
        write_prompt_logprobs(out, &c->choices[0]);
    write_usage(out, c);
    text_string_add(out, "}\n");
}

void choice_texts_done(struct choice *choice)
{
    text_done(&choice->text);
    text_done(&choice->ids);
    text_done(&choice->logprob_tokens);
    text_done(&choice->logprob_values);
    text_done(&choice->logprob_tops);
    text_done(&choice->logprob_offsets);
    text_done(&choice->prompt_logprobs);
}
