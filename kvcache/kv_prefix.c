/* kv_prefix: one node per span, found through a chained hash table. A node has one or two parts:
 * its blocks of groups without a window, and its window blocks. The `readers` of a node are the
 * requests whose chain ends at the node, plus the nodes directly after it that have readers. So a
 * request counts at one node only, and that holds all nodes before it. Window blocks count their
 * readers one by one.
 *
 * Parts without readers are in a list in the order of eviction. A part is appended when its last
 * reader leaves, and a reader leaves the nodes of a chain from the end to the start. So, of the
 * parts without window blocks, those of a chain's later nodes precede those of its earlier nodes in
 * the list, and the first of them always belongs to the end of a chain. Window blocks may be
 * evicted earlier. If all layers of a model have windows, nodes may have no blocks and only connect
 * a chain. */
#include "kvcache/kv_prefix.h"

#include "common/prefix_hash.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

/* Parts of a node. */
enum { FULL, WINDOWS, PARTS };

struct links {
    uint32_t before; /* Neighbours in the list of eviction. */
    uint32_t after;
};

struct node {
    uint64_t hash;  /* Hash of the salt and all tokens up to the span's last one. */
    uint64_t salt;  /* Salt of the chain; all nodes of a chain have the same salt. */
    uint32_t depth; /* Number of spans of the chain that ends here. */
    bool used;      /* false = the other fields are invalid. */
    bool windows;   /* It has window blocks. */
    bool seen;      /* Seen by a running check. */
    uint32_t parent;
    uint32_t readers;
    uint32_t window_readers;
    uint32_t children;
    uint32_t bucket_next; /* Next node of the bucket; in an unused node, the next unused one. */
    struct links links[PARTS]; /* Valid for parts without readers. */
};

struct kv_prefix {
    struct kv_pool *pool;
    struct layer_groups groups;
    uint32_t group_count;
    uint32_t block_tokens;
    uint32_t block_count;
    uint32_t node_count;
    uint32_t unused; /* First unused node. */
    uint32_t bucket_mask;
    struct kv_prefix_listener listener; /* step_spans 0 = no listener. */
    /* See kv_prefix_added_set. */
    void (*added)(void *self, uint64_t salt, const uint32_t *tokens, uint32_t spans);
    void *added_self;
    uint32_t first; /* Start and end of the list of eviction: node * PARTS + part. */
    uint32_t last;
    uint32_t *buckets;
    uint32_t *tokens; /* block_tokens tokens per node. */
    kv_block_id *ids; /* [node_count][group_count] */
    bool *holds;      /* [block_count]: the block belongs to the cache. */
    struct node nodes[];
};

static uint32_t *tokens_of(const struct kv_prefix *prefix, uint32_t id)
{
    return prefix->tokens + (size_t)id * prefix->block_tokens;
}

static kv_block_id *ids_of(const struct kv_prefix *prefix, uint32_t id)
{
    return prefix->ids + (size_t)id * prefix->group_count;
}

static uint64_t span_hash(const struct kv_prefix *prefix, uint64_t hash, const uint32_t *tokens)
{
    return prefix_hash(hash, tokens, prefix->block_tokens);
}

static bool is_windowed(const struct kv_prefix *prefix)
{
    return prefix->groups.windowed != 0;
}

/* Returns true if the group's block belongs to this part of a node. */
static bool is_in_part(const struct kv_prefix *prefix, uint32_t group, uint32_t part)
{
    return layer_groups_windowed(&prefix->groups, group) == (part == WINDOWS);
}

static bool is_reported(const struct kv_prefix *prefix, const struct node *node)
{
    return node->used && (node->windows || !is_windowed(prefix)) &&
           prefix->listener.step_spans > 0 && node->depth % prefix->listener.step_spans == 0;
}

static void change_report(const struct kv_prefix *prefix, const struct node *node, bool held)
{
    if (is_reported(prefix, node))
        prefix->listener.changed(prefix->listener.self, node->hash, held);
}

static uint32_t *bucket_of(const struct kv_prefix *prefix, uint64_t hash)
{
    return &prefix->buckets[hash & prefix->bucket_mask];
}

