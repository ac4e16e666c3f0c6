/* grammar: constrained output. It compiles a constraint (a JSON schema, a regular expression, a
 * list of choices, a grammar in GBNF) into an automaton over bytes, follows an answer through it
 * token by token, and says which tokens may come next.
 *
 * The state after an answer is a pure function of the constraint and the answer's bytes: a machine
 * that takes over an answer opens a new run and feeds it the tokens that were delivered.
 *
 * Callers: the gateway's text threads compile a constraint to check it; machine/ compiles it to
 * use it. One thread at a time may use a grammar and its runs. A grammar_vocabulary does not change
 * once it is open: all threads may share it. No logs, no I/O.
 *
 * Bounds: the constraint's text (GRAMMAR_TEXT_BYTES_MAX), the automaton's size, its nesting, the
 * memory of each grammar (GRAMMAR_BYTES_MAX). A constraint that exceeds a bound, or that the
 * automaton cannot honour exactly, is refused with the reason; for a schema the reason begins with
 * the JSON pointer of the keyword. It does not sample, and it knows no requests. */
#ifndef MODEL_GRAMMAR_GRAMMAR_H
#define MODEL_GRAMMAR_GRAMMAR_H

#include "common/limits.h"
#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRAMMAR_TEXT_BYTES_MAX LIMIT_CONSTRAINT_BYTES /* One constraint, with its kind. */
#define GRAMMAR_BYTES_MAX      (48u << 20) /* Memory of one grammar with all its caches. */
#define GRAMMAR_TOKEN_BYTES    255         /* Longer tokens are never allowed. */

/* A constraint is one text: the name of its kind, a colon, and the content.
 *
 *   json_schema:SCHEMA   documents that satisfy the JSON schema
 *   json_object:         any JSON object
 *   regex:PATTERN        texts that the regular expression matches as a whole
 *   choice:["a", "b"]    one of these texts
 *   grammar:RULES        texts of the rule `root` of a grammar in GBNF
 *   tagged:[{"begin": "<a>", "schema": SCHEMA, "end": "</a>"}, …]
 *                        one of these: the text `begin`, a document of the schema, the text `end`
 */

/* ---- the tokens of a model ---- */

struct grammar_vocabulary;

/* The bytes of token `id`; NULL = a token that no constraint may produce (control tokens). */
typedef const char *grammar_piece_of(const void *self, uint32_t id, size_t *bytes_out);

/* Builds the tree of all tokens of a vocabulary. piece_of is used during the call only. Returns
 * ST_NO_MEMORY or ST_TOO_LARGE. */
enum status grammar_vocabulary_open(uint32_t count, grammar_piece_of *piece_of, const void *self,
                                    struct grammar_vocabulary **out, struct error *error);
void grammar_vocabulary_close(struct grammar_vocabulary *v); /* NULL is fine. */
uint32_t grammar_vocabulary_count(const struct grammar_vocabulary *v);

/* ---- a compiled constraint ---- */

struct grammar;

/* Compiles a constraint. `vocabulary` must outlive the grammar; NULL = only to check the
 * constraint, or for runs that are fed bytes. Returns ST_INVALID (the constraint is wrong),
 * ST_UNSUPPORTED (it cannot be honoured), ST_TOO_LARGE, ST_NO_MEMORY. */
enum status grammar_open(const char *text, size_t bytes,
                         const struct grammar_vocabulary *vocabulary, struct grammar **out,
                         struct error *error);
/* NULL is fine. Requires that all runs are closed. */
void grammar_close(struct grammar *g);
size_t grammar_bytes(const struct grammar *g); /* Memory that it takes now. */

/* ---- an answer that follows a constraint ---- */

struct grammar_run;

enum status grammar_run_open(struct grammar *g, struct grammar_run **out, struct error *error);
void grammar_run_close(struct grammar_run *run); /* NULL is fine. */

/* Both functions advance the run. They return ST_INVALID, and leave the run as it was, if the
 * constraint does not allow the bytes; ST_TOO_LARGE if the constraint is too ambiguous to be
 * followed within the memory; ST_NO_MEMORY. */
enum status grammar_run_bytes(struct grammar_run *run, const char *bytes, size_t count,
                              struct error *error);
enum status grammar_run_token(struct grammar_run *run, uint32_t id, struct error *error);

/* The answer may end here. */
bool grammar_run_accepts(const struct grammar_run *run);

/* Words of a mask: bit id % 32 of word id / 32 is 1 if token `id` may come next. */
#define GRAMMAR_MASK_WORDS(tokens) (((tokens) + 31u) / 32u)

/* Writes GRAMMAR_MASK_WORDS(count of the vocabulary) words. Tokens that end an answer are not in
 * the mask: the caller adds them where grammar_run_accepts. Requires a vocabulary. Returns
 * ST_TOO_LARGE or ST_NO_MEMORY as grammar_run_bytes. */
enum status grammar_run_mask(struct grammar_run *run, uint32_t *mask, struct error *error);

/* ---- the keywords of JSON schemas ---- */

/* For documentation: what happens with each keyword. */
struct grammar_keyword {
    const char *name;
    enum { GRAMMAR_HONOURED, GRAMMAR_ANNOTATION, GRAMMAR_REFUSED } use;
    const char *note; /* What is honoured, or why the keyword is refused. */
};
extern const struct grammar_keyword grammar_keywords[];
extern const size_t grammar_keywords_count;

#endif
