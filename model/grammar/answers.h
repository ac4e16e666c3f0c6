/* answers: the constrained answers of a machine. A cache compiles constraints on a thread of its
 * own, so that neither the event loop nor a decode step waits for a compilation that fits beside
 * the prompt's computation, and keeps them for the next requests. An answer has a constraint's text
 * and the tokens that were delivered; the rest follows from them.
 *
 * The two pools keep an answer per constrained request and add its tokens; machine/ asks for masks.
 * All calls on the machine's event loop thread. Bounds: GRAMMAR_CACHE_BYTES for all constraints of
 * a machine. It does not sample and does not end answers. */
#ifndef MODEL_GRAMMAR_ANSWERS_H
#define MODEL_GRAMMAR_ANSWERS_H

#include "model/grammar/grammar.h"

/* Memory of the compiled constraints of one machine. Those that no answer uses leave first. */
#define GRAMMAR_CACHE_BYTES (256u << 20)

struct grammar_cache;

/* Takes over `vocabulary`. Returns ST_NO_MEMORY or ST_NO_RESOURCE (no thread). */
enum status grammar_cache_open(struct grammar_vocabulary *vocabulary, struct grammar_cache **out,
                               struct error *error);
/* NULL is fine. Requires that all answers are closed. */
void grammar_cache_close(struct grammar_cache *cache);
/* Begins to compile a constraint that a request will need, unless it is known. */
void grammar_cache_prepare(struct grammar_cache *cache, const char *text, uint32_t bytes);

struct grammar_answer;

/* Copies the constraint and the answer's first tokens. Returns ST_NO_MEMORY. */
enum status grammar_answer_open(const char *text, uint32_t bytes, const uint32_t *tokens,
                                uint32_t token_count, struct grammar_answer **out);
void grammar_answer_close(struct grammar_answer *answer); /* NULL is fine. */
/* The answer's next token. Errors appear with the next mask. */
void grammar_answer_add(struct grammar_answer *answer, uint32_t token);

/* Stores the mask of the tokens that may come next, the `ends` among them where the answer may end.
 * The mask is valid until the next call. Waits for the constraint to be compiled. Returns the
 * errors of grammar_open, grammar_run_token and grammar_run_mask; ST_NO_RESOURCE if
 * GRAMMAR_CACHE_BYTES are used by other answers; ST_UNSUPPORTED if no token fits, or if `cache` is
 * NULL. */
enum status grammar_answer_mask(struct grammar_answer *answer, struct grammar_cache *cache,
                                const uint32_t *ends, uint32_t end_count, const uint32_t **mask_out,
                                struct error *error);

#endif
