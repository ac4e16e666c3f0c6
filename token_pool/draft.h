/* draft: finds where the next tokens of an answer may have occurred before, for speculative
 * decoding (prompt look-up). An index has the positions of the tokens of one context; the caller
 * keeps the tokens. Each request that may have drafts owns an index (token_state.h). token_pool/
 * calls the functions on the machine's event loop thread. This part does not decide whether a draft
 * is worth a check (scheduler/drafts.h does).
 *
 * A *place* is an earlier position in the context, of one of three kinds:
 * - In an answer with a constraint, the place has the *shape* of the context (grammar_run_shape):
 *   the point that the answer has reached in the constraint, for example after a property's value.
 * - At least DRAFT_MATCH_GOOD tokens that end at the place equal the last tokens of the context.
 * - At least one token that ends at the place equals the last token of the context.
 *
 * A look-up takes the first of these kinds that has a place, and compares the latest places of the
 * kind. The *source* of a draft is the place with the most equal tokens, or the latest such
 * place. */
#ifndef TOKEN_POOL_DRAFT_H
#define TOKEN_POOL_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

/* Places with at least this many equal tokens are preferred to places with fewer. */
#define DRAFT_MATCH_GOOD 3
/* More equal tokens than this number are not counted. */
#define DRAFT_MATCH_MAX 32

/* The positions of all runs of `run_tokens` consecutive tokens, or of all shapes. Private to
 * draft.c. */
struct draft_places {
    uint32_t run_tokens; /* 0 = the positions of shapes. */
    /* For each hash of a run: 1 + the position of the last token of the latest run with this hash;
     * 0 = none. For shapes: 1 + the latest position whose shape has this hash. */
    uint32_t *heads;
    /* [capacity] For each position: the value in `heads` that this position has replaced. */
    uint32_t *earlier;
};

/* The index of one context. All zeros = closed. */
struct draft_index {
    uint32_t count;                   /* Tokens of the context that are in the index. */
    uint32_t mask;                    /* Number of heads, minus 1. */
    uint32_t *memory;                 /* Memory of all tables; NULL = closed. */
    struct draft_places good;         /* Runs of DRAFT_MATCH_GOOD tokens. */
    struct draft_places any;          /* Runs of one token. */
    struct draft_places shape_places; /* Positions with a shape. */
    /* [capacity] For each position: the shape after its token, 0 = none. NULL = the answer has no
     * constraint. */
    uint32_t *shapes;
};

/* Where a draft comes from. */
struct draft_source {
    uint32_t place; /* Position of the place. */
    uint32_t equal; /* Equal tokens that end at the place, at most DRAFT_MATCH_MAX. */
    bool has_shape; /* The place has the shape of the context. */
    /* The number of tokens after the place that also follow every other place that was compared; 0
     * if there is no other place. */
    uint32_t agreed;
};

/* Opens an empty index for a context of at most `capacity` tokens. shapes: true = the index has the
 * shapes of positions, too. If memory is short, the index stays closed. */
void draft_index_open(struct draft_index *index, uint32_t capacity, bool shapes);
void draft_index_close(struct draft_index *index);
bool draft_index_is_open(const struct draft_index *index);

/* Sets the shape after the token at `position`, which draft_index_add has not added yet; 0 = none.
 * No effect if the index has no shapes. */
void draft_index_shape_set(struct draft_index *index, uint32_t position, uint32_t shape);
/* Adds tokens[index->count … count - 1] to the index. Requires that the tokens before them are the
 * tokens of earlier calls. No effect if the index is closed. */
void draft_index_add(struct draft_index *index, const uint32_t *tokens, uint32_t count);

/* Returns true if the token may follow the context. */
typedef bool (*draft_allows)(void *self, uint32_t token);

/* tokens[0, count) are the tokens of the index, followed by the tokens drafted so far. Finds a
 * source for the tokens after them. shape = the shape after tokens[count - 1]; 0 = none. Places
 * whose next token is not allowed are left out; allows: NULL = every token is allowed. self:
 * argument of `allows`. source_out->agreed is at most agreed_max. Returns false if there is no
 * place, if the index is closed, or if `count` or agreed_max is 0. */
bool draft_source_find(const struct draft_index *index, const uint32_t *tokens, uint32_t count,
                       uint32_t shape, uint32_t agreed_max, draft_allows allows, void *self,
                       struct draft_source *source_out);
/* Returns drafted token i (from 0) of a draft from `place`, for a context of `count` tokens, where
 * place < count - 1. A draft that reaches the end of the context begins after `place` again. */
uint32_t draft_token_after(const uint32_t *tokens, uint32_t place, uint32_t count, uint32_t i);

#endif
