/* api_answer_constraint: joins what a chat demands of its answer: calls of tools (`tool_choice`,
 * `strict`, `parallel_tool_calls`), a constraint of its own (constraint.h), and the reasoning that
 * may come before both, as one constraint. completion_input.c calls it when the prompt is known.
 * No state: any thread. It does not compile the constraint. */
#ifndef SERVER_API_ANSWER_CONSTRAINT_H
#define SERVER_API_ANSWER_CONSTRAINT_H

#include "model/answer/answer_format.h"
#include "server/api/constraint.h"
#include "server/api/tools.h"

/* *format: the model's; it becomes that of the answer, because a model without a form for calls
 * writes demanded calls as JSON. `tools`: the list of the request, or NULL. Replaces *constraint if
 * necessary. Returns false with a 400 for fields that exclude each other, and for a constraint of
 * more than LIMIT_CONSTRAINT_BYTES; 503 without memory. */
bool api_answer_constraint(struct answer_format *format, enum answer_begin begin,
                           const json_t *tools, const struct api_tools *choice,
                           struct api_constraint *constraint, struct api_error *error);

#endif
