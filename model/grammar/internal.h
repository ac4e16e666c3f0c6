/* internal: what the files of this folder share: the parsers of the kinds of constraints, and
 * struct grammar. Only these files include it. */
#ifndef MODEL_GRAMMAR_INTERNAL_H
#define MODEL_GRAMMAR_INTERNAL_H

#include "model/grammar/grammar.h"
#include "model/grammar/stepper.h"

#include <jansson.h>

/* ---- parsers: they record errors in the builder ---- */

/* A regular expression. search = it may match anywhere in the text, as in JSON schemas, unless it
 * has anchors; else it matches the whole text. `place` begins error texts. */
struct fragment regex_parse(struct builder *b, const char *text, size_t bytes,
                            enum spelling spelling, bool search, const char *place);
/* A grammar in GBNF. Returns its rule `root`. */
uint32_t gbnf_parse(struct builder *b, const char *text, size_t bytes);
/* A JSON schema. Returns a rule for its documents. `place` = JSON pointer of the schema. */
uint32_t schema_parse(struct builder *b, const json_t *schema, const char *place);
/* Reads the code point at *at and moves *at behind it. Returns false if it is not UTF-8. */
bool grammar_utf8_read(const char **at, const char *end, uint32_t *out);

/* ---- masks ---- */

/* The tokens that are allowed in places on top of a call, as far as that does not depend on what is
 * below the call. */
struct mask_entry {
    uint32_t state; /* The places, over STACK_OPEN. */
    uint32_t token_count;
    uint32_t *tokens; /* Few tokens: a list. NULL = many tokens: `bits`. */
    uint32_t *bits;
    /* Nodes of the tree before whose byte the call has returned: what is below the call decides
     * about their tokens. In the order of their bytes: those with byte b are
     * branches[branch_starts[b]] to branches[branch_starts[b + 1] - 1]. */
    uint32_t *branches;
    uint32_t branch_starts[257];
};

struct grammar_run {
    struct grammar *grammar;
    uint32_t state;
    struct grammar_run *next, *previous; /* The grammar's runs. */
};

struct grammar {
    struct automaton automaton;
    struct stepper stepper;
    const struct grammar_vocabulary *vocabulary;
    struct grammar_run *runs;
    struct mask_entry *entries;
    uint32_t entry_count, entry_capacity;
    size_t entry_bytes;
    /* Work of a mask: one dense mask, branches, the places of a state. */
    uint32_t *bits;
    uint32_t *branches;
    uint32_t branch_count, branch_capacity;
    struct place *places;
};

/* Forgets all states except those of runs and mask entries, and except *extra (NULL = none). If
 * `all`, it forgets the mask entries too. */
bool grammar_compact(struct grammar *g, uint32_t *extra, bool all);
void mask_entries_drop(struct grammar *g);
/* STEPPER_FULL and others as status and text. */
enum status grammar_failure(uint32_t state, struct error *error);

#endif
