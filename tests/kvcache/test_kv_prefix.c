/* Goal: the prefix cache finds the longest cached chain and never a wrong one. Blocks in use stay;
 * all others can be evicted, ends of chains and least recently used blocks first. Method: random
 * prompts over few tokens, so that many begin alike, are entered, computed and left in any order,
 * while another owner takes memory. Each block remembers which tokens were "computed" into it, and
 * every found block must have those of the prompt while it is read. The pool and the cache check
 * their invariants after each operation. */
#include "common/prefix_hash.h"
#include "kvcache/kv_prefix.h"
#include "tests/check.h"

#include <string.h>

#define BLOCKS       48
#define BLOCK_TOKENS 4
#define PROMPT_MAX   10 /* In blocks. */
#define READERS      12
#define OPERATIONS   40000
#define TAKER        1000
#define STEP         2 /* Blocks between two reports of a chain to the listener. */

#define SALT 0x123456789abcdef0u

struct reader {
    bool used;
    bool computed;
    uint32_t tokens[PROMPT_MAX * BLOCK_TOKENS];
    uint64_t salt;
    uint32_t full; /* Blocks that the prompt fills. */
    uint32_t count;
    uint32_t cached;
    kv_block_id ids[PROMPT_MAX];
    kv_block_id end;
};

static uint64_t seed;
static uint64_t draws;
static struct kv_pool *pool;
static struct kv_prefix *prefix;
static struct reader readers[READERS];
static uint64_t
    content[BLOCKS]; /* The KV in a block, as a hash of all tokens up to the block's end. */
static kv_block_id taken[BLOCKS];
static uint32_t taken_count;
static uint32_t hits;
static uint32_t evictions;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, draws++) % below);
}

static uint64_t content_of(const struct reader *r, uint32_t block)
{
    uint64_t hash = 7 + r->salt;
    for (uint32_t i = 0; i < (block + 1) * BLOCK_TOKENS; i++)
        hash = random_at(hash, r->tokens[i]);
    return hash;
}

/* Chains that the listener was told about and that exist. */
static uint64_t heard[BLOCKS];
static uint32_t heard_count;
static uint32_t heard_gone;

static uint32_t heard_at(uint64_t hash)
{
    uint32_t at = 0;
    while (at < heard_count && heard[at] != hash)
        at++;
    return at;
}

static void on_changed(void *self, uint64_t hash, bool held)
{
    uint32_t at = heard_at(hash);
    CHECK(self == &heard && (at < heard_count) == !held);
    heard_gone += held ? 0 : 1;
    if (held)
        heard[heard_count++] = hash;
    else
        heard[at] = heard[--heard_count];
}

static void check_heard(void)
{
    uint64_t listed[BLOCKS];
    CHECK(kv_prefix_list(prefix, listed, BLOCKS) == heard_count);
    for (uint32_t i = 0; i < heard_count; i++)
        CHECK(heard_at(listed[i]) < heard_count);
    for (uint32_t i = 0; i < READERS; i++) {
        const struct reader *r = &readers[i];
        for (uint32_t n = STEP; r->used && n <= (r->computed ? r->full : r->cached); n += STEP)
            CHECK(heard_at(prefix_hash(r->salt, r->tokens, n * BLOCK_TOKENS)) < heard_count);
    }
    CHECK(heard_count < 2 || kv_prefix_list(prefix, listed, 1) == 1);
}

static void check_read(const struct reader *r)
{
    uint32_t good = r->computed ? r->full : r->cached;
    for (uint32_t i = 0; i < good; i++)
        CHECKF(content[r->ids[i]] == content_of(r, i),
               "block %u, number %u of a prompt, has other tokens", r->ids[i], i);
}

static void check_all(void)
{
    struct error error;
    CHECKF(kv_pool_check(pool, &error), "%s", error.text);
    CHECKF(kv_prefix_check(prefix, &error), "%s", error.text);
    for (uint32_t i = 0; i < READERS; i++)
        if (readers[i].used)
            check_read(&readers[i]);
    check_heard();
}

/* Returns the number of the prompt's blocks that the cache should find. */
static uint32_t longest(const struct reader *r)
{
    uint32_t count = 0;
    for (bool found = true; found && count < r->full; count += found) {
        found = false;
        for (uint32_t id = 0; id < BLOCKS && !found; id++)
            found = kv_prefix_holds(prefix, id) && content[id] == content_of(r, count);
    }
    return count;
}

