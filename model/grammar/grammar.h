/* grammar: constrained output. A constraint says which texts an answer may have: a JSON schema, a
 * regular expression, a list of choices, or a grammar in GBNF (the notation of llama.cpp). This
 * part compiles a constraint into an automaton over bytes (struct grammar), follows an answer
 * through the automaton (struct grammar_run), and says which tokens may follow. A constraint that
 * is too large, or that the automaton cannot honour exactly, is refused with an error that names
 * the reason.
 *
 * The gateway compiles constraints to check them; machines compile and follow constraints
 * (answers.h). One thread at a time may use a grammar and its runs. An open grammar_vocabulary does
 * not change: any thread may read it. This part does not sample, and knows no requests. */
#ifndef MODEL_GRAMMAR_GRAMMAR_H
#define MODEL_GRAMMAR_GRAMMAR_H

#include "common/limits.h"
#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRAMMAR_TEXT_BYTES_MAX LIMIT_CONSTRAINT_BYTES /* Most bytes of a constraint's text. */
/* Most bytes of a token that a constraint can allow; a control token can have at most 253. */
#define GRAMMAR_TOKEN_BYTES 255

/* A constraint is one text: the name of its kind, a colon, and the content.
 *
 *   json_schema:SCHEMA   documents that satisfy the JSON schema
 *   json_object:         any JSON object
 *   regex:PATTERN        texts that the regular expression matches as a whole
 *   choice:["a", "b"]    one of these texts
 *   grammar:RULES        texts of the rule `root` of a grammar in GBNF
 *   format:EXPRESSION    texts of an expression in JSON, which the gateway writes:
 *     "text"                      the text
 *     {"token": "<|x|>"}          the control token of that name
 *     {"schema": SCHEMA}          a document that satisfies the schema; errors call the schema by
 *                                 the text of the member "place", if there is one
 *     {"constraint": "regex:…"}   a text that this constraint of another kind allows
 *     {"without": MARKER}         any text without control tokens that does not contain the marker,
 *                                 which is a text or {"token": …}
 *     {"plain": "{["}             any text without control tokens, except a text whose first
 *                                 character after white space is "{" or "["
 *     {"optional": EXPRESSION}    the expression, or nothing
 *     {"any": [EXPRESSION, …]}    one of the expressions
 *     {"repeat": EXPRESSION, "between": EXPRESSION, "most": N}
 *                                 1 to N times the first expression, with the second expression
 *                                 between; N is at most 65535
 *     [EXPRESSION, …]             the expressions, one after the other
 */

/* ---- the tokens of a model ---- */

struct grammar_vocabulary;

/* A function that returns the bytes of token `id`; NULL = no constraint may allow the token. For a
 * control token the function sets *control_out, which is false before the call, to true: only the
 * expression {"token": …} allows a control token. No constraint allows a token that has no bytes,
 * more than GRAMMAR_TOKEN_BYTES, or a byte 0xFE or 0xFF. */
typedef const char *grammar_piece_of(const void *self, uint32_t id, size_t *bytes_out,
                                     bool *control_out);

/* Opens a vocabulary with the tokens 0 to count - 1. piece_of is called only during this call, with
 * `self` as its first argument. The only error is ST_NO_MEMORY, also if all tokens together have
 * more than 1 GiB. */
enum status grammar_vocabulary_open(uint32_t count, grammar_piece_of *piece_of, const void *self,
                                    struct grammar_vocabulary **out, struct error *error);
void grammar_vocabulary_close(struct grammar_vocabulary *v);           /* NULL is fine. */
uint32_t grammar_vocabulary_count(const struct grammar_vocabulary *v); /* Number of tokens. */

/* ---- a compiled constraint ---- */

struct grammar;

/* Compiles the constraint `text` of `bytes` bytes. `vocabulary` must outlive the grammar; NULL =
 * the runs of the grammar take bytes, but no tokens. Returns ST_INVALID if the constraint is wrong
 * or no text satisfies it, ST_UNSUPPORTED if the constraint cannot be honoured, ST_TOO_LARGE,
 * ST_NO_MEMORY. */
enum status grammar_open(const char *text, size_t bytes,
                         const struct grammar_vocabulary *vocabulary, struct grammar **out,
                         struct error *error);
/* Frees the grammar. NULL is fine. Requires that all its runs are closed. */
void grammar_close(struct grammar *g);
size_t grammar_bytes(const struct grammar *g); /* Returns the bytes that the grammar uses now. */
/* Frees the states and masks that no run needs now; they are computed again when they are needed.
 * Returns false, and frees only the masks, if there is no memory. */
bool grammar_shrink(struct grammar *g);

