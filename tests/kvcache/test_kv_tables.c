/* Goal: block tables of layer groups hold every token that a later token reads, with as few blocks
 * as layer_groups says. Method: random shapes of groups, windows and blocks. A prompt is computed
 * in chunks on one machine, the listed blocks are copied to another machine, and an answer grows
 * there. The memory is modelled as one token number per slot of a block; before a token counts as
 * computed, each slot that it reads must have the right token. */
#include "common/random.h"
#include "kvcache/kv_tables.h"

#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

#define POOL_BLOCKS 4000
#define TOKENS_MOST 400
#define OWNER       7
#define NO_TOKEN    UINT32_MAX

static uint64_t seed, draws;
static uint64_t copied_blocks, window_blocks, reused;

static uint32_t draw(uint32_t bound)
{
    return (uint32_t)(random_at(seed, draws++) % bound);
}

struct shape {
    struct layer_groups groups;
    uint32_t block_tokens;
    uint32_t chunk_tokens;
};

struct machine {
    struct kv_pool *pool;
    struct kv_tables tables;
    uint32_t spans;
    uint32_t *slots; /* [POOL_BLOCKS][block_tokens]: the token that each slot holds. */
};

static struct shape shape_draw(void)
{
    struct shape s = {.groups = {.count = 1 + draw(4)}, .block_tokens = 1 + draw(17)};
    s.groups.windowed = draw(1u << s.groups.count);
    s.groups.window_tokens = s.groups.windowed != 0 ? 1 + draw(100) : 0;
    s.groups.latent = draw(2) == 0;
    s.chunk_tokens = 1 + draw(60);
    return s;
}

static void machine_open(const struct shape *s, uint32_t tokens_most, uint32_t chunk_tokens,
                         struct machine *m)
{
    m->spans = 0;
    m->tables.stride = layer_groups_spans(tokens_most, s->block_tokens);
    m->tables.keep = layer_groups_spans_kept(&s->groups, s->block_tokens, chunk_tokens);
    m->tables.ids = malloc((size_t)s->groups.count * m->tables.stride * sizeof(kv_block_id));
    m->slots = malloc((size_t)POOL_BLOCKS * s->block_tokens * sizeof(uint32_t));
    CHECK(kv_pool_open(POOL_BLOCKS, &m->pool) == ST_OK && m->tables.ids != NULL &&
          m->slots != NULL);
    memset(m->tables.ids, 0xff, (size_t)s->groups.count * m->tables.stride * sizeof(kv_block_id));
    memset(m->slots, 0xff, (size_t)POOL_BLOCKS * s->block_tokens * sizeof(uint32_t));
}

static void machine_close(const struct shape *s, struct machine *m)
{
    struct error error;
    kv_tables_free(&m->tables, &s->groups, m->pool, OWNER, 0, m->spans);
    CHECKF(kv_pool_check(m->pool, &error), "%s", error.text);
    CHECK(kv_pool_state_count(m->pool, KV_FREE) == POOL_BLOCKS);
    kv_pool_close(m->pool);
    free(m->tables.ids);
    free(m->slots);
}

static void spans_take(const struct shape *s, struct machine *m, uint32_t spans)
{
    const uint32_t windowed = (uint32_t)__builtin_popcount(s->groups.windowed);
    const uint32_t held = m->spans < m->tables.keep ? m->spans : m->tables.keep;
    const uint32_t kept = spans < m->tables.keep ? spans : m->tables.keep;
    CHECK(kv_tables_take(&m->tables, &s->groups, m->pool, OWNER, m->spans, spans) ==
          windowed * (spans - m->spans - (kept - held)));
    CHECK(kv_pool_kind_count(m->pool, LAYER_WINDOW) == windowed * kept);
    CHECK(kv_pool_kind_count(m->pool, s->groups.latent ? LAYER_LATENT : LAYER_FULL) ==
          (s->groups.count - windowed) * spans);
    kv_tables_mark(&m->tables, &s->groups, m->pool, OWNER, m->spans, spans, KV_LIVE);
    m->spans = spans;
    CHECK(kv_pool_state_count(m->pool, KV_LIVE) ==
          layer_groups_blocks(&s->groups, spans, m->tables.keep));
}

static uint32_t *slot_of(const struct shape *s, const struct machine *m, uint32_t group,
                         uint32_t token)
{
    kv_block_id id = m->tables.ids[(size_t)group * m->tables.stride + token / s->block_tokens];
    CHECK(id < POOL_BLOCKS);
    return &m->slots[(size_t)id * s->block_tokens + token % s->block_tokens];
}