static void step_enter(struct reader *r)
{
    *r = (struct reader){.used = true, .full = draw(PROMPT_MAX), .end = KV_BLOCK_NONE};
    r->count = r->full + 1;
    r->salt = draw(2) * SALT;
    for (uint32_t i = 0; i < r->full * BLOCK_TOKENS; i++)
        r->tokens[i] = i % BLOCK_TOKENS == 0 ? draw(2) : i; /* Each block is one of two. */
    uint32_t want = longest(r);
    r->cached = kv_prefix_read_begin(prefix, r->salt, r->tokens, r->full, r->ids, &r->end);
    CHECKF(r->cached == want, "%u blocks found of %u", r->cached, want);
    CHECK((r->end == KV_BLOCK_NONE) == (r->cached == 0));
    hits += r->cached;
    uint32_t needed = r->count - r->cached;
    /* The reader leaves without having computed. */
    if (kv_pool_available(pool) < needed || draw(8) == 0) {
        kv_prefix_read_end(prefix, r->end);
        r->used = false;
        return;
    }
    evictions += kv_pool_count(pool, KV_FREE) < needed;
    kv_owner_id owner = 1 + (kv_owner_id)(r - readers);
    kv_block_id ids[PROMPT_MAX];
    CHECK(kv_pool_take(pool, owner, needed, ids) == ST_OK);
    for (uint32_t i = 0; i < needed; i++) {
        CHECK(!kv_prefix_holds(prefix, ids[i]));
        content[ids[i]] = 0;
        if (r->cached + i < PROMPT_MAX)
            r->ids[r->cached + i] = ids[i];
    }
    check_all(); /* The take has evicted no block that a reader uses. */
}

static void step_compute(struct reader *r)
{
    kv_owner_id owner = 1 + (kv_owner_id)(r - readers);
    if (!r->used || r->computed)
        return;
    kv_pool_mark(pool, owner, r->ids + r->cached, r->count - r->cached, KV_LIVE);
    for (uint32_t i = r->cached; i < r->full; i++)
        content[r->ids[i]] = content_of(r, i);
    kv_prefix_add(prefix, owner, r->salt, r->tokens, r->ids, r->full, &r->end);
    r->computed = true;
    CHECK(longest(r) == r->full);
}

static void step_leave(struct reader *r)
{
    kv_owner_id owner = 1 + (kv_owner_id)(r - readers);
    if (!r->used)
        return;
    for (uint32_t i = r->cached; i < r->count; i++)
        if (!kv_prefix_holds(prefix, r->ids[i]))
            kv_pool_free(pool, owner, &r->ids[i], 1);
    kv_prefix_read_end(prefix, r->end);
    r->used = false;
}

static void step_take(void)
{
    if (taken_count > 0) {
        kv_pool_free(pool, TAKER, taken, taken_count);
        taken_count = 0;
        return;
    }
    uint32_t available = kv_pool_available(pool);
    uint32_t count = draw(available + 2);
    enum status status = kv_pool_take(pool, TAKER, count, taken);
    CHECK(status == (count <= available ? ST_OK : ST_NO_RESOURCE));
    taken_count = status == ST_OK ? count : 0;
    for (uint32_t i = 0; i < taken_count; i++)
        content[taken[i]] = 0;
}

static void test_random(void)
{
    CHECK(kv_pool_open(BLOCKS, &pool) == ST_OK);
    CHECK(kv_prefix_open(pool, BLOCK_TOKENS, &prefix) == ST_OK);
    const struct kv_prefix_listener ear = {.step = STEP, .changed = on_changed, .self = &heard};
    kv_prefix_listen(prefix, &ear);
    for (uint32_t i = 0; i < OPERATIONS; i++) {
        struct reader *r = &readers[draw(READERS)];
        switch (draw(8)) {
        case 0:
        case 1:
        case 2:
            if (!r->used)
                step_enter(r);
            break;
        case 3:
        case 4:
            step_compute(r);
            break;
        case 5:
        case 6:
            /* Some readers leave without having computed, as cancelled requests do. */
            step_leave(r);
            break;
        default:
            step_take();
            break;
        }
        check_all();
    }
    for (uint32_t i = 0; i < READERS; i++)
        step_leave(&readers[i]);
    if (taken_count > 0)
        step_take();
    check_all();
    CHECK(kv_pool_available(pool) == BLOCKS && kv_pool_count(pool, KV_CACHED) > 0);
    CHECK(hits > OPERATIONS / 20 && evictions > OPERATIONS / 200);
    CHECK(heard_count > 0 && heard_gone > OPERATIONS / 200);
    kv_prefix_close(prefix);
    CHECK(kv_pool_count(pool, KV_FREE) == BLOCKS && kv_pool_available(pool) == BLOCKS);
    kv_pool_close(pool);
}