/* Returns the node after `parent` with these tokens and this salt, or NONE. */
static uint32_t node_find(const struct kv_prefix *prefix, uint64_t hash, uint64_t salt,
                          uint32_t parent, const uint32_t *tokens)
{
    size_t bytes = prefix->block_tokens * sizeof(tokens[0]);
    for (uint32_t id = *bucket_of(prefix, hash); id != NONE; id = prefix->nodes[id].bucket_next) {
        const struct node *node = &prefix->nodes[id];
        if (node->hash == hash && node->salt == salt && node->parent == parent &&
            memcmp(tokens_of(prefix, id), tokens, bytes) == 0)
            return id;
    }
    return NONE;
}

/* ---- parts ---- */

static struct links *links_of(struct kv_prefix *prefix, uint32_t entry)
{
    return &prefix->nodes[entry / PARTS].links[entry % PARTS];
}

static void list_append(struct kv_prefix *prefix, uint32_t entry)
{
    *links_of(prefix, entry) = (struct links){.before = prefix->last, .after = NONE};
    if (prefix->last == NONE)
        prefix->first = entry;
    else
        links_of(prefix, prefix->last)->after = entry;
    prefix->last = entry;
}

static void list_remove(struct kv_prefix *prefix, uint32_t entry)
{
    const struct links links = *links_of(prefix, entry);
    if (links.before == NONE)
        prefix->first = links.after;
    else
        links_of(prefix, links.before)->after = links.after;
    if (links.after == NONE)
        prefix->last = links.before;
    else
        links_of(prefix, links.after)->before = links.before;
}

static void part_mark(struct kv_prefix *prefix, uint32_t id, uint32_t part, enum kv_state state)
{
    for (uint32_t group = 0; group < prefix->group_count; group++)
        if (is_in_part(prefix, group, part))
            kv_pool_state_set(prefix->pool, KV_PREFIX_OWNER, &ids_of(prefix, id)[group], 1, state);
}

static void part_hold(struct kv_prefix *prefix, uint32_t id, uint32_t part)
{
    list_remove(prefix, id * PARTS + part);
    part_mark(prefix, id, part, KV_LIVE);
}

static void part_leave(struct kv_prefix *prefix, uint32_t id, uint32_t part)
{
    part_mark(prefix, id, part, KV_CACHED);
    list_append(prefix, id * PARTS + part);
}

/* Makes the owner's blocks of span depth - 1 the node's, as a part without readers. */
static void part_add(struct kv_prefix *prefix, uint32_t id, uint32_t part, kv_owner_id owner,
                     const struct kv_tables *tables)
{
    const uint32_t span = prefix->nodes[id].depth - 1;
    for (uint32_t group = 0; group < prefix->group_count; group++) {
        if (!is_in_part(prefix, group, part))
            continue;
        kv_block_id *block = &ids_of(prefix, id)[group];
        *block = kv_tables_id(tables, group, span);
        assert(!prefix->holds[*block]);
        prefix->holds[*block] = true;
        kv_pool_owner_change(prefix->pool, owner, KV_PREFIX_OWNER, block, 1);
    }
    part_leave(prefix, id, part);
}

static void part_free(struct kv_prefix *prefix, uint32_t id, uint32_t part)
{
    list_remove(prefix, id * PARTS + part);
    for (uint32_t group = 0; group < prefix->group_count; group++) {
        if (!is_in_part(prefix, group, part))
            continue;
        kv_block_id *block = &ids_of(prefix, id)[group];
        prefix->holds[*block] = false;
        kv_pool_free(prefix->pool, KV_PREFIX_OWNER, block, 1);
    }
}

/* ---- readers ---- */

static void chain_hold(struct kv_prefix *prefix, uint32_t end)
{
    for (uint32_t id = end; id != NONE; id = prefix->nodes[id].parent) {
        if (prefix->nodes[id].readers++ > 0)
            return;
        part_hold(prefix, id, FULL);
    }
}

