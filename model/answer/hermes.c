/* hermes: <tool_call>
 * {"name": …, "arguments": …}
 * </tool_call>, as Hermes, Qwen2.5 and Qwen3 write calls. */
#include "model/answer/internal.h"

#include <string.h>

enum { IN_TEXT, IN_CALL, BEHIND_CALL, BETWEEN };

static const enum answer_marker begins[] = {ANSWER_MARKER_TOOL_CALL, ANSWER_MARKER_NONE};
static const enum answer_marker markers[] = {ANSWER_MARKER_TOOL_CALL, ANSWER_MARKER_TOOL_CALL_END,
                                             ANSWER_MARKER_NONE};

static enum parser_step text_step(struct answer_parser *p)
{
    size_t at;
    enum answer_marker found = parser_report_until(p, ANSWER_PART_CONTENT, begins, &at);
    if (found == ANSWER_MARKER_NONE)
        return STEP_WAIT;
    parser_call_begin(p, at + strlen(answer_marker_text(found)), NULL, 0, false);
    p->family_state = IN_CALL;
    return STEP_AGAIN;
}

static enum parser_step behind_step(struct answer_parser *p)
{
    if (!parser_blanks_drop(p))
        return STEP_WAIT;
    enum match match = parser_match_marker(p, 0, ANSWER_MARKER_TOOL_CALL_END);
    if (match == MATCH_PART)
        return STEP_WAIT;
    if (match == MATCH_YES)
        parser_drop(p, strlen(answer_marker_text(ANSWER_MARKER_TOOL_CALL_END)));
    p->family_state = BETWEEN;
    return STEP_AGAIN;
}

static enum parser_step hermes_step(struct answer_parser *p)
{
    enum call_step call;
    switch (p->family_state) {
    case IN_TEXT:
        return text_step(p);
    case IN_CALL:
        call = parser_call_step(p);
        if (call == CALL_WAIT)
            return STEP_WAIT;
        p->family_state = call == CALL_DONE ? BEHIND_CALL : IN_TEXT;
        return STEP_AGAIN;
    case BEHIND_CALL:
        return behind_step(p);
    default:
        if (!parser_blanks_drop(p))
            return STEP_WAIT;
        p->family_state = IN_TEXT;
        return STEP_AGAIN;
    }
}

static void hermes_write(struct text *out, const struct answer_format *format,
                         enum call_place place, const char *name, bool several)
{
    (void)several;
    switch (place) {
    case CALL_BEFORE_FIRST:
    case CALL_AFTER_LAST:
        text_string_add(out, "\"\"");
        break;
    case CALL_BETWEEN:
        text_string_add(out, "\"\\n\"");
        break;
    case CALL_HEAD:
        answer_marker_write(out, format, ANSWER_MARKER_TOOL_CALL);
        text_format_add(out, ",\"\\n{\\\"name\\\": \\\"%s\\\", \\\"arguments\\\": \"", name);
        break;
    case CALL_TAIL:
        text_string_add(out, "\"}\\n\",");
        answer_marker_write(out, format, ANSWER_MARKER_TOOL_CALL_END);
        break;
    }
}

const struct answer_family answer_family_hermes = {.markers = markers,
                                                   .step = hermes_step,
                                                   .trigger = ANSWER_MARKER_TOOL_CALL,
                                                   .write = hermes_write};