/* Computes one prompt of `count` blocks whose tokens are all `token`, and leaves. */
static void compute_salted(uint64_t salt, uint32_t token, uint32_t count)
{
    struct reader *r = &readers[0];
    r->salt = salt;
    r->full = r->count = count;
    for (uint32_t i = 0; i < count * BLOCK_TOKENS; i++)
        r->tokens[i] = token;
    r->cached = kv_prefix_read_begin(prefix, r->salt, r->tokens, count, r->ids, &r->end);
    CHECK(kv_pool_take(pool, 1, count - r->cached, r->ids + r->cached) == ST_OK);
    kv_pool_mark(pool, 1, r->ids + r->cached, count - r->cached, KV_LIVE);
    kv_prefix_add(prefix, 1, r->salt, r->tokens, r->ids, count, &r->end);
    kv_prefix_read_end(prefix, r->end);
}

static void compute(uint32_t token, uint32_t count)
{
    compute_salted(0, token, count);
}

static uint32_t found_salted(uint64_t salt, uint32_t token)
{
    struct reader r;
    for (uint32_t i = 0; i < PROMPT_MAX * BLOCK_TOKENS; i++)
        r.tokens[i] = token;
    uint32_t count = kv_prefix_read_begin(prefix, salt, r.tokens, PROMPT_MAX, r.ids, &r.end);
    kv_prefix_read_end(prefix, r.end);
    return count;
}

static uint32_t found(uint32_t token)
{
    return found_salted(0, token);
}

/* F-8 of the security review: a tenant learned from the cache what another tenant had sent. */
static void test_salts_share_nothing(void)
{
    CHECK(kv_pool_open(16, &pool) == ST_OK);
    CHECK(kv_prefix_open(pool, BLOCK_TOKENS, &prefix) == ST_OK);
    compute_salted(SALT, 1, 3);
    CHECK(found_salted(SALT, 1) == 3 && found(1) == 0 && found_salted(SALT + 1, 1) == 0);
    compute_salted(SALT + 1, 1, 2);
    compute(1, 1);
    CHECK(kv_pool_count(pool, KV_CACHED) == 6);
    CHECK(found_salted(SALT, 1) == 3 && found(1) == 1 && found_salted(SALT + 1, 1) == 2);
    /* Salt and first token of another chain with the same hash. */
    CHECK(prefix_hash(SALT, (const uint32_t[]){1}, 1) ==
          prefix_hash(SALT ^ 3, (const uint32_t[]){2}, 1));
    CHECK(found_salted(SALT ^ 3, 2) == 0);
    struct error error;
    CHECKF(kv_prefix_check(prefix, &error), "%s", error.text);
    kv_prefix_close(prefix);
    kv_pool_close(pool);
}

/* Three chains of three blocks. The first chain is used again, so the second one is evicted first,
 * from its end. */
static void test_order(void)
{
    kv_block_id ids[BLOCKS];
    CHECK(kv_pool_open(10, &pool) == ST_OK);
    CHECK(kv_prefix_open(pool, BLOCK_TOKENS, &prefix) == ST_OK);
    compute(1, 3);
    compute(2, 3);
    compute(3, 3);
    compute(1, 3);
    CHECK(kv_pool_count(pool, KV_CACHED) == 9 && kv_pool_available(pool) == 10);
    CHECK(kv_pool_take(pool, 9, 11, ids) == ST_NO_RESOURCE);
    CHECK(kv_pool_count(pool, KV_CACHED) == 9);
    CHECK(kv_pool_take(pool, 9, 3, ids) == ST_OK); /* One block was free. */
    /* The shortest chain has been unused for the longest time. */
    CHECK(found(2) == 1 && found(3) == 3 && found(1) == 3);
    CHECK(kv_pool_take(pool, 10, 1, ids + 3) == ST_OK);
    CHECK(found(2) == 0 && found(3) == 3 && found(1) == 3);
    CHECK(kv_pool_take(pool, 11, 2, ids + 4) == ST_OK);
    CHECK(found(3) == 1 && found(1) == 3);
    kv_pool_free(pool, 9, ids, 3);
    kv_pool_free(pool, 10, ids + 3, 1);
    kv_pool_free(pool, 11, ids + 4, 2);
    kv_prefix_close(prefix);
    kv_pool_close(pool);
}

int main(void)
{
    seed = test_seed();
    kv_prefix_close(NULL);
    test_order();
    test_salts_share_nothing();
    test_random();
    return 0;
}
