/* kv_tables: the block tables of a request, or of a load or store of a tier, on one machine: one
 * table for each layer group. The functions take blocks from a kv_pool, mark and free them, and
 * fill in the tables. Entry i of a group's table is the block of span i. The first entries may name
 * blocks of the prefix cache (kv_prefix.h). The other entries name the request's own blocks. In a
 * group with a window, the request has at most `keep` own blocks. When all `keep` blocks are used,
 * entry i names the block of entry i - keep, because no later token reads span i - keep.
 *
 * Prompt pool, token pool, prefix cache and the loads of tiers call the functions on the machine's
 * event loop thread. The simulator also calls the functions. The functions allocate no memory: the
 * caller owns the tables. scheduler/memory.h, not this part, decides how many blocks a request
 * gets. */
#ifndef KVCACHE_KV_TABLES_H
#define KVCACHE_KV_TABLES_H

#include "common/layer_groups.h"
#include "kvcache/kv_pool.h"

#include <stddef.h>

struct kv_tables {
    kv_block_id *ids; /* [groups][stride]; the table of group g begins at ids + g * stride. */
    uint32_t stride;  /* Entries of each table: the most spans of the request. */
    /* Most own blocks of the request in a group with a window (layer_groups_spans_kept); UINT32_MAX
     * = no limit. */
    uint32_t keep;
    /* In groups without a window, the first cached_spans entries name blocks of the prefix
     * cache. */
    uint32_t cached_spans;
    /* In groups with a window, the first window_cached_spans entries do not name blocks of the
     * request: they name blocks of the prefix cache, or block 0 where no later token reads the
     * span. */
    uint32_t window_cached_spans;
};

/* Returns true if kv_tables_take takes a block for entry `span` of the group's table: the entry
 * follows the entries that name cached blocks, and no earlier entry names its block. The
 * result stays true if kv_prefix_add has later made the block a block of the prefix cache. */
bool kv_tables_owns(const struct kv_tables *tables, const struct layer_groups *groups,
                    uint32_t group, uint32_t span);

/* Returns the block of the span in the group's table. */
static inline kv_block_id kv_tables_id(const struct kv_tables *tables, uint32_t group,
                                       uint32_t span)
{
    return tables->ids[(size_t)group * tables->stride + span];
}

/* Takes the request's own blocks of the spans [first, end) for `owner`. Requires that the entries
 * before `first` are filled, by earlier calls or from the prefix cache, and that enough blocks are
 * available (kv_pool_available). Returns the number of entries that got the block of an earlier
 * entry. */
uint32_t kv_tables_take(const struct kv_tables *tables, const struct layer_groups *groups,
                        struct kv_pool *pool, kv_owner_id owner, uint32_t first, uint32_t end);

/* Changes the state of the request's own blocks in the spans [first, end). A block that several
 * entries name belongs to the span of its first entry. */
void kv_tables_mark(const struct kv_tables *tables, const struct layer_groups *groups,
                    struct kv_pool *pool, kv_owner_id owner, uint32_t first, uint32_t end,
                    enum kv_state state);
/* Frees the blocks that kv_tables_mark would mark. */
void kv_tables_free(const struct kv_tables *tables, const struct layer_groups *groups,
                    struct kv_pool *pool, kv_owner_id owner, uint32_t first, uint32_t end);

/* Stores the ids of the blocks of the spans [first, end), group after group; in groups with a
 * window, of the spans [window_first, end) instead. Returns the number of ids
 * (layer_groups_blocks_between). */
uint32_t kv_tables_list(const struct kv_tables *tables, const struct layer_groups *groups,
                        uint32_t first, uint32_t end, uint32_t window_first, kv_block_id *ids_out);
/* Sets the entries whose ids kv_tables_list stores, in the same order. */
void kv_tables_set(const struct kv_tables *tables, const struct layer_groups *groups,
                   uint32_t first, uint32_t end, uint32_t window_first, const kv_block_id *ids);

#endif
