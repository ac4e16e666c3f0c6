/* json: an answer that is {"name": …, "arguments": …}, or a list of such objects, with names of
 * known tools. For models that have no form of their own. */
#include "model/answer/internal.h"

enum { AT_BEGIN, IN_TEXT, IN_CALL, BEHIND_CALL, BEHIND_LIST };

static enum parser_step text(struct answer_parser *p)
{
    p->family_state = IN_TEXT;
    return STEP_AGAIN;
}

/* Looks for an object, after blanks, at offset `at`. */
static enum parser_step object_step(struct answer_parser *p, size_t at)
{
    at = parser_blanks_skip(p, at);
    if (at == parser_text_bytes(p) && at <= BLANKS_MAX && !p->ended)
        return STEP_WAIT;
    if (at > BLANKS_MAX || at == parser_text_bytes(p) || parser_text(p)[at] != '{')
        return text(p);
    parser_call_begin(p, at, NULL, 0, true);
    p->family_state = IN_CALL;
    return STEP_AGAIN;
}

static enum parser_step behind_step(struct answer_parser *p)
{
    if (!parser_blanks_drop(p))
        return STEP_WAIT;
    if (p->calls_in_list && parser_text(p)[0] == ',')
        return object_step(p, 1);
    if (p->calls_in_list && parser_text(p)[0] == ']')
        parser_drop(p, 1);
    p->family_state = BEHIND_LIST;
    return STEP_AGAIN;
}

static enum parser_step json_step(struct answer_parser *p)
{
    enum call_step call;
    size_t at;
    switch (p->family_state) {
    case AT_BEGIN:
        at = parser_blanks_skip(p, 0);
        p->calls_in_list = at < parser_text_bytes(p) && parser_text(p)[at] == '[';
        return object_step(p, at + p->calls_in_list);
    case IN_CALL:
        call = parser_call_step(p);
        if (call == CALL_WAIT)
            return STEP_WAIT;
        p->family_state = call == CALL_DONE ? BEHIND_CALL : IN_TEXT;
        return STEP_AGAIN;
    case BEHIND_CALL:
        return behind_step(p);
    case BEHIND_LIST:
        return parser_blanks_drop(p) ? text(p) : STEP_WAIT;
    default:
        parser_report(p, ANSWER_PART_CONTENT, parser_text_bytes(p));
        return STEP_WAIT;
    }
}

static void json_write(struct text *out, const struct answer_format *format, enum call_place place,
                       const char *name, bool several)
{
    (void)format;
    switch (place) {
    case CALL_BEFORE_FIRST:
        text_string_add(out, several ? "\"[\"" : "\"\"");
        break;
    case CALL_AFTER_LAST:
        text_string_add(out, several ? "\"]\"" : "\"\"");
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

const struct answer_family answer_family_json = {
    .markers = (const enum answer_marker[]){ANSWER_MARKER_NONE},
    .step = json_step,
    .write = json_write};
