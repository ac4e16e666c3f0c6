/* draft: finds where the next tokens of an answer may have occurred before, for speculative decoding
 * (prompt look-up). A *place* is a position in the context after which the tokens of a draft are
 * read. The last tokens of the context have occurred there before; or, in an answer with a
 * constraint, the answer was at the same point of the constraint (grammar_run_shape), such as
 * after a value of the same property. The *source* of a draft is the place with the most equal
 * tokens before it (of equal places, the latest). An index of all positions makes a look-up
 * independent of the length of the context; a look-up compares at most the 16 latest places of each
 * kind. token_pool/draft_make.c has one index for each request that may have drafts, on the
 * machine's event loop thread. This part does not know whether drafts are right or worth a check
 * (scheduler/drafts.h does). */
#ifndef TOKEN_POOL_DRAFT_H
#define TOKEN_POOL_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

/* A look-up first looks for places with at least this many equal tokens. Only if there are none, it
 * looks for places with fewer equal tokens. */
#define DRAFT_MATCH_GOOD 3
/* More equal tokens than this number are not counted. */
#define DRAFT_MATCH_MAX 32

/* The positions of all runs of `tokens` tokens. */
struct draft_places {
    uint32_t tokens; /* 0 = the places of equal shapes. */
    /* For each hash of such a run: 1 + the position of the last token of the latest run with this
     * hash; 0 = none. */
    uint32_t *heads;
    /* [capacity] For each position: the value that its head had before. */
    uint32_t *earlier;
};

/* All zeros = closed. */
struct draft_index {
    uint32_t count;           /* Tokens of the context that are in the index. */
    uint32_t mask;            /* Number of heads, minus 1. */
    uint32_t *memory;         /* Memory of all tables; NULL = closed. */
    struct draft_places good; /* Runs of DRAFT_MATCH_GOOD tokens. */
    struct draft_places any;  /* Runs of one token. */
    struct draft_places same; /* Positions of one shape. */
    /* [capacity] For each position: the shape after its token, 0 = none. NULL = the answer has no
     * constraint. */
    uint32_t *shapes;
};

struct draft_source {
    uint32_t place;
    uint32_t equal; /* Equal tokens before it, at most DRAFT_MATCH_MAX. */
    bool same;      /* The place has the shape of the context. */
    /* How many first tokens after `place` also follow each other place that was found; 0 = there is
     * no other place. */
    uint32_t agreed;
};

/* Opens an empty index for a context of at most `capacity` tokens. shapes = the answer has a
 * constraint. If memory is short, the index stays closed, and there are no drafts. */
void draft_index_open(struct draft_index *index, uint32_t capacity, bool shapes);
void draft_index_close(struct draft_index *index);
bool draft_index_is_open(const struct draft_index *index);

/* Sets the shape after the token at `position`, which the index does not have yet. No effect without
 * shapes. */
void draft_index_shape_set(struct draft_index *index, uint32_t position, uint32_t shape);
/* Adds tokens[index->count, count) to the index. The tokens before them must be the same as in
 * earlier calls. No effect if the index is closed. */
void draft_index_add(struct draft_index *index, const uint32_t *tokens, uint32_t count);

/* Returns true if the token may follow the context. */
typedef bool (*draft_allows)(void *self, uint32_t token);

/* Finds the source of the tokens that follow tokens[0, count): the tokens of the index, and drafted
 * ones after them. shape: the shape after these tokens, 0 = none. Places whose next token is not
 * allowed are left out (allows NULL = every token is allowed). At most `most` tokens count in
 * `agreed`. Returns false if there is no place. */
bool draft_source_find(const struct draft_index *index, const uint32_t *tokens, uint32_t count,
                       uint32_t shape, uint32_t most, draft_allows allows, void *self,
                       struct draft_source *source_out);
/* Returns token i after the place, for a context of `count` tokens. After the end of the context it
 * goes on as if the context were repeated from the place on. */
uint32_t draft_token_after(const uint32_t *tokens, uint32_t place, uint32_t count, uint32_t i);

#endif
