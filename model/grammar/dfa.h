/* dfa: small deterministic automata over bytes, for what a union of alternatives cannot say: texts
 * that satisfy two patterns, or one and not another. schema_string.c and schema_object.c use them
 * for the inside of JSON strings, spelled as SPELLING_JSON. Bounded by DFA_STATES_MAX, and for all of
 * a constraint by DFA_WORK_MAX, so that compiling takes a fraction of a second at most. A NULL dfa
 * is the result of an error, which the builder keeps; all functions take it. One thread. */
#ifndef MODEL_GRAMMAR_DFA_H
#define MODEL_GRAMMAR_DFA_H

#include "model/grammar/builder.h"

#define DFA_STATES_MAX 8192u
#define DFA_WORK_MAX   65536u /* States that are visited for one constraint, in all. */

struct dfa; /* State 0 = dead, state 1 = start. */

/* Errors go to `errors`. `part` is a builder of its own that holds `body`; it is emptied. */
struct dfa *dfa_open(struct builder *errors, struct builder *part, struct fragment body);
void dfa_close(struct dfa *d);

/* Texts of `a` that are (not) texts of `b`. Closes both. */
struct dfa *dfa_and(struct builder *errors, struct dfa *a, struct dfa *b);
struct dfa *dfa_without(struct builder *errors, struct dfa *a, struct dfa *b);
/* Texts with least to most characters; COUNT_UNLIMITED = no upper bound. Closes `a`. */
struct dfa *dfa_with_length(struct builder *errors, struct dfa *a, uint32_t least, uint32_t most);
struct dfa *dfa_copy(struct builder *errors, const struct dfa *d);

bool dfa_is_empty(const struct dfa *d);
bool dfa_matches(const struct dfa *d, const char *bytes, size_t count);
struct fragment dfa_fragment(struct builder *b, const struct dfa *d);

#endif