static void chain_leave(struct kv_prefix *prefix, uint32_t end)
{
    for (uint32_t id = end; id != NONE; id = prefix->nodes[id].parent) {
        assert(prefix->nodes[id].used && prefix->nodes[id].readers > 0);
        if (--prefix->nodes[id].readers > 0)
            return;
        part_leave(prefix, id, FULL);
    }
}

/* Returns the node of the chain that ends at `end` with this depth; NONE if depth is 0. */
static uint32_t node_at(const struct kv_prefix *prefix, uint32_t end, uint32_t depth)
{
    uint32_t id = end;
    while (id != NONE && prefix->nodes[id].depth > depth)
        id = prefix->nodes[id].parent;
    return id;
}

static void windows_hold(struct kv_prefix *prefix, uint32_t end, uint32_t first,
                         uint32_t window_end)
{
    uint32_t id = node_at(prefix, end, window_end);
    for (uint32_t span = window_end; span > first; span--, id = prefix->nodes[id].parent)
        if (prefix->nodes[id].window_readers++ == 0)
            part_hold(prefix, id, WINDOWS);
}

static void windows_leave(struct kv_prefix *prefix, uint32_t end, uint32_t first,
                          uint32_t window_end)
{
    uint32_t id = node_at(prefix, end, window_end);
    for (uint32_t span = window_end; span > first; span--, id = prefix->nodes[id].parent) {
        assert(prefix->nodes[id].used && prefix->nodes[id].window_readers > 0);
        if (--prefix->nodes[id].window_readers == 0)
            part_leave(prefix, id, WINDOWS);
    }
}

static uint32_t end_of(const struct kv_prefix_reader *reader)
{
    return reader->chain_end - 1; /* 0 - 1 is NONE. */
}

void kv_prefix_windows_read_end(struct kv_prefix *prefix, struct kv_prefix_reader *reader)
{
    windows_leave(prefix, end_of(reader), reader->window_first, reader->window_end);
    reader->window_first = reader->window_end = 0;
}

void kv_prefix_read_end(struct kv_prefix *prefix, struct kv_prefix_reader *reader)
{
    kv_prefix_windows_read_end(prefix, reader);
    chain_leave(prefix, end_of(reader));
    *reader = (struct kv_prefix_reader){0};
}

/* ---- eviction ---- */

static void windows_evict(struct kv_prefix *prefix, uint32_t id)
{
    struct node *node = &prefix->nodes[id];
    assert(node->windows && node->window_readers == 0);
    change_report(prefix, node, false);
    part_free(prefix, id, WINDOWS);
    node->windows = false;
}

static void node_evict(struct kv_prefix *prefix, uint32_t id)
{
    struct node *node = &prefix->nodes[id];
    assert(node->used && node->readers == 0 && node->children == 0);
    if (node->windows)
        windows_evict(prefix, id);
    else
        change_report(prefix, node, false);
    uint32_t *link = bucket_of(prefix, node->hash);
    while (*link != id)
        link = &prefix->nodes[*link].bucket_next;
    *link = node->bucket_next;
    if (node->parent != NONE)
        prefix->nodes[node->parent].children--;
    part_free(prefix, id, FULL);
    node->used = false;
    node->bucket_next = prefix->unused;
    prefix->unused = id;
}

/* Evicts the first part of the list. */
static void first_evict(struct kv_prefix *prefix)
{
    assert(prefix->first != NONE);
    const uint32_t id = prefix->first / PARTS;
    if (prefix->first % PARTS == WINDOWS)
        windows_evict(prefix, id);
    else
        node_evict(prefix, id);
}

/* Frees at least `count` blocks. */
static void reclaim(void *self, uint32_t count)
{
    struct kv_prefix *prefix = self;
    const uint32_t wanted = kv_pool_state_count(prefix->pool, KV_FREE) + count;
    while (kv_pool_state_count(prefix->pool, KV_FREE) < wanted)
        first_evict(prefix);
}

/* ---- opening ---- */

static void prefix_free(struct kv_prefix *prefix)
{
    free(prefix->buckets);
    free(prefix->tokens);
    free(prefix->ids);
    free(prefix->holds);
    free(prefix);
}

