/* kv_transfer: adjacent blocks become one write, because fewer and larger writes are faster.
 * kv_pool hands out runs of consecutive blocks for this reason. */
#include "kvcache/kv_transfer.h"

#include <assert.h>

struct kv_arena kv_arena_slice(const struct kv_arena *whole, uint32_t first_layer,
                               uint32_t end_layer, uint32_t first_head, uint32_t end_head)
{
    assert(whole->head_first == 0 && whole->head_count == whole->head_total);
    assert(first_layer < end_layer && first_head < end_head && end_head <= whole->head_total);
    struct kv_arena slice = *whole;
    slice.first_layer = first_layer;
    slice.layer_count = end_layer - first_layer;
    slice.head_first = first_head;
    slice.head_count = end_head - first_head;
    slice.block_bytes = slice.head_count * kv_arena_head_bytes(whole);
    slice.layer_stride_bytes = slice.block_count * slice.block_bytes;
    return slice;
}

bool kv_arena_blocks(const struct kv_arena *arena, uint64_t offset, uint64_t bytes,
                     uint64_t *first_out, uint64_t *count_out)
{
    uint64_t in_row = offset % arena->layer_stride_bytes;
    if (offset / arena->layer_stride_bytes >= kv_arena_rows(arena) || bytes == 0 ||
        bytes > arena->layer_stride_bytes - in_row)
        return false;
    *first_out = in_row / arena->block_bytes;
    *count_out = (in_row + bytes - 1) / arena->block_bytes - *first_out + 1;
    return true;
}

static bool arena_has(const struct kv_arena *arena, uint32_t layer)
{
    return layer >= arena->first_layer && layer - arena->first_layer < arena->layer_count;
}

static uint32_t head_end(const struct kv_arena *arena)
{
    return arena->head_first + arena->head_count;
}

uint32_t kv_transfer_plan(const struct kv_arena *source, const kv_block_id *source_blocks,
                          const struct kv_arena *target, const kv_block_id *target_blocks,
                          uint32_t layer, uint32_t first, uint32_t count, struct kv_run *runs_out)
{
    const uint64_t head_bytes = kv_arena_head_bytes(source);
    const uint32_t head =
        source->head_first > target->head_first ? source->head_first : target->head_first;
    const uint32_t end = head_end(source) < head_end(target) ? head_end(source) : head_end(target);
    assert(source->head_total == target->head_total && head_bytes == kv_arena_head_bytes(target));
    assert(arena_has(source, layer) && arena_has(target, layer));
    if (head >= end)
        return 0;
    const uint64_t bytes = (end - head) * head_bytes;
    const uint64_t source_skip = (head - source->head_first) * head_bytes;
    const uint64_t target_skip = (head - target->head_first) * head_bytes;
    uint32_t runs = 0;
    for (uint32_t i = first; i < first + count; i++) {
        assert(source_blocks[i] < source->block_count && target_blocks[i] < target->block_count);
        const struct kv_run run = {
            .source_offset = kv_arena_offset(source, layer, source_blocks[i]) + source_skip,
            .target_offset = kv_arena_offset(target, layer, target_blocks[i]) + target_skip,
            .bytes = bytes,
        };
        struct kv_run *last = runs > 0 ? &runs_out[runs - 1] : NULL;
        if (last != NULL && last->source_offset + last->bytes == run.source_offset &&
            last->target_offset + last->bytes == run.target_offset)
            last->bytes += bytes;
        else
            runs_out[runs++] = run;
    }
    return runs;
}
