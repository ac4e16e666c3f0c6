/* vocabulary: the tokens of a model as a tree of their bytes, for masks. It is constant after it is
 * open. The nodes are in depth-first order, and the children of a node in the order of their bytes,
 * so a walk goes through the arrays once, and skips a branch by jumping to its end. */
#ifndef MODEL_GRAMMAR_VOCABULARY_H
#define MODEL_GRAMMAR_VOCABULARY_H

#include "model/grammar/grammar.h"

struct vocabulary_node {
    uint32_t end;   /* First node behind the node's branch. */
    uint32_t first; /* First of its tokens in `ids`; the next node's `first` ends them. */
    uint8_t byte;
    uint8_t depth; /* Bytes from the root to here. */
};

struct grammar_vocabulary {
    uint32_t count;   /* Tokens, also those that are never allowed. */
    uint32_t longest; /* Bytes of the longest token. */
    uint32_t node_count;
    struct vocabulary_node *nodes; /* [node_count + 1]; node 0 is the root. */
    uint32_t *ids;                 /* Ids in the order of the tokens' bytes. */
    /* Bytes of each token: bytes[starts[id]] to bytes[starts[id + 1] - 1]; none = never allowed. */
    uint32_t *starts;
    char *bytes;
};

#endif
