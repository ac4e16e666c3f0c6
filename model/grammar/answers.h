/* answers: the constrained answers of a machine. A cache compiles constraints on a thread of its
 * own and keeps them for the next requests. An answer has a constraint's text and the tokens that
 * were delivered; the rest follows from them.
 *
 * machine/ asks for constraints to be compiled and holds back a request until its constraint is
 * (machine/constraints.c), so that its event loop never waits. The two pools keep an answer per
 * constrained request and add its tokens; machine/ asks for masks. All calls on the machine's event
 * loop thread. Bounds: GRAMMAR_CACHE_BYTES for all constraints of a machine. It does not sample and
 * does not end answers. */
#ifndef MODEL_GRAMMAR_ANSWERS_H
#define MODEL_GRAMMAR_ANSWERS_H

#include "model/grammar/grammar.h"

/* Memory of the compiled constraints of one machine. Those that no answer uses leave first. */
#define GRAMMAR_CACHE_BYTES (256u << 20)

struct grammar_cache;

/* Takes over `vocabulary`. Returns ST_NO_MEMORY or ST_NO_RESOURCE (no thread, no descriptor). */
enum status grammar_cache_open(struct grammar_vocabulary *vocabulary, struct grammar_cache **out,
                               struct error *error);
/* NULL is fine. Requires that all answers are closed. */
void grammar_cache_close(struct grammar_cache *cache);
/* Begins to compile a constraint that a request will need, unless it is known. Returns true if the
 * compilation has ended, well or not, or cannot begin: then no answer with this constraint waits.
 * NULL is fine. */
bool grammar_cache_prepare(struct grammar_cache *cache, const char *text, uint32_t bytes);
/* A descriptor that is readable until grammar_cache_ended is called when compilations have ended. */
int grammar_cache_fd(const struct grammar_cache *cache);
/* Returns true if compilations have ended since the last call. NULL is fine. */
bool grammar_cache_ended(struct grammar_cache *cache);

struct grammar_answer;

/* Copies the constraint and the answer's first tokens. The cache keeps the constraint until the
 * answer is closed. Returns ST_NO_MEMORY. `cache` may be NULL: grammar_answer_mask fails then. */
enum status grammar_answer_open(struct grammar_cache *cache, const char *text, uint32_t bytes,
                                const uint32_t *tokens, uint32_t token_count,
                                struct grammar_answer **out);
void grammar_answer_close(struct grammar_answer *answer); /* NULL is fine. */
/* The answer's next token. Errors appear with the next mask. */
void grammar_answer_add(struct grammar_answer *answer, uint32_t token);

/* Stores the mask of the tokens that may come next, the `ends` among them where the answer may end.
 * The mask is valid until the next call. Waits for the constraint to be compiled, if
 * grammar_cache_prepare has not returned true for it. Returns the errors of grammar_open,
 * grammar_run_token and grammar_run_mask; ST_NO_RESOURCE if other answers used GRAMMAR_CACHE_BYTES
 * when the answer was opened; ST_UNSUPPORTED if no token fits, or if the answer has no cache. */
enum status grammar_answer_mask(struct grammar_answer *answer, const uint32_t *ends,
                                uint32_t end_count, const uint32_t **mask_out, struct error *error);

#endif
