/* builder: nodes, rules, fragments. builder_text.c has the sets of characters. */
#include "model/grammar/builder.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void builder_done(struct builder *b)
{
    free(b->nodes);
    free(b->rules);
    *b = (struct builder){0};
}

void builder_fail(struct builder *b, enum status status, const char *format, ...)
{
    if (b->status != ST_OK)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(b->error.text, sizeof(b->error.text), format, arguments);
    va_end(arguments);
    b->status = status;
}

static bool grow(struct builder *b, void **array, uint32_t *capacity, uint32_t count,
                 uint32_t count_max, size_t bytes, const char *what)
{
    if (count >= count_max) {
        builder_fail(b, ST_TOO_LARGE, "the constraint needs more than %u %s", count_max, what);
        return false;
    }
    if (count < *capacity)
        return true;
    uint32_t more = *capacity < 256 ? 256 : *capacity * 2;
    void *grown = realloc(*array, more * bytes);
    if (grown == NULL) {
        builder_fail(b, ST_NO_MEMORY, "out of memory");
        return false;
    }
    *array = grown;
    *capacity = more;
    return true;
}

uint32_t builder_node(struct builder *b, struct node node)
{
    void *nodes = b->nodes;
    if (b->status != ST_OK || !grow(b, &nodes, &b->node_capacity, b->node_count, BUILDER_NODES_MAX,
                                    sizeof(*b->nodes), "nodes"))
        return NODE_NONE;
    b->nodes = nodes;
    b->nodes[b->node_count] = node;
    return b->node_count++;
}

uint32_t builder_rule_add(struct builder *b)
{
    void *rules = b->rules;
    if (b->status != ST_OK || !grow(b, &rules, &b->rule_capacity, b->rule_count, BUILDER_RULES_MAX,
                                    sizeof(*b->rules), "rules"))
        return 0;
    b->rules = rules;
    b->rules[b->rule_count].start = NODE_NONE;
    return b->rule_count++;
}

void builder_rule_define(struct builder *b, uint32_t rule, struct fragment body)
{
    if (b->status != ST_OK)
        return;
    b->nodes[body.end].kind = NODE_END;
    b->rules[rule].start = body.start;
}

static uint32_t fork_add(struct builder *b, uint32_t next, uint32_t other)
{
    return builder_node(b, (struct node){.kind = NODE_FORK, .next = next, .target = other});
}

static void link_to(struct builder *b, uint32_t end, uint32_t next)
{
    if (b->status == ST_OK)
        b->nodes[end].next = next;
}

struct fragment fragment_empty(struct builder *b)
{
    uint32_t node = fork_add(b, NODE_NONE, NODE_NONE);
    return (struct fragment){node, node, false};
}

struct fragment fragment_never(struct builder *b)
{
    uint32_t start = fork_add(b, NODE_NONE, NODE_NONE);
    return (struct fragment){start, fork_add(b, NODE_NONE, NODE_NONE), false};
}

struct fragment fragment_bytes(struct builder *b, const char *bytes, size_t count)
{
    uint32_t end = fork_add(b, NODE_NONE, NODE_NONE), next = end;
    for (size_t i = count; i > 0; i--) {
        const uint8_t byte = (uint8_t)bytes[i - 1];
        next = builder_node(
            b,
            (struct node){
                .kind = NODE_RANGE, .low = byte, .high = byte, .next = next, .target = NODE_NONE});
    }
    return (struct fragment){next, end, false};
}

struct fragment fragment_text(struct builder *b, const char *text)
{
    return fragment_bytes(b, text, strlen(text));
}

struct fragment fragment_call(struct builder *b, uint32_t rule)
{
    uint32_t end = fork_add(b, NODE_NONE, NODE_NONE);
    uint32_t start = builder_node(b, (struct node){.kind = NODE_CALL, .next = end, .target = rule});
    return (struct fragment){start, end, false};
}

struct fragment fragment_join(struct builder *b, struct fragment first, struct fragment second)
{
    link_to(b, first.end, second.start);
    return (struct fragment){first.start, second.end, first.counted || second.counted};
}

struct fragment fragment_either(struct builder *b, struct fragment first, struct fragment second)
{
    uint32_t end = fork_add(b, NODE_NONE, NODE_NONE);
    uint32_t start = fork_add(b, first.start, second.start);
    link_to(b, first.end, end);
    link_to(b, second.end, end);
    return (struct fragment){start, end, first.counted || second.counted};
}

struct fragment fragment_optional(struct builder *b, struct fragment body)
{
    uint32_t end = fork_add(b, NODE_NONE, NODE_NONE);
    uint32_t start = fork_add(b, body.start, end);
    link_to(b, body.end, end);
    return (struct fragment){start, end, body.counted};
}

