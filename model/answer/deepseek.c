/* deepseek: <｜tool▁calls▁begin｜>, then for each call <｜tool▁call▁begin｜>name<｜tool▁sep｜>{…}
 * <｜tool▁call▁end｜> (V3.1), or the word `function`, <｜tool▁sep｜>, the name in a line, and the
 * arguments in a fenced block (V3, R1), then <｜tool▁calls▁end｜>. */
#include "model/answer/internal.h"

#include <string.h>

enum { IN_TEXT, IN_HEAD, IN_CALL, BEHIND_CALL, BETWEEN };

static const enum answer_marker begins[] = {ANSWER_MARKER_DEEPSEEK_CALLS,
                                            ANSWER_MARKER_DEEPSEEK_CALL, ANSWER_MARKER_NONE};
static const enum answer_marker markers[] = {
    ANSWER_MARKER_DEEPSEEK_CALLS,     ANSWER_MARKER_DEEPSEEK_CALLS_END, ANSWER_MARKER_DEEPSEEK_CALL,
    ANSWER_MARKER_DEEPSEEK_SEPARATOR, ANSWER_MARKER_DEEPSEEK_CALL_END,  ANSWER_MARKER_NONE};

static size_t marker_bytes(enum answer_marker marker)
{
    return strlen(answer_marker_text(marker));
}

static enum parser_step state_set(struct answer_parser *p, int state)
{
    p->family_state = state;
    return STEP_AGAIN;
}

static enum parser_step text_step(struct answer_parser *p)
{
    size_t at;
    enum answer_marker found = parser_report_until(p, ANSWER_PART_CONTENT, begins, &at);
    if (found == ANSWER_MARKER_NONE)
        return STEP_WAIT;
    /* family_offset: after the marker of all calls, where that of a call must follow */
    p->family_offset = found == ANSWER_MARKER_DEEPSEEK_CALLS ? at + marker_bytes(found) : at;
    return state_set(p, IN_HEAD);
}

/* There is no call: `bytes` are content. */
static enum parser_step head_wrong(struct answer_parser *p, size_t bytes)
{
    parser_report(p, ANSWER_PART_CONTENT, bytes);
    return state_set(p, IN_TEXT);
}

static enum parser_step head_wait(struct answer_parser *p, size_t bytes)
{
    return p->ended || parser_text_bytes(p) - p->family_offset > HEAD_BYTES ? head_wrong(p, bytes)
                                                                            : STEP_WAIT;
}

static enum parser_step call_begin(struct answer_parser *p, size_t at, size_t from, size_t end)
{
    while (end > from && scan_is_blank(parser_text(p)[end - 1]))
        end--;
    from = parser_blanks_skip(p, from);
    parser_call_begin(p, at, parser_text(p) + from, end > from ? end - from : 0, false);
    return state_set(p, IN_CALL);
}

/* Finds the arguments of a call whose marker follows family_offset and blanks. */
static enum parser_step head_step(struct answer_parser *p)
{
    const size_t left = parser_text_bytes(p);
    size_t at = parser_blanks_skip(p, p->family_offset);
    enum match match = parser_match_marker(p, at, ANSWER_MARKER_DEEPSEEK_CALL);
    if (match == MATCH_PART && at - p->family_offset <= HEAD_BYTES)
        return head_wait(p, p->family_offset);
    if (match != MATCH_YES || at - p->family_offset > HEAD_BYTES)
        return head_wrong(p, p->family_offset);
    const char *text = parser_text(p);
    const char *separator = answer_marker_text(ANSWER_MARKER_DEEPSEEK_SEPARATOR);
    const size_t from = at + marker_bytes(ANSWER_MARKER_DEEPSEEK_CALL);
    const char *found = memmem(text + from, left - from, separator, strlen(separator));
    if (found == NULL)
        return head_wait(p, from);
    const size_t behind = (size_t)(found - text) + strlen(separator);
    at = parser_blanks_skip(p, behind);
    const char *object = memchr(text + at, '{', left - at);
    if (object == NULL)
        return head_wait(p, from);
    if ((size_t)(object - text) - p->family_offset > HEAD_BYTES)
        return head_wrong(p, from);
    if (text[at] == '{')
        return call_begin(p, at, from, (size_t)(found - text));
    const char *line = memchr(text + at, '\n', left - at);
    if (line == NULL || line > object)
        return head_wrong(p, from);
    return call_begin(p, (size_t)(object - text), behind, (size_t)(line - text));
}

static enum parser_step behind_step(struct answer_parser *p)
{
    if (!parser_blanks_drop(p))
        return STEP_WAIT;
    const enum match fence = parser_match(p, 0, "```");
    const enum match end = parser_match_marker(p, 0, ANSWER_MARKER_DEEPSEEK_CALL_END);
    const enum match all = parser_match_marker(p, 0, ANSWER_MARKER_DEEPSEEK_CALLS_END);
    const enum match call = parser_match_marker(p, 0, ANSWER_MARKER_DEEPSEEK_CALL);
    if (fence == MATCH_PART || end == MATCH_PART || all == MATCH_PART || call == MATCH_PART)
        return STEP_WAIT;
    if (fence == MATCH_YES)
        parser_drop(p, 3);
    else if (end == MATCH_YES)
        parser_drop(p, marker_bytes(ANSWER_MARKER_DEEPSEEK_CALL_END));
    if (fence == MATCH_YES || end == MATCH_YES)
        return STEP_AGAIN;
    if (all == MATCH_YES)
        parser_drop(p, marker_bytes(ANSWER_MARKER_DEEPSEEK_CALLS_END));
    p->family_offset = 0;
    return state_set(p, call == MATCH_YES ? IN_HEAD : BETWEEN);
}

static enum parser_step deepseek_step(struct answer_parser *p)
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
        return state_set(p, call == CALL_DONE ? BEHIND_CALL : IN_TEXT);
    case BEHIND_CALL:
        return behind_step(p);
    default:
        return parser_blanks_drop(p) ? state_set(p, IN_TEXT) : STEP_WAIT;
    }
}

static void deepseek_write(struct text *out, const struct answer_format *format,
                           enum call_place place, const char *name, bool several)
{
    (void)several;
    switch (place) {
    case CALL_BEFORE_FIRST:
        answer_marker_write(out, format, ANSWER_MARKER_DEEPSEEK_CALLS);
        break;
    case CALL_AFTER_LAST:
        answer_marker_write(out, format, ANSWER_MARKER_DEEPSEEK_CALLS_END);
        break;
    case CALL_BETWEEN:
        text_string_add(out, format->variant ? "\"\\n\"" : "\"\"");
        break;
    case CALL_HEAD:
        answer_marker_write(out, format, ANSWER_MARKER_DEEPSEEK_CALL);
        text_format_add(out, ",\"%s\",", format->variant ? "function" : name);
        answer_marker_write(out, format, ANSWER_MARKER_DEEPSEEK_SEPARATOR);
        if (format->variant)
            text_format_add(out, ",\"%s\\n```json\\n\"", name);
        break;
    case CALL_TAIL:
        text_string_add(out, format->variant ? "\"\\n```\"," : "");
        answer_marker_write(out, format, ANSWER_MARKER_DEEPSEEK_CALL_END);
        break;
    }
}

const struct answer_family answer_family_deepseek = {.markers = markers,
                                                     .step = deepseek_step,
                                                     .trigger = ANSWER_MARKER_DEEPSEEK_CALLS,
                                                     .write = deepseek_write};
