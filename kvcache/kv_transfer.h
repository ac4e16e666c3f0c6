/* kv_transfer: the plan of moving a request's KV from the prompt machine's blocks to the token
 * machine's: which bytes of which layer go where. Ids and offsets only. */
#ifndef KVCACHE_KV_TRANSFER_H
#define KVCACHE_KV_TRANSFER_H

#include "kvcache/kv_pool.h"

#include <stddef.h>
#include <stdint.h>

/* An arena of KV blocks as both sides describe it: byte offset of block b of layer l (counted from
 * first_layer) is (l - first_layer) * layer_stride_bytes + b * block_bytes. In a block KV head
 * comes after KV head (struct compute_kv in compute/compute.h), all of one size: some neighbouring
 * heads of a block are one piece of it, and as a block of an arena that has no others. */
struct kv_arena {
    uint32_t first_layer;
    uint32_t layer_count;
    uint32_t head_first; /* KV heads [head_first, head_first + head_count) … */
    uint32_t head_count;
    uint32_t head_total; /* … of so many that the model has */
    uint32_t block_count;
    uint32_t block_tokens;
    uint64_t block_bytes; /* of one layer, of these heads */
    uint64_t layer_stride_bytes;
};

struct kv_run {
    uint64_t source_offset; /* bytes, in the source arena */
    uint64_t target_offset;
    uint64_t bytes;
};

static inline uint64_t kv_arena_head_bytes(const struct kv_arena *arena) /* in one block */
{
    return arena->block_bytes / arena->head_count;
}

/* Of the first of its heads. */
static inline uint64_t kv_arena_offset(const struct kv_arena *arena, uint32_t layer,
                                       kv_block_id block)
{
    return (uint64_t)(layer - arena->first_layer) * arena->layer_stride_bytes +
           block * arena->block_bytes;
}

/* The arena of a process that has layers [first_layer, last_layer) and KV heads [first_head,
 * last_head) of a machine whose blocks, with all heads, are `whole`'s: as many blocks, layer after
 * layer. */
struct kv_arena kv_arena_slice(const struct kv_arena *whole, uint32_t first_layer,
                               uint32_t last_layer, uint32_t first_head, uint32_t last_head);

/* The writes for `layer`, which both have, of the heads that both have, of blocks [first, first +
 * count) of a request's two block tables. One run for each block; those that follow each other on
 * both sides, as blocks do of arenas with the same heads, become one. runs_out holds `count` at
 * least. Returns the number of runs: none without a head in common. */
uint32_t kv_transfer_plan(const struct kv_arena *source, const kv_block_id *source_blocks,
                          const struct kv_arena *target, const kv_block_id *target_blocks,
                          uint32_t layer, uint32_t first, uint32_t count, struct kv_run *runs_out);

#endif
