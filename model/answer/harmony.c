/* harmony: messages with a channel, as gpt-oss writes them: <|channel|>analysis<|message|>…<|end|>
 * is reasoning, <|channel|>commentary to=functions.name <|constrain|>json<|message|>{…}<|call|> is
 * a call, other messages are content. <|start|>assistant stands between two messages. */
#include "model/answer/internal.h"

#include <string.h>

enum { AT_BEGIN, IN_HEADER, IN_BODY, IN_CALL, BEHIND_CALL, BETWEEN };

static const enum answer_marker ends[] = {ANSWER_MARKER_END, ANSWER_MARKER_CALL,
                                          ANSWER_MARKER_RETURN, ANSWER_MARKER_START,
                                          ANSWER_MARKER_NONE};
static const enum answer_marker markers[] = {
    ANSWER_MARKER_START, ANSWER_MARKER_CHANNEL, ANSWER_MARKER_CONSTRAIN, ANSWER_MARKER_MESSAGE,
    ANSWER_MARKER_END,   ANSWER_MARKER_CALL,    ANSWER_MARKER_RETURN,    ANSWER_MARKER_NONE};

static enum parser_step state_set(struct answer_parser *p, int state)
{
    p->family_state = state;
    return STEP_AGAIN;
}

/* Looks for a header after up to BLANKS_MAX blanks. The message begins if there is none. */
static enum parser_step header_find(struct answer_parser *p)
{
    const size_t blanks = parser_blanks_skip(p, 0), at = blanks <= BLANKS_MAX ? blanks : 0;
    if (at == parser_text_bytes(p) && !p->ended)
        return STEP_WAIT;
    const enum match start = parser_match_marker(p, at, ANSWER_MARKER_START);
    const enum match channel = parser_match_marker(p, at, ANSWER_MARKER_CHANNEL);
    const enum match message = parser_match_marker(p, at, ANSWER_MARKER_MESSAGE);
    const enum match recipient = parser_match(p, at > 0 ? at - 1 : 0, " to=");
    if (start == MATCH_YES || channel == MATCH_YES || message == MATCH_YES ||
        recipient == MATCH_YES) {
        parser_drop(p, recipient == MATCH_YES ? at - 1 : at);
        return state_set(p, IN_HEADER);
    }
    if (start == MATCH_PART || channel == MATCH_PART || message == MATCH_PART ||
        recipient == MATCH_PART)
        return STEP_WAIT;
    p->in_reasoning = false;
    return state_set(p, IN_BODY);
}

/* Finds a word of the header after `before`. Returns its bytes; 0 = none. */
static size_t word_find(const char *header, size_t bytes, const char *before, const char **out)
{
    const char *found = memmem(header, bytes, before, strlen(before)), *end = header + bytes;
    if (found == NULL)
        return 0;
    const char *word = found + strlen(before), *at = word;
    while (at < end && !scan_is_blank(*at) && *at != '<')
        at++;
    *out = word;
    return (size_t)(at - word);
}

static enum parser_step header_step(struct answer_parser *p)
{
    const char *marker = answer_marker_text(ANSWER_MARKER_MESSAGE), *text = parser_text(p);
    const char *found = memmem(text, parser_text_bytes(p), marker, strlen(marker));
    const char *channel = NULL, *name = NULL;
    if (found == NULL && p->ended) { /* the answer was cut */
        parser_drop(p, parser_text_bytes(p));
        return STEP_WAIT;
    }
    if (found == NULL && parser_text_bytes(p) <= HEAD_BYTES + strlen(marker))
        return STEP_WAIT;
    p->in_reasoning = false;
    if (found == NULL || found - text > HEAD_BYTES) {
        parser_report(p, ANSWER_PART_CONTENT, HEAD_BYTES);
        return state_set(p, IN_BODY);
    }
    const size_t bytes = (size_t)(found - text);
    size_t channel_bytes =
        word_find(text, bytes, answer_marker_text(ANSWER_MARKER_CHANNEL), &channel);
    size_t name_bytes = word_find(text, bytes, "to=functions.", &name);
    bool analysis = channel_bytes == 8 && memcmp(channel, "analysis", 8) == 0;
    if (name_bytes > 0 && p->options.finds_calls) {
        parser_call_begin(p, bytes + strlen(marker), name, name_bytes, false);
        return state_set(p, IN_CALL);
    }
    p->in_reasoning = analysis && p->options.format.reasoning == ANSWER_REASONING_HARMONY;
    parser_drop(p, bytes + strlen(marker));
    return state_set(p, IN_BODY);
}

static enum parser_step body_step(struct answer_parser *p)
{
    size_t at;
    enum answer_part part = p->in_reasoning ? ANSWER_PART_REASONING : ANSWER_PART_CONTENT;
    enum answer_marker found = parser_report_until(p, part, ends, &at);
    if (found == ANSWER_MARKER_NONE)
        return STEP_WAIT;
    parser_report(p, part, at);
    if (found != ANSWER_MARKER_START)
        parser_drop(p, strlen(answer_marker_text(found)));
    p->in_reasoning = false;
    return state_set(p, BETWEEN);
}

static enum parser_step harmony_step(struct answer_parser *p)
{
    enum call_step call;
    switch (p->family_state) {
    case AT_BEGIN:
        return header_find(p);
    case IN_HEADER:
        return header_step(p);
    case IN_BODY:
        return body_step(p);
    case IN_CALL:
        call = parser_call_step(p);
        if (call == CALL_WAIT)
            return STEP_WAIT;
        return state_set(p, call == CALL_DONE ? BEHIND_CALL : IN_BODY);
    case BEHIND_CALL:
        return parser_blanks_drop(p) ? state_set(p, IN_BODY) : STEP_WAIT;
    default:
        return parser_blanks_drop(p) ? header_find(p) : STEP_WAIT;
    }
}

static void harmony_write(struct text *out, const struct answer_format *format,
                          enum call_place place, const char *name, bool several)
{
    (void)several;
    if (place == CALL_BETWEEN) { /* the end token of a call ends the answer: there is only one */
        text_string_add(out, "\"\"");
    } else if (place == CALL_HEAD) {
        answer_marker_write(out, format, ANSWER_MARKER_CHANNEL);
        text_format_add(out, ",\"commentary to=functions.%s \",", name);
        answer_marker_write(out, format, ANSWER_MARKER_CONSTRAIN);
        text_string_add(out, ",\"json\",");
        answer_marker_write(out, format, ANSWER_MARKER_MESSAGE);
    } else {
        text_string_add(out, "\"\"");
    }
}

const struct answer_family answer_family_harmony = {.markers = markers,
                                                    .step = harmony_step,
                                                    .trigger = ANSWER_MARKER_CHANNEL,
                                                    .write = harmony_write};
