/* token_drafts: drafts of a draft model, a small model on the token machine. The draft model draws
 * each token with the seed and the position of the answer's token, and with its rules where both
 * models have one vocabulary, so that both tokens are often equal. This part says which tokens the
 * draft model computes next and keeps what it has generated. machine/draft.c has the model,
 * computes, and makes every call, on the machine's event loop thread.
 *
 * The draft model has KV of its own (draft_seats.h) and computes it on this machine from the
 * request's tokens: while the request awaits its KV, and between steps, a part at a time. Once the
 * draft model has caught up with an answer, scheduler/drafts.h decides for each step how many
 * tokens the draft model drafts; 0 = none. If the draft model's KV memory is full, or a token is
 * not in its vocabulary, the request goes on without these drafts. */
#ifndef TOKEN_POOL_TOKEN_DRAFTS_H
#define TOKEN_POOL_TOKEN_DRAFTS_H

#include "token_pool/draft_seats.h"
#include "token_pool/token_pool.h"

/* Tokens that the draft model computes for one request. */
struct token_draft_item {
    sched_slot slot;
    kv_owner_id owner;      /* Identifies the request. */
    const uint32_t *tokens; /* [row_count] */
    uint32_t position;      /* Position of the first of them in the context. */
    uint32_t row_count;
    const kv_block_id *blocks; /* The request's blocks of the draft model's KV memory. */
    /* Rules for the token that follows the last one; NULL = that token is not wanted. */
    const struct sampling *sampling;
    struct sample_context context; /* Further rules for that token. */
    struct grammar_answer *answer; /* Its constraint; NULL = none. */
    const uint32_t *drafted;       /* [drafted_count]: the answer's drafted tokens before it. */
    uint32_t drafted_count;
    uint32_t answer_index; /* Index of that token in the answer. */
};

/* What the draft model computes in one job. The blocks are valid until token_pool_drafts_done. All
 * other pointers are valid only until the next call of the pool, because a request may end while
 * the job runs: the caller copies what it needs later. */
struct token_draft_job {
    uint32_t row_count;
    uint32_t item_count;
    uint32_t catch_up_rows; /* Rows of items that catch up. */
    struct token_draft_item items[LIMIT_BATCH_SEQUENCES];
};

/* Stores the next job. At most catch_up_rows rows are computed for requests with which the draft
 * model has to catch up. Returns false if there is nothing to compute before the machine's next
 * step. Requires that no step and no job runs. */
bool token_pool_drafts_next(struct token_pool *pool, uint32_t catch_up_rows,
                            struct token_draft_job *out);
/* Call it when the job is done. ids[i] is the token that was drawn for item i, if its token was
 * wanted. */
void token_pool_drafts_done(struct token_pool *pool, const struct token_draft_job *job,
                            const uint32_t *ids);

#endif
