/* draft: drafts the next tokens of an answer from its own context, for speculative decoding
 * (prompt look-up). The part owns an index of the tokens of one context. token_pool/ has one index
 * for each request that may have drafts, and makes every call on the machine's event loop thread.
 * This part does not decide whether a draft is worth a check (scheduler/drafts.h does).
 *
 * A *place* is an earlier position in the context at which the last tokens of the context also
 * occur. The draft is what follows the place with the most equal tokens; if several places have as
 * many, the latest of them. A look-up compares only the latest places, so its time does not depend
 * on the length of the context. */
#ifndef TOKEN_POOL_DRAFT_H
#define TOKEN_POOL_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

/* A look-up first looks for places with at least this many equal tokens. Only if there are none, it
 * looks for places with fewer equal tokens. */
#define DRAFT_MATCH_GOOD 3
/* More equal tokens than this number are not counted. */
#define DRAFT_MATCH_MAX 32

/* The positions of all runs of `run_tokens` consecutive tokens. Used by draft.c only. */
struct draft_places {
    uint32_t run_tokens;
    /* For each hash of a run: 1 + the position of the last token of the latest run with this hash;
     * 0 = none. */
    uint32_t *heads;
    /* [capacity] For each position: the value in `heads` that this position has replaced. */
    uint32_t *earlier;
};

/* The index of one context. All zeros = closed. */
struct draft_index {
    uint32_t count;           /* Tokens of the context that are in the index. */
    uint32_t mask;            /* Number of heads, minus 1. */
    uint32_t *memory;         /* Memory of both tables; NULL = closed. */
    struct draft_places good; /* Runs of DRAFT_MATCH_GOOD tokens. */
    struct draft_places any;  /* Runs of one token. */
};

/* Opens an empty index for a context of at most `capacity` tokens. If memory is short, the index
 * stays closed. */
void draft_index_open(struct draft_index *index, uint32_t capacity);
void draft_index_close(struct draft_index *index);
bool draft_index_is_open(const struct draft_index *index);

/* Adds tokens[index->count … count - 1] to the index. The tokens before them must be equal to those
 * of earlier calls. No effect if the index is closed. */
void draft_index_add(struct draft_index *index, const uint32_t *tokens, uint32_t count);

/* Returns true if the token may follow the context. */
typedef bool (*draft_allows)(void *self, uint32_t token);

/* Drafts the `draft_tokens` tokens after the context, which is the first index->count of `tokens`,
 * and stores them in `out`; out may be tokens + index->count. Places whose next token is not
 * allowed are left out (allows NULL = every token is allowed). Returns the number of equal tokens
 * of the draft's place, from 1 to DRAFT_MATCH_MAX; 0 = there is no draft, and nothing is stored.
 * *agreed_out: the number of tokens at the draft's begin that also follow every other place that
 * was compared; 0 if there is no other place. */
uint32_t draft_find(const struct draft_index *index, const uint32_t *tokens, uint32_t draft_tokens,
                    draft_allows allows, void *self, uint32_t *out, uint32_t *agreed_out);

#endif
