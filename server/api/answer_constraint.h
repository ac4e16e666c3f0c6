/* api_answer_constraint: combines a chat's own constraint (constraint.h) with what its fields about
 * tool calls (`tool_choice`, `strict`, `parallel_tool_calls`) demand of the answer. The combined
 * constraint also allows reasoning before the content, if the answer can begin with reasoning.
 * server/http/ calls the function on the text threads. The function keeps no state, and does not
 * compile the constraint (model/grammar/grammar.h does). */
#ifndef SERVER_API_ANSWER_CONSTRAINT_H
#define SERVER_API_ANSWER_CONSTRAINT_H

#include "model/answer/answer_format.h"
#include "server/api/constraint.h"
#include "server/api/tools.h"

/* Replaces *constraint, and frees the earlier text, if the constraint must also describe calls or
 * reasoning. *format: the model's format. If the request demands calls and the model has no format
 * for calls, format->tools becomes ANSWER_TOOLS_JSON. answer_begin: see answer_begin_find. tools:
 * the tools of the request; NULL = none. tool_fields: the request's other fields about tools.
 *
 * Returns true, with *constraint unchanged, for a JSON schema that is not valid JSON: compiling the
 * constraint then reports the mistake. Returns false with a 400 if the request demands calls and
 * has a constraint of its own, or if the combined constraint exceeds LIMIT_CONSTRAINT_BYTES.
 * Returns false with a 503 if there is no memory. */
bool api_answer_constraint(struct answer_format *format, enum answer_begin answer_begin,
                           const json_t *tools, const struct api_tools *tool_fields,
                           struct api_constraint *constraint, struct api_error *error);

#endif
