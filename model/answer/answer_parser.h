/* answer_parser: splits the text of an answer, which arrives in pieces, into reasoning, content and
 * calls of tools. The parts do not depend on where the text was cut into pieces. The completions of
 * server/http have one parser for each choice, on the gateway's event loop thread.
 *
 * Nothing of the text is lost: what begins like a call and is none becomes content. White space
 * around calls and around reasoning is left out. Arguments are given as they arrive, as soon as the
 * call's name is known; line breaks inside their strings are escaped. If arguments turn out to be
 * no JSON, what follows the wrong byte is content.
 *
 * Bounds: ANSWER_CALLS_MAX calls, ANSWER_NAME_BYTES; at most ANSWER_HELD_BYTES of a call are held
 * until its name is known. It knows no schemas (answer_calls.h) and no tokens. */
#ifndef MODEL_ANSWER_ANSWER_PARSER_H
#define MODEL_ANSWER_ANSWER_PARSER_H

#include "common/status.h"
#include "model/answer/answer_format.h"

#define ANSWER_CALLS_MAX  128   /* Calls of one answer; later ones are content. */
#define ANSWER_NAME_BYTES 65    /* A tool's name with its NUL. */
#define ANSWER_HELD_BYTES 65536 /* Of a call whose name is not known yet. */

enum answer_part {
    ANSWER_PART_REASONING,
    ANSWER_PART_CONTENT,
    ANSWER_PART_CALL,      /* A call begins. The text is the tool's name. */
    ANSWER_PART_ARGUMENTS, /* A piece of the latest call's arguments. */
};

struct answer_options {
    struct answer_format format;
    enum answer_begin begin;
    bool calls; /* Look for calls; else their texts are content. */
    /* Names of the request's tools, each between two line breaks: "\nname\nname\n". In the formats
     * without a marker (llama3, json), calls of other names are content. Not copied. */
    const char *names;
    /* Receives the parts, from inside the functions below. */
    void (*part)(void *self, enum answer_part part, const char *text, size_t bytes);
    void *self;
};

struct answer_parser;

/* Returns ST_NO_MEMORY. */
enum status answer_parser_open(const struct answer_options *options, struct answer_parser **out);
void answer_parser_close(struct answer_parser *p); /* NULL is fine. */

/* Adds text. Without memory, the text is content. */
void answer_parser_feed(struct answer_parser *p, const char *text, size_t bytes);
/* The answer has ended: gives what was held back. */
void answer_parser_finish(struct answer_parser *p);
/* The text so far ends inside the reasoning. */
bool answer_parser_in_reasoning(const struct answer_parser *p);
/* The control token with this text is a marker: its text must be fed although it is not shown. */
bool answer_parser_needs(const struct answer_parser *p, const char *token, size_t bytes);

#endif
