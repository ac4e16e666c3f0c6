/* kv_pool: free blocks form maximal runs of consecutive ids ("extents"). The first and the last
 * block of an extent hold its length (boundary tags), so a freed block joins its neighbours in
 * O(1). Extents are in lists by the power of two of their length, so an extent of sufficient length
 * is found in O(1). A take that fits no single extent uses up the longest ones, which costs
 * O(count).
 *
 * Each owner that holds blocks has a record (kv_owner.c) with the number of its blocks and its
 * lease. */
#include "kvcache/kv_pool.h"

#include "kvcache/kv_owner.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define CLASS_COUNT 32 /* Powers of two of a uint32_t. */
/* Extents of one class that are compared for the best fit. Bounds the cost of a take. */
#define FIT_LOOKS_MAX 8

struct block {
    uint32_t owner;  /* Record in kv_owners; KV_OWNER_NONE = free. */
    uint32_t length; /* Length of the extent. Valid in its first and last block. */
    uint32_t next;   /* Extents of the same class, linked by their first blocks. */
    uint32_t previous;
    uint8_t state;
    uint8_t kind; /* enum layer_kind. Valid if the block is not free. */
};

struct kv_pool {
    uint32_t block_count;
    uint32_t state_counts[KV_STATE_COUNT];
    uint32_t kind_counts[LAYER_KIND_COUNT]; /* Blocks that are not free. */
    uint32_t classes[CLASS_COUNT]; /* First block of the newest extent; KV_BLOCK_NONE = empty. */
    struct kv_owners *owners;
    void (*reclaim)(void *self, uint32_t count); /* NULL = no block is cached. */
    void *reclaim_self;
    struct block blocks[];
};

const char *kv_state_name(enum kv_state state)
{
    static const char *const names[KV_STATE_COUNT] = {"free", "reserved", "filling",
                                                      "live", "cached",   "quarantined"};
    assert(state < KV_STATE_COUNT);
    return names[state];
}

/* The changes that kv_pool_state_set allows. Only kv_pool_free leads to KV_FREE, from every state.
 * If the machine itself writes a block within one batch, no other part sees the block half full, so
 * it may go from reserved to live. */
static const bool legal[KV_STATE_COUNT][KV_STATE_COUNT] = {
    [KV_RESERVED] = {[KV_FILLING] = true, [KV_LIVE] = true, [KV_QUARANTINED] = true},
    [KV_FILLING] = {[KV_LIVE] = true, [KV_QUARANTINED] = true},
    [KV_LIVE] = {[KV_CACHED] = true, [KV_QUARANTINED] = true},
    [KV_CACHED] = {[KV_LIVE] = true},
};

static bool state_is_leased(enum kv_state state)
{
    return state == KV_RESERVED || state == KV_QUARANTINED;
}

static uint32_t class_of(uint32_t length)
{
    return 31u - (uint32_t)__builtin_clz(length);
}

static void extent_link(struct kv_pool *pool, uint32_t first, uint32_t length)
{
    uint32_t *head = &pool->classes[class_of(length)];
    struct block *block = &pool->blocks[first];
    block->length = length;
    pool->blocks[first + length - 1].length = length;
    block->previous = KV_BLOCK_NONE;
    block->next = *head;
    if (*head != KV_BLOCK_NONE)
        pool->blocks[*head].previous = first;
    *head = first;
}

static void extent_unlink(struct kv_pool *pool, uint32_t first)
{
    const struct block *block = &pool->blocks[first];
    if (block->previous == KV_BLOCK_NONE)
        pool->classes[class_of(block->length)] = block->next;
    else
        pool->blocks[block->previous].next = block->next;
    if (block->next != KV_BLOCK_NONE)
        pool->blocks[block->next].previous = block->previous;
}

/* Returns an extent of at least `count` blocks, preferably of about that length. If there is none,
 * returns one from the longest class. KV_BLOCK_NONE = no free block. */
