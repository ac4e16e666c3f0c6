/* answer_parser: splits the text of an answer, which arrives in pieces, into reasoning, content and
 * calls of tools. The result does not depend on where the text was cut into pieces. A completion
 * (server/http/completion_parts.c) has one parser for each choice, and makes every call on the
 * gateway's event loop thread.
 *
 * Text that begins like a call but is no call is reported as content. White space around calls and
 * around reasoning is left out. The arguments of a call are reported piece by piece, as soon as the
 * call's name is known; control characters inside their strings are escaped. If arguments are not
 * valid JSON, the text from the wrong byte on is content.
 *
 * A call's text is held back until the call's name is known. The parser does not check arguments
 * against schemas (answer_calls.h does), and knows no tokens. */
#ifndef MODEL_ANSWER_ANSWER_PARSER_H
#define MODEL_ANSWER_ANSWER_PARSER_H

#include "common/status.h"
#include "model/answer/answer_format.h"

#define ANSWER_CALLS_MAX  128 /* Most calls of one answer; the text of later calls is content. */
#define ANSWER_NAME_BYTES 65  /* Most bytes of a tool's name, with its NUL. */
/* Most bytes of a call that are held back; if the name is not known then, the text is content. */
#define ANSWER_HELD_BYTES 65536

enum answer_part {
    ANSWER_PART_REASONING,
    ANSWER_PART_CONTENT,
    ANSWER_PART_CALL,      /* A call begins. The text is the tool's name. */
    ANSWER_PART_ARGUMENTS, /* A piece of the latest call's arguments. */
};

struct answer_options {
    struct answer_format format;
    enum answer_begin begin; /* Result of answer_begin_find for the prompt. */
    bool calls;              /* true: calls are looked for. false: the text of calls is content. */
    /* Names of the request's tools, each between two line breaks: "\nname\nname\n". In the forms
     * without a marker (llama3, json), only calls of these names count as calls. The text must
     * outlive the parser. */
    const char *names;
    /* Receives the parts in order, during answer_parser_feed and answer_parser_finish. */
    void (*part)(void *self, enum answer_part part, const char *text, size_t bytes);
    void *self; /* First argument of `part`. */
};

struct answer_parser;

/* Opens a parser for one answer; *options is copied. Returns ST_NO_MEMORY on failure. */
enum status answer_parser_open(const struct answer_options *options, struct answer_parser **out);
void answer_parser_close(struct answer_parser *p); /* NULL is fine. */

/* Adds a piece of the answer's text. If there is no memory, all text so far is content. */
void answer_parser_feed(struct answer_parser *p, const char *text, size_t bytes);
/* Ends the answer: reports the text that was held back. */
void answer_parser_finish(struct answer_parser *p);
/* Returns true if the text so far ends inside the reasoning. */
bool answer_parser_in_reasoning(const struct answer_parser *p);
/* Returns true if the control token with this text is a marker of the format. The caller then feeds
 * its text, although clients do not see control tokens. */
bool answer_parser_needs(const struct answer_parser *p, const char *token, size_t bytes);

#endif
