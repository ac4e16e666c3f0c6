/* draft_make: drafts the next tokens of an answer from its context and its constraint. Without a
 * constraint, a draft is what followed the best earlier place (draft.h). With a constraint, each
 * drafted token is one of these:
 *
 * 1. the token that the constraint makes certain (grammar_run_forced);
 * 2. the token that followed the place, if the constraint allows the token; otherwise, the token
 *    that followed another place, which is looked up with the drafted tokens as part of the
 *    context;
 * 3. the longest token of the text that the constraint makes certain.
 *
 * token_pool/ calls the function on the machine's event loop thread. This part does not decide how
 * many drafted tokens are checked (scheduler/drafts.h). */
#ifndef TOKEN_POOL_DRAFT_MAKE_H
#define TOKEN_POOL_DRAFT_MAKE_H

#include "model/grammar/answers.h"
#include "scheduler/drafts.h"
#include "token_pool/draft.h"

/* Drafts at most `most` tokens and stores them after the known tokens, tokens[0, index->count).
 * answer NULL = no constraint. Requires that `answer` has no drafted tokens; it has none after the
 * call. */
void draft_make(const struct draft_index *index, uint32_t *tokens, struct grammar_answer *answer,
                uint32_t most, struct sched_draft *draft_out);

#endif