static uint32_t extent_find(const struct kv_pool *pool, uint32_t count)
{
    uint32_t longest = KV_BLOCK_NONE;
    for (uint32_t class = class_of(count); class < CLASS_COUNT; class ++) {
        uint32_t best = KV_BLOCK_NONE;
        uint32_t at = pool->classes[class];
        for (uint32_t looks = 0; at != KV_BLOCK_NONE && looks < FIT_LOOKS_MAX; looks++) {
            uint32_t length = pool->blocks[at].length;
            if (length >= count && (best == KV_BLOCK_NONE || length < pool->blocks[best].length))
                best = at;
            if (longest == KV_BLOCK_NONE || length > pool->blocks[longest].length)
                longest = at;
            at = pool->blocks[at].next;
        }
        if (best != KV_BLOCK_NONE)
            return best;
    }
    for (uint32_t class = class_of(count); longest == KV_BLOCK_NONE && class -- > 0;)
        longest = pool->classes[class];
    return longest;
}

enum status kv_pool_open(uint32_t block_count, struct kv_pool **out)
{
    if (block_count == 0 || block_count == KV_BLOCK_NONE)
        return ST_INVALID;
    struct kv_pool *pool = calloc(1, sizeof(*pool) + block_count * sizeof(pool->blocks[0]));
    if (pool == NULL)
        return ST_NO_MEMORY;
    enum status status = kv_owners_open(block_count, &pool->owners);
    if (status != ST_OK)
        goto undo_pool;
    pool->block_count = block_count;
    pool->state_counts[KV_FREE] = block_count;
    for (uint32_t class = 0; class < CLASS_COUNT; class ++)
        pool->classes[class] = KV_BLOCK_NONE;
    for (uint32_t id = 0; id < block_count; id++)
        pool->blocks[id].owner = KV_OWNER_NONE;
    extent_link(pool, 0, block_count);
    *out = pool;
    return ST_OK;

undo_pool:
    free(pool);
    return status;
}

void kv_pool_close(struct kv_pool *pool)
{
    if (pool == NULL)
        return;
    assert(pool->state_counts[KV_FREE] == pool->block_count);
    kv_owners_close(pool->owners);
    free(pool);
}

void kv_pool_reclaimer_set(struct kv_pool *pool, void (*reclaim)(void *self, uint32_t count),
                           void *self)
{
    assert(reclaim != NULL || pool->state_counts[KV_CACHED] == 0);
    pool->reclaim = reclaim;
    pool->reclaim_self = self;
}

uint32_t kv_pool_available(const struct kv_pool *pool)
{
    uint32_t cached = pool->reclaim != NULL ? pool->state_counts[KV_CACHED] : 0;
    return pool->state_counts[KV_FREE] + cached;
}

enum status kv_pool_take(struct kv_pool *pool, kv_owner_id owner, enum layer_kind kind,
                         uint32_t count, kv_block_id *ids_out)
{
    assert(owner != 0 && kind < LAYER_KIND_COUNT);
    if (count > kv_pool_available(pool))
        return ST_NO_RESOURCE;
    if (count == 0)
        return ST_OK;
    if (count > pool->state_counts[KV_FREE])
        pool->reclaim(pool->reclaim_self, count - pool->state_counts[KV_FREE]);
    assert(count <= pool->state_counts[KV_FREE]);
    uint32_t record = kv_owners_blocks_add(pool->owners, owner, count, count);
    for (uint32_t taken = 0; taken < count;) {
        uint32_t wanted = count - taken;
        uint32_t first = extent_find(pool, wanted);
        assert(first != KV_BLOCK_NONE);
        uint32_t length = pool->blocks[first].length;
        uint32_t used = length < wanted ? length : wanted;
        extent_unlink(pool, first);
        if (length > used)
            extent_link(pool, first + used, length - used);
        for (uint32_t i = 0; i < used; i++) {
            pool->blocks[first + i].owner = record;
            pool->blocks[first + i].state = KV_RESERVED;
            pool->blocks[first + i].kind = (uint8_t)kind;
            ids_out[taken++] = first + i;
        }
    }
    pool->state_counts[KV_FREE] -= count;
    pool->state_counts[KV_RESERVED] += count;
    pool->kind_counts[kind] += count;
    return ST_OK;
}

