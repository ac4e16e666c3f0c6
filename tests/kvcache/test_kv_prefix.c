/* Goal: the prefix cache finds the longest cached chain and never a wrong one; with attention
 * windows, it finds the longest one after which a request can go on. Blocks in use stay; all others
 * can be evicted, ends of chains and least recently used blocks first. Method: random prompts over
 * few tokens, so that many begin alike, are entered, computed and left in any order, while another
 * owner takes memory. Each block remembers which tokens were "computed" into it, and every found
 * block must have those of the prompt while it is read. The pool and the cache check their
 * invariants after each operation. */
#include "common/prefix_hash.h"
#include "kvcache/kv_prefix.h"
#include "tests/check.h"

#include <string.h>

#define BLOCKS       96
#define BLOCK_TOKENS 4
#define PROMPT_MAX   10 /* In spans. */
#define GROUPS_MAX   3
#define READERS      12
#define OPERATIONS   20000
#define TAKER        1000
#define STEP         2 /* Spans between two reports of a chain to the listener. */

#define SALT 0x123456789abcdef0u

/* How a request uses the cache: as a prompt machine (COMPUTE), as a machine that computes the
 * prompt in the blocks of the answer (BOTH), or as a token machine that receives the prompt's KV
 * (RECEIVE). */
enum use { COMPUTE, BOTH, RECEIVE, USES };

struct reader {
    bool used;
    bool computed;
    enum use use;
    uint32_t tokens[PROMPT_MAX * BLOCK_TOKENS];
    uint64_t salt;
    uint32_t full;         /* Spans that the prompt fills. One token is behind them. */
    uint32_t window_first; /* First span that the token after the prompt sees. */
    kv_block_id ids[GROUPS_MAX][PROMPT_MAX + 1];
    struct kv_tables tables;
    struct kv_prefix_reader chain;
};

static uint64_t seed;
static uint64_t draws;
static struct layer_groups groups;
static struct kv_pool *pool;
static struct kv_prefix *prefix;
static struct reader readers[READERS];
/* The KV in a block, as a hash of the group and of all tokens up to the block's end. */
static uint64_t content[BLOCKS];
static kv_block_id taken[BLOCKS];
static uint32_t taken_count;
static uint32_t hits;
static uint32_t cut_hits; /* Hits that are shorter than their chain, for lack of window blocks. */
static uint32_t evictions;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, draws++) % below);
}

static bool windowed(uint32_t group)
{
    return layer_groups_windowed(&groups, group);
}

/* False: the cache may have spans without blocks, which this test does not see. */
static bool some_full(void)
{
    return (uint32_t)__builtin_popcount(groups.windowed) < groups.count;
}