/* The work of following a constraint is bounded, because machines do it between the batches of all
 * answers. A unit of work takes about 4 ns; what is bounded are units, because times vary. A
 * constraint begins with GRAMMAR_WORK_SAVED_MAX saved units, which its runs use up. Each mask adds
 * GRAMMAR_WORK_TOKEN, but no more than GRAMMAR_WORK_SAVED_MAX units are ever saved. */
#define GRAMMAR_WORK_SAVED_MAX (1u << 26)
#define GRAMMAR_WORK_TOKEN     (1u << 19)
#define GRAMMAR_WORK_MASK_MAX  (1u << 25) /* Most units of one mask, however many are saved. */

/* Bounds the work of the next masks: 0 to GRAMMAR_WORK_MASK_MAX, which a new grammar has. */
void grammar_mask_work_bound(struct grammar *g, uint64_t work_max);
/* Returns the work of all runs of the grammar since it was opened. */
uint64_t grammar_work(const struct grammar *g);

/* ---- an answer that follows a constraint ---- */

struct grammar_run;

/* Opens a run at the beginning of an answer. Returns ST_TOO_LARGE or ST_NO_MEMORY. */
enum status grammar_run_open(struct grammar *g, struct grammar_run **out, struct error *error);
void grammar_run_close(struct grammar_run *run); /* NULL is fine. */

/* Adds `count` bytes to the answer. Returns ST_INVALID if the constraint does not allow the bytes;
 * ST_TOO_LARGE if the answer can be read in too many ways, or needs too much memory or work;
 * ST_NO_MEMORY. After an error the answer is as it was before the call. */
enum status grammar_run_bytes(struct grammar_run *run, const char *bytes, size_t count,
                              struct error *error);
/* Adds the bytes of token `id`, as grammar_run_bytes does. Returns ST_INVALID also if the grammar's
 * vocabulary does not have the token. */
enum status grammar_run_token(struct grammar_run *run, uint32_t id, struct error *error);

/* Gives the run the answer of `from`, which must be a run of the same grammar. */
void grammar_run_copy(struct grammar_run *run, const struct grammar_run *from);

/* What must follow the answer. The certain text is the text, of at most 64 bytes, with which every
 * continuation of the answer begins. This text ends where the answer may end. */
enum grammar_forced {
    GRAMMAR_FORCED_NONE, /* No token is a beginning of the certain text. */
    GRAMMAR_FORCED_TEXT, /* A token is a beginning of the certain text; others may be as good. */
    /* A token is a beginning of the certain text without its last byte, and another token is a
     * beginning of the rest of the text. */
    GRAMMAR_FORCED_TOKEN,
};

/* Finds what must follow. Stores the longest such token in *token_out, except with
 * GRAMMAR_FORCED_NONE. Requires a vocabulary. Returns ST_TOO_LARGE or ST_NO_MEMORY, as
 * grammar_run_bytes does. */
enum status grammar_run_forced(struct grammar_run *run, enum grammar_forced *forced_out,
                               uint32_t *token_out, struct error *error);

/* Returns a hash of the point of the constraint that the answer has reached. The hash does not
 * depend on how often a part was repeated, such as the items of an array. 0 = more than 32
 * different bytes may follow, or memory is short. */
uint32_t grammar_run_shape(struct grammar_run *run);

/* Returns true if the answer may end now. */
bool grammar_run_may_end(const struct grammar_run *run);

/* Number of 32-bit words in a mask: bit id % 32 of word id / 32 is 1 if token `id` may follow. */
#define GRAMMAR_MASK_WORDS(tokens) (((tokens) + 31u) / 32u)

/* Writes the mask of the tokens that may come next, without the tokens that end an answer:
 * GRAMMAR_MASK_WORDS(tokens of the vocabulary) words. Requires a vocabulary. Returns ST_TOO_LARGE
 * or ST_NO_MEMORY, as grammar_run_bytes does; *mask is then not complete. */
enum status grammar_run_mask(struct grammar_run *run, uint32_t *mask, struct error *error);

/* ---- the keywords of JSON schemas ---- */

/* A keyword of JSON schemas, and whether it is honoured, ignored as an annotation, or refused. */
struct grammar_keyword {
    const char *name; /* As in a schema, such as "minItems". */
    enum { GRAMMAR_HONOURED, GRAMMAR_ANNOTATION, GRAMMAR_REFUSED } use;
    const char *note; /* What is honoured, or why the keyword is refused. */
};
/* All known keywords. A keyword that is not in this table is ignored. */
extern const struct grammar_keyword grammar_keywords[];
extern const size_t grammar_keywords_count;

#endif
