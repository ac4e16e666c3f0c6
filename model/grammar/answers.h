/* answers: the constrained answers of a machine. A constraint (grammar.h) says which texts an
 * answer may have. A struct grammar_cache owns the compiled constraints of a machine: it compiles
 * constraints on a thread of its own and keeps them for later requests. A struct grammar_answer
 * follows one constraint through the tokens of one request's answer, and computes the mask of the
 * tokens that may come next. The machine makes all calls on its event loop thread. This part does
 * not sample and does not end answers. */
#ifndef MODEL_GRAMMAR_ANSWERS_H
#define MODEL_GRAMMAR_ANSWERS_H

#include "model/grammar/grammar.h"

/* Memory of compiled constraints above which the cache takes no new constraint. The cache has at
 * most 4096 constraints. To make room, the cache frees constraints that no open answer uses, the
 * least recently used first, and then the states that constraints in use can compute again.
 * Constraints in use may grow beyond the limit. Large constraints in use (more than 1 MiB) have at
 * most three quarters of the limit together. */
#define GRAMMAR_CACHE_BYTES (256u << 20)

struct grammar_cache;

/* A function that makes the vocabulary, which the cache then owns. `self` is the argument of
 * grammar_cache_open. */
typedef enum status grammar_vocabulary_make(void *self, struct grammar_vocabulary **out,
                                            struct error *error);

/* Opens an empty cache and starts its thread. The thread calls `make` once; the call may still run
 * when grammar_cache_open returns. If `make` fails, all constraints fail with the error of `make`.
 * Returns ST_NO_MEMORY, or ST_NO_RESOURCE if no thread or no descriptor can be made; `make` is then
 * not called. */
enum status grammar_cache_open(grammar_vocabulary_make *make, void *self,
                               struct grammar_cache **out, struct error *error);
/* Frees the cache. NULL is fine. Requires that all answers of the cache are closed. */
void grammar_cache_close(struct grammar_cache *cache);
/* Begins to compile the constraint `text` (`bytes` bytes), unless the cache already has the
 * constraint. Constraints of different keys are compiled in turn; key: number of the API key, 0 = no
 * key. Returns false while the compilation has not ended. Returns true if the compilation
 * has succeeded, has failed, or cannot begin; also if bytes is 0 (no constraint), or if cache is
 * NULL. */
bool grammar_cache_prepare(struct grammar_cache *cache, const char *text, uint32_t bytes,
                           uint64_t key);
/* Returns a descriptor that is readable from the end of a compilation until grammar_cache_ended
 * returns true. The cache owns the descriptor. */
int grammar_cache_fd(const struct grammar_cache *cache);
/* Tells the cache that a batch begins: the functions below bound the work for all masks of a batch
 * together. cache NULL is fine. */
void grammar_cache_batch_begin(struct grammar_cache *cache);
/* Returns true if compilations have ended since the previous call. cache NULL is fine. */
bool grammar_cache_ended(struct grammar_cache *cache);

struct grammar_answer;

/* Opens an answer of the constraint `text` (`bytes` bytes). Call it after grammar_cache_prepare.
 * `tokens` are the tokens that a resumed answer already has, and are copied; token_count 0 = none.
 * The cache keeps the constraint until the answer is closed. If cache is NULL, does not have the
 * constraint or has no room for its use, the answer opens, but grammar_answer_mask fails. Returns
 * ST_NO_MEMORY on failure. */
enum status grammar_answer_open(struct grammar_cache *cache, const char *text, uint32_t bytes,
                                const uint32_t *tokens, uint32_t token_count,
                                struct grammar_answer **out);
void grammar_answer_close(struct grammar_answer *answer); /* NULL is fine. */
/* Adds the answer's next token. If this fails (grammar_run_token), such as for a token that the
 * constraint does not allow, all later calls of grammar_answer_mask return the error. Requires that
 * no token is drafted. */
void grammar_answer_add(struct grammar_answer *answer, uint32_t token);

/* The functions below may wait for the compilation, if it has not ended. */

/* Adds a drafted token after the answer and its earlier drafted tokens. Returns false, and adds
 * nothing, if the constraint does not allow the token, or on an error. Requires less than
 * LIMIT_DRAFT_TOKENS drafted tokens. */
bool grammar_answer_draft_add(struct grammar_answer *answer, uint32_t token);
void grammar_answer_draft_drop(struct grammar_answer *answer); /* Removes all drafted tokens. */
/* Returns what must follow the answer and its drafted tokens, as grammar_run_forced does;
 * GRAMMAR_FORCED_NONE also on an error. */
enum grammar_forced grammar_answer_forced(struct grammar_answer *answer, uint32_t *token_out);
/* Returns true if the token may follow the answer and its drafted tokens; false also on an error.
 */
bool grammar_answer_allows(struct grammar_answer *answer, uint32_t token);
/* Returns a hash of the point of the constraint that the answer and its drafted tokens have reached
 * (grammar_run_shape); 0 also after an error. */
uint32_t grammar_answer_shape(struct grammar_answer *answer);

/* Stores the mask of the tokens that may follow the answer and its drafted tokens, in the form of
 * grammar_run_mask. If the result of grammar_answer_forced is GRAMMAR_FORCED_TOKEN, the mask has
 * only this token. Tokens of `end_tokens` are in the mask if the answer may end, and only then. The
 * mask belongs to the answer, and is valid until the next mask with this number of drafted tokens.
 *
 * Returns the error of the compilation or of a run (grammar.h); ST_NO_RESOURCE if the cache did not
 * have the constraint when the answer was opened; ST_UNSUPPORTED if no token is allowed, or if the
 * answer has no cache; ST_NO_MEMORY. After an error without drafted tokens, all later calls return
 * this error. */
enum status grammar_answer_mask(struct grammar_answer *answer, const uint32_t *end_tokens,
                                uint32_t end_count, const uint32_t **mask_out, struct error *error);

#endif
