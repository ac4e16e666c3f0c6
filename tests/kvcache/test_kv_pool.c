/* Goal: kv_pool keeps correct records: every block has one owner and one state, takes are all or
 * nothing and prefer contiguous blocks, leases end in order. Method: random operations on two pools
 * and on a model of plain arrays; after each operation all of them must agree. */
#include "common/random.h"
#include "kvcache/kv_pool.h"
#include "tests/check.h"

#include <string.h>

#define BLOCKS     192
#define OWNERS     24
#define OPERATIONS 20000

struct model {
    uint32_t block_count;
    kv_owner_id owner[BLOCKS]; /* 0 = free. */
    enum kv_state state[BLOCKS];
    enum layer_kind kind[BLOCKS];
    int64_t lease[OWNERS + 1]; /* 0 = no lease. */
};

static uint64_t seed;
static uint64_t draws;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, draws++) % below);
}

static uint32_t model_count(const struct model *model, enum kv_state state)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < model->block_count; i++)
        count += model->state[i] == state;
    return count;
}

static uint32_t model_kind_count(const struct model *model, enum layer_kind kind)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < model->block_count; i++)
        count += model->state[i] != KV_FREE && model->kind[i] == kind;
    return count;
}

static uint32_t model_longest(const struct model *model)
{
    uint32_t longest = 0;
    for (uint32_t i = 0, run = 0; i < model->block_count; i++) {
        run = model->state[i] == KV_FREE ? run + 1 : 0;
        longest = run > longest ? run : longest;
    }
    return longest;
}

/* Returns up to `most` blocks of the owner in `state` (KV_STATE_COUNT = any), in random order. */
static uint32_t model_blocks(const struct model *model, kv_owner_id owner, enum kv_state state,
                             uint32_t most, kv_block_id *ids)
{
    uint32_t count = 0;
    uint32_t start = draw(model->block_count);
    for (uint32_t i = 0; i < model->block_count && count < most; i++) {
        uint32_t id = (start + i) % model->block_count;
        if (model->owner[id] == owner && (state == KV_STATE_COUNT || model->state[id] == state))
            ids[count++] = id;
    }
    return count;
}

/* Compares whether peers may write into a run of blocks. */
static void compare_fillable(const struct model *model, const struct kv_pool *pool)
{
    kv_owner_id owner = 1 + draw(OWNERS);
    uint32_t first = draw(model->block_count + 2);
    uint32_t count = 1 + draw(4);
    bool want = first + count <= model->block_count;
    for (uint32_t i = first; i < first + count && want; i++)
        want = model->owner[i] == owner &&
               (model->state[i] == KV_RESERVED || model->state[i] == KV_FILLING);
    CHECK(kv_pool_fillable(pool, owner, first, count) == want);
    CHECK(!kv_pool_fillable(pool, owner, UINT64_MAX, 2) &&
          !kv_pool_fillable(pool, owner, 1, UINT64_MAX));
}

static void compare(const struct model *model, struct kv_pool *pool)
{
    struct error error;
    CHECKF(kv_pool_check(pool, &error), "%s", error.text);
    for (int state = 0; state < KV_STATE_COUNT; state++)
        CHECK(kv_pool_state_count(pool, (enum kv_state)state) ==
              model_count(model, (enum kv_state)state));
    for (int kind = 0; kind < LAYER_KIND_COUNT; kind++)
        CHECK(kv_pool_kind_count(pool, (enum layer_kind)kind) ==
              model_kind_count(model, (enum layer_kind)kind));
}

static void step_take(struct model *model, struct kv_pool *pool, struct kv_pool *twin)
{
    kv_block_id ids[BLOCKS];
    kv_block_id twin_ids[BLOCKS];
    kv_owner_id owner = 1 + draw(OWNERS);
    enum layer_kind kind = (enum layer_kind)draw(LAYER_KIND_COUNT);
    uint32_t count = draw(draw(4) == 0 ? BLOCKS + 8 : 20);
    uint32_t longest = model_longest(model);
    enum status expected = count <= model_count(model, KV_FREE) ? ST_OK : ST_NO_RESOURCE;
    enum status status =
        count > BLOCKS ? ST_NO_RESOURCE : kv_pool_take(pool, owner, kind, count, ids);
    CHECK(status == expected);
    if (count > BLOCKS)
        return;
    CHECK(kv_pool_take(twin, owner, kind, count, twin_ids) == expected);
    if (status != ST_OK)
        return;
    CHECK(memcmp(ids, twin_ids, count * sizeof(ids[0])) == 0);
    uint32_t runs = 0;
    for (uint32_t i = 0; i < count; i++) {
        CHECK(ids[i] < model->block_count && model->state[ids[i]] == KV_FREE);
        model->state[ids[i]] = KV_RESERVED;
        model->owner[ids[i]] = owner;
        model->kind[ids[i]] = kind;
        runs += i == 0 || ids[i] != ids[i - 1] + 1;
    }
    if (count > 0 && longest >= 2 * count)
        CHECKF(runs == 1, "%u blocks in %u runs, the longest free run had %u", count, runs,
               longest);
}

