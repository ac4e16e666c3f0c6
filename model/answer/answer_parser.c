/* answer_parser: the text that is held, reasoning between two markers, and what the families use.
 * call_scan.c reads a call's JSON; the family's file says where calls begin and end. */
#include "model/answer/answer_parser.h"

#include "model/answer/internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- the text that is held ---- */

void parser_drop(struct answer_parser *p, size_t bytes)
{
    p->used += bytes;
}

void parser_report(struct answer_parser *p, enum answer_part part, size_t bytes)
{
    if (bytes > 0)
        p->options.on_part(p->options.self, part, parser_text(p), bytes);
    parser_drop(p, bytes);
}

size_t parser_blanks_skip(const struct answer_parser *p, size_t at)
{
    while (at < parser_text_bytes(p) && scan_is_blank(parser_text(p)[at]))
        at++;
    return at;
}

bool parser_blanks_drop(struct answer_parser *p)
{
    parser_drop(p, parser_blanks_skip(p, 0));
    return parser_text_bytes(p) > 0;
}

enum match parser_match(const struct answer_parser *p, size_t at, const char *text)
{
    size_t left = parser_text_bytes(p) - at, bytes = strlen(text);
    if (at > parser_text_bytes(p) ||
        (left > 0 && memcmp(parser_text(p) + at, text, left < bytes ? left : bytes) != 0))
        return MATCH_NO;
    if (left >= bytes)
        return MATCH_YES;
    return p->ended ? MATCH_NO : MATCH_PART;
}

enum match parser_match_marker(const struct answer_parser *p, size_t at, enum answer_marker marker)
{
    return parser_match(p, at, answer_marker_text(marker));
}

enum answer_marker parser_report_until(struct answer_parser *p, enum answer_part part,
                                       const enum answer_marker *markers, size_t *at)
{
    const size_t left = parser_text_bytes(p);
    enum answer_marker found = ANSWER_MARKER_NONE;
    enum match match = MATCH_NO;
    size_t end = 0;
    for (; end < left; end++) {
        for (const enum answer_marker *m = markers; *m != ANSWER_MARKER_NONE && match == MATCH_NO;
             m++) {
            match = parser_match_marker(p, end, *m);
            found = match == MATCH_YES ? *m : ANSWER_MARKER_NONE;
        }
        if (match != MATCH_NO)
            break;
    }
    size_t given = end;
    while (given > 0 && end - given < BLANKS_MAX && scan_is_blank(parser_text(p)[given - 1]))
        given--;
    parser_report(p, part, p->ended && found == ANSWER_MARKER_NONE ? end : given);
    *at = end - given;
    return found;
}

/* ---- the families ---- */

static enum parser_step none_step(struct answer_parser *p)
{
    parser_report(p, ANSWER_PART_CONTENT, parser_text_bytes(p));
    return STEP_WAIT;
}

const struct answer_family answer_family_none = {
    .markers = (const enum answer_marker[]){ANSWER_MARKER_NONE}, .step = none_step};

const struct answer_family *answer_family_of(const struct answer_format *format)
{
    static const struct answer_family *const families[] = {
        [ANSWER_TOOLS_NONE] = &answer_family_none,
        [ANSWER_TOOLS_HERMES] = &answer_family_hermes,
        [ANSWER_TOOLS_LLAMA3] = &answer_family_llama3,
        [ANSWER_TOOLS_MISTRAL] = &answer_family_mistral,
        [ANSWER_TOOLS_DEEPSEEK] = &answer_family_deepseek,
        [ANSWER_TOOLS_HARMONY] = &answer_family_harmony,
        [ANSWER_TOOLS_JSON] = &answer_family_json,
    };
    if (format->reasoning == ANSWER_REASONING_HARMONY)
        return &answer_family_harmony;
    return families[format->tools];
}

/* ---- reasoning between two markers ---- */

static bool is_mistral(const struct answer_parser *p)
{
    return p->options.format.reasoning == ANSWER_REASONING_MISTRAL;
}

static enum answer_marker reasoning_marker(const struct answer_parser *p)
{
    return is_mistral(p) ? ANSWER_MARKER_MISTRAL_THINK : ANSWER_MARKER_THINK;
}

static enum answer_marker reasoning_end(const struct answer_parser *p)
{
    return is_mistral(p) ? ANSWER_MARKER_MISTRAL_THINK_END : ANSWER_MARKER_THINK_END;
}

