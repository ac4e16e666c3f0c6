/* completion_parts: the answers of chats. A parser finds their parts (reasoning, content, tool
 * calls), which are kept in the choice and written as the fields of a message. */
#include "server/http/completion_internal.h"

#include "server/http/form.h"

#include <stdlib.h>
#include <string.h>

bool completion_has_parts(const struct completion *c)
{
    return api_is_chat(c->request.kind) &&
           (c->format.reasoning != ANSWER_REASONING_NONE ||
            c->format.tools == ANSWER_TOOLS_HARMONY ||
            (c->format.tools != ANSWER_TOOLS_NONE && c->request.tools.choice != API_TOOLS_NONE));
}

/* Mistral's templates take ids of nine letters and digits only. */
void choice_call_id(struct completion *c, char *out, size_t bytes)
{
    static const char digits[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    uint64_t bits[2];
    completion_id_draw(c->server, bits);
    if (c->format.tools != ANSWER_TOOLS_MISTRAL) {
        snprintf(out, bytes, "call_%016llx%08llx", (unsigned long long)bits[0],
                 (unsigned long long)(bits[1] & 0xffffffffu));
        return;
    }
    for (int i = 0; i < 9; i++, bits[0] /= 62)
        out[i] = digits[bits[0] % 62];
    out[9] = 0;
}

/* Returns NULL if memory runs out. */
static struct choice_call *call_add(struct choice *choice)
{
    if (choice->call_count == choice->call_capacity) {
        uint32_t more = choice->call_capacity * 2 + 2;
        struct choice_call *grown = realloc(choice->calls, more * sizeof(*grown));
        if (grown == NULL)
            return NULL;
        choice->calls = grown;
        choice->call_capacity = more;
    }
    struct choice_call *call = &choice->calls[choice->call_count++];
    *call = (struct choice_call){.id = ""};
    choice_call_id(choice->completion, call->id, sizeof(call->id));
    return call;
}

static void part_take(void *self, enum answer_part part, const char *text, size_t bytes)
{
    struct choice *choice = self;
    struct choice_call *call;
    if (choice->completion->form != NULL) {
        completion_form_part(choice->completion, part, text, bytes);
        return;
    }
    switch (part) {
    case ANSWER_PART_REASONING:
        text_add(&choice->reasoning, text, bytes);
        return;
    case ANSWER_PART_CONTENT:
        text_add(&choice->text, text, bytes);
        return;
    case ANSWER_PART_CALL:
        call = call_add(choice);
        if (call != NULL)
            memcpy(call->name, text, bytes); /* fewer than ANSWER_NAME_BYTES */
        else
            choice->text.broken = true;
        return;
    case ANSWER_PART_ARGUMENTS:
        if (choice->call_count > 0 && !choice->text.broken)
            text_add(&choice->calls[choice->call_count - 1].arguments, text, bytes);
        return;
    }
}

enum status choice_parts_open(struct choice *choice)
{
    const struct completion *c = choice->completion;
    const struct answer_options options = {
        .format = c->format,
        .start_place = c->begin,
        .finds_calls = c->request.tools.choice != API_TOOLS_NONE,
        .tool_names = c->request.tools.packed_names,
        .on_part = part_take,
        .self = choice,
    };
    return completion_has_parts(c) ? answer_parser_open(&options, &choice->parser) : ST_OK;
}

void choice_parts_done(struct choice *choice)
{
    answer_parser_close(choice->parser);
    text_done(&choice->reasoning);
    for (uint32_t i = 0; i < choice->call_count; i++)
        text_done(&choice->calls[i].arguments);
    free(choice->calls);
}

void choice_text_add(struct choice *choice, const char *text, size_t bytes)
{
    if (choice->parser != NULL)
        answer_parser_feed(choice->parser, text, bytes);
    else
        part_take(choice, ANSWER_PART_CONTENT, text, bytes);
}

bool choice_ended_with_calls(const struct choice *choice)
{
    const struct completion_form *form = choice->completion->form;
    const uint32_t calls = form != NULL ? form->call_count : choice->call_count;
    return choice->finish == CHOICE_STOP && calls > 0;
}

bool choice_needs_token(const struct choice *choice, uint32_t id)
{
    const struct tokenizer *tokenizer = choice->completion->model->tokenizer;
    size_t bytes = 0;
    if (choice->parser == NULL || !tokenizer_is_special(tokenizer, id))
        return false;
    const char *piece = tokenizer_piece(tokenizer, id, &bytes);
    return piece != NULL && answer_parser_token_is_marker(choice->parser, piece, bytes);
}

/* ---- writing ---- */

static void field_begin(struct text *out, bool *first, const char *name)
{
    text_string_add(out, *first ? "\"" : ",\"");
    text_string_add(out, name);
    text_string_add(out, "\":");
    *first = false;
}

static void call_write(struct text *out, const struct choice_call *call, uint32_t index, bool event)
{
    text_string_add(out, "{");
    if (event)
        text_format_add(out, "\"index\":%u,", index);
    if (!call->announced)
        text_format_add(out, "\"id\":\"%s\",\"type\":\"function\",", call->id);
    text_string_add(out, "\"function\":{");
    if (!call->announced) {
        text_string_add(out, "\"name\":");
        text_add_json_string(out, call->name, strlen(call->name));
        text_string_add(out, ",");
    }
    text_string_add(out, "\"arguments\":");
    text_add_json_string(out, call->arguments.data, call->arguments.bytes);
    text_string_add(out, "}}");
}

static void calls_write(struct text *out, struct choice *choice, bool event, bool *first)
{
    bool any = false;
    for (uint32_t i = 0; i < choice->call_count; i++) {
        struct choice_call *call = &choice->calls[i];
        if (call->announced && call->arguments.bytes == 0)
            continue;
        if (any)
            text_string_add(out, ",");
        else {
            field_begin(out, first, "tool_calls");
            text_string_add(out, "[");
        }
        any = true;
        call_write(out, call, i, event);
        call->announced = event;
        if (event)
            text_clear(&call->arguments);
    }
    text_string_add(out, any ? "]" : "");
}

void choice_write_parts(struct text *out, struct choice *choice, bool event)
{
    bool first = true;
    if (choice->parser == NULL || choice->text.bytes > 0) {
        field_begin(out, &first, "content");
        text_add_json_string(out, choice->text.data, choice->text.bytes);
    } else if (!event || !choice->first_event_written) {
        field_begin(out, &first, "content");
        text_string_add(out, "null");
    }
    if (choice->reasoning.bytes > 0) {
        field_begin(out, &first, "reasoning_content");
        text_add_json_string(out, choice->reasoning.data, choice->reasoning.bytes);
        field_begin(out, &first, "reasoning");
        text_add_json_string(out, choice->reasoning.data, choice->reasoning.bytes);
    }
    if (event)
        text_clear(&choice->reasoning);
    calls_write(out, choice, event, &first);
}
