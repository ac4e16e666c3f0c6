/* parts: see the header. */
#include "tests/model/answer/parts.h"

#include "tests/check.h"

static void part(void *self, enum answer_part kind, const char *text, size_t bytes)
{
    struct parts *parts = self;
    CHECK(bytes > 0);
    if (kind == ANSWER_PART_CALL) {
        text_string_add(&parts->line, parts->last >= 0 ? ")" : "");
        text_add(&parts->line, text, bytes);
        text_string_add(&parts->line, "(");
        parts->last = ANSWER_PART_ARGUMENTS;
        parts->calls++;
        return;
    }
    CHECK(kind != ANSWER_PART_ARGUMENTS || parts->last == ANSWER_PART_ARGUMENTS);
    if (parts->last != (int)kind) {
        text_string_add(&parts->line, parts->last >= 0 ? ")" : "");
        text_string_add(&parts->line, kind == ANSWER_PART_REASONING ? "R(" : "C(");
    }
    parts->last = (int)kind;
    text_add(&parts->line, text, bytes);
    if (kind != ANSWER_PART_ARGUMENTS)
        text_add(&parts->given, text, bytes);
}

void parts_read(const struct answer_options *options, const char *text, size_t bytes,
                size_t (*cut)(void *self, size_t at), void *self, struct parts *out)
{
    struct answer_options with = *options;
    struct answer_parser *parser;
    *out = (struct parts){.last = -1};
    with.on_part = part;
    with.self = out;
    CHECK(answer_parser_open(&with, &parser) == ST_OK);
    for (size_t at = 0; at < bytes;) {
        size_t piece = cut(self, at);
        piece = piece < bytes - at ? piece : bytes - at;
        answer_parser_feed(parser, text + at, piece);
        at += piece;
    }
    answer_parser_finish(parser);
    text_string_add(&out->line, out->last >= 0 ? ")" : "");
    text_add(&out->line, "", 1);
    answer_parser_close(parser);
}

void parts_done(struct parts *parts)
{
    text_done(&parts->line);
    text_done(&parts->given);
}
