/* llama3: {"name": …, "parameters": …}, with <|python_tag|> before it or not, as Llama 3.1 and
 * later write calls. Several calls have a semicolon between them. Without <|python_tag|>, only an
 * answer that begins with the object of a known tool is a call. */
#include "model/answer/internal.h"

#include <string.h>

enum { AT_BEGIN, IN_TEXT, IN_CALL, BEHIND_CALL };

static const enum answer_marker markers[] = {ANSWER_MARKER_PYTHON, ANSWER_MARKER_NONE};

static size_t marker_bytes(void)
{
    return strlen(answer_marker_text(ANSWER_MARKER_PYTHON));
}

/* Looks for a call at offset `at`, after blanks. */
static enum parser_step begin_step(struct answer_parser *p, size_t at)
{
    at = parser_blanks_skip(p, at);
    if (at == parser_text_bytes(p) && at <= BLANKS_MAX && !p->ended)
        return STEP_WAIT;
    enum match match =
        at <= BLANKS_MAX ? parser_match_marker(p, at, ANSWER_MARKER_PYTHON) : MATCH_NO;
    if (match == MATCH_PART)
        return STEP_WAIT;
    p->family_state = IN_TEXT;
    if (match == MATCH_YES ||
        (at <= BLANKS_MAX && at < parser_text_bytes(p) && parser_text(p)[at] == '{')) {
        parser_call_begin(p, match == MATCH_YES ? at + marker_bytes() : at, NULL, 0,
                          match != MATCH_YES);
        p->family_state = IN_CALL;
    }
    return STEP_AGAIN;
}

static enum parser_step text_step(struct answer_parser *p)
{
    size_t at;
    if (parser_report_until(p, ANSWER_PART_CONTENT, markers, &at) == ANSWER_MARKER_NONE)
        return STEP_WAIT;
    parser_call_begin(p, at + marker_bytes(), NULL, 0, false);
    p->family_state = IN_CALL;
    return STEP_AGAIN;
}

static enum parser_step llama3_step(struct answer_parser *p)
{
    enum call_step call;
    switch (p->family_state) {
    case AT_BEGIN:
        return begin_step(p, 0);
    case IN_TEXT:
        return text_step(p);
    case IN_CALL:
        call = parser_call_step(p);
        if (call == CALL_WAIT)
            return STEP_WAIT;
        p->family_state = call == CALL_DONE ? BEHIND_CALL : IN_TEXT;
        return STEP_AGAIN;
    default:
        if (!parser_blanks_drop(p))
            return STEP_WAIT;
        return begin_step(p, parser_text(p)[0] == ';');
    }
}

static void llama3_write(struct text *out, const struct answer_format *format,
                         enum call_place place, const char *name, bool several)
{
    (void)format, (void)several;
    switch (place) {
    case CALL_BEFORE_FIRST:
    case CALL_AFTER_LAST:
        text_string_add(out, "\"\"");
        break;
    case CALL_BETWEEN:
        text_string_add(out, "\"; \"");
        break;
    case CALL_HEAD:
        text_format_add(out, "\"{\\\"name\\\": \\\"%s\\\", \\\"parameters\\\": \"", name);
        break;
    case CALL_TAIL:
        text_string_add(out, "\"}\"");
        break;
    }
}

const struct answer_family answer_family_llama3 = {
    .markers = markers, .step = llama3_step, .write = llama3_write};
