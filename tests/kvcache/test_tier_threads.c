/* Goal: the threads of tiers store and load the right KV, and a tier that is slow, fails or damages
 * records never gives wrong KV, never blocks the caller, and works again when it can.
 * Method: two tiers with a backend in memory that does what the test says: waits, fails with any
 * status, flips bits. The test is the event loop. A job's blocks are compared with what was stored.
 * Random jobs with random faults follow, whose loads are compared byte by byte. */
#include "common/clock.h"
#include "common/random.h"
#include "kvcache/tiers/tiers.h"
#include "tests/check.h"

#include <poll.h>
#include <pthread.h>
#include <string.h>

#define BLOCK_TOKENS 16
#define BLOCK_BYTES  96
#define LAYERS       3
#define BLOCKS       64
#define SPANS        8
#define RECORD       (TIER_RECORD_HEADER_BYTES + LAYERS * BLOCK_BYTES)
#define RECORDS_MAX  512
#define WAIT_MS      60000

struct memory { /* A backend in memory. */
    struct tier_backend backend;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    enum status fault; /* What every call returns; ST_OK = none. */
    bool blocks;       /* open, get, put and has wait until this is false. */
    bool flips;        /* get flips a bit. */
    bool open_fails;
    uint32_t waiting; /* Calls that wait. */
    uint32_t count;
    uint32_t drops;
    size_t record_bytes; /* RECORD at most. */
    struct digest names[RECORDS_MAX];
    uint8_t records[RECORDS_MAX][RECORD];
};

static uint64_t seed;
static struct memory memories[2];
static uint8_t *region;
static struct tiers *tiers;
static uint32_t notes[2][16]; /* [tier][-status] */
static uint32_t ended_count;

static struct memory *memory_of(struct tier_backend *b)
{
    return (struct memory *)(void *)b;
}

static enum status enter(struct memory *s)
{
    pthread_mutex_lock(&s->mutex);
    s->waiting++;
    pthread_cond_broadcast(&s->changed);
    while (s->blocks)
        pthread_cond_wait(&s->changed, &s->mutex);
    s->waiting--;
    return s->fault;
}

static enum status leave(struct memory *s, enum status status, struct error *error)
{
    pthread_mutex_unlock(&s->mutex);
    return status < 0 ? error_set(error, status, "the test says so") : status;
}

static uint32_t record_find(const struct memory *s, const struct digest *name)
{
    uint32_t i = 0;
    while (i < s->count && !digest_equal(&s->names[i], name))
        i++;
    return i;
}

static enum status memory_open(struct tier_backend *b, const struct digest *identity,
                               size_t record_bytes, int64_t deadline_us, struct error *error)
{
    struct memory *s = memory_of(b);
    CHECK(record_bytes <= RECORD && identity->bytes[0] == 9 && deadline_us > 0);
    s->record_bytes = record_bytes;
    enter(s);
    return leave(s, s->open_fails ? ST_UNREACHABLE : ST_OK, error);
}

static enum status memory_has(struct tier_backend *b, const struct digest *names, uint32_t count,
                              int64_t deadline_us, uint32_t *count_out, struct error *error)
{
    struct memory *s = memory_of(b);
    enum status status = enter(s);
    (void)deadline_us;
    if (status == ST_OK)
        for (*count_out = 0; *count_out < count && record_find(s, &names[*count_out]) < s->count;)
            ++*count_out;
    return leave(s, status, error);
}

static enum status memory_get(struct tier_backend *b, const struct digest *name, void *record_out,
                              int64_t deadline_us, struct error *error)
{
    struct memory *s = memory_of(b);
    enum status status = enter(s);
    const uint32_t i = record_find(s, name);
    (void)deadline_us;
    if (status == ST_OK && i == s->count)
        status = ST_NOT_FOUND;
    if (status == ST_OK)
        memcpy(record_out, s->records[i], s->record_bytes);
    if (status == ST_OK && s->flips)
        ((uint8_t *)record_out)[s->record_bytes / 2] ^= 4;
    return leave(s, status, error);
}

static enum status memory_put(struct tier_backend *b, const struct digest *name, const void *record,
                              int64_t deadline_us, struct error *error)
{
    struct memory *s = memory_of(b);
    enum status status = enter(s);
    const uint32_t i = record_find(s, name);
    (void)deadline_us;
    if (status == ST_OK && i == RECORDS_MAX)
        status = ST_NO_RESOURCE;
    if (status == ST_OK) {
        s->names[i] = *name;
        memcpy(s->records[i], record, s->record_bytes);
        s->count += i == s->count ? 1 : 0;
    }
    return leave(s, status, error);
}