static struct fragment repeat_without_count(struct builder *b, struct fragment body, bool once)
{
    uint32_t end = fork_add(b, NODE_NONE, NODE_NONE);
    uint32_t again = fork_add(b, body.start, end);
    link_to(b, body.end, again);
    return (struct fragment){once ? body.start : again, end, body.counted};
}

struct fragment fragment_repeat(struct builder *b, struct fragment body, uint32_t least,
                                uint32_t most)
{
    if (most == 0)
        return fragment_empty(b);
    if (most == COUNT_UNLIMITED && least <= 1)
        return repeat_without_count(b, body, least == 1);
    if (most == 1)
        return least == 0 ? fragment_optional(b, body) : body;
    /* A rule has one count at a time, so the inner one moves to another rule. */
    if (body.counted) {
        uint32_t rule = builder_rule_add(b);
        builder_rule_define(b, rule, body);
        body = fragment_call(b, rule);
    }
    uint32_t end = fork_add(b, NODE_NONE, NODE_NONE);
    uint32_t loop =
        builder_node(b, (struct node){.kind = NODE_LOOP, .next = body.start, .target = end});
    uint32_t count = builder_node(
        b,
        (struct node){
            .kind = NODE_COUNT, .next = body.start, .target = loop, .least = least, .most = most});
    link_to(b, body.end, loop);
    if (least == 0)
        count = fork_add(b, count, end);
    return (struct fragment){count, end, true};
}

/* ---- lists of texts ---- */

static int literal_order(const void *a, const void *b)
{
    const struct literal *one = a, *other = b;
    size_t common = one->count < other->count ? one->count : other->count;
    int order = common > 0 ? memcmp(one->bytes, other->bytes, common) : 0;
    return order != 0 ? order : (one->count > other->count) - (one->count < other->count);
}

/* A node for the sorted literals [from, to), which agree in their first `depth` bytes. A node's
 * branches are chained through FORKs. Returns the node; *left_out counts down the depth of the
 * recursion, which is one per byte of a literal where literals part. */
static uint32_t literals_node(struct builder *b, const struct literal *literals, size_t from,
                              size_t to, size_t depth, uint32_t end)
{
    if (b->status != ST_OK)
        return NODE_NONE;
    if (to - from == 1) { /* The rest of one text, from its last byte. */
        uint32_t next = end;
        for (size_t i = literals[from].count; i > depth; i--) {
            uint8_t byte = (uint8_t)literals[from].bytes[i - 1];
            next = builder_node(b, (struct node){.kind = NODE_RANGE,
                                                 .low = byte,
                                                 .high = byte,
                                                 .next = next,
                                                 .target = NODE_NONE});
        }
        return next;
    }
    uint32_t chain = NODE_NONE;
    while (from < to && literals[from].count == depth) { /* Equal texts count once. */
        chain = end;
        from++;
    }
    while (from < to) {
        uint8_t byte = (uint8_t)literals[from].bytes[depth];
        size_t same = from + 1;
        while (same < to && (uint8_t)literals[same].bytes[depth] == byte)
            same++;
        uint32_t rest = literals_node(b, literals, from, same, depth + 1, end);
        uint32_t node = builder_node(
            b,
            (struct node){
                .kind = NODE_RANGE, .low = byte, .high = byte, .next = rest, .target = NODE_NONE});
        chain = chain == NODE_NONE ? node : fork_add(b, node, chain);
        from = same;
    }
    return chain;
}

/* Two texts that agree in more bytes than this would nest the recursion too deep. */
#define LITERAL_COMMON_MAX 1024

struct fragment fragment_literals(struct builder *b, struct literal *literals, size_t count)
{
    if (count == 0)
        return fragment_never(b);
    qsort(literals, count, sizeof(*literals), literal_order);
    size_t kept = 1;
    for (size_t i = 1; i < count; i++) {
        const struct literal *one = &literals[kept - 1], *other = &literals[i];
        if (literal_order(one, other) == 0)
            continue;
        size_t common = 0;
        while (common < one->count && common < other->count &&
               one->bytes[common] == other->bytes[common])
            common++;
        if (common > LITERAL_COMMON_MAX)
            builder_fail(b, ST_TOO_LARGE, "two texts agree in more than %d bytes",
                         LITERAL_COMMON_MAX);
        literals[kept++] = *other;
    }
    uint32_t end = fork_add(b, NODE_NONE, NODE_NONE);
    uint32_t start = literals_node(b, literals, 0, kept, 0, end);
    return (struct fragment){start, end, false};
}
