/* answer_parser: splits the text of an answer, which arrives in pieces, into reasoning, content and
 * tool calls. The result does not depend on where the text was cut into pieces. The gateway opens a
 * parser for an answer that may have reasoning or calls, on the event loop thread. A parser does
 * not check arguments against schemas, and knows no tokens.
 *
 * The parser leaves out white space next to calls and to the markers of reasoning: all white space
 * after a call or marker, and up to 64 bytes before. In the format harmony, white space inside
 * messages stays. After more than 64 bytes of white space, the beginning of reasoning is not
 * recognised, and a call needs a marker. Text that begins like a call but is no call is content.
 *
 * A call's text is held back until the call's name and the beginning of its arguments are known.
 * After that, the arguments are reported piece by piece as they arrive; control characters in
 * strings are escaped. If the arguments are not valid JSON, have more than 128 levels or a
 * number of more than 63 bytes (json_scan.h), the text from the wrong byte on is content. */
#ifndef MODEL_ANSWER_ANSWER_PARSER_H
#define MODEL_ANSWER_ANSWER_PARSER_H

#include "common/status.h"
#include "model/answer/answer_format.h"

#define ANSWER_CALLS_MAX  128 /* Most calls of one answer; the text of later calls is content. */
#define ANSWER_NAME_BYTES 65  /* Most bytes of a tool's name, with its NUL. */
/* Most bytes of a call that are held back. A call that needs more before it can be reported is
 * content. */
#define ANSWER_HELD_BYTES 65536

enum answer_part {
    ANSWER_PART_REASONING,
    ANSWER_PART_CONTENT,
    ANSWER_PART_CALL,      /* A call begins. The text is the tool's name. */
    ANSWER_PART_ARGUMENTS, /* A piece of the latest call's arguments. */
};

struct answer_options {
    struct answer_format format;
    enum answer_begin start_place; /* Result of answer_begin_find for the prompt. */
    /* false: the text of calls is reported as content (harmony: without headers and markers). */
    bool finds_calls;
    /* Names of the request's tools, each between two line breaks: "\nname\nname\n". In the formats
     * llama3 and json, a call without a marker must have one of these names; NULL = text without a
     * marker is never a call. The text must outlive the parser. */
    const char *tool_names;
    /* Receives the parts in order, during answer_parser_feed and answer_parser_finish. `text` is
     * valid until on_part returns. */
    void (*on_part)(void *self, enum answer_part part, const char *text, size_t bytes);
    void *self; /* First argument of on_part. */
};

struct answer_parser;

/* Opens a parser for one answer; *options is copied. Returns ST_NO_MEMORY on failure. */
enum status answer_parser_open(const struct answer_options *options, struct answer_parser **out);
void answer_parser_close(struct answer_parser *p); /* NULL is fine. */

/* Adds a piece of the answer's text. If memory runs out, the piece and the text that was held back
 * are reported as content. */
void answer_parser_feed(struct answer_parser *p, const char *text, size_t bytes);
/* Ends the answer: reports the text that was held back, as reasoning or content. White space at the
 * end may be left out; in the format harmony, also a header that is not complete. */
void answer_parser_finish(struct answer_parser *p);
/* Returns true if the text that was fed ends inside the reasoning. */
bool answer_parser_in_reasoning(const struct answer_parser *p);
/* Returns true if the parser needs the text of this control token. The caller must then feed the
 * text, and no text of other control tokens. */
bool answer_parser_token_is_marker(const struct answer_parser *p, const char *token, size_t bytes);

#endif
