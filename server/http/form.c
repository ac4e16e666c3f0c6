/* form: see the header. */
#include "server/http/form.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void form_member_add(struct text *out, const char *name, const char *text, size_t bytes)
{
    text_format_add(out, ",\"%s\":", name);
    text_add_json_string(out, text, bytes);
}

void form_id_draw(struct completion *c, const char *prefix, char *out, size_t bytes)
{
    uint64_t id[2];
    completion_id_draw(c->server, id);
    snprintf(out, bytes, "%s%016llx%08llx", prefix, (unsigned long long)id[0],
             (unsigned long long)(id[1] & 0xffffffffu));
}

bool completion_form_open(struct completion *c)
{
    if (!api_has_form(c->request.kind))
        return true;
    c->form = calloc(1, sizeof(*c->form));
    if (c->form != NULL)
        c->form->writer =
            c->request.kind == API_RESPONSES ? &form_responses_writer : &form_messages_writer;
    return c->form != NULL;
}

void completion_form_close(struct completion *c)
{
    if (c->form == NULL)
        return;
    text_done(&c->form->item_text);
    text_done(&c->form->logprobs);
    text_done(&c->form->closed_items);
    free(c->form);
    c->form = NULL;
}

static void begin(struct completion *c)
{
    struct completion_form *f = c->form;
    if (f->begun)
        return;
    f->begun = true;
    if (c->request.stream)
        f->writer->begin(c);
}

/* Writes an event with the text that was added to the open item since its last event. */
static void show(struct completion *c)
{
    struct completion_form *f = c->form;
    struct text *entries = &c->choices[0].logprob_tokens;
    if (f->item == FORM_NONE || f->shown_bytes == f->item_text.bytes)
        return;
    if (c->request.stream)
        f->writer->item_more(c, entries);
    f->shown_bytes = f->item_text.bytes;
    if (f->item == FORM_TEXT && entries->bytes > 0) {
        text_string_add(&f->logprobs, f->logprobs.bytes > 0 ? "," : "");
        text_add(&f->logprobs, entries->data, entries->bytes);
    }
    text_clear(entries);
}

static void item_end(struct completion *c, bool cut)
{
    struct completion_form *f = c->form;
    if (f->item == FORM_NONE)
        return;
    show(c);
    text_string_add(&f->closed_items, f->closed_items.bytes > 0 ? "," : "");
    f->writer->item_end(c, cut);
    f->item = FORM_NONE;
}

static void item_begin(struct completion *c, enum form_item item)
{
    struct completion_form *f = c->form;
    item_end(c, false);
    begin(c);
    f->item = item;
    f->item_count++;
    f->call_count += item == FORM_CALL;
    f->shown_bytes = 0;
    text_clear(&f->item_text);
    text_clear(&f->logprobs);
    f->writer->item_begin(c);
}

void completion_form_part(struct completion *c, enum answer_part part, const char *text,
                          size_t bytes)
{
    struct completion_form *f = c->form;
    const enum form_item item = part == ANSWER_PART_REASONING ? FORM_REASONING
                                : part == ANSWER_PART_CONTENT ? FORM_TEXT
                                                              : FORM_CALL;
    if (part == ANSWER_PART_CALL) {
        choice_call_id(c, f->call_id, sizeof(f->call_id));
        snprintf(f->tool_name, sizeof(f->tool_name), "%.*s", (int)bytes, text);
        item_begin(c, FORM_CALL);
        return;
    }
    if (bytes == 0)
        return;
    if (f->item != item)
        item_begin(c, item);
    text_add(&f->item_text, text, bytes);
}

void completion_form_step(struct completion *c)
{
    const struct choice *choice = &c->choices[0];
    begin(c);
    show(c);
    if (choice->finish != CHOICE_RUNNING)
        item_end(c, choice->finish == CHOICE_LENGTH);
}

/* If memory has run out, marks the output as broken, so that the answer does not look complete. */
static void check_memory(struct completion *c)
{
    const struct completion_form *f = c->form;
    c->output.broken |= f->item_text.broken || f->closed_items.broken || f->logprobs.broken;
}

void completion_form_end(struct completion *c)
{
    begin(c);
    c->form->writer->end(c);
    check_memory(c);
}

void completion_form_body(struct completion *c)
{
    c->form->writer->body(c);
    check_memory(c);
}

void completion_form_id(struct completion *c)
{
    snprintf(c->id, sizeof(c->id), "%s%s", c->form->writer->id_prefix, c->request_id);
}
