/* api_tools: parses the fields of a chat about tools: `tools`, `tool_choice`,
 * `parallel_tool_calls`, and the calls in its messages. chat.c calls the functions on the text
 * threads. The functions keep no state. They run no tools, and do not find calls in answers
 * (model/answer/ does). */
#ifndef SERVER_API_TOOLS_H
#define SERVER_API_TOOLS_H

#include "server/api/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum api_tool_choice {
    API_TOOLS_NONE,     /* The answer has no calls; text that looks like a call is content. */
    API_TOOLS_AUTO,     /* The model decides whether the answer has calls. */
    API_TOOLS_REQUIRED, /* The answer is at least one call. */
    API_TOOLS_NAMED,    /* The answer is one call of tool number `named`. */
};

struct api_tools {
    enum api_tool_choice choice;
    uint32_t named; /* API_TOOLS_NAMED: index of the tool. */
    bool parallel;  /* An answer may have several calls, except with API_TOOLS_NAMED. */
    bool strict;    /* At least one tool is strict: arguments of its calls follow its schema. */
    /* The names of the tools as answer_options.tool_names (answer_parser.h), malloc'ed. NULL = the
     * choice is API_TOOLS_NONE. */
    char *packed_names;
};

/* Parses `tools`, `tool_choice` and `parallel_tool_calls`. Changes tools in `root`: a tool with
 * absent or empty `parameters` gets the schema of an object without properties, and `parameters`
 * without a type get the type "object". *tools_out is a new reference to the list of tools; NULL =
 * the choice is API_TOOLS_NONE. The caller frees out->packed_names. On failure returns false with a
 * 400 (503 if there is no memory), and stores nothing in *out and *tools_out. */
bool api_tools_parse(json_t *root, struct api_tools *out, json_t **tools_out,
                     struct api_error *error);
/* Checks `calls`, the list of calls of an assistant's message. place: names the list in errors.
 * Returns false, with a 400 in *error, if the list or a call is wrong. */
bool api_tool_calls_check(const json_t *calls, const char *place, struct api_error *error);

#endif
