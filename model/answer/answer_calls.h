/* answer_calls: describes answers of a format as a constraint of the kind "format:"
 * (model/grammar/grammar.h), so that answer_parser.h reads from them what was demanded: calls of
 * tools whose arguments follow their schemas, and constraints that begin behind the reasoning. The
 * gateway's text threads call it (server/api/tool_constraint.c). No state: any thread. It compiles
 * nothing. */
#ifndef MODEL_ANSWER_ANSWER_CALLS_H
#define MODEL_ANSWER_ANSWER_CALLS_H

#include "common/text.h"
#include "model/answer/answer_format.h"

#include <jansson.h>

#define ANSWER_CALLS_FORCED_MAX 16 /* Calls of an answer that a constraint demands. */

struct answer_wanted {
    const json_t *tools; /* List of {"function": {name, parameters, strict}}; NULL = no calls. */
    uint32_t named;      /* The only tool that may be called; UINT32_MAX = any. */
    bool forced;         /* The answer is calls only; else they may follow other content. */
    bool several;        /* More than one call. */
    bool all_schemas;    /* Arguments follow their schemas also for tools that are not strict. */
    /* What the content must be: a constraint of another kind; NULL = any text. */
    const char *content;
    size_t content_bytes;
    enum answer_begin begin;
};

/* Appends the constraint to *out. */
void answer_calls_write(struct text *out, const struct answer_format *format,
                        const struct answer_wanted *wanted);

#endif
