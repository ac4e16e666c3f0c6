/* form_messages: the answers of POST /v1/messages, as Anthropic writes them: a message whose
 * content is a list of blocks. */
#include "server/http/form.h"

#include "common/json.h"

#include <jansson.h>
#include <string.h>

/* ---- blocks ---- */

/* Writes the arguments of a call as an object. Text that is not a JSON object, because the answer
 * was cut or the model made a mistake, becomes an empty object. */
static void write_input(struct text *out, const struct completion_form *f)
{
    json_error_t why;
    json_t *input;
    if (json_text_load(f->item_text.data, f->item_text.bytes, JSON_ALLOW_NUL, &input, &why) ==
        ST_NO_MEMORY)
        out->broken = true;
    else if (json_is_object(input))
        text_add(out, f->item_text.data, f->item_text.bytes);
    else
        text_string_add(out, "{}");
    json_decref(input);
}

static void write_block(struct text *out, const struct completion_form *f, bool done)
{
    const size_t bytes = done ? f->item_text.bytes : 0;
    switch (f->item) {
    case FORM_NONE:
        return;
    case FORM_REASONING:
        text_string_add(out, "{\"type\":\"thinking\"");
        form_member_add(out, "thinking", f->item_text.data, bytes);
        text_string_add(out, ",\"signature\":\"\"}");
        return;
    case FORM_TEXT:
        text_string_add(out, "{\"type\":\"text\"");
        form_member_add(out, "text", f->item_text.data, bytes);
        text_string_add(out, ",\"citations\":null}");
        return;
    case FORM_CALL:
        text_string_add(out, "{\"type\":\"tool_use\"");
        form_member_add(out, "id", f->call_id, strlen(f->call_id));
        form_member_add(out, "name", f->tool_name, strlen(f->tool_name));
        text_string_add(out, ",\"input\":");
        if (done)
            write_input(out, f);
        else
            text_string_add(out, "{}");
        text_string_add(out, "}");
        return;
    }
}

/* ---- the message ---- */

/* As Anthropic counts them: tokens that were found in a cache are not part of input_tokens. */
static void write_usage(struct text *out, const struct completion *c, bool done)
{
    const struct completion_usage usage = completion_usage(c);
    text_format_add(out,
                    ",\"usage\":{\"input_tokens\":%llu,\"cache_creation_input_tokens\":0,"
                    "\"cache_read_input_tokens\":%llu,\"output_tokens\":%llu}",
                    (unsigned long long)(usage.prompt - usage.cached),
                    (unsigned long long)usage.cached,
                    (unsigned long long)(done ? usage.generated : 0));
}

static void write_stop(struct text *out, const struct completion *c, bool done)
{
    const struct choice *choice = &c->choices[0];
    const struct stop_strings *stops = &c->request.stops;
    const bool stopped = choice->stop_string != STOP_NONE;
    const char *reason = choice->finish == CHOICE_LENGTH   ? "max_tokens"
                         : stopped                         ? "stop_sequence"
                         : choice_ended_with_calls(choice) ? "tool_use"
                                                           : "end_turn";
    if (!done) {
        text_string_add(out, "\"stop_reason\":null,\"stop_sequence\":null");
        return;
    }
    text_format_add(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", reason);
    if (stopped && choice->finish != CHOICE_LENGTH)
        text_add_json_string(out, stops->strings[choice->stop_string],
                             stops->lengths[choice->stop_string]);
    else
        text_string_add(out, "null");
}

static void write_message(struct text *out, const struct completion *c, bool done)
{
    text_string_add(out, "{\"id\":");
    text_add_json_string(out, c->id, strlen(c->id));
    text_string_add(out, ",\"type\":\"message\",\"role\":\"assistant\"");
    const char *name = served_model_name(c->model, c->request.sampling.adapter);
    form_member_add(out, "model", name, strlen(name));
    text_string_add(out, ",\"content\":[");
    text_add(out, c->form->closed_items.data, done ? c->form->closed_items.bytes : 0);
    text_string_add(out, "],");
    write_stop(out, c, done);
    write_usage(out, c, done);
    text_string_add(out, "}");
}

/* ---- events ---- */

static void event_begin(struct completion *c, const char *type)
{
    text_format_add(&c->output, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

static void event_end(struct completion *c)
{
    text_string_add(&c->output, "}\n\n");
}

static void begin(struct completion *c)
{
    event_begin(c, "message_start");
    text_string_add(&c->output, ",\"message\":");
    write_message(&c->output, c, false);
    event_end(c);
}

static void item_begin(struct completion *c)
{
    if (!c->request.stream)
        return;
    event_begin(c, "content_block_start");
    text_format_add(&c->output, ",\"index\":%u,\"content_block\":", c->form->item_count - 1);
    write_block(&c->output, c->form, false);
    event_end(c);
}

static void item_more(struct completion *c, const struct text *logprobs)
{
    static const char *const types[] = {"", "thinking_delta", "text_delta", "input_json_delta"};
    static const char *const names[] = {"", "thinking", "text", "partial_json"};
    const struct completion_form *f = c->form;
    (void)logprobs; /* this API has none */
    event_begin(c, "content_block_delta");
    text_format_add(&c->output, ",\"index\":%u,\"delta\":{\"type\":\"%s\"", f->item_count - 1,
                    types[f->item]);
    form_member_add(&c->output, names[f->item], f->item_text.data + f->shown_bytes,
                    f->item_text.bytes - f->shown_bytes);
    text_string_add(&c->output, "}");
    event_end(c);
}

static void item_end(struct completion *c, bool cut)
{
    (void)cut; /* stop_reason says it */
    write_block(&c->form->closed_items, c->form, true);
    if (!c->request.stream)
        return;
    event_begin(c, "content_block_stop");
    text_format_add(&c->output, ",\"index\":%u", c->form->item_count - 1);
    event_end(c);
}

static void end(struct completion *c)
{
    if (c->error.status != 0) {
        text_string_add(&c->output, "event: error\ndata: ");
        api_error_write_anthropic(&c->error, c->request_id, &c->output);
        text_string_add(&c->output, "\n\n");
        return;
    }
    event_begin(c, "message_delta");
    text_string_add(&c->output, ",\"delta\":{");
    write_stop(&c->output, c, true);
    text_string_add(&c->output, "}");
    write_usage(&c->output, c, true);
    event_end(c);
    event_begin(c, "message_stop");
    event_end(c);
}

static void body(struct completion *c)
{
    write_message(&c->output, c, true);
    text_string_add(&c->output, "\n");
}

const struct form_writer form_messages_writer = {"msg_",   begin, item_begin, item_more,
                                                 item_end, end,   body};
