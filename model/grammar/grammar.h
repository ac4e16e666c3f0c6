/* grammar: constrained output. It compiles a constraint (a JSON schema, a regular expression, a
 * list of choices, a grammar in GBNF) into an automaton over bytes, follows an answer through the
 * automaton token by token, and says which tokens may follow.
 *
 * The state of a run depends only on the constraint and the answer's bytes. So a machine that takes
 * over an answer opens a new run and feeds it the tokens that were delivered.
 *
 * The gateway compiles each constraint on one of its text threads, only to check it. On a machine,
 * answers.c opens the vocabulary and compiles constraints on a thread of its own, and follows them
 * on the event loop thread. One thread at a time may use a grammar and its runs. A
 * grammar_vocabulary does not change once it is open: all threads may share it.
 *
 * The constraint's text (GRAMMAR_TEXT_BYTES_MAX), the automaton's size and nesting, and the memory
 * of each grammar (GRAMMAR_BYTES_MAX) are limited. A constraint that exceeds a limit, or that the
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
/* Tokens with more bytes (control tokens: more than 253) are never allowed. */
#define GRAMMAR_TOKEN_BYTES 255

/* A constraint is one text: the name of its kind, a colon, and the content.
 *
 *   json_schema:SCHEMA   documents that satisfy the JSON schema
 *   json_object:         any JSON object
 *   regex:PATTERN        texts that the regular expression matches as a whole
 *   choice:["a", "b"]    one of these texts
 *   grammar:RULES        texts of the rule `root` of a grammar in GBNF
 *   format:EXPRESSION    texts of an expression in JSON, which cleave itself writes:
 *     "text"                      the text
 *     {"token": "<|x|>"}          the control token of that name
 *     {"schema": SCHEMA}          a document of the schema; "place": what errors call the schema
 *     {"constraint": "regex:…"}   a text of another constraint
 *     {"without": MARKER}         any text that does not contain the marker: a text or a token
 *     {"plain": "{["}             any text whose first character after blanks is none of these
 *     {"optional": EXPRESSION}    the expression, or nothing
 *     {"any": [EXPRESSION, …]}    one of the expressions
 *     {"repeat": EXPRESSION, "between": EXPRESSION, "most": N}    1 to N times
 *     [EXPRESSION, …]             one after the other
 */

/* ---- the tokens of a model ---- */

struct grammar_vocabulary;

/* A function that returns the bytes of token `id`; NULL = no constraint allows the token. Sets
 * *control_out, which is false before the call, to true for a control token, which only {"token":
 * …} allows. */
typedef const char *grammar_piece_of(const void *self, uint32_t id, size_t *bytes_out,
                                     bool *control_out);

/* Builds the tree of `count` tokens. piece_of is called only during the call, with `self` as its
 * first argument. Returns ST_NO_MEMORY, also if the tokens have more than 1 GiB of bytes. */
enum status grammar_vocabulary_open(uint32_t count, grammar_piece_of *piece_of, const void *self,
                                    struct grammar_vocabulary **out, struct error *error);
void grammar_vocabulary_close(struct grammar_vocabulary *v);           /* NULL is fine. */
uint32_t grammar_vocabulary_count(const struct grammar_vocabulary *v); /* Number of tokens. */

/* ---- a compiled constraint ---- */

struct grammar;

/* Compiles a constraint. `vocabulary` must outlive the grammar; NULL = the grammar serves only to
 * check the constraint, or for runs that are fed bytes. Returns ST_INVALID if the constraint is
 * wrong, ST_UNSUPPORTED if it cannot be honoured, ST_TOO_LARGE, ST_NO_MEMORY. */
enum status grammar_open(const char *text, size_t bytes,
                         const struct grammar_vocabulary *vocabulary, struct grammar **out,
                         struct error *error);
/* NULL is fine. Requires that all runs are closed. */
void grammar_close(struct grammar *g);
size_t grammar_bytes(const struct grammar *g); /* Returns the memory that the grammar uses now. */

/* ---- an answer that follows a constraint ---- */

struct grammar_run;

/* Opens a run at the beginning of an answer. Returns ST_TOO_LARGE or ST_NO_MEMORY. */
enum status grammar_run_open(struct grammar *g, struct grammar_run **out, struct error *error);
void grammar_run_close(struct grammar_run *run); /* NULL is fine. */

/* Add bytes, or the bytes of a token, to the answer. They return ST_INVALID if the constraint does
 * not allow the bytes, ST_TOO_LARGE if the text can be read in too many ways or needs too much
 * memory, ST_NO_MEMORY. After an error the run is as it was before the call. */
enum status grammar_run_bytes(struct grammar_run *run, const char *bytes, size_t count,
                              struct error *error);
/* Requires a vocabulary. */
enum status grammar_run_token(struct grammar_run *run, uint32_t id, struct error *error);

/* Sets the run to the answer of `from`, a run of the same grammar. */
void grammar_run_set(struct grammar_run *run, const struct grammar_run *from);

/* What must come next, whatever is drawn. */
enum grammar_forced {
    GRAMMAR_FORCED_NONE,  /* Several texts may follow, or the answer may end. */
    GRAMMAR_FORCED_TEXT,  /* The text is certain, but several tokens may begin it. */
    GRAMMAR_FORCED_TOKEN, /* The token is certain. */
};

/* Finds what must come next. Where only one text may follow (64 bytes are read ahead), its longest
 * token is certain, if at least one byte of the text follows that token: grammar_answer_mask then
 * allows only this token. Otherwise a model would divide the text into tokens that it has rarely
 * seen, because it draws them one by one. The token that reaches the end of the text may also reach
 * beyond the text, so it is not certain. Sets *token_out, except for GRAMMAR_FORCED_NONE: for
 * GRAMMAR_FORCED_TEXT to the longest token of the text. Requires a vocabulary. Returns ST_TOO_LARGE
 * or ST_NO_MEMORY, as grammar_run_bytes does. */
enum status grammar_run_forced(struct grammar_run *run, enum grammar_forced *forced_out,
                               uint32_t *token_out, struct error *error);

/* Returns a hash of the place in the constraint that the answer has reached. It does not depend on
 * the number of items, characters or digits so far: after each item of an array it is the same. 0 =
 * the text is nearly free there (more than 32 different bytes may follow), or the memory is full. */
uint32_t grammar_run_shape(struct grammar_run *run);

/* Returns true if the answer may end after the bytes so far. */
bool grammar_run_accepts(const struct grammar_run *run);

/* Number of words in a mask: bit id % 32 of word id / 32 is 1 if token `id` may follow. */
#define GRAMMAR_MASK_WORDS(tokens) (((tokens) + 31u) / 32u)

/* Writes GRAMMAR_MASK_WORDS(grammar_vocabulary_count) words. Tokens that end an answer are not in
 * the mask: the caller adds them if grammar_run_accepts. Requires a vocabulary. Returns
 * ST_TOO_LARGE or ST_NO_MEMORY, as grammar_run_bytes does. */
enum status grammar_run_mask(struct grammar_run *run, uint32_t *mask, struct error *error);

/* ---- the keywords of JSON schemas ---- */

/* What happens with each keyword. The documentation's table of keywords is checked against it. */
struct grammar_keyword {
    const char *name;
    enum { GRAMMAR_HONOURED, GRAMMAR_ANNOTATION, GRAMMAR_REFUSED } use;
    const char *note; /* What is honoured, or why the keyword is refused. */
};
extern const struct grammar_keyword grammar_keywords[];
extern const size_t grammar_keywords_count;

#endif
