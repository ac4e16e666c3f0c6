/* answers: the constrained answers of a machine. A cache (struct grammar_cache) compiles
 * constraints on a thread of its own, and keeps them for later requests. An answer (struct
 * grammar_answer) follows one constraint through the tokens of one request's answer.
 *
 * When a request with a constraint arrives, machine/held.c asks the cache to compile the constraint
 * and holds the request back until the compilation has ended, so that the event loop never waits.
 * The two pools keep one answer for each constrained request and add its tokens, and
 * machine/batch.c and machine/draft.c ask for the mask of the next token. All calls are made on the
 * machine's event loop thread. Memory is limited by GRAMMAR_CACHE_BYTES. The part does not sample
 * and does not end answers. */
#ifndef MODEL_GRAMMAR_ANSWERS_H
#define MODEL_GRAMMAR_ANSWERS_H

#include "model/grammar/grammar.h"

/* If the compiled constraints of a machine take more memory than this, or are 4096, constraints
 * that no answer uses are freed, the least recently used first. If that is not enough, no further
 * constraint is compiled. (A constraint in use may still grow, up to GRAMMAR_BYTES_MAX.) */
#define GRAMMAR_CACHE_BYTES (256u << 20)

struct grammar_cache;

/* Makes the vocabulary, which the cache then owns. */
typedef enum status grammar_vocabulary_make(void *self, struct grammar_vocabulary **out,
                                            struct error *error);

/* Opens an empty cache and starts its thread. On success, the thread calls `make` once, before it
 * compiles the first constraint. (That takes about 0.1 s; a machine that starts does not wait for
 * it.) If `make` fails, all constraints fail with its error. Returns ST_NO_MEMORY, or
 * ST_NO_RESOURCE if there is no thread or no descriptor. */
enum status grammar_cache_open(grammar_vocabulary_make *make, void *self,
                               struct grammar_cache **out, struct error *error);
/* NULL is fine. Requires that all answers are closed. */
void grammar_cache_close(struct grammar_cache *cache);
/* Begins to compile a constraint that a request will need, unless the cache has it already. Returns
 * false while it is being compiled. Returns true if the compilation has succeeded, has failed, or
 * cannot begin: an answer that is opened with this constraint then does not wait, unless the cache
 * has freed the constraint before. cache NULL is fine. */
bool grammar_cache_prepare(struct grammar_cache *cache, const char *text, uint32_t bytes);
/* Returns a descriptor that becomes readable when a compilation has ended, and stays readable until
 * grammar_cache_ended is called. */
int grammar_cache_fd(const struct grammar_cache *cache);
/* Returns true if compilations have ended since the previous call. cache NULL is fine. */
bool grammar_cache_ended(struct grammar_cache *cache);

struct grammar_answer;

/* Opens an answer that begins with `tokens` (the tokens of a resumed answer). Constraint and tokens
 * are copied. The cache keeps the constraint until the answer is closed. cache NULL =
 * grammar_answer_mask will fail. Returns ST_NO_MEMORY on failure. */
enum status grammar_answer_open(struct grammar_cache *cache, const char *text, uint32_t bytes,
                                const uint32_t *tokens, uint32_t token_count,
                                struct grammar_answer **out);
void grammar_answer_close(struct grammar_answer *answer); /* NULL is fine. */
/* Adds the answer's next token. An error is returned by the next grammar_answer_mask. Requires that
 * there is no draft. */
void grammar_answer_add(struct grammar_answer *answer, uint32_t token);

/* Adds a drafted token, which may follow the answer and the drafted tokens before it. The next
 * masks are those after this token. Returns false, and adds nothing, if the constraint does not
 * allow the token, if memory is short, or after an error. At most LIMIT_DRAFT_TOKENS. */
bool grammar_answer_draft_add(struct grammar_answer *answer, uint32_t token);
/* Forgets all drafted tokens. Call it before the next grammar_answer_add. */
void grammar_answer_draft_drop(struct grammar_answer *answer);
/* Returns what must follow the answer and its drafted tokens, as grammar_run_forced does;
 * GRAMMAR_FORCED_NONE also after an error. */
enum grammar_forced grammar_answer_forced(struct grammar_answer *answer, uint32_t *token_out);
/* Returns true if the token may follow the answer and its drafted tokens. */
bool grammar_answer_allows(struct grammar_answer *answer, uint32_t token);
/* Returns grammar_run_shape after the answer and its drafted tokens; 0 after an error. */
uint32_t grammar_answer_shape(struct grammar_answer *answer);

/* Stores the mask of the tokens that may follow the answer and its drafted tokens, in the form of
 * grammar_run_mask. A certain token (grammar_run_forced) is the only one in the mask. Tokens of `end_tokens` are in the mask exactly if the answer may end. The mask
 * is valid until the next mask with the same number of drafted tokens. With a draft, an error is
 * not remembered. This function and those of drafted tokens wait for the compilation, if it has
 * not ended. Returns the errors of grammar_open, grammar_run_token and
 * grammar_run_mask; ST_NO_RESOURCE if the cache had no room for the constraint when the answer was
 * opened; ST_UNSUPPORTED if no token is allowed, or if the answer has no cache. */
enum status grammar_answer_mask(struct grammar_answer *answer, const uint32_t *end_tokens,
                                uint32_t end_count, const uint32_t **mask_out, struct error *error);

#endif
