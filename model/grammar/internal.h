/* internal: what the files of model/grammar/ share: the parsers of the kinds of constraints, struct
 * grammar with its runs, and the cached masks. The parsers run on the thread that compiles a
 * constraint, the functions of masks on the thread that uses the grammar. grammar.h is the
 * interface for other parts. The functions here draw no tokens, and know no requests. */
#ifndef MODEL_GRAMMAR_INTERNAL_H
#define MODEL_GRAMMAR_INTERNAL_H

#include "model/grammar/grammar.h"
#include "model/grammar/stepper.h"

#include <jansson.h>

/* ---- parsers, which record errors in the builder ---- */

/* Returns a fragment for the texts that a regular expression matches. The expression is the
 * `bytes` bytes at `text`. `spelling` says how the fragment writes the matched characters: as
 * UTF-8, or escaped as in a JSON string. search: true = the expression may match
 * any part of a text, as in JSON schemas, unless the expression has anchors; false = the expression
 * must match the whole text. Error texts begin with `place`. */
struct fragment regex_parse(struct builder *b, const char *text, size_t bytes,
                            enum spelling spelling, bool search, const char *place);
/* The next five functions return the number of a rule of the builder. After an error the number is
 * meaningless. */

/* Returns the rule `root` of a grammar in GBNF. */
uint32_t gbnf_parse(struct builder *b, const char *text, size_t bytes);
/* Returns a rule for the documents that satisfy a JSON schema. Errors call the schema `place`. */
uint32_t schema_parse(struct builder *b, const json_t *schema, const char *place);
/* Returns a rule for the texts that an expression of the kind "format:" (grammar.h) allows. */
uint32_t format_parse(struct builder *b, const json_t *expression);
/* Returns a rule for the texts that a constraint of any kind (grammar.h) allows. */
uint32_t grammar_parse(struct builder *b, const char *text, size_t bytes);
/* Returns a new rule with this body. */
uint32_t grammar_rule_of(struct builder *b, struct fragment body);

/* In automatons and vocabularies, a control token is the byte TOKEN_BEGIN, the token's text, and
 * the byte TOKEN_END. No UTF-8 text has these two bytes. */
#define TOKEN_BEGIN '\xFF'
#define TOKEN_END   '\xFE'
/* Stores the code point at *at and moves *at to the next character. Returns false, and changes
 * nothing, at `end` or if the bytes are not UTF-8. */
bool grammar_utf8_read(const char **at, const char *end, uint32_t *out);

/* ---- masks ---- */

/* An entry of the cache of masks, for a set of places (stepper.h) that have the same stack. The
 * entry has the tokens that are allowed whatever that stack is. `branches` leads to the tokens for
 * which the stack decides. */
struct mask_entry {
    uint32_t state;       /* The stepper's state of these places, with the stack STACK_OPEN. */
    uint32_t token_count; /* Allowed tokens that do not go beyond the end of the innermost call. */
    uint32_t *tokens;     /* [token_count] these tokens; NULL = `bits` has them. */
    uint32_t *bits;       /* These tokens as a mask; NULL = `tokens` has them. */
    /* Nodes of the vocabulary's tree (vocabulary.h) whose last byte is the first byte after the end
     * of the innermost call: the stack decides whether tokens of their branches are allowed. The
     * nodes whose last byte is b are branches[branch_starts[b] .. branch_starts[b + 1]). */
    uint32_t *branches;
    uint32_t branch_starts[257];
};

struct grammar_run {
    struct grammar *grammar;
    uint32_t state;                      /* The stepper's state after the answer. */
    struct grammar_run *next, *previous; /* Neighbours in the list of the grammar's runs. */
};

struct grammar {
    struct automaton automaton;
    struct stepper stepper;
    const struct grammar_vocabulary *vocabulary; /* NULL = masks cannot be computed. */
    struct grammar_run *runs;                    /* First run of the list of open runs. */
    struct mask_entry *entries; /* [entry_count]; i is the caller_number of entries[i].state. */
    uint32_t entry_count, entry_capacity;
    size_t entry_bytes; /* Memory of the entries. */
    /* Scratch memory for the computation of one mask: a mask, the branches of a mask entry, and
     * places. */
    uint32_t *bits;
    uint32_t *branches;
    uint32_t branch_count, branch_capacity;
    struct place *places;   /* [2 * STEPPER_PLACES_MAX] */
    uint64_t work_saved;    /* Work that the runs may still do, besides what their tokens add. */
    uint64_t work_begun;    /* The stepper's work at grammar_work_begin. */
    uint64_t mask_work_max; /* Most work of a mask; see grammar_mask_work_bound. */
};

/* Makes room in the stepper: forgets all states except the states of runs and mask entries, and
 * *extra (NULL = none). Updates the numbers of the kept states. drop_masks: frees the mask entries
 * before. Returns false if there is no memory. */
bool grammar_compact(struct grammar *g, uint32_t *extra, bool drop_masks);
void mask_entries_drop(struct grammar *g); /* Frees all mask entries. */
/* Every function that computes states does so between these two calls. grammar_work_begin adds
 * `income` to the work that the constraint has saved, and allows the stepper the saved work, but at
 * most `most`. grammar_work_end takes what was used from the saved work. */
void grammar_work_begin(struct grammar *g, uint64_t income, uint64_t most);
void grammar_work_end(struct grammar *g);
/* Returns the status for a failure of the stepper, and writes the error's text. `state` is a number
 * for which STEPPER_FAILED is true. */
enum status grammar_stepper_error(uint32_t state, struct error *error);

#endif
