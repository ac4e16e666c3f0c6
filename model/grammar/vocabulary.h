/* vocabulary: the tokens of a model as a tree of their bytes, which a struct grammar_vocabulary
 * owns. mask.c walks the tree, and grammar.c searches it with vocabulary_longest. The tree does not
 * change after grammar_vocabulary_open (grammar.h), and any thread may read it. This part does not
 * know constraints and encodes no text.
 *
 * Each node stands for a text: the bytes on the way from the root to the node. The nodes are in
 * depth-first order, and the children of a node in the order of their bytes. A node and all nodes
 * below it are its branch. */
#ifndef MODEL_GRAMMAR_VOCABULARY_H
#define MODEL_GRAMMAR_VOCABULARY_H

#include "model/grammar/grammar.h"

struct vocabulary_node {
    uint32_t end;   /* The first node after the node's branch. */
    uint32_t first; /* ids[first .. `first` of the next node): tokens that are the node's text. */
    uint8_t byte;   /* The last byte of the node's text. */
    uint8_t depth;  /* Bytes of the node's text. */
};

struct grammar_vocabulary {
    uint32_t count;                /* Number of tokens, including tokens that are never allowed. */
    uint32_t longest;              /* Bytes of the longest token that can be allowed. */
    uint32_t node_count;           /* Nodes, including the root. */
    struct vocabulary_node *nodes; /* [node_count + 1]; node 0 is the root, the last is no node. */
    uint32_t *ids;                 /* Tokens that can be allowed, in the order of their bytes. */
    /* [count + 1]: the bytes of token `id` are bytes[starts[id] .. starts[id + 1]); no bytes = the
     * token is never allowed. A control token has TOKEN_BEGIN and TOKEN_END around its text
     * (internal.h). */
    uint32_t *starts;
    char *bytes;
};

/* Finds the longest token that is a beginning of the `count` bytes. Returns its length in bytes;
 * 0 = there is none, and *id_out is not set. */
uint32_t vocabulary_longest(const struct grammar_vocabulary *v, const char *bytes, uint32_t count,
                            uint32_t *id_out);

#endif
