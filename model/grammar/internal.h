/* internal: the parsers of the kinds of constraints, struct grammar with its runs, and the cached
 * masks. Only the files of model/grammar/ include it. The parsers run on the thread that compiles a
 * constraint; the other functions run on the thread that uses the grammar (grammar.h). The files
 * share no other state. */
#ifndef MODEL_GRAMMAR_INTERNAL_H
#define MODEL_GRAMMAR_INTERNAL_H

#include "model/grammar/grammar.h"
#include "model/grammar/stepper.h"

#include <jansson.h>

/* ---- parsers, which record errors in the builder ---- */

/* Returns a fragment for the texts that a regular expression matches. search = true: the expression
 * may match any part of the text, as in JSON schemas, unless it has anchors. search = false: it
 * matches the whole text. `place` begins error texts. */
struct fragment regex_parse(struct builder *b, const char *text, size_t bytes,
                            enum spelling spelling, bool search, const char *place);
/* Returns the rule `root` of a grammar in GBNF. */
uint32_t gbnf_parse(struct builder *b, const char *text, size_t bytes);
/* Returns a rule for the documents of a JSON schema. place: its JSON pointer, for errors. */
uint32_t schema_parse(struct builder *b, const json_t *schema, const char *place);
/* Returns a rule for the texts of the expression of a constraint "format:". */
uint32_t format_parse(struct builder *b, const json_t *expression);
/* Returns a rule for the texts of a constraint of any kind. */
uint32_t grammar_parse(struct builder *b, const char *text, size_t bytes);
/* Returns a new rule with this body. */
uint32_t grammar_rule_of(struct builder *b, struct fragment body);
/* In the automaton, a control token is the byte TOKEN_BEGIN, its text, and the byte TOKEN_END. No
 * UTF-8 text has these two bytes. */
#define TOKEN_BEGIN '\xFF'
#define TOKEN_END   '\xFE'
/* Reads the code point at *at and advances *at. Returns false if the bytes are not UTF-8. */
bool grammar_utf8_read(const char **at, const char *end, uint32_t *out);

/* ---- masks ---- */

/* A part of masks that is computed once: the tokens that a set of places in one rule allows,
 * independent of the rules that called this rule. */
struct mask_entry {
    uint32_t state; /* The state of these places, on the stack STACK_OPEN. */
    uint32_t token_count;
    uint32_t *tokens; /* [token_count] allowed tokens; NULL = there are many, see `bits`. */
    uint32_t *bits;   /* The allowed tokens as a mask; NULL = see `tokens`. */
    /* Nodes of the vocabulary's tree (vocabulary.h) that are reached only after the rule has
     * returned, so that the caller of the rule decides about their tokens. They are sorted by byte:
     * nodes with byte b are branches[branch_starts[b]] to branches[branch_starts[b + 1] - 1]. */
    uint32_t *branches;
    uint32_t branch_starts[257];
};

struct grammar_run {
    struct grammar *grammar;
    uint32_t state;                      /* The stepper's state after the answer so far. */
    struct grammar_run *next, *previous; /* Neighbours in the list of the grammar's runs. */
};

struct grammar {
    struct automaton automaton;
    struct stepper stepper;
    const struct grammar_vocabulary *vocabulary; /* NULL = masks cannot be computed. */
    struct grammar_run *runs;                    /* First run of the list. */
    struct mask_entry *entries;
    uint32_t entry_count, entry_capacity;
    size_t entry_bytes; /* Memory of the entries. */
    /* Scratch memory of a mask: one mask, branches, the places of a state. */
    uint32_t *bits;
    uint32_t *branches;
    uint32_t branch_count, branch_capacity;
    struct place *places; /* [2 * STEPPER_PLACES_MAX] */
};

/* Frees memory of the stepper: forgets all states except the states of runs and mask entries and
 * *extra (NULL = none), and updates the numbers of these states. drop_masks: the mask entries are
 * forgotten too. Returns false if there is no memory. */
bool grammar_compact(struct grammar *g, uint32_t *extra, bool drop_masks);
void mask_entries_drop(struct grammar *g); /* Frees all mask entries. */
/* Returns the status of a failure of the stepper (such as STEPPER_FULL), and writes its text. */
enum status grammar_stepper_error(uint32_t state, struct error *error);

#endif
