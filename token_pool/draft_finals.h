/* draft_finals: the final vectors that a draft layer (model_hyper.draft_layers) reads, for the
 * tokens of one answer that the layer has not computed yet. A final vector is the last hidden row
 * of a token (forward_final_vector), from which the next token is drawn. The vector stored for
 * token t is the one that t was drawn from: the final vector of token t - 1. If the draft layer has
 * drafted t, this is the draft layer's own final vector, until draft_finals_add replaces it by the
 * model's. The token pool owns one store per request with a seat (draft_seats.h), and calls the
 * functions on the machine's event loop thread. This part has no tokens and no KV. */
#ifndef TOKEN_POOL_DRAFT_FINALS_H
#define TOKEN_POOL_DRAFT_FINALS_H

#include <stdbool.h>
#include <stdint.h>

/* All zeros = closed: has no vectors and takes none. */
struct draft_finals {
    float *vectors;    /* [capacity × floats]; NULL = closed. */
    uint32_t floats;   /* Elements of a vector. */
    uint32_t capacity; /* Most vectors. */
    uint32_t first;    /* Position in the context of the token that has the first vector. */
    uint32_t count;    /* Vectors, of consecutive tokens. */
};

/* Opens an empty store for at most `capacity` vectors. If memory is short, the store stays
 * closed. */
void draft_finals_open(struct draft_finals *finals, uint32_t floats, uint32_t capacity);
void draft_finals_close(struct draft_finals *finals);

/* Adds the vectors of the tokens [first, first + count), and replaces all stored vectors of tokens
 * ≥ first. Requires count ≤ capacity. Returns false if earlier vectors are missing:
 * - vectors between the last token in the store (or the last dropped token) and `first`,
 * - or vectors that this call has dropped, because the store was full.
 * The new vectors are stored in both cases. Returns false, without effect, if the store is closed.
 */
bool draft_finals_add(struct draft_finals *finals, uint32_t first, const float *vectors,
                      uint32_t count);
/* Drops the first `count` vectors: the layer has computed their tokens. Requires count ≤
 * finals->count. */
void draft_finals_drop(struct draft_finals *finals, uint32_t count);

#endif
