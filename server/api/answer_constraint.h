/* api_answer_constraint: makes one constraint of everything that a chat demands of its answer: tool
 * calls (`tool_choice`, `strict`, `parallel_tool_calls`) and the request's own constraint
 * (constraint.h), both after optional reasoning. It is called on a text thread, when the prompt's
 * text is known. Any thread; no state. It does not compile the constraint (model/grammar/grammar.h
 * does). */
#ifndef SERVER_API_ANSWER_CONSTRAINT_H
#define SERVER_API_ANSWER_CONSTRAINT_H

#include "model/answer/answer_format.h"
#include "server/api/constraint.h"
#include "server/api/tools.h"

/* Replaces *constraint, if necessary, by a constraint that also describes calls and reasoning.
 * *format: on entry, the model's format; on return, the format of this answer. They differ for a
 * model that has no format of its own for tool calls: demanded calls are then written as JSON.
 * tools: the list of the request; NULL = none. Returns false with a 400 for fields that exclude
 * each other and for a constraint of more than LIMIT_CONSTRAINT_BYTES. Returns false with a 503 if
 * there is no memory. */
bool api_answer_constraint(struct answer_format *format, enum answer_begin begin,
                           const json_t *tools, const struct api_tools *choice,
                           struct api_constraint *constraint, struct api_error *error);

#endif