void kv_pool_state_set(struct kv_pool *pool, kv_owner_id owner, const kv_block_id *ids,
                       uint32_t count, enum kv_state state)
{
    if (count == 0)
        return;
    assert(state < KV_STATE_COUNT);
    uint32_t record = kv_owners_find(pool->owners, owner);
    assert(record != KV_OWNER_NONE);
    for (uint32_t i = 0; i < count; i++) {
        assert(ids[i] < pool->block_count);
        struct block *block = &pool->blocks[ids[i]];
        assert(block->owner == record && legal[block->state][state]);
        if (state_is_leased(block->state) != state_is_leased(state))
            kv_owners_leased_add(pool->owners, record, state_is_leased(state) ? 1 : -1);
        pool->state_counts[block->state]--;
        pool->state_counts[state]++;
        block->state = (uint8_t)state;
    }
}

bool kv_pool_owns(const struct kv_pool *pool, kv_owner_id owner, kv_block_id id)
{
    assert(id < pool->block_count);
    const uint32_t record = kv_owners_find(pool->owners, owner);
    return record != KV_OWNER_NONE && pool->blocks[id].owner == record;
}

bool kv_pool_fillable(const struct kv_pool *pool, kv_owner_id owner, uint64_t first, uint64_t count)
{
    uint32_t record = kv_owners_find(pool->owners, owner);
    if (record == KV_OWNER_NONE || first > pool->block_count || count > pool->block_count - first)
        return false;
    for (uint64_t i = first; i < first + count; i++)
        if (pool->blocks[i].owner != record ||
            (pool->blocks[i].state != KV_RESERVED && pool->blocks[i].state != KV_FILLING))
            return false;
    return true;
}

void kv_pool_owner_change(struct kv_pool *pool, kv_owner_id owner, kv_owner_id heir,
                          const kv_block_id *ids, uint32_t count)
{
    if (count == 0)
        return;
    uint32_t from = kv_owners_find(pool->owners, owner);
    assert(from != KV_OWNER_NONE && owner != heir && heir != 0);
    for (uint32_t i = 0; i < count; i++) {
        assert(ids[i] < pool->block_count && pool->blocks[ids[i]].owner == from);
        assert(!state_is_leased(pool->blocks[ids[i]].state));
    }
    /* Drop first: there are only as many records as blocks. */
    kv_owners_blocks_remove(pool->owners, from, count, 0);
    uint32_t to = kv_owners_blocks_add(pool->owners, heir, count, 0);
    for (uint32_t i = 0; i < count; i++)
        pool->blocks[ids[i]].owner = to;
}

static void block_free(struct kv_pool *pool, uint32_t id)
{
    uint32_t first = id;
    uint32_t length = 1;
    pool->blocks[id].state = KV_FREE;
    pool->blocks[id].owner = KV_OWNER_NONE;
    if (id > 0 && pool->blocks[id - 1].state == KV_FREE) {
        first = id - pool->blocks[id - 1].length;
        length += pool->blocks[id - 1].length;
        extent_unlink(pool, first);
    }
    if (id + 1 < pool->block_count && pool->blocks[id + 1].state == KV_FREE) {
        length += pool->blocks[id + 1].length;
        extent_unlink(pool, id + 1);
    }
    extent_link(pool, first, length);
}

void kv_pool_free(struct kv_pool *pool, kv_owner_id owner, const kv_block_id *ids, uint32_t count)
{
    if (count == 0)
        return;
    uint32_t record = kv_owners_find(pool->owners, owner);
    assert(record != KV_OWNER_NONE);
    uint32_t leased = 0;
    for (uint32_t i = 0; i < count; i++) {
        assert(ids[i] < pool->block_count);
        const struct block *block = &pool->blocks[ids[i]];
        assert(block->owner == record);
        leased += state_is_leased(block->state) ? 1 : 0;
        pool->state_counts[block->state]--;
        pool->kind_counts[block->kind]--;
        block_free(pool, ids[i]);
    }
    pool->state_counts[KV_FREE] += count;
    kv_owners_blocks_remove(pool->owners, record, count, leased);
}

void kv_pool_lease_set(struct kv_pool *pool, kv_owner_id owner, int64_t until_us)
{
    uint32_t record = kv_owners_find(pool->owners, owner);
    if (record != KV_OWNER_NONE)
        kv_owners_lease_set(pool->owners, record, until_us);
}

