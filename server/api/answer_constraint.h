/* api_answer_constraint: makes one constraint of all that a chat demands of its answer: the
 * request's own constraint (constraint.h), and its fields about tool calls (`tool_choice`,
 * `strict`, `parallel_tool_calls`). The result allows reasoning first, where the answer's format
 * has reasoning. server/http/ calls it on the text threads, when the prompt's text is known. It
 * keeps no state, and any thread may call it. It does not compile the constraint
 * (model/grammar/grammar.h does). */
#ifndef SERVER_API_ANSWER_CONSTRAINT_H
#define SERVER_API_ANSWER_CONSTRAINT_H

#include "model/answer/answer_format.h"
#include "server/api/constraint.h"
#include "server/api/tools.h"

/* Replaces *constraint, if necessary, by a constraint that also describes calls and reasoning;
 * constraint->text is then freed and replaced. *format: on entry, the model's format; on return,
 * the format of this answer. The formats differ if the request demands calls of a model that has no
 * format for calls: the calls are then written as JSON. answer_begin: where the answer begins
 * (answer_begin_find). tools: the tools of the request; NULL = none. tool_fields: the request's
 * other fields about tools.
 *
 * Returns true, with *constraint unchanged, for a JSON schema that is not valid JSON: compiling the
 * constraint then reports the mistake. Returns false with a 400 if the request demands calls and
 * has a constraint of its own, and for a constraint of more than LIMIT_CONSTRAINT_BYTES. Returns
 * false with a 503 if there is no memory. */
bool api_answer_constraint(struct answer_format *format, enum answer_begin answer_begin,
                           const json_t *tools, const struct api_tools *tool_fields,
                           struct api_constraint *constraint, struct api_error *error);

#endif
