/* answer_calls: writes a constraint of the kind "format:" (model/grammar/grammar.h) for answers in
 * a model's format. After optional reasoning, the constraint demands tool calls, or content, or
 * leaves the choice. If a format has a marker before calls (not in the format harmony) and the
 * content is free, an answer may also have content and then calls. A parser (answer_parser.h) can
 * read every answer that follows the constraint. The functions run on any thread and have no state.
 * This part does not compile the constraint. */
#ifndef MODEL_ANSWER_ANSWER_CALLS_H
#define MODEL_ANSWER_ANSWER_CALLS_H

#include "common/text.h"
#include "model/answer/answer_format.h"

#include <jansson.h>

/* Most calls of an answer if answer_wanted.several_calls is true. */
#define ANSWER_CALLS_FORCED_MAX 16

/* What the answer must consist of. */
struct answer_wanted {
    const json_t *tools; /* List of {"function": {name, parameters, strict}}; NULL = no calls. */
    uint32_t only_tool;  /* Index of the only tool that may be called; UINT32_MAX = any tool. */
    bool calls_only;     /* After the reasoning, only calls. Ignored if `tools` is NULL. */
    bool several_calls;  /* More than one call is allowed. Ignored in the format harmony. */
    /* true: the arguments of every tool follow the tool's schema. false: only the arguments of
     * strict tools do; the arguments of other tools are any JSON object. */
    bool all_schemas;
    /* Constraint that the content must follow, not of the kind "format:". NULL = any text without
     * control tokens; if tools may be called and the format (not harmony) has no marker before
     * calls, the text does not begin with "{" or "[". */
    const char *content;
    size_t content_bytes;
    enum answer_begin start_place; /* Result of answer_begin_find for the prompt. */
};

/* Appends the constraint to *out. If memory runs out, out->broken is set. If wanted->tools is not
 * NULL, the format must have calls: its reasoning is ANSWER_REASONING_HARMONY, or its `tools` is
 * not ANSWER_TOOLS_NONE. */
void answer_calls_write(struct text *out, const struct answer_format *format,
                        const struct answer_wanted *wanted);

#endif
