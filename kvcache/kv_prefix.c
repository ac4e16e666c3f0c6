/* kv_prefix: one node per block, found through a chained hash table. The `readers` of a node are
 * the requests whose chain ends at the node, plus the nodes directly after it that have readers. So
 * a request counts at one node only, and that holds all nodes before it.
 *
 * Nodes without readers are in a list in the order of eviction. A node is appended when its last
 * reader leaves, and a chain is left from its end to its start. So the nodes after a node always
 * precede it in the list, and the first node of the list is the end of a chain. */
#include "kvcache/kv_prefix.h"

#include "common/prefix_hash.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NONE KV_BLOCK_NONE

struct node {
    uint64_t hash;  /* Hash of the salt and all tokens up to the block's last one. */
    uint64_t salt;  /* The same for all blocks of a chain. */
    uint32_t depth; /* Number of blocks of the chain that ends here. */
    bool used;      /* false = the other fields are invalid. */
    bool seen;      /* Seen by a running check. */
    uint32_t parent;
    uint32_t readers;
    uint32_t children;
    uint32_t bucket_next;
    uint32_t before; /* Neighbours in the list of eviction, if readers == 0. */
    uint32_t after;
};

struct kv_prefix {
    struct kv_pool *pool;
    uint32_t block_tokens;
    uint32_t block_count;
    uint32_t bucket_mask;
    struct kv_prefix_listener listener; /* step 0 = no listener. */
    uint32_t first;                     /* Start and end of the list of eviction. */
    uint32_t last;
    uint32_t *buckets;
    uint32_t *tokens; /* block_tokens tokens per block. */
    struct node nodes[];
};

static uint32_t *tokens_of(const struct kv_prefix *prefix, uint32_t id)
{
    return prefix->tokens + (size_t)id * prefix->block_tokens;
}

static uint64_t block_hash(const struct kv_prefix *prefix, uint64_t hash, const uint32_t *tokens)
{
    return prefix_hash(hash, tokens, prefix->block_tokens);
}

