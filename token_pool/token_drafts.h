/* token_drafts: drafts of a draft model, which is a small model on the token machine, or the draft
 * layer of the machine's model (multi-token prediction). This part of the token pool decides which
 * tokens the draft model computes next, and keeps the tokens that the draft model has generated.
 * machine/draft.c has the draft model and calls the functions on the machine's event loop thread.
 * This part computes nothing.
 *
 * The draft model has KV of its own (draft_seats.h), which it computes from the request's tokens:
 * while the request awaits its KV, and between decode steps. When the draft model has caught up
 * with an answer, scheduler/drafts.h decides how many tokens the draft model drafts for a decode
 * step. If the draft model's KV memory is full, or a token is not in its vocabulary, the request
 * continues without these drafts.
 *
 * A draft layer computes each token from the final vector from which the token was drawn. If the
 * layer itself has drafted the token, this is a final vector of the layer; otherwise, of the model.
 * A draft layer does not compute the prompt, because the prompt has no final vectors. After each
 * step, the layer computes the accepted tokens again, from the model's final vectors. */
#ifndef TOKEN_POOL_TOKEN_DRAFTS_H
#define TOKEN_POOL_TOKEN_DRAFTS_H

#include "token_pool/draft_seats.h"
#include "token_pool/token_pool.h"

/* Tokens that the draft model computes for one request. */
struct token_draft_item {
    sched_slot slot;
    kv_owner_id owner;      /* Identifies the request. */
    const uint32_t *tokens; /* [row_count]: the tokens. */
    /* [row_count × token_draft_model.final_floats]: the tokens' final vectors. NULL = the draft
     * model reads tokens only. */
    const float *finals;
    uint32_t position;    /* Position of tokens[0] in the context. */
    uint32_t kv_position; /* Position of tokens[0] in the draft model's KV of the request. */
    uint32_t row_count;
    const kv_block_id *blocks; /* The request's blocks of the draft model's KV memory. */
    /* How the *next token*, the one after `tokens`, is drawn; NULL = no token is drawn, and the
     * fields below are not used. */
    const struct sampling *sampling;
    struct sample_context context; /* Also input of the sampler: tokens and token rules. */
    struct grammar_answer *answer; /* The answer's constraint; NULL = none. */
    const uint32_t *drafted;       /* [drafted_count]: the drafted tokens before the next token. */
    uint32_t drafted_count;
    uint32_t answer_index; /* Index of the next token in the answer. */
};

/* What the draft model computes in one job. The blocks are valid until token_pool_drafts_done. All
 * other pointers are valid only until the next call of the pool. */
struct token_draft_job {
    uint32_t row_count; /* Sum of the items' row_count. */
    uint32_t item_count;
    uint32_t catch_up_rows; /* Rows of the items without `sampling`. */
    struct token_draft_item items[LIMIT_BATCH_SEQUENCES];
};

/* Stores the next job, which has at most `catch_up_rows_max` catch_up_rows. Returns false if there
 * is nothing to compute before the machine's next step. Requires that no decode step and no job
 * runs. */
bool token_pool_drafts_next(struct token_pool *pool, uint32_t catch_up_rows_max,
                            struct token_draft_job *out);
/* Call it when the job is done. ids[i] is the token that was drawn for item i; its final vector
 * begins at finals[i × token_draft_model.final_floats]. An item without `sampling` has neither. */
void token_pool_drafts_done(struct token_pool *pool, const struct token_draft_job *job,
                            const uint32_t *ids, const float *finals);

#endif
