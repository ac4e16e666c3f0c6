/* cluster_tree: finds the best machine of a pool by rank. In this tournament tree each inner node
 * stores the better machine of the two nodes below it, so the root has the best machine. Files of
 * this folder call the functions on the cluster scheduler's thread; not thread-safe. Pure. The
 * caller owns the nodes and the ranks. The tree does not know what the tokens of a rank measure. */
#ifndef SCHEDULER_CLUSTER_TREE_H
#define SCHEDULER_CLUSTER_TREE_H

#include <stdbool.h>
#include <stdint.h>

#define TREE_NONE UINT16_MAX /* A node without a machine. */

/* The rank of a machine: fewer tokens are better, then a lower order, then a lower index. */
struct cluster_rank {
    uint64_t tokens;
    uint64_t order;
};

struct cluster_tree {
    uint32_t leaves; /* Number of leaves, a power of two. */
    uint16_t *nodes; /* [2 × leaves]: node 1 is the root, machine i is leaf `leaves` + i. */
};

/* Returns the number of nodes of a tree for `count` machines. */
uint32_t cluster_tree_nodes(uint32_t count);
/* Initialises an empty tree for `count` < TREE_NONE machines. `nodes` has cluster_tree_nodes(count)
 * elements and must outlive the tree. */
void cluster_tree_init(struct cluster_tree *tree, uint32_t count, uint16_t *nodes);

/* Returns true if machine `a` is better than machine `b`. */
static inline bool cluster_rank_before(const struct cluster_rank *ranks, uint32_t a, uint32_t b)
{
    if (ranks[a].tokens != ranks[b].tokens)
        return ranks[a].tokens < ranks[b].tokens;
    return ranks[a].order != ranks[b].order ? ranks[a].order < ranks[b].order : a < b;
}

/* Adds the machine to the tree (in = true) or removes the machine. Also call it, with in = true,
 * when the rank of a machine in the tree has changed. */
void cluster_tree_update(struct cluster_tree *tree, const struct cluster_rank *ranks,
                         uint32_t machine, bool in);

/* Returns true if no machine is in the tree. */
static inline bool cluster_tree_empty(const struct cluster_tree *tree)
{
    return tree->nodes[1] == TREE_NONE;
}

/* Returns the best machine in the tree with fewer than `below` tokens for which fits(self, machine)
 * is true; UINT32_MAX = none. */
uint32_t cluster_tree_find(const struct cluster_tree *tree, const struct cluster_rank *ranks,
                           uint64_t below, bool (*fits)(const void *self, uint32_t machine),
                           const void *self);

#endif
