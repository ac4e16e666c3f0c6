/* staging: see the header. */
#include "machine/executor/staging.h"

/* A larger slot would take the network from KV that somebody waits for, for a longer time. */
#define SLOT_BYTES (8u << 20)

static uint32_t slot_spans(const struct kv_arena *arena)
{
    const uint64_t spans = SLOT_BYTES / ((uint64_t)arena->layer_count * arena->block_bytes);
    return spans < 1 ? 1 : spans > STAGING_SPANS_MAX ? STAGING_SPANS_MAX : (uint32_t)spans;
}

struct kv_arena staging_arena(const struct config *config, const struct machine_shape *shape)
{
    struct kv_arena arena = shape->arena;
    arena.block_count = 0;
    if (shape->plan.paths.path_count <= 1 && config_has_tiers(config))
        arena.block_count = STAGING_SLOTS * slot_spans(&arena) * layer_groups_count(&arena.groups);
    arena.layer_stride_bytes = arena.block_count * arena.block_bytes;
    return arena;
}

uint32_t staging_slot_spans(const struct kv_arena *staging)
{
    return slot_spans(staging);
}

void staging_slot_blocks(const struct kv_arena *staging, uint32_t slot,
                         kv_block_id ids_out[LAYER_GROUPS_MAX * STAGING_SPANS_MAX])
{
    const uint32_t groups = layer_groups_count(&staging->groups), spans = slot_spans(staging);
    for (uint32_t group = 0; group < groups; group++)
        for (uint32_t i = 0; i < spans; i++)
            ids_out[group * STAGING_SPANS_MAX + i] = (slot * groups + group) * spans + i;
}

static uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint32_t layer_end(const struct kv_arena *arena)
{
    return arena->first_layer + arena->layer_count;
}

uint32_t staging_layer_runs(const struct staging_side *source, const struct staging_side *target,
                            uint32_t layer, uint32_t window_first, uint32_t span_count,
                            struct kv_run runs_out[STAGING_SPANS_MAX])
{
    const struct layer_groups *groups = &source->arena->groups;
    const uint32_t group = layer_groups_group_of(groups, layer);
    const uint32_t first = layer_groups_windowed(groups, group) ? window_first : 0;
    return kv_transfer_plan(source->arena, source->blocks + (size_t)group * source->stride,
                            target->arena, target->blocks + (size_t)group * target->stride, layer,
                            first, span_count - first, runs_out);
}

enum status staging_write(struct transport *transport, struct transport_peer *peer,
                          const struct staging_side *own_side, const struct staging_side *peer_side,
                          uint32_t window_first, uint32_t span_count)
{
    struct kv_run runs[STAGING_SPANS_MAX];
    const uint8_t *base = transport_region(transport);
    enum status status = ST_OK;
    for (uint32_t layer = max_u32(own_side->arena->first_layer, peer_side->arena->first_layer);
         layer < layer_end(own_side->arena) && layer < layer_end(peer_side->arena); layer++) {
        const uint32_t count =
            staging_layer_runs(own_side, peer_side, layer, window_first, span_count, runs);
        for (uint32_t i = 0; i < count && status >= 0; i++)
            status = transport_write(transport, peer, base + runs[i].source_offset, runs[i].bytes,
                                     runs[i].target_offset);
    }
    return status;
}
