/* vocabulary: the tokens of a model as a tree of their bytes. mask.c walks the tree to find the
 * tokens that an automaton allows, and grammar.c to find the tokens of bytes that must come next.
 * grammar_vocabulary_open (vocabulary.c) builds it; after that it does not change, and any thread
 * may read it. Only the files of model/grammar/ include it. It does not know grammars (automaton.h)
 * and encodes no text.
 *
 * The nodes are in depth-first order, and the children of a node in the order of their bytes. So a
 * walk reads the arrays once from start to end, and skips a branch by continuing at its end. */
#ifndef MODEL_GRAMMAR_VOCABULARY_H
#define MODEL_GRAMMAR_VOCABULARY_H

#include "model/grammar/grammar.h"

struct vocabulary_node {
    uint32_t end;   /* The first node after the node's branch. */
    uint32_t first; /* The node's tokens are ids[first] to ids[`first` of the next node - 1]. */
    uint8_t byte;   /* The last byte of the node's text. */
    uint8_t depth;  /* Bytes of the node's text. */
};

struct grammar_vocabulary {
    uint32_t count;   /* Number of tokens, including tokens that are never allowed. */
    uint32_t longest; /* Bytes of the longest token. */
    uint32_t node_count;
    struct vocabulary_node *nodes; /* [node_count + 1]; node 0 is the root. */
    uint32_t *ids;                 /* Ids in the order of the tokens' bytes. */
    /* Bytes of each token: bytes[starts[id]] to bytes[starts[id + 1] - 1]; none = never allowed. */
    uint32_t *starts;
    char *bytes;
};

/* Finds the longest token that `bytes` begin with. Returns its length; 0 = there is none. */
uint32_t vocabulary_longest(const struct grammar_vocabulary *v, const char *bytes, uint32_t count,
                            uint32_t *id_out);

#endif
