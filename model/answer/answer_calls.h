/* answer_calls: writes a constraint of the kind "format:" (model/grammar/grammar.h) for answers in
 * a model's format. Such an answer has what the request demands: tool calls whose arguments follow
 * their schemas, or content that follows another constraint and begins after the reasoning. The
 * answer is written so that answer_parser.h can read it. server/api/answer_constraint.c calls it on
 * the gateway's text threads; any thread may. This part owns nothing. It does not compile the
 * constraint. */
#ifndef MODEL_ANSWER_ANSWER_CALLS_H
#define MODEL_ANSWER_ANSWER_CALLS_H

#include "common/text.h"
#include "model/answer/answer_format.h"

#include <jansson.h>

/* Most calls of an answer that follows a constraint of answer_calls_write. */
#define ANSWER_CALLS_FORCED_MAX 16

/* What the answer must consist of. */
struct answer_wanted {
    const json_t *tools; /* List of {"function": {name, parameters, strict}}; NULL = no calls. */
    uint32_t only_tool;  /* Index of the only tool that may be called; UINT32_MAX = any tool. */
    /* true: after its reasoning, the answer has calls only. false: calls are optional. */
    bool calls_only;
    bool several_calls; /* The answer may have more than one call. Ignored in the format harmony. */
    bool all_schemas;   /* Arguments follow their schemas also for tools that are not strict. */
    /* The constraint of another kind that content must follow; NULL = any text. */
    const char *content;
    size_t content_bytes;
    enum answer_begin start_place; /* Result of answer_begin_find for the prompt. */
};

/* Appends the constraint to *out. If memory runs out, out->broken is set. Requires a format with
 * calls if wanted->tools is not NULL: ANSWER_REASONING_HARMONY, or `tools` other than
 * ANSWER_TOOLS_NONE. */
void answer_calls_write(struct text *out, const struct answer_format *format,
                        const struct answer_wanted *wanted);

#endif