enum status kv_prefix_open(struct kv_pool *pool, const struct layer_groups *groups,
                           uint32_t block_tokens, struct kv_prefix **out)
{
    assert(block_tokens >= 1);
    const uint32_t group_count = layer_groups_count(groups);
    const uint32_t block_count = kv_pool_block_count(pool);
    const uint32_t full = group_count - (uint32_t)__builtin_popcount(groups->windowed);
    /* Each node has `full` blocks. If that is 0, there may be nodes without blocks. */
    const uint32_t node_count = full > 1 && block_count >= full ? block_count / full : block_count;
    uint64_t buckets = 1;
    while (buckets < node_count)
        buckets *= 2;
    struct kv_prefix *prefix =
        calloc(1, sizeof(*prefix) + (size_t)node_count * sizeof(prefix->nodes[0]));
    if (prefix == NULL)
        return ST_NO_MEMORY;
    prefix->buckets = malloc(buckets * sizeof(prefix->buckets[0]));
    prefix->tokens = malloc((size_t)node_count * block_tokens * sizeof(prefix->tokens[0]));
    prefix->ids = malloc((size_t)node_count * group_count * sizeof(prefix->ids[0]));
    prefix->holds = calloc(block_count, sizeof(prefix->holds[0]));
    if (prefix->buckets == NULL || prefix->tokens == NULL || prefix->ids == NULL ||
        prefix->holds == NULL) {
        prefix_free(prefix);
        return ST_NO_MEMORY;
    }
    for (uint64_t i = 0; i < buckets; i++)
        prefix->buckets[i] = NONE;
    for (uint32_t i = 0; i < node_count; i++)
        prefix->nodes[i].bucket_next = i + 1 < node_count ? i + 1 : NONE;
    prefix->pool = pool;
    prefix->groups = *groups;
    prefix->group_count = group_count;
    prefix->block_tokens = block_tokens;
    prefix->block_count = block_count;
    prefix->node_count = node_count;
    prefix->bucket_mask = (uint32_t)(buckets - 1);
    prefix->first = NONE;
    prefix->last = NONE;
    kv_pool_reclaimer_set(pool, reclaim, prefix);
    *out = prefix;
    return ST_OK;
}

void kv_prefix_close(struct kv_prefix *prefix)
{
    if (prefix == NULL)
        return;
    prefix->listener = (struct kv_prefix_listener){0}; /* The listener closes the cache itself. */
    while (prefix->first != NONE)
        first_evict(prefix);
    kv_pool_reclaimer_set(prefix->pool, NULL, NULL);
    prefix_free(prefix);
}

/* ---- looking up ---- */

/* What a look-up has found. */
struct found {
    uint32_t end; /* Last node; NONE = none. */
    uint32_t spans;
    uint32_t window_first; /* As in struct kv_prefix_reader. */
    uint32_t window_end;
};

/* Returns true if the window blocks of the spans [first, spans), which are all there, are those
 * that the token after the chain sees; *first_seen_out is the first of them. */
static bool windows_suffice(const struct kv_prefix *prefix, uint32_t first, uint32_t spans,
                            uint32_t *first_seen_out)
{
    *first_seen_out = layer_groups_window_first(&prefix->groups, prefix->block_tokens,
                                                spans * prefix->block_tokens);
    return first <= *first_seen_out;
}

