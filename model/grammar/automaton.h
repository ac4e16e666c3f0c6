/* automaton: a finished automaton: nodes without detours, byte classes. grammar.c and dfa.c make one
 * from a builder and give it to a stepper. It is constant after automaton_finish: any thread. */
#ifndef MODEL_GRAMMAR_AUTOMATON_H
#define MODEL_GRAMMAR_AUTOMATON_H

#include "model/grammar/builder.h"

/* Calls that may be open at a time: how deep a document can be nested. */
#define AUTOMATON_DEPTH_MAX 300

struct automaton {
    struct node *nodes;
    uint32_t node_count;
    uint32_t start; /* First node. */
    uint32_t class_count;
    uint8_t class_of[256];   /* Bytes of one class are never told apart. */
    uint8_t class_byte[256]; /* A byte of each class. */
};

/* Takes the nodes of `b`, which is empty afterwards, with rule `root` as the start. Node heights
 * and tails are set, paths that never end are cut off. Returns the builder's error; ST_INVALID if
 * no text satisfies the constraint; ST_UNSUPPORTED for a rule that can begin with itself. */
enum status automaton_finish(struct builder *b, uint32_t root, struct automaton *out,
                             struct error *error);
void automaton_done(struct automaton *a);

#endif