static enum parser_step stage_begin(struct answer_parser *p)
{
    size_t at = parser_blanks_skip(p, 0);
    if (at == parser_text_bytes(p) && at <= BLANKS_MAX && !p->ended)
        return STEP_WAIT;
    enum match match =
        at <= BLANKS_MAX ? parser_match_marker(p, at, reasoning_marker(p)) : MATCH_NO;
    if (match == MATCH_PART)
        return STEP_WAIT;
    p->section = match == MATCH_YES ? SECTION_OPENED : SECTION_FAMILY;
    p->in_reasoning = match == MATCH_YES;
    if (match == MATCH_YES)
        parser_drop(p, at + strlen(answer_marker_text(reasoning_marker(p))));
    return STEP_AGAIN;
}

static enum parser_step stage_reasoning(struct answer_parser *p)
{
    const enum answer_marker markers[] = {reasoning_end(p), ANSWER_MARKER_NONE};
    size_t at;
    enum answer_marker found = parser_report_until(p, ANSWER_PART_REASONING, markers, &at);
    if (found == ANSWER_MARKER_NONE)
        return STEP_WAIT;
    parser_drop(p, at + strlen(answer_marker_text(found)));
    p->in_reasoning = false;
    p->section = SECTION_CLOSED;
    return STEP_AGAIN;
}

static enum parser_step step(struct answer_parser *p)
{
    switch (p->section) {
    case SECTION_BEGIN:
        return stage_begin(p);
    case SECTION_OPENED:
    case SECTION_CLOSED:
        if (!parser_blanks_drop(p))
            return STEP_WAIT;
        p->section = p->section == SECTION_OPENED ? SECTION_REASONING : SECTION_FAMILY;
        return STEP_AGAIN;
    case SECTION_REASONING:
        return stage_reasoning(p);
    case SECTION_FAMILY:
        break;
    }
    return p->family->step(p);
}

/* ---- the interface ---- */

enum status answer_parser_open(const struct answer_options *options, struct answer_parser **out)
{
    struct answer_parser *p = calloc(1, sizeof(*p));
    if (p == NULL)
        return ST_NO_MEMORY;
    const enum answer_reasoning reasoning = options->format.reasoning;
    p->options = *options;
    p->family = answer_family_of(&options->format);
    if (!options->finds_calls && p->family != &answer_family_harmony)
        p->family = &answer_family_none;
    p->section = SECTION_FAMILY;
    if (reasoning == ANSWER_REASONING_THINK || reasoning == ANSWER_REASONING_MISTRAL) {
        p->in_reasoning = options->start_place == ANSWER_BEGINS_IN_REASONING;
        p->section = p->in_reasoning                                         ? SECTION_OPENED
                     : options->start_place == ANSWER_BEGINS_AFTER_REASONING ? SECTION_FAMILY
                                                                             : SECTION_BEGIN;
    }
    *out = p;
    return ST_OK;
}

void answer_parser_close(struct answer_parser *p)
{
    if (p == NULL)
        return;
    text_done(&p->held);
    free(p);
}

static void run(struct answer_parser *p)
{
    while (parser_text_bytes(p) > 0 && step(p) == STEP_AGAIN)
        ;
    if (p->used == p->held.bytes) {
        text_clear(&p->held);
        p->used = 0;
    } else if (p->used > p->held.bytes / 2) {
        p->held.bytes -= p->used;
        memmove(p->held.data, p->held.data + p->used, p->held.bytes);
        p->used = 0;
    }
}

void answer_parser_feed(struct answer_parser *p, const char *text, size_t bytes)
{
    text_add(&p->held, text, bytes);
    if (!p->held.broken) {
        run(p);
        return;
    }
    p->held.broken = false; /* what is held stays */
    parser_report(p, ANSWER_PART_CONTENT, parser_text_bytes(p));
    p->options.on_part(p->options.self, ANSWER_PART_CONTENT, text, bytes);
}

void answer_parser_finish(struct answer_parser *p)
{
    p->ended = true;
    run(p);
    parser_report(p, p->in_reasoning ? ANSWER_PART_REASONING : ANSWER_PART_CONTENT,
                  parser_text_bytes(p));
}

bool answer_parser_in_reasoning(const struct answer_parser *p)
{
    return p->in_reasoning;
}

static bool is_marker(const char *token, size_t bytes, enum answer_marker marker)
{
    const char *text = answer_marker_text(marker);
    return bytes == strlen(text) && memcmp(token, text, bytes) == 0;
}

bool answer_parser_token_is_marker(const struct answer_parser *p, const char *token, size_t bytes)
{
    const enum answer_reasoning reasoning = p->options.format.reasoning;
    for (const enum answer_marker *m = p->family->markers; *m != ANSWER_MARKER_NONE; m++)
        if (is_marker(token, bytes, *m))
            return true;
    return (reasoning == ANSWER_REASONING_THINK || reasoning == ANSWER_REASONING_MISTRAL) &&
           (is_marker(token, bytes, reasoning_marker(p)) ||
            is_marker(token, bytes, reasoning_end(p)));
}
