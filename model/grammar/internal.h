/* internal: what the files of model/grammar/ share: the parsers of the kinds of constraints, struct
 * grammar with its runs, and the cached masks. Only these files include it. The parsers run on the
 * thread that compiles a constraint, the functions of masks on the thread that uses the grammar.
 * What other parts may call is in grammar.h. */
#ifndef MODEL_GRAMMAR_INTERNAL_H
#define MODEL_GRAMMAR_INTERNAL_H

#include "model/grammar/grammar.h"
#include "model/grammar/stepper.h"

#include <jansson.h>

/* ---- parsers, which record errors in the builder ---- */

/* Returns a fragment for the texts that the regular expression `text` of `bytes` bytes matches, in
 * this spelling. search = true: the expression may match any part of a text, as in JSON schemas,
 * unless it has anchors. search = false: it must match the whole text. Error texts begin with
 * `place`. */
struct fragment regex_parse(struct builder *b, const char *text, size_t bytes,
                            enum spelling spelling, bool search, const char *place);
/* The next five functions return the number of a rule of the builder. After an error the number is
 * meaningless. */

/* Returns the rule `root` of a grammar in GBNF. */
uint32_t gbnf_parse(struct builder *b, const char *text, size_t bytes);
/* Returns a rule for the documents of a JSON schema. Errors call the schema `place`. */
uint32_t schema_parse(struct builder *b, const json_t *schema, const char *place);
/* Returns a rule for the texts of the expression of a constraint "format:". */
uint32_t format_parse(struct builder *b, const json_t *expression);
/* Returns a rule for the texts of a constraint (grammar.h) of any kind. */
uint32_t grammar_parse(struct builder *b, const char *text, size_t bytes);
/* Returns a new rule with this body. */
uint32_t grammar_rule_of(struct builder *b, struct fragment body);

/* In automatons and vocabularies, a control token is the byte TOKEN_BEGIN, the token's text, and
 * the byte TOKEN_END. No UTF-8 text has these two bytes. */
#define TOKEN_BEGIN '\xFF'
#define TOKEN_END   '\xFE'
/* Stores the code point at *at and advances *at behind it. Returns false, and changes nothing, at
 * `end` or if the bytes are not UTF-8. */
bool grammar_utf8_read(const char **at, const char *end, uint32_t *out);

/* ---- masks ---- */

/* A part of masks that is computed once and kept: the tokens that a set of places in one rule
 * allows, whatever rule has called this rule. */
struct mask_entry {
    uint32_t state;       /* The state of these places, on the stack STACK_OPEN. */
    uint32_t token_count; /* Number of allowed tokens. */
    uint32_t *tokens;     /* [token_count] allowed tokens; NULL = `bits` has them. */
    uint32_t *bits;       /* The allowed tokens as a mask; NULL = `tokens` has them. */
    /* Nodes of the vocabulary's tree (vocabulary.h) that come next after the end of the rule. The
     * caller of the rule decides whether it allows the tokens of these nodes and of the nodes
     * below. The nodes with byte b are branches[branch_starts[b]] to
     * branches[branch_starts[b + 1] - 1]. */
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
    struct grammar_run *runs;                    /* First run of the list of open runs. */
    struct mask_entry *entries; /* [entry_count]; caller_number of its state is its index. */
    uint32_t entry_count, entry_capacity;
    size_t entry_bytes; /* Memory of the entries. */
    /* Memory for the computation of one mask: a mask, branches of a mask entry, places. */
    uint32_t *bits;
    uint32_t *branches;
    uint32_t branch_count, branch_capacity;
    struct place *places; /* [2 * STEPPER_PLACES_MAX] */
};

/* Makes room in the stepper: forgets all states except the states of runs, of mask entries and the
 * state *extra (NULL = none), and updates the numbers of the kept states. drop_masks = true: first
 * frees the mask entries. Returns false if there is no memory. */
bool grammar_compact(struct grammar *g, uint32_t *extra, bool drop_masks);
void mask_entries_drop(struct grammar *g); /* Frees all mask entries. */
/* Returns the status for a failure of the stepper, and writes the error's text. `state` is a number
 * for which STEPPER_FAILED is true. */
enum status grammar_stepper_error(uint32_t state, struct error *error);

#endif
