/* form_responses: the answers of POST /v1/responses, as OpenAI writes them. Each event has a type,
 * a number, and what has changed; the last one has the whole answer. */
#include "server/http/form.h"

#include <string.h>

static const char *const item_types[] = {"", "reasoning", "message", "function_call"};
static const char *const part_types[] = {"", "reasoning_text", "output_text", ""};

/* ---- items ---- */

/* Writes the one part of an item's content, with what the item has so far. */
static void write_part(struct text *out, const struct completion_form *f, bool with_text)
{
    text_format_add(out, "{\"type\":\"%s\"", part_types[f->item]);
    form_member_add(out, "text", f->item_text.data, with_text ? f->item_text.bytes : 0);
    if (f->item == FORM_TEXT) {
        text_string_add(out, ",\"annotations\":[],\"logprobs\":[");
        text_add(out, f->logprobs.data, with_text ? f->logprobs.bytes : 0);
        text_string_add(out, "]");
    }
    text_string_add(out, "}");
}

static void write_item(struct text *out, const struct completion_form *f, const char *status)
{
    bool done = strcmp(status, "in_progress") != 0;
    text_format_add(out, "{\"id\":\"%s\",\"type\":\"%s\",\"status\":\"%s\"", f->item_id,
                    item_types[f->item], status);
    if (f->item == FORM_CALL) {
        form_member_add(out, "call_id", f->call_id, strlen(f->call_id));
        form_member_add(out, "name", f->tool_name, strlen(f->tool_name));
        form_member_add(out, "arguments", f->item_text.data, done ? f->item_text.bytes : 0);
        text_string_add(out, "}");
        return;
    }
    text_string_add(out, f->item == FORM_TEXT ? ",\"role\":\"assistant\"" : ",\"summary\":[]");
    text_string_add(out, ",\"content\":[");
    if (done)
        write_part(out, f, true);
    text_string_add(out, "]}");
}

/* ---- the answer ---- */

static void write_usage(struct text *out, const struct completion *c)
{
    const struct completion_usage usage = completion_usage(c);
    text_format_add(out,
                    "{\"input_tokens\":%llu,\"input_tokens_details\":{\"cached_tokens\":%llu},"
                    "\"output_tokens\":%llu,\"output_tokens_details\":{\"reasoning_tokens\":%llu},"
                    "\"total_tokens\":%llu}",
                    (unsigned long long)usage.prompt, (unsigned long long)usage.cached,
                    (unsigned long long)usage.generated, (unsigned long long)usage.reasoning,
                    (unsigned long long)(usage.prompt + usage.generated));
}

static const char *status_of(const struct completion *c)
{
    if (c->error.status != 0)
        return "failed";
    return c->choices[0].finish == CHOICE_LENGTH ? "incomplete" : "completed";
}

static void write_error(struct text *out, const struct completion *c)
{
    text_string_add(out, "\"error\":");
    if (c->error.status == 0) {
        text_string_add(out, "null");
        return;
    }
    text_format_add(out, "{\"code\":\"%s\"",
                    c->error.status == 429 ? "rate_limit_exceeded" : "server_error");
    form_member_add(out, "message", c->error.message, strlen(c->error.message));
    text_string_add(out, "}");
}

/* Writes the object of the whole answer. */
static void write_response(struct text *out, const struct completion *c, const char *status)
{
    bool done = strcmp(status, "in_progress") != 0;
    bool incomplete = strcmp(status, "incomplete") == 0;
    text_string_add(out, "{\"id\":");
    text_add_json_string(out, c->id, strlen(c->id));
    text_format_add(out, ",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\",",
                    (long long)c->created, status);
    write_error(out, c);
    text_format_add(out, ",\"incomplete_details\":%s",
                    incomplete ? "{\"reason\":\"max_output_tokens\"}" : "null");
    const char *name = served_model_name(c->model, c->request.sampling.adapter);
    form_member_add(out, "model", name, strlen(name));
    text_format_add(out, ",%s,\"output\":[", c->request.repeated_members);
    text_add(out, c->form->closed_items.data, done ? c->form->closed_items.bytes : 0);
    text_format_add(
        out,
        "],\"background\":false,\"previous_response_id\":null,\"service_tier\":\"default\","
        "\"store\":false,\"temperature\":%g,\"top_p\":%g,\"top_logprobs\":%d,"
        "\"truncation\":\"disabled\",\"usage\":",
        (double)c->request.sampling.temperature, (double)c->request.sampling.top_p,
        c->request.sampling.logprobs > 0 ? c->request.sampling.logprobs : 0);
    if (done && c->error.status == 0)
        write_usage(out, c);
    else
        text_string_add(out, "null");
    text_string_add(out, "}");
}

