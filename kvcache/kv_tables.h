/* kv_tables: the block tables of one request on one machine: one table per layer group
 * (common/layer_groups.h). The functions take blocks from a kv_pool, mark and free them, and fill
 * in the tables. Entry i of a group's table is the block of span i. In a group with a window, entry
 * i >= keep is the block of entry i - keep: the entries before `keep` name all blocks of the group,
 * each once.
 *
 * prompt_pool/ and token_pool/ call the functions on the machine's event loop thread. They allocate
 * no memory: the caller owns the ids. They do not decide how many blocks a request gets
 * (scheduler/memory.h). */
#ifndef KVCACHE_KV_TABLES_H
#define KVCACHE_KV_TABLES_H

#include "common/layer_groups.h"
#include "kvcache/kv_pool.h"

struct kv_tables {
    kv_block_id *ids; /* [groups][stride]; the table of group g begins at ids + g * stride. */
    uint32_t stride;  /* Most spans of the request. */
    uint32_t keep;    /* layer_groups_keep for this request. */
};

/* Takes the blocks of the spans [first, end) for `owner`; first = number of spans that the tables
 * have. Requires that enough blocks are available (asserted): the scheduler has checked that. */
void kv_tables_take(const struct kv_tables *tables, const struct layer_groups *groups,
                    struct kv_pool *pool, kv_owner_id owner, uint32_t first, uint32_t end);

/* Change the state of the blocks of `owner` in the spans [first, end), or free these blocks.
 * Requires that the request has at most `end` spans. A block with several entries is changed once,
 * at its entry before `keep`. */
void kv_tables_mark(const struct kv_tables *tables, const struct layer_groups *groups,
                    struct kv_pool *pool, kv_owner_id owner, uint32_t first, uint32_t end,
                    enum kv_state state);
void kv_tables_free(const struct kv_tables *tables, const struct layer_groups *groups,
                    struct kv_pool *pool, kv_owner_id owner, uint32_t first, uint32_t end);

/* Writes the ids of the blocks of the spans [first, end), group after group; groups with a window
 * have only those from span window_first on. Returns the number of ids (layer_groups_between). */
uint32_t kv_tables_list(const struct kv_tables *tables, const struct layer_groups *groups,
                        uint32_t first, uint32_t end, uint32_t window_first, kv_block_id *ids_out);
/* The reverse of kv_tables_list: fills in the entries with these ids, in the same order. */
void kv_tables_read(const struct kv_tables *tables, const struct layer_groups *groups,
                    uint32_t first, uint32_t end, uint32_t window_first, const kv_block_id *ids);

#endif