static struct found chain_find(const struct kv_prefix *prefix, uint64_t salt,
                               const uint32_t *tokens, uint32_t spans_max, uint32_t window_first)
{
    struct found found = {.end = NONE};
    uint64_t hash = salt;
    uint32_t parent = NONE;
    uint32_t run = 0;                   /* All spans from this one on have window blocks. */
    uint32_t window_end = window_first; /* Without KV_PREFIX_WHOLE_WINDOW. */
    for (uint32_t span = 0; span < spans_max; span++) {
        const uint32_t *own = tokens + (size_t)span * prefix->block_tokens;
        uint32_t first_seen = 0;
        hash = span_hash(prefix, hash, own);
        parent = node_find(prefix, hash, salt, parent, own);
        if (parent == NONE)
            break;
        const bool windows = prefix->nodes[parent].windows;
        if (!windows)
            run = span + 1;
        if (window_first != KV_PREFIX_WHOLE_WINDOW) {
            found.end = parent;
            found.spans = span + 1;
            window_end += windows && window_end == span ? 1 : 0;
        } else if (!is_windowed(prefix) || windows_suffice(prefix, run, span + 1, &first_seen)) {
            found = (struct found){parent, span + 1, first_seen, span + 1};
        }
    }
    if (!is_windowed(prefix)) {
        found.window_first = found.window_end = 0;
    } else if (window_first != KV_PREFIX_WHOLE_WINDOW && window_end > window_first) {
        found.window_first = window_first;
        found.window_end = window_end;
    }
    return found;
}

static void tables_fill(const struct kv_prefix *prefix, const struct found *found,
                        struct kv_tables *tables)
{
    uint32_t id = found->end;
    for (uint32_t span = found->spans; span-- > 0; id = prefix->nodes[id].parent)
        for (uint32_t group = 0; group < prefix->group_count; group++) {
            const bool windowed = layer_groups_windowed(&prefix->groups, group);
            const bool read =
                !windowed || (span >= found->window_first && span < found->window_end);
            tables->ids[(size_t)group * tables->stride + span] =
                read ? ids_of(prefix, id)[group] : 0;
        }
    tables->cached_spans = found->spans;
    tables->window_cached_spans = found->window_end;
}

uint32_t kv_prefix_read_begin(struct kv_prefix *prefix, uint64_t salt, const uint32_t *tokens,
                              uint32_t spans_max, uint32_t window_first, struct kv_tables *tables,
                              struct kv_prefix_reader *reader_out)
{
    const struct found found = chain_find(prefix, salt, tokens, spans_max, window_first);
    chain_hold(prefix, found.end);
    windows_hold(prefix, found.end, found.window_first, found.window_end);
    tables_fill(prefix, &found, tables);
    *reader_out = (struct kv_prefix_reader){.chain_end = found.end + 1,
                                            .spans = found.spans,
                                            .window_first = found.window_first,
                                            .window_end = found.window_end};
    return found.spans;
}

/* ---- adding ---- */

/* Returns an unused node, and evicts parts until there is one; NONE = all nodes have readers. */
static uint32_t node_take(struct kv_prefix *prefix)
{
    while (prefix->unused == NONE && prefix->first != NONE)
        first_evict(prefix);
    const uint32_t id = prefix->unused;
    if (id != NONE)
        prefix->unused = prefix->nodes[id].bucket_next;
    return id;
}

/* Adds a node without window blocks and without readers. */
static void node_add(struct kv_prefix *prefix, uint32_t id, uint64_t hash, uint32_t parent,
                     const struct kv_prefix_blocks *blocks, const uint32_t *tokens)
{
    uint32_t *bucket = bucket_of(prefix, hash);
    prefix->nodes[id] = (struct node){
        .hash = hash,
        .salt = blocks->salt,
        .depth = parent == NONE ? 1 : prefix->nodes[parent].depth + 1,
        .used = true,
        .parent = parent,
        .bucket_next = *bucket,
    };
    *bucket = id;
    memcpy(tokens_of(prefix, id), tokens, prefix->block_tokens * sizeof(tokens[0]));
    if (parent != NONE)
        prefix->nodes[parent].children++;
    part_add(prefix, id, FULL, blocks->owner, blocks->tables);
}

/* Finds or adds the node of the span after `parent`, and gives it the request's window blocks if it
 * has none. Returns NONE if there is no room for another node. */
