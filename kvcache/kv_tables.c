/* kv_tables: see the header. */
#include "kvcache/kv_tables.h"

#include <assert.h>
#include <string.h>

static kv_block_id *table_of(const struct kv_tables *tables, uint32_t group)
{
    return tables->ids + (size_t)group * tables->stride;
}

/* The request's own blocks of a group in the spans [first, end): those of the entries [first, own).
 * The entries [own, end) name blocks of earlier entries. */
struct own {
    uint32_t first;
    uint32_t end;
};

static struct own own_of(const struct kv_tables *tables, const struct layer_groups *groups,
                         uint32_t group, uint32_t first, uint32_t end)
{
    const bool windowed = layer_groups_windowed(groups, group);
    const uint32_t held = windowed ? tables->window_cached_spans : tables->cached_spans;
    struct own own = {.first = first > held ? first : held, .end = end};
    if (windowed && end > held && tables->keep < end - held)
        own.end = held + tables->keep;
    return own;
}

bool kv_tables_owns(const struct kv_tables *tables, const struct layer_groups *groups,
                    uint32_t group, uint32_t span)
{
    const struct own own = own_of(tables, groups, group, span, span + 1);
    return own.first == span && own.end > span;
}

uint32_t kv_tables_take(const struct kv_tables *tables, const struct layer_groups *groups,
                        struct kv_pool *pool, kv_owner_id owner, uint32_t first, uint32_t end)
{
    uint32_t again = 0;
    assert(end <= tables->stride);
    for (uint32_t group = 0; group < layer_groups_count(groups); group++) {
        kv_block_id *table = table_of(tables, group);
        const struct own own = own_of(tables, groups, group, first, end);
        if (own.first < own.end) {
            enum status status = kv_pool_take(pool, owner, layer_groups_kind(groups, group),
                                              own.end - own.first, table + own.first);
            assert(status == ST_OK);
        }
        for (uint32_t i = own.first < own.end ? own.end : own.first; i < end; i++, again++)
            table[i] = table[i - tables->keep];
    }
    return again;
}

void kv_tables_mark(const struct kv_tables *tables, const struct layer_groups *groups,
                    struct kv_pool *pool, kv_owner_id owner, uint32_t first, uint32_t end,
                    enum kv_state state)
{
    for (uint32_t group = 0; group < layer_groups_count(groups); group++) {
        const struct own own = own_of(tables, groups, group, first, end);
        if (own.first < own.end)
            kv_pool_state_set(pool, owner, table_of(tables, group) + own.first, own.end - own.first,
                              state);
    }
}

void kv_tables_free(const struct kv_tables *tables, const struct layer_groups *groups,
                    struct kv_pool *pool, kv_owner_id owner, uint32_t first, uint32_t end)
{
    for (uint32_t group = 0; group < layer_groups_count(groups); group++) {
        const struct own own = own_of(tables, groups, group, first, end);
        if (own.first < own.end)
            kv_pool_free(pool, owner, table_of(tables, group) + own.first, own.end - own.first);
    }
}

static uint32_t list_first(const struct layer_groups *groups, uint32_t group, uint32_t first,
                           uint32_t window_first)
{
    return layer_groups_windowed(groups, group) ? window_first : first;
}

uint32_t kv_tables_list(const struct kv_tables *tables, const struct layer_groups *groups,
                        uint32_t first, uint32_t end, uint32_t window_first, kv_block_id *ids_out)
{
    uint32_t count = 0;
    for (uint32_t group = 0; group < layer_groups_count(groups); group++)
        for (uint32_t i = list_first(groups, group, first, window_first); i < end; i++)
            ids_out[count++] = table_of(tables, group)[i];
    return count;
}

void kv_tables_set(const struct kv_tables *tables, const struct layer_groups *groups,
                   uint32_t first, uint32_t end, uint32_t window_first, const kv_block_id *ids)
{
    for (uint32_t group = 0; group < layer_groups_count(groups); group++)
        for (uint32_t i = list_first(groups, group, first, window_first); i < end; i++)
            table_of(tables, group)[i] = *ids++;
}
