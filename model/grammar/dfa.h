/* dfa: small deterministic automata over bytes, for texts that satisfy two patterns, or one pattern
 * and not another. The files schema_*.c use them for the inside of JSON strings in SPELLING_JSON,
 * while they compile a schema, on the thread that compiles. A dfa has at most DFA_STATES_MAX
 * states, and all automata of a constraint visit at most about DFA_WORK_MAX states, so that
 * compiling takes at most a fraction of a second. After an error, which the builder `errors` keeps,
 * the functions return NULL; all functions accept NULL as a dfa. */
#ifndef MODEL_GRAMMAR_DFA_H
#define MODEL_GRAMMAR_DFA_H

#include "model/grammar/builder.h"

#define DFA_STATES_MAX 8192u
#define DFA_WORK_MAX   65536u /* Most states that are visited for one constraint. */

struct dfa;

/* Returns a dfa for the texts of `body`, a fragment of the builder `part`, which is empty
 * afterwards. */
struct dfa *dfa_open(struct builder *errors, struct builder *part, struct fragment body);
void dfa_close(struct dfa *d);

/* Return a dfa for the texts of `a` that are also texts of `b`, or that are no texts of `b`. Both
 * functions close `a` and `b`. */
struct dfa *dfa_and(struct builder *errors, struct dfa *a, struct dfa *b);
struct dfa *dfa_without(struct builder *errors, struct dfa *a, struct dfa *b);
/* Returns a dfa for the texts of `a` that have `least` to `most` characters; most COUNT_UNLIMITED =
 * no upper bound. Closes `a`. The error is ST_TOO_LARGE for a bound of 16384 or more characters. */
struct dfa *dfa_with_length(struct builder *errors, struct dfa *a, uint32_t least, uint32_t most);
struct dfa *dfa_copy(struct builder *errors, const struct dfa *d);

bool dfa_is_empty(const struct dfa *d); /* Returns true if the dfa has no text. */
bool dfa_matches(const struct dfa *d, const char *bytes, size_t count);
/* Returns a fragment for the texts of the dfa, which stays open. */
struct fragment dfa_fragment(struct builder *b, const struct dfa *d);

#endif
