/* draft_make: drafts the next tokens of an answer from its context and its constraint. Without a
 * constraint, the draft is a copy of the tokens after a source: the earlier place in the context
 * that fits best (draft.h). With a constraint, each drafted token is the first of these that
 * exists:
 *
 * 1. the token that the constraint makes certain (grammar_run_forced);
 * 2. the next token after the source, if the constraint allows the token. If the constraint does
 *    not allow the token, or has made another token certain, a new source is looked up, with the
 *    drafted tokens as part of the context;
 * 3. if the constraint makes a text certain but not its tokens: the longest token that begins the
 *    text.
 *
 * token_pool/ calls the function on the machine's event loop thread. This part does not decide how
 * many drafted tokens are checked (scheduler/drafts.h). */
#ifndef TOKEN_POOL_DRAFT_MAKE_H
#define TOKEN_POOL_DRAFT_MAKE_H

#include "model/grammar/answers.h"
#include "scheduler/drafts.h"
#include "token_pool/draft.h"

/* Drafts at most `most` tokens. tokens[0, index->count) are the known tokens; the drafted tokens
 * are stored after them. answer: NULL = no constraint. Requires that `answer` has no drafted
 * tokens, and leaves none. *draft_out: the number of drafted tokens, and the class of each. */
void draft_make(const struct draft_index *index, uint32_t *tokens, struct grammar_answer *answer,
                uint32_t most, struct sched_draft *draft_out);

#endif