static bool is_reported(const struct kv_prefix *prefix, const struct node *node)
{
    return node->used && prefix->listener.step > 0 && node->depth % prefix->listener.step == 0;
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

static void list_append(struct kv_prefix *prefix, uint32_t id)
{
    prefix->nodes[id].before = prefix->last;
    prefix->nodes[id].after = NONE;
    if (prefix->last == NONE)
        prefix->first = id;
    else
        prefix->nodes[prefix->last].after = id;
    prefix->last = id;
}

static void list_remove(struct kv_prefix *prefix, uint32_t id)
{
    const struct node *node = &prefix->nodes[id];
    if (node->before == NONE)
        prefix->first = node->after;
    else
        prefix->nodes[node->before].after = node->after;
    if (node->after == NONE)
        prefix->last = node->before;
    else
        prefix->nodes[node->after].before = node->before;
}

static void chain_hold(struct kv_prefix *prefix, uint32_t end)
{
    for (uint32_t id = end; id != NONE; id = prefix->nodes[id].parent) {
        if (prefix->nodes[id].readers++ > 0)
            return;
        list_remove(prefix, id);
        kv_pool_mark(prefix->pool, KV_PREFIX_OWNER, &id, 1, KV_LIVE);
    }
}

void kv_prefix_read_end(struct kv_prefix *prefix, kv_block_id end)
{
    for (uint32_t id = end; id != NONE; id = prefix->nodes[id].parent) {
        assert(prefix->nodes[id].used && prefix->nodes[id].readers > 0);
        if (--prefix->nodes[id].readers > 0)
            return;
        kv_pool_mark(prefix->pool, KV_PREFIX_OWNER, &id, 1, KV_CACHED);
        list_append(prefix, id);
    }
}

static void node_evict(struct kv_prefix *prefix, uint32_t id)
{
    struct node *node = &prefix->nodes[id];
    assert(node->used && node->readers == 0 && node->children == 0);
    uint32_t *link = bucket_of(prefix, node->hash);
    while (*link != id)
        link = &prefix->nodes[*link].bucket_next;
    *link = node->bucket_next;
    list_remove(prefix, id);
    if (node->parent != NONE)
        prefix->nodes[node->parent].children--;
    change_report(prefix, node, false);
    node->used = false;
    kv_pool_free(prefix->pool, KV_PREFIX_OWNER, &id, 1);
}

static void reclaim(void *self, uint32_t count)
{
    struct kv_prefix *prefix = self;
    for (uint32_t i = 0; i < count; i++) {
        assert(prefix->first != NONE);
        node_evict(prefix, prefix->first);
    }
}

enum status kv_prefix_open(struct kv_pool *pool, uint32_t block_tokens, struct kv_prefix **out)
{
    assert(block_tokens >= 1);
    uint32_t block_count = kv_pool_block_count(pool);
    uint64_t buckets = 1;
    while (buckets < block_count)
        buckets *= 2;
    struct kv_prefix *prefix =
        calloc(1, sizeof(*prefix) + (size_t)block_count * sizeof(prefix->nodes[0]));
    if (prefix == NULL)
        return ST_NO_MEMORY;
    prefix->buckets = malloc(buckets * sizeof(prefix->buckets[0]));
    prefix->tokens = malloc((size_t)block_count * block_tokens * sizeof(prefix->tokens[0]));
    if (prefix->buckets == NULL || prefix->tokens == NULL) {
        free(prefix->buckets);
        free(prefix->tokens);
        free(prefix);
        return ST_NO_MEMORY;
    }
    for (uint64_t i = 0; i < buckets; i++)
        prefix->buckets[i] = NONE;
    prefix->pool = pool;
    prefix->block_tokens = block_tokens;
    prefix->block_count = block_count;
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
        node_evict(prefix, prefix->first);
    kv_pool_reclaimer_set(prefix->pool, NULL, NULL);
    free(prefix->buckets);
    free(prefix->tokens);
    free(prefix);
}

uint32_t kv_prefix_read_begin(struct kv_prefix *prefix, uint64_t salt, const uint32_t *tokens,
                              uint32_t block_count_max, kv_block_id *ids_out, kv_block_id *end_out)
{
    uint64_t hash = salt;
    uint32_t count = 0;
    *end_out = NONE;
    while (count < block_count_max) {
        const uint32_t *own = tokens + (size_t)count * prefix->block_tokens;
        hash = block_hash(prefix, hash, own);
        uint32_t id = node_find(prefix, hash, salt, *end_out, own);
        if (id == NONE)
            break;
        ids_out[count++] = id;
        *end_out = id;
    }
    chain_hold(prefix, *end_out);
    return count;
}

/* Adds a node without readers. Its block belongs to `owner` until this call. */
static void node_add(struct kv_prefix *prefix, kv_owner_id owner, uint32_t id, uint64_t hash,
                     uint64_t salt, uint32_t parent, const uint32_t *tokens)
{
    assert(!prefix->nodes[id].used);
    uint32_t *bucket = bucket_of(prefix, hash);
    prefix->nodes[id] = (struct node){
        .hash = hash,
        .salt = salt,
        .depth = parent == NONE ? 1 : prefix->nodes[parent].depth + 1,
        .used = true,
        .parent = parent,
        .bucket_next = *bucket,
    };
    *bucket = id;
    memcpy(tokens_of(prefix, id), tokens, prefix->block_tokens * sizeof(tokens[0]));
    if (parent != NONE)
        prefix->nodes[parent].children++;
    kv_pool_owner_change(prefix->pool, owner, KV_PREFIX_OWNER, &id, 1);
    kv_pool_mark(prefix->pool, KV_PREFIX_OWNER, &id, 1, KV_CACHED);
    list_append(prefix, id);
    change_report(prefix, &prefix->nodes[id], true);
}

void kv_prefix_listen(struct kv_prefix *prefix, const struct kv_prefix_listener *listener)
{
    assert(prefix->first == NONE && listener->step > 0);
    prefix->listener = *listener;
}

uint32_t kv_prefix_list(const struct kv_prefix *prefix, uint64_t *hashes_out, uint32_t count_max)
{
    uint32_t count = 0;
    for (uint32_t id = 0; id < prefix->block_count && count < count_max; id++)
        if (is_reported(prefix, &prefix->nodes[id]))
            hashes_out[count++] = prefix->nodes[id].hash;
    return count;
}

void kv_prefix_add(struct kv_prefix *prefix, kv_owner_id owner, uint64_t salt,
                   const uint32_t *tokens, const kv_block_id *ids, uint32_t block_count,
                   kv_block_id *end)
{
    uint64_t hash = salt;
    uint32_t parent = NONE;
    for (uint32_t i = 0; i < block_count; i++) {
        const uint32_t *own = tokens + (size_t)i * prefix->block_tokens;
        hash = block_hash(prefix, hash, own);
        uint32_t id = node_find(prefix, hash, salt, parent, own);
        if (id == NONE) {
            id = ids[i];
            node_add(prefix, owner, id, hash, salt, parent, own);
        }
        parent = id;
    }
    if (block_count == 0)
        return;
    chain_hold(prefix, parent); /* This restores the order of the list (see the top of the file). */
    kv_prefix_read_end(prefix, *end);
    *end = parent;
}

bool kv_prefix_holds(const struct kv_prefix *prefix, kv_block_id id)
{
    assert(id < prefix->block_count);
    return prefix->nodes[id].used;
}

/* Checks that the list contains each node without readers, each after all nodes that follow it in
 * its chain. */
static bool list_check(struct kv_prefix *prefix, struct error *error)
{
    uint32_t listed = 0;
    uint32_t before = NONE;
    bool good = true;
    for (uint32_t id = 0; id < prefix->block_count; id++)
        prefix->nodes[id].seen = false;
    for (uint32_t id = prefix->first; good && id != NONE; id = prefix->nodes[id].after) {
        struct node *node = &prefix->nodes[id];
        good = node->used && node->readers == 0 && !node->seen && node->before == before &&
               (node->parent == NONE || !prefix->nodes[node->parent].seen);
        if (!good)
            error_set(error, ST_INVALID, "list of eviction is broken at block %u", id);
        node->seen = true;
        before = id;
        listed++;
    }
    if (good && listed != kv_pool_count(prefix->pool, KV_CACHED)) {
        error_set(error, ST_INVALID, "%u blocks can be evicted, the pool says %u", listed,
                  kv_pool_count(prefix->pool, KV_CACHED));
        good = false;
    }
    return good;
}

static bool node_check(const struct kv_prefix *prefix, uint32_t id)
{
    const struct node *node = &prefix->nodes[id];
    bool root = node->parent == NONE;
    if (!root && (node->parent >= prefix->block_count || !prefix->nodes[node->parent].used))
        return false;
    const struct node *parent = root ? NULL : &prefix->nodes[node->parent];
    uint64_t hash = block_hash(prefix, root ? node->salt : parent->hash, tokens_of(prefix, id));
    return hash == node->hash && node->depth == (root ? 1 : parent->depth + 1) &&
           (root || parent->salt == node->salt) &&
           node_find(prefix, hash, node->salt, node->parent, tokens_of(prefix, id)) == id &&
           (root || (parent->children > 0 && (node->readers == 0 || parent->readers > 0))) &&
           (node->readers > 0 || node->seen);
}

bool kv_prefix_check(const struct kv_prefix *prefix, struct error *error)
{
    /* A check changes only the `seen` marks, so it may take a const cache. */
    if (!list_check((struct kv_prefix *)prefix, error))
        return false;
    uint64_t children = 0;
    uint64_t behind = 0;
    for (uint32_t id = 0; id < prefix->block_count; id++) {
        if (!prefix->nodes[id].used)
            continue;
        if (!node_check(prefix, id)) {
            error_set(error, ST_INVALID, "prefix chain is broken at block %u", id);
            return false;
        }
        children += prefix->nodes[id].children;
        behind += prefix->nodes[id].parent != NONE ? 1 : 0;
    }
    if (children != behind) {
        error_set(error, ST_INVALID, "%llu blocks are behind others, which count %llu",
                  (unsigned long long)behind, (unsigned long long)children);
        return false;
    }
    return true;
}