/* ---- events ---- */

static void event_begin(struct completion *c, const char *type)
{
    text_format_add(&c->output, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%llu", type,
                    type, (unsigned long long)c->form->sequence++);
}

static void event_end(struct completion *c)
{
    text_string_add(&c->output, "}\n\n");
}

static void response_event(struct completion *c, const char *type, const char *status)
{
    event_begin(c, type);
    text_string_add(&c->output, ",\"response\":");
    write_response(&c->output, c, status);
    event_end(c);
}

static void item_event(struct completion *c, const char *type, const char *status)
{
    event_begin(c, type);
    text_format_add(&c->output, ",\"output_index\":%u,\"item\":", c->form->item_count - 1);
    write_item(&c->output, c->form, status);
    event_end(c);
}

/* Begins an event about the content of the open item. */
static void content_begin(struct completion *c, const char *type)
{
    event_begin(c, type);
    text_format_add(&c->output, ",\"item_id\":\"%s\",\"output_index\":%u", c->form->item_id,
                    c->form->item_count - 1);
    if (c->form->item != FORM_CALL)
        text_string_add(&c->output, ",\"content_index\":0");
}

static void part_event(struct completion *c, const char *type, bool with_text)
{
    content_begin(c, type);
    text_string_add(&c->output, ",\"part\":");
    write_part(&c->output, c->form, with_text);
    event_end(c);
}

static void begin(struct completion *c)
{
    response_event(c, "response.created", "in_progress");
    response_event(c, "response.in_progress", "in_progress");
}

static void item_begin(struct completion *c)
{
    static const char *const prefixes[] = {"", "rs_", "msg_", "fc_"};
    form_id_draw(c, prefixes[c->form->item], c->form->item_id, sizeof(c->form->item_id));
    if (!c->request.stream)
        return;
    item_event(c, "response.output_item.added", "in_progress");
    if (c->form->item != FORM_CALL)
        part_event(c, "response.content_part.added", false);
}

static void item_more(struct completion *c, const struct text *logprobs)
{
    static const char *const types[] = {"", "response.reasoning_text.delta",
                                        "response.output_text.delta",
                                        "response.function_call_arguments.delta"};
    const struct completion_form *f = c->form;
    content_begin(c, types[f->item]);
    form_member_add(&c->output, "delta", f->item_text.data + f->shown_bytes,
                    f->item_text.bytes - f->shown_bytes);
    if (f->item == FORM_TEXT) {
        text_string_add(&c->output, ",\"logprobs\":[");
        text_add(&c->output, logprobs->data, logprobs->bytes);
        text_string_add(&c->output, "]");
    }
    event_end(c);
}

/* The events at the end of an item. */
static void item_end_events(struct completion *c, const char *status)
{
    static const char *const types[] = {"", "response.reasoning_text.done",
                                        "response.output_text.done",
                                        "response.function_call_arguments.done"};
    const struct completion_form *f = c->form;
    content_begin(c, types[f->item]);
    if (f->item == FORM_CALL)
        form_member_add(&c->output, "name", f->tool_name, strlen(f->tool_name));
    form_member_add(&c->output, f->item == FORM_CALL ? "arguments" : "text", f->item_text.data,
                    f->item_text.bytes);
    if (f->item == FORM_TEXT) {
        text_string_add(&c->output, ",\"logprobs\":[");
        text_add(&c->output, f->logprobs.data, f->logprobs.bytes);
        text_string_add(&c->output, "]");
    }
    event_end(c);
    if (f->item != FORM_CALL)
        part_event(c, "response.content_part.done", true);
    item_event(c, "response.output_item.done", status);
}

static void item_end(struct completion *c, bool cut)
{
    const char *status = cut ? "incomplete" : "completed";
    if (c->request.stream)
        item_end_events(c, status);
    write_item(&c->form->closed_items, c->form, status);
}

static void end(struct completion *c)
{
    const char *status = status_of(c);
    response_event(c,
                   c->error.status != 0                ? "response.failed"
                   : strcmp(status, "incomplete") == 0 ? "response.incomplete"
                                                       : "response.completed",
                   status);
}

static void body(struct completion *c)
{
    write_response(&c->output, c, status_of(c));
    text_string_add(&c->output, "\n");
}

const struct form_writer form_responses_writer = {"resp_",  begin, item_begin, item_more,
                                                  item_end, end,   body};