static enum status memory_drop(struct tier_backend *b, const struct digest *name,
                               int64_t deadline_us, struct error *error)
{
    struct memory *s = memory_of(b);
    (void)deadline_us;
    pthread_mutex_lock(&s->mutex);
    const uint32_t i = record_find(s, name);
    if (i < s->count) {
        s->count--;
        s->names[i] = s->names[s->count];
        memcpy(s->records[i], s->records[s->count], RECORD);
    }
    s->drops++;
    return leave(s, ST_OK, error);
}

static void memory_close(struct tier_backend *b)
{
    (void)b;
}

static const struct tier_backend_ops memory_ops = {
    TIER_KIND_MEMORY, memory_open, memory_has, memory_get, memory_put, memory_drop, memory_close};

static void set(struct memory *s, enum status fault, bool blocks, bool flips)
{
    pthread_mutex_lock(&s->mutex);
    s->fault = fault;
    s->blocks = blocks;
    s->flips = flips;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

static void note(void *self, uint32_t tier, enum status status, const char *text)
{
    (void)self;
    CHECK((status == ST_OK) == (text[0] == 0));
    notes[tier][-status]++;
}

static void ended(void *self, struct tier_job *job)
{
    (void)job;
    *(bool *)self = true;
    ended_count++;
}

/* During tiers_close no tier works or takes a job. */
static void ended_at_close(void *self, struct tier_job *job)
{
    CHECK(!tiers_works(tiers, 0) && !tiers_works(tiers, 1));
    struct tier_job next = *job;
    next.tier = 0;
    next.kind = TIER_FIND;
    CHECK(!tiers_submit(tiers, &next));
    ended(self, job);
}

static void loop(void)
{
    struct pollfd wait = {.fd = tiers_fd(tiers), .events = POLLIN};
    CHECK(poll(&wait, 1, WAIT_MS) == 1);
    tiers_progress(tiers);
}

static void all_open_with(uint32_t count, const struct layer_groups *groups)
{
    const struct kv_arena arena = {.groups = *groups,
                                   .layer_count = LAYERS,
                                   .head_count = 1,
                                   .head_total = 1,
                                   .block_count = BLOCKS,
                                   .block_tokens = BLOCK_TOKENS,
                                   .block_bytes = BLOCK_BYTES,
                                   .layer_stride_bytes = BLOCKS * BLOCK_BYTES};
    struct tiers_options options = {
        .identity = {{9}}, .arena = arena, .region = region, .count = count, .state_changed = note};
    struct error error;
    memset(notes, 0, sizeof(notes));
    for (uint32_t i = 0; i < count; i++)
        options.backends[i] = &memories[i].backend;
    CHECK(tiers_open(&options, &tiers, &error) == ST_OK);
}

static void all_open(uint32_t count)
{
    static const struct layer_groups one = {.count = 0};
    all_open_with(count, &one);
}

/* Chains: the tokens of chain c, and the bytes of its KV. */
static const uint32_t *tokens_of(uint32_t chain)
{
    static uint32_t tokens[SPANS * BLOCK_TOKENS];
    for (uint32_t i = 0; i < SPANS * BLOCK_TOKENS; i++)
        tokens[i] = chain * 1000 + i;
    return tokens;
}

static uint8_t byte_of(uint32_t chain, uint32_t span, uint32_t layer, uint32_t at)
{
    return (uint8_t)random_at(seed + chain, (span * LAYERS + layer) * BLOCK_BYTES + at);
}

static uint8_t *block_at(uint32_t block, uint32_t layer)
{
    return region + (size_t)layer * BLOCKS * BLOCK_BYTES + block * BLOCK_BYTES;
}

static void kv_write(uint32_t chain, const kv_block_id *blocks)
{
    for (uint32_t span = 0; span < SPANS; span++)
        for (uint32_t layer = 0; layer < LAYERS; layer++)
            for (uint32_t at = 0; at < BLOCK_BYTES; at++)
                block_at(blocks[span], layer)[at] = byte_of(chain, span, layer, at);
}

static bool kv_is_right(uint32_t chain, const kv_block_id *blocks, uint32_t first, uint32_t end)
{
    bool right = true;
    for (uint32_t span = first; span < end; span++)
        for (uint32_t layer = 0; layer < LAYERS; layer++)
            for (uint32_t at = 0; at < BLOCK_BYTES; at++)
                right &= block_at(blocks[span], layer)[at] == byte_of(chain, span, layer, at);
    return right;
}

struct work { /* A job with its own memory. */
    struct tier_job job;
    bool ended;
    kv_block_id blocks[SPANS];
    uint32_t tokens[SPANS * BLOCK_TOKENS];
};

static bool begin(struct work *w, enum tier_job_kind kind, uint32_t tier, uint32_t chain,
                  uint32_t first, uint32_t first_block)
{
    w->ended = false;
    memcpy(w->tokens, tokens_of(chain), sizeof(w->tokens));
    for (uint32_t i = 0; i < SPANS; i++)
        w->blocks[i] = first_block + (i * 5) % SPANS;
    if (kind == TIER_STORE)
        kv_write(chain, w->blocks);
    w->job = (struct tier_job){.kind = kind,
                               .tier = tier,
                               .tokens = w->tokens,
                               .blocks = w->blocks,
                               .stride = SPANS,
                               .first = first,
                               .end = SPANS,
                               .deadline_us = clock_now_us(&clock_system) + WAIT_MS * 1000ll,
                               .ended = ended,
                               .self = &w->ended};
    return tiers_submit(tiers, &w->job);
}

static void run(struct work *w, enum tier_job_kind kind, uint32_t tier, uint32_t chain,
                uint32_t first, uint32_t first_block)
{
    CHECK(begin(w, kind, tier, chain, first, first_block));
    while (!w->ended)
        loop();
}

static void await_works(uint32_t tier, bool works)
{
    while (tiers_works(tiers, tier) != works)
        loop();
}

static void test_plain(void)
{
    static struct work w;
    all_open(2);
    await_works(0, true);
    await_works(1, true);
    run(&w, TIER_FIND, 0, 1, 0, 0);
    CHECK(w.job.count == 0);
    run(&w, TIER_STORE, 0, 1, 0, 0);
    CHECK(w.job.written == SPANS && w.job.dropped == 0 && memories[0].count == SPANS);
    run(&w, TIER_STORE, 0, 1, 0, 8);
    CHECK(w.job.written == 0 && w.job.dropped == 0); /* all stored already */
    run(&w, TIER_FIND, 0, 1, 3, 0);
    CHECK(w.job.count == SPANS - 3);
    run(&w, TIER_LOAD, 0, 1, 3, 16);
    CHECK(w.job.count == SPANS - 3 && kv_is_right(1, w.blocks, 3, SPANS));
    CHECK(!kv_is_right(1, w.blocks, 0, 3)); /* not touched */
    run(&w, TIER_LOAD, 1, 1, 0, 24);
    CHECK(w.job.count == 0); /* the other tier */
    tiers_close(tiers);
}

/* A damaged record is dropped with those after it, and counted. What is before it is loaded. */
static void test_damage(void)
{
    static struct work w;
    all_open(1);
    await_works(0, true);
    run(&w, TIER_STORE, 0, 2, 0, 0);
    const uint32_t before = memories[0].count;
    set(&memories[0], ST_OK, false, true);
    run(&w, TIER_LOAD, 0, 2, 6, 16);
    CHECK(w.job.count == 0 && w.job.damaged == 1 && memories[0].count == before - 2);
    run(&w, TIER_LOAD, 0, 2, 4, 16);
    CHECK(w.job.count == 0 && w.job.damaged == 1 && memories[0].count == before - 4);
    CHECK(notes[0][-ST_INVALID] == 1);
    set(&memories[0], ST_OK, false, false);
    run(&w, TIER_FIND, 0, 2, 1, 0);
    CHECK(w.job.count == 3);
    run(&w, TIER_LOAD, 0, 2, 1, 24);
    CHECK(w.job.count == 3 && kv_is_right(2, w.blocks, 1, 4));
    run(&w, TIER_STORE, 0, 2, 0, 0); /* again what is absent */
    CHECK(w.job.written == 4);
    run(&w, TIER_LOAD, 0, 2, 0, 32);
    CHECK(w.job.count == SPANS && kv_is_right(2, w.blocks, 0, SPANS));
    tiers_close(tiers);
}

/* Jobs whose blocks are those of some spans only, as in a slot of the staging memory. A probe finds
 * what TIER_FIND finds. */
static void test_pieces(void)
{
    static struct work w;
    all_open(1);
    await_works(0, true);
    for (uint32_t first = 0; first < SPANS; first += 3) {
        const uint32_t end = first + 3 < SPANS ? first + 3 : SPANS;
        CHECK(begin(&w, TIER_PROBE, 0, 13, 0, 0));
        while (!w.ended)
            loop();
        CHECK(w.job.count == first);
        kv_write(13, w.blocks);
        w.ended = false;
        w.job.kind = TIER_STORE;
        w.job.blocks = w.blocks + first;
        w.job.blocks_first = w.job.first = first;
        w.job.end = end;
        CHECK(tiers_submit(tiers, &w.job));
        while (!w.ended)
            loop();
        CHECK(w.job.written == end - first);
    }
    CHECK(begin(&w, TIER_PROBE, 0, 13, 0, 16));
    while (!w.ended)
        loop();
    CHECK(w.job.count == SPANS);
    w.ended = false;
    w.job.kind = TIER_LOAD;
    w.job.blocks = w.blocks + 2;
    w.job.blocks_first = w.job.first = 2;
    CHECK(tiers_submit(tiers, &w.job));
    while (!w.ended)
        loop();
    CHECK(w.job.count == SPANS - 2 && kv_is_right(13, w.blocks, 2, SPANS));
    CHECK(!kv_is_right(13, w.blocks, 0, 2));
    tiers_close(tiers);
}

static void run_to(struct work *w, enum tier_job_kind kind, uint32_t end, uint32_t window_first)
{
    static kv_block_id blocks[2 * SPANS]; /* Of group 0, then of group 1. */
    for (uint32_t i = 0; i < 2 * SPANS; i++)
        blocks[i] = 3 * i;
    memcpy(w->tokens, tokens_of(14), sizeof(w->tokens));
    w->ended = false;
    w->job = (struct tier_job){.kind = kind,
                               .tokens = w->tokens,
                               .blocks = blocks,
                               .stride = SPANS,
                               .end = end,
                               .window_first = window_first,
                               .deadline_us = clock_now_us(&clock_system) + WAIT_MS * 1000ll,
                               .ended = ended,
                               .self = &w->ended};
    CHECK(tiers_submit(tiers, &w->job));
    while (!w->ended)
        loop();
}

/* Layers 0 and 2 read all tokens, layer 1 reads a window of 40. Of a chain of 8 spans, the tokens
 * after it read the window blocks of the spans 5, 6 and 7; of a chain of 3, those of all spans. */
static void test_windows(void)
{
    static const struct layer_groups groups = {.count = 2, .windowed = 2, .window_tokens = 40};
    static struct work w;
    const size_t bytes = (size_t)2 * BLOCKS * BLOCK_BYTES;
    uint8_t *stored = malloc(bytes);
    CHECK(stored != NULL);
    memories[0].count = 0;
    all_open_with(1, &groups);
    await_works(0, true);
    for (size_t i = 0; i < bytes; i++)
        region[i] = (uint8_t)random_at(seed + 15, i);
    memcpy(stored, region, bytes);
    run_to(&w, TIER_STORE, 8, 5);
    CHECK(w.job.written == 8 + 3 && w.job.dropped == 0);
    run_to(&w, TIER_PROBE, 8, 5);
    CHECK(w.job.count == 8);
    run_to(&w, TIER_PROBE, 8, 4);
    CHECK(w.job.count == 4);
    run_to(&w, TIER_FIND, 8, 0);
    CHECK(w.job.count == 8);
    run_to(&w, TIER_FIND, 7, 0);
    CHECK(w.job.count == 0); /* no end before span 7 has its window blocks */
    run_to(&w, TIER_STORE, 3, 0);
    CHECK(w.job.written == 3);
    run_to(&w, TIER_FIND, 7, 0);
    CHECK(w.job.count == 3);
    memset(region, 0, bytes);
    run_to(&w, TIER_LOAD, 8, 5);
    CHECK(w.job.count == 8);
    for (uint32_t i = 0; i < 2 * SPANS; i++) {
        const uint32_t group = i / SPANS, span = i % SPANS;
        for (uint32_t layer = group; layer < LAYERS; layer += 2) {
            const size_t at = ((size_t)layer / 2 * BLOCKS + 3 * i) * BLOCK_BYTES;
            const bool same = memcmp(region + at, stored + at, BLOCK_BYTES) == 0;
            CHECK(same == (group == 0 || span >= 5));
        }
    }
    free(stored);
    tiers_close(tiers);
    memories[0].count = 0;
}

/* A tier that does not answer blocks its own jobs only. Loads go before stores. */
static void test_slow(void)
{
    static struct work stores[2], load, other, many[TIER_JOBS_MAX];
    uint32_t taken = 0;
    all_open(2);
    await_works(0, true);
    await_works(1, true);
    run(&other, TIER_STORE, 1, 3, 0, 0);
    run(&other, TIER_STORE, 0, 4, 0, 0);
    set(&memories[0], ST_OK, true, false);
    CHECK(begin(&stores[0], TIER_STORE, 0, 5, 0, 8));
    CHECK(begin(&stores[1], TIER_STORE, 0, 6, 0, 16));
    pthread_mutex_lock(&memories[0].mutex);
    while (memories[0].waiting == 0)
        pthread_cond_wait(&memories[0].changed, &memories[0].mutex);
    pthread_mutex_unlock(&memories[0].mutex);
    CHECK(begin(&load, TIER_LOAD, 0, 4, 0, 24));
    run(&other, TIER_LOAD, 1, 3, 0, 32);
    CHECK(other.job.count == SPANS && kv_is_right(3, other.blocks, 0, SPANS));
    CHECK(!load.ended && !stores[0].ended);
    while (taken < TIER_JOBS_MAX && begin(&many[taken], TIER_FIND, 0, 3, 0, 40))
        taken++;
    CHECK(taken == TIER_JOBS_MAX - 3);
    tiers_job_cancel(&stores[0].job);
    set(&memories[0], ST_OK, false, false);
    while (!load.ended)
        loop();
    CHECK(load.job.count == SPANS && kv_is_right(4, load.blocks, 0, SPANS));
    while (!stores[1].ended)
        loop();
    CHECK(stores[0].ended && stores[0].job.written + stores[0].job.dropped == SPANS &&
          stores[0].job.dropped > 0);
    CHECK(stores[1].job.written == SPANS);
    /* A job whose deadline is over loads nothing. */
    CHECK(begin(&load, TIER_FIND, 0, 4, 0, 24));
    while (!load.ended)
        loop();
    load.ended = false;
    load.job.kind = TIER_LOAD;
    load.job.deadline_us = clock_now_us(&clock_system);
    CHECK(tiers_submit(tiers, &load.job));
    while (!load.ended)
        loop();
    CHECK(load.job.count == 0);
    /* The end does not wait for queued jobs, and ends each of them. */
    for (uint32_t i = 0; i < 6; i++) {
        CHECK(begin(&many[i], i % 2 == 0 ? TIER_STORE : TIER_LOAD, 0, 50 + i, 0, 8 * i));
        many[i].job.ended = ended_at_close;
    }
    CHECK(begin(&other, TIER_LOAD, 1, 3, 0, 32));
    other.job.ended = ended_at_close;
    tiers_close(tiers);
    for (uint32_t i = 0; i < 6; i++)
        CHECK(many[i].ended && (i % 2 == 1 || many[i].job.written + many[i].job.dropped == SPANS));
}

/* A tier that is being opened keeps loads until it is open, and refuses stores. If it cannot be
 * opened, the loads end without a span. */
static void test_opening(void)
{
    static struct work works, store;
    for (int fails = 0; fails < 2; fails++) {
        all_open(1);
        await_works(0, true);
        run(&works, TIER_STORE, 0, 1, 0, 0);
        tiers_close(tiers);
        memories[0].open_fails = fails == 1;
        memories[0].blocks = true;
        all_open(1);
        CHECK(begin(&works, TIER_LOAD, 0, 1, 0, 8) && !begin(&store, TIER_STORE, 0, 2, 0, 16) &&
              !begin(&store, TIER_PROBE, 0, 2, 0, 16));
        CHECK(!tiers_works(tiers, 0));
        set(&memories[0], ST_OK, false, false);
        while (!works.ended)
            loop();
        CHECK(works.job.count == (fails == 1 ? 0 : SPANS));
        CHECK(fails == 1 || kv_is_right(1, works.blocks, 0, SPANS));
        tiers_close(tiers);
        memories[0].open_fails = false;
    }
}

/* An unreachable tier refuses jobs at once, and works again by itself. Any other error ends it. */
static void test_failures(void)
{
    static struct work w;
    memories[1].open_fails = true;
    all_open(2);
    await_works(0, true);
    while (notes[1][-ST_UNREACHABLE] == 0)
        loop();
    CHECK(!begin(&w, TIER_FIND, 1, 1, 0, 0));
    set(&memories[0], ST_UNREACHABLE, false, false);
    run(&w, TIER_FIND, 0, 1, 0, 0);
    CHECK(w.job.count == 0 && !tiers_works(tiers, 0) && !begin(&w, TIER_FIND, 0, 1, 0, 0));
    while (notes[0][-ST_UNREACHABLE] == 0)
        loop();
    set(&memories[0], ST_OK, false, false);
    pthread_mutex_lock(&memories[1].mutex);
    memories[1].open_fails = false;
    pthread_mutex_unlock(&memories[1].mutex);
    await_works(0, true);
    await_works(1, true);
    run(&w, TIER_FIND, 0, 1, 0, 0);
    CHECK(w.job.count == SPANS && notes[0][-ST_UNREACHABLE] == 1 && notes[1][-ST_UNREACHABLE] == 1);
    set(&memories[0], ST_NO_RESOURCE, false, false);
    run(&w, TIER_STORE, 0, 7, 0, 0);
    CHECK(w.job.dropped == SPANS && tiers_works(tiers, 0));
    set(&memories[0], ST_IO, false, false);
    run(&w, TIER_STORE, 0, 8, 0, 0);
    CHECK(w.job.dropped == SPANS && !tiers_works(tiers, 0));
    set(&memories[0], ST_OK, false, false);
    while (notes[0][-ST_IO] == 0)
        loop();
    CHECK(!begin(&w, TIER_FIND, 0, 1, 0, 0) && notes[0][-ST_IO] == 1);
    run(&w, TIER_STORE, 1, 9, 0, 0);
    CHECK(w.job.written == SPANS);
    tiers_close(tiers);
}

/* Random jobs on both tiers, while faults come and go: what is loaded is right. */
static void test_random(void)
{
    static struct work works[6];
    static const enum status faults[] = {ST_OK,        ST_OK,          ST_OK,
                                         ST_NOT_FOUND, ST_NO_RESOURCE, ST_INVALID};
    uint32_t loaded = 0;
    memories[0].count = memories[1].count = 0;
    all_open(2);
    await_works(0, true);
    await_works(1, true);
    for (uint32_t i = 0; i < 3000; i++) {
        struct work *w = &works[i % 6];
        const uint64_t draw = random_at(seed ^ 2, i);
        const enum tier_job_kind kind = (enum tier_job_kind)(draw % 3);
        const uint32_t chain = 100 + (uint32_t)(draw >> 8) % 12;
        set(&memories[draw >> 16 & 1], faults[(draw >> 17) % 6], false, (draw >> 24) % 8 == 0);
        CHECK(begin(w, kind, (uint32_t)(draw >> 32 & 1), chain, (uint32_t)(draw >> 33) % SPANS,
                    i % 6 * 8));
        if ((draw >> 40) % 8 == 0)
            tiers_job_cancel(&w->job);
        while (!w->ended)
            loop();
        if (kind == TIER_LOAD)
            CHECK(kv_is_right(chain, w->blocks, w->job.first, w->job.first + w->job.count));
        loaded += kind == TIER_LOAD ? w->job.count : 0;
    }
    CHECKF(loaded > 100, "%u spans were loaded", loaded);
    tiers_close(tiers);
}

int main(void)
{
    seed = test_seed();
    region = calloc(LAYERS, BLOCKS * BLOCK_BYTES);
    CHECK(region != NULL);
    for (int i = 0; i < 2; i++) {
        memories[i].backend.ops = &memory_ops;
        pthread_mutex_init(&memories[i].mutex, NULL);
        pthread_cond_init(&memories[i].changed, NULL);
    }
    test_plain();
    test_damage();
    test_pieces();
    test_windows();
    test_slow();
    test_opening();
    test_failures();
    test_random();
    CHECK(ended_count > 0);
    free(region);
    printf("ok\n");
    return 0;
}
