/* kv_transfer: the layout of KV memory (arena), and the plan of a transfer: which bytes of a layer
 * are written to which offsets of another process's KV memory. kvcache/ and machine/ call the
 * functions, on any thread. The functions own nothing, do not touch KV memory and send nothing. */
#ifndef KVCACHE_KV_TRANSFER_H
#define KVCACHE_KV_TRANSFER_H

#include "common/layer_groups.h"
#include "kvcache/kv_pool.h"

#include <stddef.h>
#include <stdint.h>

/* An arena: the layout of one process's KV memory. The memory has layer rows, which are not rows of
 * a batch. A layer row has at most one layer of each layer group: with G layer groups, layer l is
 * in layer row r = l / G - first_layer / G (whole numbers). Block b of a layer begins at byte r *
 * layer_stride_bytes + b * block_bytes. The layers of a layer row use different blocks. Within a
 * block, the KV heads have equal sizes and follow each other without gaps. */
struct kv_arena {
    struct layer_groups groups; /* Layer groups of the model. */
    uint32_t first_layer;       /* Layers first_layer to first_layer + layer_count - 1. */
    uint32_t layer_count;
    uint32_t head_first; /* KV heads head_first to head_first + head_count - 1 of each layer. */
    uint32_t head_count;
    uint32_t head_total; /* KV heads of a layer of the model. */
    /* Number of ranks of the stage if each rank stores all KV heads; 0 = the heads are divided
     * among the ranks. */
    uint32_t copy_count;
    uint32_t copy_index;         /* If copy_count > 0: the rank of this process, from 0. */
    uint32_t block_count;        /* Blocks of a layer row. */
    uint32_t block_tokens;       /* Tokens of a block. */
    uint64_t block_bytes;        /* Bytes of one layer of a block, with the arena's heads only. */
    uint64_t layer_stride_bytes; /* From a layer row's start to the next layer row's start. */
};

/* One write of contiguous bytes. */
struct kv_run {
    uint64_t source_offset; /* Byte offset in the source arena. */
    uint64_t target_offset; /* Byte offset in the target arena. */
    uint64_t bytes;
};

/* Returns the bytes of one KV head of one layer in one block. */
static inline uint64_t kv_arena_head_bytes(const struct kv_arena *arena)
{
    return arena->block_bytes / arena->head_count;
}

/* Returns the number of layer rows. */
static inline uint32_t kv_arena_rows(const struct kv_arena *arena)
{
    return layer_groups_layer_rows(&arena->groups, arena->first_layer,
                                   arena->first_layer + arena->layer_count);
}

/* Returns the bytes of the whole arena. */
static inline uint64_t kv_arena_bytes(const struct kv_arena *arena)
{
    return kv_arena_rows(arena) * arena->layer_stride_bytes;
}

/* Returns the byte offset of a block in a layer. Requires that the arena has the layer. */
static inline uint64_t kv_arena_offset(const struct kv_arena *arena, uint32_t layer,
                                       kv_block_id block)
{
    const uint32_t count = layer_groups_count(&arena->groups);
    const uint64_t row = layer / count - arena->first_layer / count;
    return row * arena->layer_stride_bytes + block * arena->block_bytes;
}

/* Returns the arena of a stage process that stores layers [first_layer, end_layer) and KV heads
 * [first_head, end_head). `whole` is the arena that a machine without stages would have, with all
 * layers and heads. The result has as many blocks as `whole`, and no gaps between its layer rows.
 */
struct kv_arena kv_arena_slice(const struct kv_arena *whole, uint32_t first_layer,
                               uint32_t end_layer, uint32_t first_head, uint32_t end_head);

/* Computes the blocks [*first_out, *first_out + *count_out) to which the bytes [offset, offset +
 * bytes) of the arena belong. Returns false if `bytes` is 0 or if the bytes are not in one layer
 * row. `offset` and `bytes` may come from a peer: any values are fine. Bytes in the gap at the end
 * of a layer row give blocks that do not exist. */
bool kv_arena_blocks(const struct kv_arena *arena, uint64_t offset, uint64_t bytes,
                     uint64_t *first_out, uint64_t *count_out);

/* Computes the writes of one layer: for i from `first` to first + count - 1, the heads that both
 * arenas have, from block source_blocks[i] to block target_blocks[i]. Requires that both arenas
 * have the layer, all these blocks, heads of equal size, and an equal head_total. Writes that are
 * contiguous in both arenas are merged. runs_out must have room for `count` runs. Returns the
 * number of runs; 0 = no head is in both arenas. */
uint32_t kv_transfer_plan(const struct kv_arena *source, const kv_block_id *source_blocks,
                          const struct kv_arena *target, const kv_block_id *target_blocks,
                          uint32_t layer, uint32_t first, uint32_t count, struct kv_run *runs_out);

#endif
