/* automaton: a finished automaton over bytes: the nodes of a builder (builder.h), checked and
 * simplified, and the classes of bytes that it treats alike. grammar.c and dfa.c make one from a
 * builder while they compile a constraint, and a stepper (stepper.h) follows it. It does not change
 * after automaton_finish, so any thread may read it. It has no state of a text. */
#ifndef MODEL_GRAMMAR_AUTOMATON_H
#define MODEL_GRAMMAR_AUTOMATON_H

#include "model/grammar/builder.h"

/* Most calls of rules that are open at the same time. It limits the nesting of a document. */
#define AUTOMATON_DEPTH_MAX 300

struct automaton {
    struct node *nodes;
    uint32_t node_count;
    uint32_t start;          /* Node at which a text begins. */
    uint32_t class_count;    /* Number of classes of bytes. */
    uint8_t class_of[256];   /* Class of each byte. All nodes treat the bytes of a class alike. */
    uint8_t class_byte[256]; /* [class_count]: one byte of each class. */
};

/* Makes an automaton of the builder's nodes. Its texts are the texts of rule `root`. On success the
 * builder is empty; after an error the caller frees it with builder_done. Removes paths that cannot
 * reach an end. Returns the builder's error; ST_INVALID if no text satisfies the constraint;
 * ST_UNSUPPORTED if a rule can begin with itself, or if something is repeated more than 64 times
 * that can be empty, or is too large to find out; ST_NO_MEMORY. */
enum status automaton_finish(struct builder *b, uint32_t root, struct automaton *out,
                             struct error *error);
void automaton_done(struct automaton *a); /* Frees the nodes. All zeros are fine. */

#endif
