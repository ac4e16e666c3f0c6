/* cluster_tree: machines ordered by a rank, as a tournament tree. Each inner node names the better
 * of its two children, so a change of a rank costs log2(n) comparisons, and the best machine that
 * meets a condition is found without visiting worse ones. cluster.c, load.c and route.c call it on
 * the cluster scheduler's thread. Pure; the caller owns the nodes and the ranks. It does not know
 * what a rank measures. */
#ifndef SCHEDULER_CLUSTER_TREE_H
#define SCHEDULER_CLUSTER_TREE_H

#include <stdbool.h>
#include <stdint.h>

#define TREE_NONE UINT16_MAX

struct cluster_rank {
    uint64_t tokens;
    uint64_t order; /* Order among equal token counts. */
};

struct cluster_tree {
    uint32_t leaves; /* a power of two */
    uint16_t *nodes; /* [2 × leaves]: node 1 is the root, machine i is leaf `leaves` + i. */
};

/* Initialises a tree for `count` machines, none of which is in it. `nodes` has
 * cluster_tree_nodes(count) elements and stays the caller's. */
uint32_t cluster_tree_nodes(uint32_t count);
void cluster_tree_init(struct cluster_tree *tree, uint32_t count, uint16_t *nodes);

/* True if `a` is better: fewer tokens, then lower order, then lower index. */
static inline bool cluster_rank_before(const struct cluster_rank *ranks, uint32_t a, uint32_t b)
{
    if (ranks[a].tokens != ranks[b].tokens)
        return ranks[a].tokens < ranks[b].tokens;
    return ranks[a].order != ranks[b].order ? ranks[a].order < ranks[b].order : a < b;
}

/* Puts the machine into the tree or takes it out. Call also (with in = true) after its rank has
 * changed. */
void cluster_tree_put(struct cluster_tree *tree, const struct cluster_rank *ranks, uint32_t machine,
                      bool in);

static inline bool cluster_tree_empty(const struct cluster_tree *tree)
{
    return tree->nodes[1] == TREE_NONE;
}

/* Returns the best machine with fewer than `below` tokens for which `fits` is true; UINT32_MAX =
 * none. */
uint32_t cluster_tree_find(const struct cluster_tree *tree, const struct cluster_rank *ranks,
                           uint64_t below, bool (*fits)(const void *self, uint32_t machine),
                           const void *self);

#endif
