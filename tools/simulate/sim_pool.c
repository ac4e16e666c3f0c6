/* sim_pool: see the header. */
#include "tools/simulate/sim_pool.h"

#include <assert.h>
#include <stdlib.h>

struct sim_pool {
    struct kv_pool *kv;
    struct kv_prefix *prefix;
    struct layer_groups groups;
    kv_owner_id owner_last;
};

/* Returns the groups with a window in spans: a token at the beginning of a span reads as many of
 * the spans before it as with the window in tokens (layer_groups_window_first). */
static struct layer_groups groups_in_spans(const struct layer_groups *groups, uint32_t block_tokens)
{
    struct layer_groups out = *groups;
    if (groups->window_tokens > 0)
        out.window_tokens = 1 + layer_groups_spans(groups->window_tokens - 1, block_tokens);
    return out;
}

enum status sim_pool_open(uint32_t block_count, uint32_t block_tokens,
                          const struct layer_groups *groups,
                          const struct kv_prefix_listener *listener, struct sim_pool **out)
{
    struct sim_pool *pool = calloc(1, sizeof(*pool));
    if (pool == NULL)
        return ST_NO_MEMORY;
    pool->groups = groups_in_spans(groups, block_tokens);
    enum status status = kv_pool_open(block_count, &pool->kv);
    if (status == ST_OK)
        status = kv_prefix_open(pool->kv, &pool->groups, 1, &pool->prefix);
    if (status != ST_OK) {
        sim_pool_close(pool);
        return status;
    }
    if (listener != NULL)
        kv_prefix_listen(pool->prefix, listener);
    *out = pool;
    return ST_OK;
}

void sim_pool_close(struct sim_pool *pool)
{
    if (pool == NULL)
        return;
    kv_prefix_close(pool->prefix);
    kv_pool_close(pool->kv);
    free(pool);
}

uint32_t sim_pool_available(const struct sim_pool *pool)
{
    return kv_pool_available(pool->kv);
}

enum status sim_holding_open(struct sim_pool *pool, uint32_t spans_max, uint32_t keep,
                             struct sim_holding *out)
{
    size_t count = (size_t)layer_groups_count(&pool->groups) * spans_max;
    kv_block_id *ids = malloc(count * sizeof(ids[0]));
    if (ids == NULL)
        return ST_NO_MEMORY;
    *out = (struct sim_holding){.owner = ++pool->owner_last,
                                .tables = {.ids = ids, .stride = spans_max, .keep = keep}};
    return ST_OK;
}

void sim_holding_close(struct sim_pool *pool, struct sim_holding *holding)
{
    if (holding->tables.ids == NULL)
        return;
    kv_prefix_own_blocks_free(pool->prefix, holding->owner, &holding->tables, holding->spans);
    kv_prefix_read_end(pool->prefix, &holding->reader);
    free(holding->tables.ids);
    *holding = (struct sim_holding){.owner = 0};
}

void sim_holding_pin(struct sim_pool *pool, struct sim_holding *holding, const uint32_t *contents,
                     uint32_t spans_max, uint32_t window_first)
{
    assert(holding->spans == 0 && holding->reader.spans == 0);
    kv_prefix_read_begin(pool->prefix, 0, contents, spans_max, window_first, &holding->tables,
                         &holding->reader);
}

void sim_holding_unpin(struct sim_pool *pool, struct sim_holding *holding)
{
    assert(holding->spans == 0);
    kv_prefix_read_end(pool->prefix, &holding->reader);
    holding->tables.cached_spans = holding->tables.window_cached_spans = 0;
}

void sim_holding_take(struct sim_pool *pool, struct sim_holding *holding, uint32_t spans)
{
    kv_tables_take(&holding->tables, &pool->groups, pool->kv, holding->owner, holding->spans,
                   spans);
    kv_tables_mark(&holding->tables, &pool->groups, pool->kv, holding->owner, holding->spans, spans,
                   KV_LIVE);
    holding->spans = spans;
}

void sim_holding_window_move(struct sim_pool *pool, struct sim_holding *holding,
                             uint32_t window_first)
{
    if (holding->reader.window_end > 0 && window_first >= holding->reader.window_end)
        kv_prefix_windows_read_end(pool->prefix, &holding->reader);
}

void sim_holding_cache(struct sim_pool *pool, struct sim_holding *holding, const uint32_t *contents,
                       uint32_t spans, uint32_t window_valid_first)
{
    const struct kv_prefix_blocks blocks = {
        .owner = holding->owner,
        .tokens = contents,
        .tables = &holding->tables,
        .spans = spans,
        .window_valid_first = window_valid_first < spans ? window_valid_first : spans,
        .window_read_first = spans,
    };
    kv_prefix_add(pool->prefix, &blocks, &holding->reader);
}

uint32_t sim_pool_cached_spans(struct sim_pool *pool, const uint32_t *contents, uint32_t spans)
{
    struct sim_holding holding;
    if (sim_holding_open(pool, spans, 0, &holding) != ST_OK)
        return 0;
    sim_holding_pin(pool, &holding, contents, spans, KV_PREFIX_WHOLE_WINDOW);
    const uint32_t cached = holding.tables.cached_spans;
    sim_holding_close(pool, &holding);
    return cached;
}

bool sim_pool_add(struct sim_pool *pool, const uint32_t *contents, uint32_t spans)
{
    struct sim_holding holding;
    if (sim_holding_open(pool, spans, 0, &holding) != ST_OK)
        return false;
    sim_holding_pin(pool, &holding, contents, spans, KV_PREFIX_WHOLE_WINDOW);
    const uint32_t room = sim_pool_available(pool) / layer_groups_count(&pool->groups);
    const uint32_t lacking = spans - holding.tables.cached_spans;
    const uint32_t end = lacking <= room ? spans : holding.tables.cached_spans + room;
    sim_holding_take(pool, &holding, end);
    sim_holding_cache(pool, &holding, contents, end, end);
    sim_holding_close(pool, &holding);
    return true;
}
