/* kv_transfer: the plan of moving a request's KV from the prompt machine's blocks to the token
 * machine's: which bytes of which layer go where. Ids and offsets only. */
#ifndef KVCACHE_KV_TRANSFER_H
#define KVCACHE_KV_TRANSFER_H

#include "kvcache/kv_pool.h"

#include <stddef.h>
#include <stdint.h>

/* An arena of KV blocks as both sides describe it: byte offset of block b of layer l (counted from
 * first_layer) is (l - first_layer) * layer_stride_bytes + b * block_bytes. */
struct kv_arena {
    uint32_t first_layer;
    uint32_t layer_count;
    uint32_t block_count;
    uint32_t block_tokens;
    uint64_t block_bytes;
    uint64_t layer_stride_bytes;
};

struct kv_run {
    uint64_t source_offset; /* bytes, in the source arena */
    uint64_t target_offset;
    uint64_t bytes;
};

static inline uint64_t kv_arena_offset(const struct kv_arena *arena, uint32_t layer,
                                       kv_block_id block)
{
    return (uint64_t)(layer - arena->first_layer) * arena->layer_stride_bytes +
           block * arena->block_bytes;
}

/* The writes for `layer` of blocks [first, first + count) of a request's two block tables; blocks
 * that follow each other on both sides become one run. runs_out holds `count` at least. Returns the
 * number of runs. */
uint32_t kv_transfer_plan(const struct kv_arena *source, const kv_block_id *source_blocks,
                          const struct kv_arena *target, const kv_block_id *target_blocks,
                          uint32_t layer, uint32_t first, uint32_t count, struct kv_run *runs_out);

#endif
