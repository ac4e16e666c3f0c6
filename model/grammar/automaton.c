/* automaton: see the header. */
#include "model/grammar/automaton.h"

#include <stdlib.h>
#include <string.h>

#define NEVER UINT16_MAX

/* The nodes of a builder with their predecessors. */
struct graph {
    struct builder *b;
    uint32_t *first; /* [nodes + 1] first entry in `from` of each node. */
    uint32_t *from;  /* Predecessors. */
    uint16_t *height;
    /* Nodes by height: heads of lists. */
    uint32_t bucket[AUTOMATON_DEPTH_MAX + 1];
    uint32_t *link; /* Next node in the bucket. */
};

static void graph_done(struct graph *g)
{
    free(g->first);
    free(g->from);
    free(g->height);
    free(g->link);
}

static uint32_t callee_of(const struct builder *b, const struct node *node)
{
    return b->rules[node->target].start;
}

/* The nodes whose heights decide the height of `node`. */
static unsigned needs(const struct builder *b, const struct node *node, bool bytes, uint32_t to[2])
{
    unsigned count = 0;
    switch (node->kind) {
    case NODE_RANGE:
        if (bytes)
            to[count++] = node->next;
        break;
    case NODE_FORK:
        to[count++] = node->next;
        if (node->target != NODE_NONE)
            to[count++] = node->target;
        break;
    case NODE_CALL:
        to[count++] = node->next;
        to[count++] = callee_of(b, node);
        break;
    case NODE_COUNT:
        to[count++] = node->next;
        break;
    case NODE_LOOP:
        to[count++] = node->target;
        break;
    default:
        break;
    }
    unsigned kept = 0;
    for (unsigned i = 0; i < count; i++)
        if (to[i] != NODE_NONE)
            to[kept++] = to[i];
    return kept;
}

static bool graph_open(struct graph *g, struct builder *b, bool bytes)
{
    const uint32_t count = b->node_count;
    uint32_t to[2];
    *g = (struct graph){.b = b};
    g->first = calloc((size_t)count + 2, sizeof(uint32_t));
    g->from = malloc((2 * (size_t)count + 1) * sizeof(uint32_t));
    g->height = malloc((size_t)count * sizeof(uint16_t) + 1);
    g->link = malloc((size_t)count * sizeof(uint32_t) + 1);
    if (g->first == NULL || g->from == NULL || g->height == NULL || g->link == NULL)
        return false;
    for (uint32_t i = 0; i < count; i++)
        for (unsigned k = needs(b, &b->nodes[i], bytes, to); k > 0; k--)
            g->first[to[k - 1] + 2]++;
    for (uint32_t i = 2; i < count + 2; i++)
        g->first[i] += g->first[i - 1];
    for (uint32_t i = 0; i < count; i++)
        for (unsigned k = needs(b, &b->nodes[i], bytes, to); k > 0; k--)
            g->from[g->first[to[k - 1] + 1]++] = i;
    memset(g->height, 0xFF, (size_t)count * sizeof(uint16_t));
    memset(g->bucket, 0xFF, sizeof(g->bucket));
    return true;
}

static void height_set(struct graph *g, uint32_t node, uint32_t height)
{
    if (g->height[node] != NEVER || height > AUTOMATON_DEPTH_MAX)
        return;
    g->height[node] = (uint16_t)height;
    g->link[node] = g->bucket[height];
    g->bucket[height] = node;
}

/* A successor has got its height: perhaps `node` has one now. */
static void height_from(struct graph *g, uint32_t at, uint32_t height)
{
    const struct node *node = &g->b->nodes[at];
    if (node->kind == NODE_CALL) {
        uint32_t callee = callee_of(g->b, node);
        if (callee == NODE_NONE || g->height[callee] == NEVER || node->next == NODE_NONE ||
            g->height[node->next] == NEVER)
            return;
        height = g->height[callee] + 1u;
        if (g->height[node->next] > height)
            height = g->height[node->next];
    }
    height_set(g, at, height);
}

/* Finds for each node the least number of calls that are open at a time on the way to its rule's
 * end; NEVER = no way. Heights are found in ascending order (Knuth's generalisation of Dijkstra's
 * algorithm), so each is set once. */