bool kv_pool_expired(struct kv_pool *pool, int64_t now_us, kv_owner_id *owner_out)
{
    return kv_owners_expired(pool->owners, now_us, owner_out);
}

uint32_t kv_pool_block_count(const struct kv_pool *pool)
{
    return pool->block_count;
}

uint32_t kv_pool_state_count(const struct kv_pool *pool, enum kv_state state)
{
    assert(state < KV_STATE_COUNT);
    return pool->state_counts[state];
}

uint32_t kv_pool_kind_count(const struct kv_pool *pool, enum layer_kind kind)
{
    assert(kind < LAYER_KIND_COUNT);
    return pool->kind_counts[kind];
}

/* Checks that each free block lies in one extent, that extents end at a taken block or at the
 * pool's end, and that each is in its class's list once. */
static bool extents_check(const struct kv_pool *pool, struct error *error)
{
    uint32_t extents = 0;
    uint32_t listed = 0;
    for (uint32_t id = 0; id < pool->block_count;) {
        if (pool->blocks[id].state != KV_FREE) {
            id++;
            continue;
        }
        uint32_t length = 0;
        while (id + length < pool->block_count && pool->blocks[id + length].state == KV_FREE)
            length++;
        if (pool->blocks[id].length != length || pool->blocks[id + length - 1].length != length) {
            error_set(error, ST_INVALID,
                      "free run at block %u has %u blocks, its tags say %u and %u", id, length,
                      pool->blocks[id].length, pool->blocks[id + length - 1].length);
            return false;
        }
        extents++;
        id += length;
    }
    for (uint32_t class = 0; class < CLASS_COUNT; class ++) {
        uint32_t previous = KV_BLOCK_NONE;
        for (uint32_t at = pool->classes[class]; at != KV_BLOCK_NONE; at = pool->blocks[at].next) {
            const struct block *block = &pool->blocks[at];
            if (++listed > extents || block->state != KV_FREE || block->previous != previous ||
                class_of(block->length) != class ||
                (at > 0 && pool->blocks[at - 1].state == KV_FREE)) {
                error_set(error, ST_INVALID, "list of free runs of class %u is broken at block %u",
                          class, at);
                return false;
            }
            previous = at;
        }
    }
    if (listed != extents) {
        error_set(error, ST_INVALID, "%u free runs, %u are listed", extents, listed);
        return false;
    }
    return true;
}

bool kv_pool_check(const struct kv_pool *pool, struct error *error)
{
    uint32_t counts[KV_STATE_COUNT] = {0};
    uint32_t kinds[LAYER_KIND_COUNT] = {0};
    for (uint32_t id = 0; id < pool->block_count; id++) {
        const struct block *block = &pool->blocks[id];
        if (block->state >= KV_STATE_COUNT ||
            (block->state == KV_FREE) != (block->owner == KV_OWNER_NONE)) {
            error_set(error, ST_INVALID, "block %u: state %u with owner record %u", id,
                      block->state, block->owner);
            return false;
        }
        counts[block->state]++;
        kinds[block->kind] += block->state != KV_FREE ? 1 : 0;
        if (block->owner != KV_OWNER_NONE)
            kv_owners_check_count(pool->owners, block->owner, state_is_leased(block->state));
    }
    for (int state = 0; state < KV_STATE_COUNT; state++) {
        if (counts[state] != pool->state_counts[state]) {
            error_set(error, ST_INVALID, "%u blocks are %s, the gauge says %u", counts[state],
                      kv_state_name((enum kv_state)state), pool->state_counts[state]);
            return false;
        }
    }
    for (int kind = 0; kind < LAYER_KIND_COUNT; kind++) {
        if (kinds[kind] != pool->kind_counts[kind]) {
            error_set(error, ST_INVALID, "%u blocks are of the kind %s, the gauge says %u",
                      kinds[kind], layer_kind_name((enum layer_kind)kind), pool->kind_counts[kind]);
            return false;
        }
    }
    return kv_owners_check(pool->owners, error) && extents_check(pool, error);
}