static uint32_t span_add(struct kv_prefix *prefix, const struct kv_prefix_blocks *blocks,
                         uint32_t span, uint32_t parent, uint64_t hash)
{
    const uint32_t *tokens = blocks->tokens + (size_t)span * prefix->block_tokens;
    uint32_t id = node_find(prefix, hash, blocks->salt, parent, tokens);
    const bool found = id != NONE;
    if (!found)
        id = node_take(prefix);
    if (id == NONE)
        return NONE;
    if (!found)
        node_add(prefix, id, hash, parent, blocks, tokens);
    struct node *node = &prefix->nodes[id];
    const bool complete = found && (node->windows || !is_windowed(prefix));
    if (is_windowed(prefix) && !node->windows && span >= blocks->window_valid_first &&
        span >= blocks->tables->window_cached_spans) {
        part_add(prefix, id, WINDOWS, blocks->owner, blocks->tables);
        node->windows = true;
    }
    if (!complete)
        change_report(prefix, node, true);
    return id;
}

void kv_prefix_listen(struct kv_prefix *prefix, const struct kv_prefix_listener *listener)
{
    assert(prefix->first == NONE && listener->step_spans > 0);
    prefix->listener = *listener;
}

void kv_prefix_added_set(struct kv_prefix *prefix,
                         void (*added)(void *self, uint64_t salt, const uint32_t *tokens,
                                       uint32_t spans),
                         void *self)
{
    prefix->added = added;
    prefix->added_self = self;
}

uint32_t kv_prefix_list(const struct kv_prefix *prefix, uint64_t *hashes_out, uint32_t hashes_max)
{
    uint32_t count = 0;
    for (uint32_t id = 0; id < prefix->node_count && count < hashes_max; id++)
        if (is_reported(prefix, &prefix->nodes[id]))
            hashes_out[count++] = prefix->nodes[id].hash;
    return count;
}

/* The caller of kv_prefix_add has become a reader of the window blocks of the spans [first, spans)
 * of the chain that ends at `end`. After this function, the caller reads only those from span
 * `read` on. The others are now in the order of eviction, the last span first. */
static void windows_reader_set(struct kv_prefix *prefix, uint32_t end, uint32_t first,
                               uint32_t read, struct kv_prefix_reader *reader)
{
    const uint32_t spans = prefix->nodes[end].depth;
    if (read >= spans) {
        windows_leave(prefix, end, first, spans);
        return;
    }
    kv_prefix_windows_read_end(prefix, reader);
    reader->window_first = first < read ? read : first;
    reader->window_end = spans;
    windows_leave(prefix, end, first, reader->window_first);
}

void kv_prefix_add(struct kv_prefix *prefix, const struct kv_prefix_blocks *blocks,
                   struct kv_prefix_reader *reader)
{
    uint64_t hash = blocks->salt;
    uint32_t end = NONE;
    /* The caller reads the window blocks of the spans from `run` to the end of the chain. */
    uint32_t run = blocks->window_valid_first < blocks->window_read_first
                       ? blocks->window_valid_first
                       : blocks->window_read_first;
    for (uint32_t span = 0; span < blocks->spans; span++) {
        hash = span_hash(prefix, hash, blocks->tokens + (size_t)span * prefix->block_tokens);
        const uint32_t id = span_add(prefix, blocks, span, end, hash);
        if (id == NONE)
            break;
        /* The chain must not be evicted to make room for its end. */
        chain_hold(prefix, id);
        chain_leave(prefix, end);
        if (span >= run && prefix->nodes[id].windows) {
            windows_hold(prefix, id, span, span + 1);
        } else if (span >= run) {
            windows_leave(prefix, end, run, span);
            run = span + 1;
        }
        end = id;
    }
    if (end == NONE)
        return;
    windows_reader_set(prefix, end, run, blocks->window_read_first, reader);
    chain_leave(prefix, end_of(reader));
    reader->chain_end = end + 1;
    reader->spans = prefix->nodes[end].depth;
    if (prefix->added != NULL)
        prefix->added(prefix->added_self, blocks->salt, blocks->tokens, reader->spans);
}

void kv_prefix_own_blocks_free(const struct kv_prefix *prefix, kv_owner_id owner,
                               const struct kv_tables *tables, uint32_t spans)
{
    for (uint32_t group = 0; group < prefix->group_count; group++)
        for (uint32_t span = 0; span < spans; span++) {
            const kv_block_id block = kv_tables_id(tables, group, span);
            if (kv_tables_owns(tables, &prefix->groups, group, span) &&
                kv_pool_owns(prefix->pool, owner, block))
                kv_pool_free(prefix->pool, owner, &block, 1);
        }
}

