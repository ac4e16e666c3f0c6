/* kv_transfer: blocks that follow each other in both arenas are one write: fewer, larger writes are
 * what a network likes, and the pool hands out runs for this. */
#include "kvcache/kv_transfer.h"

#include <assert.h>

static bool arena_has(const struct kv_arena *arena, uint32_t layer)
{
    return layer >= arena->first_layer && layer - arena->first_layer < arena->layer_count;
}

uint32_t kv_transfer_plan(const struct kv_arena *source, const kv_block_id *source_blocks,
                          const struct kv_arena *target, const kv_block_id *target_blocks,
                          uint32_t layer, uint32_t first, uint32_t count, struct kv_run *runs_out)
{
    assert(source->block_bytes == target->block_bytes);
    assert(arena_has(source, layer) && arena_has(target, layer));
    uint32_t runs = 0;
    for (uint32_t i = first; i < first + count; i++) {
        assert(source_blocks[i] < source->block_count && target_blocks[i] < target->block_count);
        if (i > first && source_blocks[i] == source_blocks[i - 1] + 1 &&
            target_blocks[i] == target_blocks[i - 1] + 1) {
            runs_out[runs - 1].bytes += source->block_bytes;
            continue;
        }
        runs_out[runs++] = (struct kv_run){
            .source_offset = kv_arena_offset(source, layer, source_blocks[i]),
            .target_offset = kv_arena_offset(target, layer, target_blocks[i]),
            .bytes = source->block_bytes,
        };
    }
    return runs;
}