static void step_mark(struct model *model, struct kv_pool *pool, struct kv_pool *twin)
{
    static const enum kv_state changes[][2] = {
        {KV_RESERVED, KV_FILLING},    {KV_FILLING, KV_LIVE},     {KV_LIVE, KV_CACHED},
        {KV_CACHED, KV_LIVE},         {KV_RESERVED, KV_LIVE},    {KV_RESERVED, KV_QUARANTINED},
        {KV_FILLING, KV_QUARANTINED}, {KV_LIVE, KV_QUARANTINED},
    };
    uint32_t change = draw(sizeof(changes) / sizeof(changes[0]));
    kv_owner_id owner = 1 + draw(OWNERS);
    kv_block_id ids[BLOCKS];
    uint32_t count = model_blocks(model, owner, changes[change][0], 1 + draw(12), ids);
    kv_pool_state_set(pool, owner, ids, count, changes[change][1]);
    kv_pool_state_set(twin, owner, ids, count, changes[change][1]);
    for (uint32_t i = 0; i < count; i++)
        model->state[ids[i]] = changes[change][1];
}

static void model_free(struct model *model, const kv_block_id *ids, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        model->state[ids[i]] = KV_FREE;
        model->owner[ids[i]] = 0;
    }
    for (kv_owner_id owner = 1; owner <= OWNERS; owner++) {
        bool holds = false;
        for (uint32_t i = 0; i < model->block_count; i++)
            holds |= model->owner[i] == owner;
        if (!holds)
            model->lease[owner] = 0;
    }
}

static void step_free(struct model *model, struct kv_pool *pool, struct kv_pool *twin)
{
    kv_owner_id owner = 1 + draw(OWNERS);
    kv_block_id ids[BLOCKS];
    uint32_t count =
        model_blocks(model, owner, KV_STATE_COUNT, draw(3) == 0 ? BLOCKS : draw(8), ids);
    kv_pool_free(pool, owner, ids, count);
    kv_pool_free(twin, owner, ids, count);
    model_free(model, ids, count);
}

static void step_lease(struct model *model, struct kv_pool *pool, struct kv_pool *twin,
                       int64_t now_us)
{
    kv_owner_id owner = 1 + draw(OWNERS);
    int64_t until_us = draw(5) == 0 ? 0 : now_us + draw(50);
    kv_pool_lease_set(pool, owner, until_us);
    kv_pool_lease_set(twin, owner, until_us);
    for (uint32_t i = 0; i < model->block_count; i++) {
        if (model->owner[i] == owner)
            model->lease[owner] = until_us;
    }
}

/* Returns the owner with the earliest lease that has ended and that covers a block; 0 = none. */
static kv_owner_id model_expired(struct model *model, int64_t now_us)
{
    for (;;) {
        kv_owner_id first = 0;
        for (kv_owner_id owner = 1; owner <= OWNERS; owner++) {
            int64_t until_us = model->lease[owner];
            if (until_us != 0 && until_us <= now_us &&
                (first == 0 || until_us < model->lease[first]))
                first = owner;
        }
        if (first == 0)
            return 0;
        model->lease[first] = 0;
        for (uint32_t i = 0; i < model->block_count; i++) {
            if (model->owner[i] == first &&
                (model->state[i] == KV_RESERVED || model->state[i] == KV_QUARANTINED))
                return first;
        }
    }
}

static void step_expire(struct model *model, struct kv_pool *pool, struct kv_pool *twin,
                        int64_t now_us)
{
    kv_owner_id expected;
    do {
        kv_owner_id owner = 0;
        kv_owner_id twin_owner = 0;
        expected = model_expired(model, now_us);
        CHECK(kv_pool_expired(pool, now_us, &owner) == (expected != 0) && owner == expected);
        CHECK(kv_pool_expired(twin, now_us, &twin_owner) == (expected != 0) &&
              twin_owner == expected);
    } while (expected != 0);
}

static void test_random(uint32_t block_count)
{
    struct model model = {.block_count = block_count};
    struct kv_pool *pool;
    struct kv_pool *twin;
    int64_t now_us = 1;
    CHECK(kv_pool_open(block_count, &pool) == ST_OK);
    CHECK(kv_pool_open(block_count, &twin) == ST_OK);
    CHECK(kv_pool_block_count(pool) == block_count);
    for (int i = 0; i < OPERATIONS; i++, now_us += draw(10)) {
        switch (draw(8)) {
        case 0:
        case 1:
            step_take(&model, pool, twin);
            break;
        case 2:
        case 3:
            step_mark(&model, pool, twin);
            break;
        case 4:
        case 5:
            step_free(&model, pool, twin);
            break;
        case 6:
            step_lease(&model, pool, twin, now_us);
            break;
        default:
            step_expire(&model, pool, twin, now_us);
            break;
        }
        compare(&model, pool);
        compare_fillable(&model, pool);
    }
    for (kv_owner_id owner = 1; owner <= OWNERS; owner++) {
        kv_block_id ids[BLOCKS];
        uint32_t count = model_blocks(&model, owner, KV_STATE_COUNT, BLOCKS, ids);
        kv_pool_free(pool, owner, ids, count);
        kv_pool_free(twin, owner, ids, count);
        model_free(&model, ids, count);
    }
    compare(&model, pool);
    kv_block_id all[BLOCKS]; /* All blocks are one run again. */
    CHECK(kv_pool_take(pool, 1, LAYER_FULL, block_count, all) == ST_OK);
    for (uint32_t i = 0; i < block_count; i++)
        CHECK(all[i] == i);
    kv_pool_free(pool, 1, all, block_count);
    kv_pool_close(pool);
    kv_pool_close(twin);
}

int main(void)
{
    seed = test_seed();
    struct kv_pool *pool;
    CHECK(kv_pool_open(0, &pool) == ST_INVALID);
    CHECK(kv_pool_open(UINT32_MAX, &pool) == ST_INVALID);
    kv_pool_close(NULL);
    CHECK(strcmp(kv_state_name(KV_QUARANTINED), "quarantined") == 0);
    test_random(BLOCKS);
    test_random(33);
    test_random(1);
    return 0;
}
