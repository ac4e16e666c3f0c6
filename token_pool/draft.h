/* draft: drafts the next tokens of an answer from its own context, for speculative decoding
 * (prompt look-up). The draft is what followed the latest of the places in the context that end with
 * the most tokens of the context's end. An index of all places makes a look-up independent of the
 * length of the context. token_pool has one index per request, on the machine's event loop thread.
 * This part does not know whether drafts are right or worth a check (scheduler/drafts.h does). */
#ifndef TOKEN_POOL_DRAFT_H
#define TOKEN_POOL_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

/* Places that end with at least this many equal tokens are looked for first. If there are none,
 * places with fewer equal tokens are. */
#define DRAFT_MATCH_GOOD 3
/* More equal tokens than this number are not counted. */
#define DRAFT_MATCH_MAX 32

/* The places of all runs of `tokens` tokens. */
struct draft_places {
    uint32_t tokens;
    /* For each hash of such a run: 1 + the position of the last token of the latest run with this
     * hash; 0 = none. */
    uint32_t *heads;
    /* [capacity] For each position: the head's value before it. */
    uint32_t *earlier;
};

/* All zeros = closed. */
struct draft_index {
    uint32_t count;           /* Tokens of the context that are in the index. */
    uint32_t mask;            /* Number of heads, minus 1. */
    uint32_t *memory;         /* Of the tables; NULL = closed. */
    struct draft_places good; /* Runs of DRAFT_MATCH_GOOD tokens. */
    struct draft_places any;  /* Runs of one token. */
};

/* Opens an empty index for a context of at most `capacity` tokens. If memory is short, the index
 * stays closed, and there are no drafts. */
void draft_index_open(struct draft_index *index, uint32_t capacity);
void draft_index_close(struct draft_index *index);
bool draft_index_is_open(const struct draft_index *index);

/* Adds tokens[index->count, count) to the index. The tokens before them must be the same as in
 * earlier calls. No effect if the index is closed. */
void draft_index_add(struct draft_index *index, const uint32_t *tokens, uint32_t count);

/* Returns true if the token may follow the context. */
typedef bool (*draft_allows)(void *self, uint32_t token);

/* Stores a draft of the `most` tokens that follow the context, which is the first index->count of
 * `tokens`, in `out`; out may be tokens + index->count. Places whose next token is not allowed are
 * left out (allows NULL = every token is allowed). Returns how many tokens before the draft are
 * equal to those before its source, from 1 to DRAFT_MATCH_MAX; 0 = there is no draft, and nothing
 * is stored. *agreed_out: how many first tokens of the draft also follow each other place that was
 * found; 0 = there is no other place. */
uint32_t draft_find(const struct draft_index *index, const uint32_t *tokens, uint32_t most,
                    draft_allows allows, void *self, uint32_t *out, uint32_t *agreed_out);

#endif
