/* mistral: [TOOL_CALLS][{"name": …, "arguments": …}, …], or (from version 11 of its tokenizer)
 * [TOOL_CALLS]name[ARGS]{…} for each call. [CALL_ID] with an id may follow the name. */
#include "model/answer/internal.h"

#include <string.h>

enum { IN_TEXT, IN_HEAD, IN_CALL, BEHIND_CALL, BETWEEN };

static const enum answer_marker begins[] = {ANSWER_MARKER_TOOL_CALLS, ANSWER_MARKER_NONE};
static const enum answer_marker markers[] = {ANSWER_MARKER_TOOL_CALLS, ANSWER_MARKER_CALL_ID,
                                             ANSWER_MARKER_ARGS, ANSWER_MARKER_NONE};

static enum parser_step text(struct answer_parser *p)
{
    p->family_state = IN_TEXT;
    return STEP_AGAIN;
}

static enum parser_step text_step(struct answer_parser *p)
{
    size_t at;
    enum answer_marker found = parser_report_until(p, ANSWER_PART_CONTENT, begins, &at);
    if (found == ANSWER_MARKER_NONE)
        return STEP_WAIT;
    p->family_offset = at + strlen(answer_marker_text(found));
    p->family_state = IN_HEAD;
    return STEP_AGAIN;
}

/* The text after the marker is not a call. */
static enum parser_step head_wrong(struct answer_parser *p)
{
    parser_report(p, ANSWER_PART_CONTENT, p->family_offset);
    return text(p);
}

static enum parser_step call_begin(struct answer_parser *p, size_t at, const char *name,
                                   size_t bytes)
{
    parser_call_begin(p, at, name, bytes, false);
    p->family_state = IN_CALL;
    return STEP_AGAIN;
}

static bool is_name_byte(char c)
{
    return c != '{' && c != '[' && !scan_is_blank(c);
}

/* Returns the offset after [CALL_ID] with its id and [ARGS], of which both may be missing. If the
 * text ends within them, returns its end; if other text follows, returns the offset of that
 * text. */
static size_t markers_behind(const struct answer_parser *p, size_t at)
{
    const size_t left = parser_text_bytes(p);
    enum match match = parser_match_marker(p, at, ANSWER_MARKER_CALL_ID);
    if (match == MATCH_YES)
        for (at += strlen(answer_marker_text(ANSWER_MARKER_CALL_ID));
             at < left && is_name_byte(parser_text(p)[at]);)
            at++;
    if (match != MATCH_PART)
        match = parser_match_marker(p, at, ANSWER_MARKER_ARGS);
    if (match == MATCH_YES)
        at += strlen(answer_marker_text(ANSWER_MARKER_ARGS));
    return match == MATCH_PART ? left : at;
}

/* Finds the first object after the marker. */
static enum parser_step head_step(struct answer_parser *p)
{
    const char *text = parser_text(p);
    const size_t left = parser_text_bytes(p), from = parser_blanks_skip(p, p->family_offset);
    size_t at = from, end;
    p->calls_in_list = false;
    if (at < left && text[at] == '[') { /* a list; a marker cannot stand here */
        at++;
        p->calls_in_list = true;
    }
    for (end = at; end < left && is_name_byte(text[end]); end++)
        ;
    at = parser_blanks_skip(p, p->calls_in_list ? at : markers_behind(p, end));
    if (at < left && at - p->family_offset <= HEAD_BYTES && text[at] == '{')
        return p->calls_in_list || end == from ? call_begin(p, at, NULL, 0)
                                               : call_begin(p, at, text + from, end - from);
    return at < left || at - p->family_offset > HEAD_BYTES || p->ended ? head_wrong(p) : STEP_WAIT;
}

static enum parser_step behind_step(struct answer_parser *p)
{
    if (!parser_blanks_drop(p))
        return STEP_WAIT;
    if (p->calls_in_list && parser_text(p)[0] == ',') {
        size_t at = parser_blanks_skip(p, 1);
        if (at == parser_text_bytes(p) && at <= BLANKS_MAX && !p->ended)
            return STEP_WAIT;
        if (at < parser_text_bytes(p) && at <= BLANKS_MAX && parser_text(p)[at] == '{')
            return call_begin(p, at, NULL, 0);
    } else if (p->calls_in_list && parser_text(p)[0] == ']') {
        parser_drop(p, 1);
    }
    p->family_state = BETWEEN;
    return STEP_AGAIN;
}

static enum parser_step mistral_step(struct answer_parser *p)
{
    enum call_step call;
    switch (p->family_state) {
    case IN_TEXT:
        return text_step(p);
    case IN_HEAD:
        return head_step(p);
    case IN_CALL:
        call = parser_call_step(p);
        if (call == CALL_WAIT)
            return STEP_WAIT;
        p->family_state = call == CALL_DONE ? BEHIND_CALL : IN_TEXT;
        return STEP_AGAIN;
    case BEHIND_CALL:
        return behind_step(p);
    default:
        return parser_blanks_drop(p) ? text(p) : STEP_WAIT;
    }
}

static void list_write(struct text *out, const struct answer_format *format, enum call_place place,
                       const char *name)
{
    switch (place) {
    case CALL_BEFORE_FIRST:
        answer_marker_write(out, format, ANSWER_MARKER_TOOL_CALLS);
        text_string_add(out, ",\"[\"");
        break;
    case CALL_AFTER_LAST:
        text_string_add(out, "\"]\"");
        break;
    case CALL_BETWEEN:
        text_string_add(out, "\", \"");
        break;
    case CALL_HEAD:
        text_format_add(out, "\"{\\\"name\\\": \\\"%s\\\", \\\"arguments\\\": \"", name);
        break;
    case CALL_TAIL:
        text_string_add(out, "\"}\"");
        break;
    }
}

static void mistral_write(struct text *out, const struct answer_format *format,
                          enum call_place place, const char *name, bool several)
{
    (void)several;
    if (!format->variant) {
        list_write(out, format, place, name);
    } else if (place == CALL_HEAD) {
        answer_marker_write(out, format, ANSWER_MARKER_TOOL_CALLS);
        text_format_add(out, ",\"%s\",", name);
        answer_marker_write(out, format, ANSWER_MARKER_ARGS);
    } else {
        text_string_add(out, "\"\"");
    }
}

const struct answer_family answer_family_mistral = {.markers = markers,
                                                    .step = mistral_step,
                                                    .trigger = ANSWER_MARKER_TOOL_CALLS,
                                                    .write = mistral_write};
