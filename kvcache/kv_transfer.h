/* kv_transfer: plans how a request's KV moves from the prompt machine's blocks to the token
 * machine's: which bytes of a layer go where. On the prompt machine, kvcache/kv_targets.c calls
 * kv_transfer_plan for each layer that it sends; machine/executor/shape.c makes the arenas. Offsets
 * only: it has no state, accesses no memory and sends nothing; any thread may call it. */
#ifndef KVCACHE_KV_TRANSFER_H
#define KVCACHE_KV_TRANSFER_H

#include "kvcache/kv_pool.h"

#include <stddef.h>
#include <stdint.h>

/* Layout of a region of KV blocks. Block b of layer l begins at byte (l - first_layer) *
 * layer_stride_bytes + b * block_bytes. Within a block, the KV heads are stored one after another
 * (struct compute_kv in compute/compute.h), all equally large. So a range of neighbouring heads is
 * contiguous, and is laid out like a block of an arena that has only these heads. */
struct kv_arena {
    uint32_t first_layer;
    uint32_t layer_count;
    uint32_t head_first; /* KV heads head_first to head_first + head_count - 1. */
    uint32_t head_count;
    uint32_t head_total; /* Number of KV heads of the model. */
    uint32_t block_count;
    uint32_t block_tokens;
    uint64_t block_bytes;        /* One layer of a block, with these heads only. */
    uint64_t layer_stride_bytes; /* From a layer's start to the next layer's start. */
};

/* One write: `bytes` bytes of neighbouring blocks or heads. */
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

/* Returns the byte offset of the arena's first head of the block in this layer. */
static inline uint64_t kv_arena_offset(const struct kv_arena *arena, uint32_t layer,
                                       kv_block_id block)
{
    return (uint64_t)(layer - arena->first_layer) * arena->layer_stride_bytes +
           block * arena->block_bytes;
}

/* Returns the arena of a process that holds layers [first_layer, last_layer) and KV heads
 * [first_head, last_head) of a machine. `whole` describes the machine's blocks with all heads. The
 * result has as many blocks as `whole` and stores its layers without gaps. */
struct kv_arena kv_arena_slice(const struct kv_arena *whole, uint32_t first_layer,
                               uint32_t last_layer, uint32_t first_head, uint32_t last_head);

/* Computes the blocks [*first_out, *first_out + *count_out) that bytes [offset, offset + bytes) of
 * the region belong to. Returns false if they are not in one layer. Any values are fine. */
bool kv_arena_blocks(const struct kv_arena *arena, uint64_t offset, uint64_t bytes,
                     uint64_t *first_out, uint64_t *count_out);

/* Computes the writes for `layer` of the blocks [first, first + count) of a request's two block
 * tables, for the heads that both arenas have. Requires that both arenas have the layer. There is
 * one run per block; runs that are adjacent on both sides (possible if the arenas have the same
 * heads) are merged. runs_out has room for `count` runs. Returns the number of runs: 0 if no head
 * is in both arenas. */
uint32_t kv_transfer_plan(const struct kv_arena *source, const kv_block_id *source_blocks,
                          const struct kv_arena *target, const kv_block_id *target_blocks,
                          uint32_t layer, uint32_t first, uint32_t count, struct kv_run *runs_out);

#endif
