/* dfa: small deterministic automata over bytes, for texts that satisfy two patterns, or that
 * satisfy one pattern but not the other. The caller owns each struct dfa. The files schema_*.c call
 * the functions on the thread that compiles a constraint, for the inside of JSON strings in
 * SPELLING_JSON (builder.h). This part does not parse patterns.
 *
 * A function that fails records the error in the builder `errors` and returns NULL. NULL is fine as
 * an argument: functions that return a dfa then return NULL; all other functions treat NULL as a
 * dfa without texts. */
#ifndef MODEL_GRAMMAR_DFA_H
#define MODEL_GRAMMAR_DFA_H

#include "model/grammar/builder.h"

#define DFA_STATES_MAX 8192u /* More states of one dfa are the error ST_TOO_LARGE. */
/* Limit on the number of states that the functions visit, summed over all dfas with one builder
 * `errors`; a function that exceeds the limit fails with ST_TOO_LARGE. A state of a complicated pattern counts as several, so that no constraint takes more than about
 * 0.6 s. */
#define DFA_WORK_MAX 65536u

struct dfa;

/* Returns a dfa for the texts of `body`, a fragment of the builder `part`. `part` is empty
 * afterwards, also after an error. */
struct dfa *dfa_open(struct builder *errors, struct builder *part, struct fragment body);
void dfa_close(struct dfa *d);

/* Returns a dfa for the texts of `a` that are also texts of `b`. Closes `a` and `b`, also after an
 * error. */
struct dfa *dfa_and(struct builder *errors, struct dfa *a, struct dfa *b);
/* Returns a dfa for the texts of `a` that are no texts of `b`. Closes `a` and `b`, also after an
 * error. */
struct dfa *dfa_without(struct builder *errors, struct dfa *a, struct dfa *b);
/* Returns a dfa for the texts of `a` that have `least` to `most` characters of a JSON string; most
 * COUNT_UNLIMITED = no upper bound. Closes `a`, also after an error. A bound of 16384 or more
 * characters is the error ST_TOO_LARGE. */
struct dfa *dfa_with_length(struct builder *errors, struct dfa *a, uint32_t least, uint32_t most);
/* Returns a copy of `d`, which stays open. */
struct dfa *dfa_copy(struct builder *errors, const struct dfa *d);

bool dfa_is_empty(const struct dfa *d); /* Returns true if the dfa has no text. */
/* Returns true if the text of these `count` bytes is a text of the dfa. */
bool dfa_matches(const struct dfa *d, const char *bytes, size_t count);
/* Returns a fragment of the builder `b` for the texts of the dfa. The dfa stays open. */
struct fragment dfa_fragment(struct builder *b, const struct dfa *d);

#endif
