/* cluster_tree: see the header. The search starts at the root and does not enter a subtree whose
 * best machine is no better than the one found, so it takes few steps if few conditions fail. */
#include "scheduler/cluster/tree.h"

#include <assert.h>

static uint32_t leaves_of(uint32_t count)
{
    uint32_t leaves = 1;
    while (leaves < count)
        leaves *= 2;
    return leaves;
}

uint32_t cluster_tree_nodes(uint32_t count)
{
    return 2 * leaves_of(count);
}

void cluster_tree_init(struct cluster_tree *tree, uint32_t count, uint16_t *nodes)
{
    assert(count < TREE_NONE);
    tree->leaves = leaves_of(count);
    tree->nodes = nodes;
    for (uint32_t i = 0; i < 2 * tree->leaves; i++)
        nodes[i] = TREE_NONE;
}

static uint16_t better(const struct cluster_rank *ranks, uint16_t a, uint16_t b)
{
    if (a == TREE_NONE || b == TREE_NONE)
        return a == TREE_NONE ? b : a;
    return cluster_rank_before(ranks, a, b) ? a : b;
}

void cluster_tree_update(struct cluster_tree *tree, const struct cluster_rank *ranks,
                         uint32_t machine, bool in)
{
    uint32_t node = tree->leaves + machine;
    tree->nodes[node] = in ? (uint16_t)machine : TREE_NONE;
    while (node > 1) {
        node /= 2;
        uint16_t before = tree->nodes[node];
        uint16_t now = better(ranks, tree->nodes[2 * node], tree->nodes[2 * node + 1]);
        tree->nodes[node] = now;
        if (now == before && now != machine)
            return; /* No node further up refers to this machine. */
    }
}

struct search {
    const struct cluster_tree *tree;
    const struct cluster_rank *ranks;
    uint64_t below;
    bool (*fits)(const void *self, uint32_t machine);
    const void *self;
    uint32_t found;
};

static bool worth(const struct search *s, uint16_t machine)
{
    return machine != TREE_NONE && s->ranks[machine].tokens < s->below &&
           (s->found == UINT32_MAX || cluster_rank_before(s->ranks, machine, s->found));
}

static void search_node(struct search *s, uint32_t node)
{
    const uint16_t *nodes = s->tree->nodes;
    uint16_t best = nodes[node];
    if (!worth(s, best))
        return;
    if (s->fits(s->self, best)) {
        s->found = best;
        return;
    }
    /* The best machine does not fit: search the subtrees beside the path to it, nearest the root
     * first. */
    while (node < s->tree->leaves) {
        uint32_t left = 2 * node;
        bool goes_left = nodes[left] == best;
        search_node(s, goes_left ? left + 1 : left);
        node = goes_left ? left : left + 1;
    }
}

uint32_t cluster_tree_find(const struct cluster_tree *tree, const struct cluster_rank *ranks,
                           uint64_t below, bool (*fits)(const void *self, uint32_t machine),
                           const void *self)
{
    struct search search = {.tree = tree,
                            .ranks = ranks,
                            .below = below,
                            .fits = fits,
                            .self = self,
                            .found = UINT32_MAX};
    search_node(&search, 1);
    return search.found;
}