static uint32_t first_read(const struct shape *s, uint32_t group, uint32_t token)
{
    bool windowed = (s->groups.windowed >> group & 1) != 0;
    return windowed && token + 1 > s->groups.window_tokens ? token + 1 - s->groups.window_tokens
                                                           : 0;
}

/* Stores the tokens [first, first + count), then reads what each of them reads. */
static void compute(const struct shape *s, struct machine *m, uint32_t first, uint32_t count)
{
    for (uint32_t g = 0; g < s->groups.count; g++) {
        for (uint32_t t = first; t < first + count; t++) {
            uint32_t *slot = slot_of(s, m, g, t);
            reused += *slot != NO_TOKEN;
            *slot = t;
        }
        for (uint32_t t = first; t < first + count; t++)
            for (uint32_t read = first_read(s, g, t); read <= t; read++)
                CHECKF(*slot_of(s, m, g, read) == read, "token %u of group %u reads token %u", t, g,
                       read);
    }
}

/* Copies what the token machine awaits, by the lists of both machines. */
static void copy(const struct shape *s, const struct machine *from, struct machine *to,
                 uint32_t tokens)
{
    static kv_block_id source[POOL_BLOCKS], target[POOL_BLOCKS];
    const uint32_t spans = layer_groups_spans(tokens, s->block_tokens);
    const uint32_t window_first = layer_groups_answer_first(&s->groups, s->block_tokens, tokens);
    uint32_t count = kv_tables_list(&from->tables, &s->groups, 0, spans, window_first, source);
    CHECK(count == kv_tables_list(&to->tables, &s->groups, 0, spans, window_first, target));
    CHECK(count == layer_groups_blocks_between(&s->groups, 0, spans, window_first));
    for (uint32_t i = 0; i < count; i++)
        memcpy(&to->slots[(size_t)target[i] * s->block_tokens],
               &from->slots[(size_t)source[i] * s->block_tokens],
               s->block_tokens * sizeof(uint32_t));
    copied_blocks += count;
    window_blocks += layer_groups_blocks_between(&s->groups, 0, spans, 0) - count;
    struct kv_tables again = to->tables;
    again.ids = malloc((size_t)s->groups.count * again.stride * sizeof(kv_block_id));
    CHECK(again.ids != NULL);
    kv_tables_set(&again, &s->groups, 0, spans, window_first, target);
    CHECK(kv_tables_list(&again, &s->groups, 0, spans, window_first, source) == count &&
          memcmp(source, target, count * sizeof(source[0])) == 0);
    free(again.ids);
}

static void request_run(void)
{
    const struct shape s = shape_draw();
    const uint32_t prompt = 1 + draw(TOKENS_MOST), answer = 1 + draw(150);
    struct machine from, to;
    machine_open(&s, prompt, s.chunk_tokens, &from);
    machine_open(&s, prompt + answer, 1, &to);
    spans_take(&s, &from, layer_groups_spans(prompt, s.block_tokens));
    for (uint32_t done = 0, count; done < prompt; done += count) {
        count = 1 + draw(s.chunk_tokens);
        count = count < prompt - done ? count : prompt - done;
        compute(&s, &from, done, count);
    }
    spans_take(&s, &to, layer_groups_spans(prompt + 1 + draw(answer), s.block_tokens));
    copy(&s, &from, &to, prompt);
    for (uint32_t t = prompt; t < prompt + answer; t++) {
        if (t / s.block_tokens == to.spans)
            spans_take(&s, &to, to.spans + 1);
        compute(&s, &to, t, 1);
    }
    machine_close(&s, &from);
    machine_close(&s, &to);
}

/* The most spans with a number of blocks, found by counting up. */
static void spans_most_check(void)
{
    const struct shape s = shape_draw();
    const uint32_t keep = layer_groups_spans_kept(&s.groups, s.block_tokens, s.chunk_tokens);
    const uint32_t blocks = draw(300);
    uint32_t spans = 0;
    while (spans < 1000 && layer_groups_blocks(&s.groups, spans + 1, keep) <= blocks)
        spans++;
    uint32_t most = layer_groups_spans_max(&s.groups, blocks, keep);
    CHECKF(spans == 1000 ? most == UINT32_MAX : most == spans, "%u blocks hold %u spans, not %u",
           blocks, spans, most);
}

int main(void)
{
    seed = test_seed();
    for (int i = 0; i < 600; i++) {
        request_run();
        spans_most_check();
    }
    CHECK(copied_blocks > 0 && window_blocks > 0 && reused > 0);
    return 0;
}