static void heights_find(struct graph *g)
{
    for (uint32_t i = 0; i < g->b->node_count; i++)
        if (g->b->nodes[i].kind == NODE_END)
            height_set(g, i, 0);
    for (uint32_t height = 0; height <= AUTOMATON_DEPTH_MAX; height++)
        while (g->bucket[height] != NODE_NONE) {
            uint32_t node = g->bucket[height];
            g->bucket[height] = g->link[node];
            for (uint32_t i = g->first[node]; i < g->first[node + 1]; i++)
                height_from(g, g->from[i], height);
        }
}

/* ---- rules that begin with themselves ---- */

/* Work of the search: a path of rules, and the nodes that each reaches without taking a byte. */
struct left {
    struct builder *b;
    const uint16_t *empty; /* Not NEVER = an end can be reached without taking a byte. */
    uint8_t *rule_state;   /* 0 = unknown, 1 = on the path, 2 = done. */
    uint8_t *seen;         /* Per node. */
    uint32_t *stack;       /* Nodes, and rules to leave (LEAVE). */
    size_t stack_max;
};

#define LEAVE 0x80000000u

/* Depth-first search over nodes that no byte parts. Nodes belong to one rule each, so every node is
 * visited once. Returns false when a rule on the path is entered again. */
static bool left_search(struct left *l, uint32_t root)
{
    size_t used = 0;
    l->stack[used++] = root | LEAVE;
    l->stack[used++] = l->b->rules[root].start;
    l->rule_state[root] = 1;
    while (used > 0) {
        uint32_t at = l->stack[--used];
        if (at == NODE_NONE)
            continue;
        if ((at & LEAVE) != 0) {
            l->rule_state[at & ~LEAVE] = 2;
            continue;
        }
        if (l->seen[at])
            continue;
        l->seen[at] = 1;
        const struct node *node = &l->b->nodes[at];
        if (node->kind == NODE_RANGE || node->kind == NODE_END)
            continue;
        bool callee_empty = true;
        if (node->kind == NODE_CALL) {
            uint32_t start = callee_of(l->b, node);
            callee_empty = start != NODE_NONE && l->empty[start] != NEVER;
        }
        if (callee_empty)
            l->stack[used++] = node->next;
        if (node->kind == NODE_FORK || node->kind == NODE_LOOP)
            l->stack[used++] = node->target;
        if (node->kind != NODE_CALL)
            continue;
        if (l->rule_state[node->target] == 1)
            return false;
        if (l->rule_state[node->target] == 0) {
            l->rule_state[node->target] = 1;
            l->stack[used++] = node->target | LEAVE;
            l->stack[used++] = l->b->rules[node->target].start;
        }
    }
    return true;
}

/* Counted repetitions of something that can be empty would take a round for each count. */
static bool counts_progress(struct left *l)
{
    const struct node *nodes = l->b->nodes;
    for (uint32_t i = 0; i < l->b->node_count; i++) {
        if (nodes[i].kind != NODE_COUNT || nodes[i].most <= 64 ||
            (nodes[i].most == COUNT_UNLIMITED && nodes[i].least <= 64))
            continue;
        /* The body's ways to its end without a byte lead to the LOOP. */
        size_t used = 0, visits = 0;
        l->stack[used++] = nodes[i].next;
        while (used > 0 && visits++ < 4096) {
            uint32_t at = l->stack[--used];
            if (at == nodes[i].target)
                return false;
            if (at == NODE_NONE || nodes[at].kind == NODE_RANGE || nodes[at].kind == NODE_END)
                continue;
            uint32_t to[2];
            unsigned count = needs(l->b, &nodes[at], false, to);
            if (nodes[at].kind == NODE_CALL) {
                if (count < 2 || l->empty[to[1]] == NEVER)
                    continue;
                count = 1;
            }
            for (unsigned k = 0; k < count; k++)
                l->stack[used++] = to[k];
        }
        if (visits > 4096)
            return false;
    }
    return true;
}