static uint64_t content_of(const struct reader *r, uint32_t group, uint32_t span)
{
    uint64_t hash = 7 + r->salt + group;
    for (uint32_t i = 0; i < (span + 1) * BLOCK_TOKENS; i++)
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

/* Returns true if the cache has the span's blocks of the groups with (or without) a window. */
static bool cache_has(const struct reader *r, uint32_t span, bool of_windows)
{
    for (uint32_t g = 0; g < groups.count; g++) {
        bool found = windowed(g) != of_windows;
        for (uint32_t id = 0; id < kv_pool_block_count(pool) && !found; id++)
            found =
                kv_pool_owns(pool, KV_PREFIX_OWNER, id) && content[id] == content_of(r, g, span);
        if (!found)
            return false;
    }
    return true;
}

static void check_heard(void)
{
    uint64_t listed[BLOCKS];
    CHECK(kv_prefix_list(prefix, listed, BLOCKS) == heard_count);
    for (uint32_t i = 0; i < heard_count; i++)
        CHECK(heard_at(listed[i]) < heard_count);
    for (uint32_t i = 0; i < READERS; i++) {
        const struct reader *r = &readers[i];
        for (uint32_t n = STEP; r->used && n <= r->chain.spans; n += STEP)
            CHECK((heard_at(prefix_hash(r->salt, r->tokens, n * BLOCK_TOKENS)) < heard_count) ==
                  cache_has(r, n - 1, true));
    }
    CHECK(heard_count < 2 || kv_prefix_list(prefix, listed, 1) == 1);
}

static void check_span(const struct reader *r, uint32_t group, uint32_t span)
{
    CHECKF(content[r->ids[group][span]] == content_of(r, group, span),
           "block %u, span %u of a prompt in group %u, has other tokens", r->ids[group][span], span,
           group);
}

static void check_read(const struct reader *r)
{
    for (uint32_t g = 0; g < groups.count; g++) {
        uint32_t first = 0, end = r->computed ? r->full : r->chain.spans;
        if (windowed(g)) {
            first = r->computed ? r->window_first : r->chain.window_first;
            end = r->computed ? r->full : r->chain.window_end;
        }
        for (uint32_t span = first; span < end; span++)
            check_span(r, g, span);
    }
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

/* Returns the number of spans that the cache should find for a request that computes the tokens
 * after them (`computes`), or that only needs the chain. */
static uint32_t longest(const struct reader *r, bool computes)
{
    uint32_t best = 0;
    for (uint32_t n = 1; n <= r->full && cache_has(r, n - 1, false); n++) {
        uint32_t first = layer_groups_window_first(&groups, BLOCK_TOKENS, n * BLOCK_TOKENS);
        bool good = true;
        for (uint32_t span = first; span < n && computes && groups.windowed != 0; span++)
            good = good && cache_has(r, span, true);
        best = good ? n : best;
    }
    return best;
}

static kv_owner_id owner_of(const struct reader *r)
{
    return 1 + (kv_owner_id)(r - readers);
}

static void reader_init(struct reader *r, enum use use, uint64_t salt, uint32_t full)
{
    const uint32_t chunk = use == RECEIVE ? 1 : BLOCK_TOKENS * (1 + draw(PROMPT_MAX));
    *r = (struct reader){.used = true, .use = use, .full = full, .salt = salt};
    r->tables = (struct kv_tables){.ids = r->ids[0],
                                   .stride = PROMPT_MAX + 1,
                                   .keep = layer_groups_spans_kept(&groups, BLOCK_TOKENS, chunk)};
    r->window_first = layer_groups_window_first(&groups, BLOCK_TOKENS, full * BLOCK_TOKENS + 1);
}

static uint32_t reader_enter(struct reader *r)
{
    return kv_prefix_read_begin(prefix, r->salt, r->tokens, r->full,
                                r->use == RECEIVE ? r->window_first : KV_PREFIX_WHOLE_WINDOW,
                                &r->tables, &r->chain);
}

static void check_found(const struct reader *r)
{
    uint32_t want = longest(r, r->use != RECEIVE);
    if (some_full())
        CHECKF(r->chain.spans == want, "%u spans found of %u", r->chain.spans, want);
    CHECK(r->chain.spans <= want && r->tables.cached_spans == r->chain.spans &&
          r->tables.window_cached_spans == r->chain.window_end);
    cut_hits += want < longest(r, false);
    hits += r->chain.spans;
    if (r->use == RECEIVE && r->chain.spans > r->chain.window_end && groups.windowed != 0 &&
        r->chain.spans > r->window_first)
        CHECK(!cache_has(r, r->chain.window_end > 0 ? r->chain.window_end : r->window_first, true));
}

static void step_enter(struct reader *r)
{
    reader_init(r, (enum use)draw(USES), draw(2) * SALT, draw(PROMPT_MAX));
    for (uint32_t i = 0; i < r->full * BLOCK_TOKENS; i++)
        r->tokens[i] = i % BLOCK_TOKENS == 0 ? draw(2) : i; /* Each span is one of two. */
    reader_enter(r);
    check_found(r);
    const uint32_t needed =
        layer_groups_blocks_to_take(&groups, r->full + 1, r->tables.cached_spans,
                                    r->tables.window_cached_spans, r->tables.keep);
    /* The reader leaves without having computed. */
    if (kv_pool_available(pool) < needed || draw(8) == 0) {
        kv_prefix_read_end(prefix, &r->chain);
        r->used = false;
        return;
    }
    evictions += kv_pool_state_count(pool, KV_FREE) < needed;
    const uint32_t available = kv_pool_available(pool);
    kv_tables_take(&r->tables, &groups, pool, owner_of(r), 0, r->full + 1);
    CHECK(kv_pool_available(pool) == available - needed);
    for (uint32_t g = 0; g < groups.count; g++)
        for (uint32_t span = 0; span <= r->full; span++)
            if (kv_tables_owns(&r->tables, &groups, g, span)) {
                CHECK(!kv_pool_owns(pool, KV_PREFIX_OWNER, r->ids[g][span]));
                content[r->ids[g][span]] = 0;
            }
    check_all(); /* The take has evicted no block that a reader uses. */
}

static void reader_add(struct reader *r, bool ends)
{
    const uint32_t spans = r->full + 1, keep = r->tables.keep;
    uint32_t valid = spans > keep ? spans - keep : 0;
    if (r->use == RECEIVE && valid < r->window_first)
        valid = r->window_first;
    const struct kv_prefix_blocks blocks = {
        .owner = owner_of(r),
        .salt = r->salt,
        .tokens = r->tokens,
        .tables = &r->tables,
        .spans = r->full,
        .window_valid_first = ends ? valid : r->full,
        .window_read_first = r->use == COMPUTE ? r->window_first : r->full,
    };
    kv_prefix_add(prefix, &blocks, &r->chain);
    CHECK(r->chain.spans == r->full && (!some_full() || longest(r, false) == r->full));
    /* The same prompt would be found whole. A token machine that receives may have less. */
    if (ends && r->full > 0 && r->use != RECEIVE)
        CHECK(longest(r, true) == r->full);
}

static void step_compute(struct reader *r)
{
    if (!r->used || r->computed)
        return;
    kv_tables_mark(&r->tables, &groups, pool, owner_of(r), 0, r->full + 1, KV_LIVE);
    for (uint32_t g = 0; g < groups.count; g++) {
        uint32_t held = windowed(g) ? r->tables.window_cached_spans : r->tables.cached_spans;
        if (windowed(g) && r->use == RECEIVE && held < r->window_first)
            held = r->window_first;
        for (uint32_t span = held; span <= r->full; span++)
            content[r->ids[g][span]] = span < r->full ? content_of(r, g, span) : 0;
    }
    reader_add(r, r->use == COMPUTE);
    r->computed = true;
}

static void step_leave(struct reader *r)
{
    if (!r->used)
        return;
    if (r->computed && r->use != COMPUTE)
        reader_add(r, true);
    kv_prefix_own_blocks_free(prefix, owner_of(r), &r->tables, r->full + 1);
    kv_prefix_read_end(prefix, &r->chain);
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
    enum status status = kv_pool_take(pool, TAKER, LAYER_FULL, count, taken);
    CHECK(status == (count <= available ? ST_OK : ST_NO_RESOURCE));
    taken_count = status == ST_OK ? count : 0;
    for (uint32_t i = 0; i < taken_count; i++)
        content[taken[i]] = 0;
}

static void test_random(const struct layer_groups *shape)
{
    groups = *shape;
    hits = cut_hits = evictions = heard_gone = 0;
    CHECK(kv_pool_open(BLOCKS, &pool) == ST_OK);
    CHECK(kv_prefix_open(pool, &groups, BLOCK_TOKENS, &prefix) == ST_OK);
    const struct kv_prefix_listener ear = {
        .step_spans = STEP, .changed = on_changed, .self = &heard};
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
    CHECK(kv_pool_available(pool) == BLOCKS && kv_pool_state_count(pool, KV_CACHED) > 0);
    CHECK(hits > OPERATIONS / 20 && evictions > OPERATIONS / 200);
    /* With a window of one token, a chain is never cut: the tokens after it do not see it. */
    CHECKF(groups.window_tokens < 2 || !some_full() || cut_hits > OPERATIONS / 500,
           "%u hits were cut", cut_hits);
    CHECK(heard_gone > OPERATIONS / 200);
    kv_prefix_close(prefix);
    heard_count = 0; /* The listener hears nothing of the end. */
    CHECK(kv_pool_state_count(pool, KV_FREE) == BLOCKS && kv_pool_available(pool) == BLOCKS);
    kv_pool_close(pool);
}

/* Computes one prompt of `count` spans whose tokens are all `token`, and leaves. */
static void compute_salted(uint64_t salt, uint32_t token, uint32_t count)
{
    struct reader *r = &readers[0];
    reader_init(r, COMPUTE, salt, count);
    for (uint32_t i = 0; i < count * BLOCK_TOKENS; i++)
        r->tokens[i] = token;
    reader_enter(r);
    kv_tables_take(&r->tables, &groups, pool, owner_of(r), 0, count + 1);
    step_compute(r);
    step_leave(r);
}

static void compute(uint32_t token, uint32_t count)
{
    compute_salted(0, token, count);
}

static uint32_t found_salted(uint64_t salt, uint32_t token)
{
    struct reader *r = &readers[1];
    reader_init(r, COMPUTE, salt, PROMPT_MAX);
    for (uint32_t i = 0; i < PROMPT_MAX * BLOCK_TOKENS; i++)
        r->tokens[i] = token;
    uint32_t count = reader_enter(r);
    kv_prefix_read_end(prefix, &r->chain);
    r->used = false;
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
    CHECK(kv_prefix_open(pool, &groups, BLOCK_TOKENS, &prefix) == ST_OK);
    compute_salted(SALT, 1, 3);
    CHECK(found_salted(SALT, 1) == 3 && found(1) == 0 && found_salted(SALT + 1, 1) == 0);
    compute_salted(SALT + 1, 1, 2);
    compute(1, 1);
    CHECK(kv_pool_state_count(pool, KV_CACHED) == 6);
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
    CHECK(kv_prefix_open(pool, &groups, BLOCK_TOKENS, &prefix) == ST_OK);
    compute(1, 3);
    compute(2, 3);
    compute(3, 3);
    compute(1, 3);
    CHECK(kv_pool_state_count(pool, KV_CACHED) == 9 && kv_pool_available(pool) == 10);
    CHECK(kv_pool_take(pool, 9, LAYER_FULL, 11, ids) == ST_NO_RESOURCE);
    CHECK(kv_pool_state_count(pool, KV_CACHED) == 9);
    CHECK(kv_pool_take(pool, 9, LAYER_FULL, 3, ids) == ST_OK); /* One block was free. */
    /* The shortest chain has been unused for the longest time. */
    CHECK(found(2) == 1 && found(3) == 3 && found(1) == 3);
    CHECK(kv_pool_take(pool, 10, LAYER_FULL, 1, ids + 3) == ST_OK);
    CHECK(found(2) == 0 && found(3) == 3 && found(1) == 3);
    CHECK(kv_pool_take(pool, 11, LAYER_FULL, 2, ids + 4) == ST_OK);
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
    groups = (struct layer_groups){.count = 1};
    test_order();
    test_salts_share_nothing();
    const struct layer_groups shapes[] = {
        {.count = 1},
        {.count = 3, .windowed = 3, .window_tokens = 9},
        {.count = 2, .windowed = 2, .window_tokens = 1},
        {.count = 3, .windowed = 4, .window_tokens = 20},
        {.count = 1, .windowed = 1, .window_tokens = 6},
        {.count = 2, .windowed = 3, .window_tokens = 13},
    };
    for (uint32_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        test_random(&shapes[i]);
    return 0;
}