/* ---- checks ---- */

/* Checks that the list contains each part without readers, each node after all nodes that follow it
 * in its chain. */
static bool list_check(struct kv_prefix *prefix, struct error *error)
{
    uint32_t blocks = 0, parts = 0, before = NONE;
    bool good = true;
    for (uint32_t id = 0; id < prefix->node_count; id++) {
        const struct node *node = &prefix->nodes[id];
        prefix->nodes[id].seen = false;
        parts += node->used && node->readers == 0 ? 1 : 0;
        parts += node->used && node->windows && node->window_readers == 0 ? 1 : 0;
    }
    for (uint32_t entry = prefix->first; good && entry != NONE;
         before = entry, entry = links_of(prefix, entry)->after) {
        struct node *node = &prefix->nodes[entry / PARTS];
        const uint32_t part = entry % PARTS;
        good = node->used && links_of(prefix, entry)->before == before && parts-- > 0;
        if (good && part == WINDOWS)
            good = node->windows && node->window_readers == 0;
        else if (good)
            good = node->readers == 0 && !node->seen &&
                   (node->parent == NONE || !prefix->nodes[node->parent].seen);
        node->seen |= part == FULL;
        for (uint32_t group = 0; good && group < prefix->group_count; group++)
            blocks += is_in_part(prefix, group, part) ? 1 : 0;
    }
    if (!good || parts != 0) {
        error_set(error, ST_INVALID, "list of eviction is broken after entry %u", before);
        return false;
    }
    if (blocks != kv_pool_state_count(prefix->pool, KV_CACHED)) {
        error_set(error, ST_INVALID, "%u blocks can be evicted, the pool says %u", blocks,
                  kv_pool_state_count(prefix->pool, KV_CACHED));
        return false;
    }
    return true;
}

static bool node_check(const struct kv_prefix *prefix, uint32_t id)
{
    const struct node *node = &prefix->nodes[id];
    bool root = node->parent == NONE;
    if (!root && (node->parent >= prefix->node_count || !prefix->nodes[node->parent].used))
        return false;
    const struct node *parent = root ? NULL : &prefix->nodes[node->parent];
    uint64_t hash = span_hash(prefix, root ? node->salt : parent->hash, tokens_of(prefix, id));
    for (uint32_t group = 0; group < prefix->group_count; group++)
        if ((node->windows || is_in_part(prefix, group, FULL)) &&
            !prefix->holds[ids_of(prefix, id)[group]])
            return false;
    return hash == node->hash && node->depth == (root ? 1 : parent->depth + 1) &&
           (root || parent->salt == node->salt) &&
           node_find(prefix, hash, node->salt, node->parent, tokens_of(prefix, id)) == id &&
           (root || (parent->children > 0 && (node->readers == 0 || parent->readers > 0))) &&
           (node->readers > 0 || node->seen) &&
           (node->window_readers == 0 || (node->windows && node->readers > 0));
}

bool kv_prefix_check(const struct kv_prefix *prefix, struct error *error)
{
    /* A check changes only the `seen` marks, so it may take a const cache. */
    if (!list_check((struct kv_prefix *)prefix, error))
        return false;
    uint64_t children = 0;
    uint64_t behind = 0;
    for (uint32_t id = 0; id < prefix->node_count; id++) {
        if (!prefix->nodes[id].used)
            continue;
        if (!node_check(prefix, id)) {
            error_set(error, ST_INVALID, "prefix chain is broken at span %u", id);
            return false;
        }
        children += prefix->nodes[id].children;
        behind += prefix->nodes[id].parent != NONE ? 1 : 0;
    }
    if (children != behind) {
        error_set(error, ST_INVALID, "%llu spans are behind others, which count %llu",
                  (unsigned long long)behind, (unsigned long long)children);
        return false;
    }
    return true;
}