static enum status progress_check(struct builder *b, struct error *error)
{
    struct graph g;
    struct left l = {.b = b, .stack_max = 4 * (size_t)b->node_count + 16384};
    enum status status = ST_OK;
    bool opened = graph_open(&g, b, false);
    l.rule_state = calloc((size_t)b->rule_count + 1, 1);
    l.seen = calloc((size_t)b->node_count + 1, 1);
    l.stack = malloc(l.stack_max * sizeof(uint32_t));
    if (!opened || l.rule_state == NULL || l.seen == NULL || l.stack == NULL)
        status = error_set(error, ST_NO_MEMORY, "out of memory");
    if (status == ST_OK) {
        heights_find(&g);
        l.empty = g.height;
        for (uint32_t i = 0; i < b->rule_count && status == ST_OK; i++)
            if (l.rule_state[i] == 0 && b->rules[i].start != NODE_NONE && !left_search(&l, i))
                status = error_set(error, ST_UNSUPPORTED,
                                   "a rule or reference can begin with itself without taking a "
                                   "character first");
        if (status == ST_OK && !counts_progress(&l))
            status = error_set(error, ST_UNSUPPORTED,
                               "a repetition of more than 64 times repeats what can be empty");
    }
    free(l.rule_state);
    free(l.seen);
    free(l.stack);
    graph_done(&g);
    return status;
}

/* ---- finishing ---- */

/* Follows nodes that do nothing; a ring of them is bounded by `steps`. */
static uint32_t skip_forks(const struct builder *b, uint32_t at)
{
    for (uint32_t steps = 0; at != NODE_NONE && steps < 64; steps++) {
        const struct node *node = &b->nodes[at];
        if (node->kind != NODE_FORK)
            return at;
        if (node->target == NODE_NONE || node->target == node->next)
            at = node->next;
        else if (node->next == NODE_NONE)
            at = node->target;
        else
            return at;
    }
    return at;
}

static void cut(struct builder *b, const uint16_t *height)
{
    for (uint32_t i = 0; i < b->node_count; i++) {
        struct node *node = &b->nodes[i];
        node->calls_min = height[i];
        if (node->kind == NODE_CALL)
            node->target = callee_of(b, node); /* From here on: the first node of the rule. */
        if (node->next != NODE_NONE && height[node->next] == NEVER)
            node->next = NODE_NONE;
        if (node->kind != NODE_COUNT && node->kind != NODE_RANGE && node->target != NODE_NONE &&
            height[node->target] == NEVER)
            node->target = NODE_NONE;
    }
    for (uint32_t i = 0; i < b->node_count; i++) {
        struct node *node = &b->nodes[i];
        node->next = skip_forks(b, node->next);
        if (node->kind != NODE_COUNT && node->kind != NODE_RANGE)
            node->target = skip_forks(b, node->target);
        node->tail_call = node->kind == NODE_CALL && node->next != NODE_NONE &&
                          b->nodes[node->next].kind == NODE_END;
    }
}

static void classes_find(struct automaton *a)
{
    bool begins[257] = {true};
    for (uint32_t i = 0; i < a->node_count; i++)
        if (a->nodes[i].kind == NODE_RANGE && a->nodes[i].calls_min != NEVER) {
            begins[a->nodes[i].low] = true;
            begins[a->nodes[i].high + 1] = true;
        }
    a->class_count = 0;
    for (unsigned byte = 0; byte < 256; byte++) {
        if (begins[byte])
            a->class_byte[a->class_count++] = (uint8_t)byte;
        a->class_of[byte] = (uint8_t)(a->class_count - 1);
    }
}

enum status automaton_finish(struct builder *b, uint32_t root, struct automaton *out,
                             struct error *error)
{
    struct graph g;
    enum status status = b->status;
    *out = (struct automaton){0};
    if (status != ST_OK) {
        if (error != NULL)
            *error = b->error;
        return status;
    }
    status = progress_check(b, error);
    if (status != ST_OK)
        return status;
    if (!graph_open(&g, b, true)) {
        graph_done(&g);
        return error_set(error, ST_NO_MEMORY, "out of memory");
    }
    heights_find(&g);
    uint32_t start = b->rules[root].start;
    if (start == NODE_NONE || g.height[start] == NEVER)
        status = error_set(error, ST_INVALID, "no text satisfies the constraint");
    else {
        cut(b, g.height);
        *out = (struct automaton){
            .nodes = b->nodes, .node_count = b->node_count, .start = skip_forks(b, start)};
        b->nodes = NULL;
        classes_find(out);
        builder_done(b);
    }
    graph_done(&g);
    return status;
}

void automaton_done(struct automaton *a)
{
    free(a->nodes);
    *a = (struct automaton){0};
}
