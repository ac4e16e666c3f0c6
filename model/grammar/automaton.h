/* automaton: a finished automaton over bytes. A struct automaton owns the nodes of a builder
 * (builder.h), checked and simplified, and the classes of bytes that all nodes treat alike.
 * grammar.c and dfa.c make automatons. An automaton does not change after automaton_finish, so any
 * thread may read it. This part does not follow a text (stepper.h). */
#ifndef MODEL_GRAMMAR_AUTOMATON_H
#define MODEL_GRAMMAR_AUTOMATON_H

#include "model/grammar/builder.h"

/* Most calls of rules that are open at the same time. This limits how deep the lists and objects of
 * a JSON document can be nested. */
#define AUTOMATON_DEPTH_MAX 300

struct automaton {
    struct node *nodes; /* [node_count] */
    uint32_t node_count;
    uint32_t start;          /* Node at which a text begins. */
    uint32_t class_count;    /* Number of classes of bytes. */
    uint8_t class_of[256];   /* Class of each byte. */
    uint8_t class_byte[256]; /* [class_count]: the lowest byte of each class. */
};

/* Makes an automaton from the builder's nodes, for the texts of rule `root`. On success the builder
 * is empty; after an error the caller frees the builder with builder_done, and *out is all zeros.
 * Returns the builder's error, if it has one; ST_INVALID if the rule has no text; ST_UNSUPPORTED if
 * a rule can call itself before it takes a byte, or if the body of a repetition that counts more
 * than 64 rounds can be empty or is too large to check; ST_NO_MEMORY. */
enum status automaton_finish(struct builder *b, uint32_t root, struct automaton *out,
                             struct error *error);
void automaton_done(struct automaton *a); /* Frees the nodes. An automaton of zeros is fine. */

#endif
