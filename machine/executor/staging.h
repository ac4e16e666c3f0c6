/* staging: the layout of the staging memory, and copies from and to it. Staging memory is memory of
 * the host through which KV travels between the tiers (kvcache/tiers/) and KV memory that the
 * threads of the tiers cannot use:
 *
 * - KV of stage processes, which have only parts of a block. The processes write their parts into
 *   the staging memory of the head before a tier stores the block; the head writes the parts of a
 *   loaded block to the processes.
 * - KV in the memory of a GPU, on a machine without stages: the GPU copies (local_staging.h).
 *
 * The memory is divided into slots; machine/tier_staging.c decides how a slot is used. The head and
 * the stage processes compute equal layouts. machine/ calls the functions on the event loop thread
 * of the process. The functions own nothing: the memory belongs to the head's transport, or to
 * local_staging.c. */
#ifndef MACHINE_EXECUTOR_STAGING_H
#define MACHINE_EXECUTOR_STAGING_H

#include "machine/executor/shape.h"

#define STAGING_SLOTS     4  /* Number of slots. */
#define STAGING_SPANS_MAX 64 /* Most spans of a slot. */

/* Returns the layout of the machine's staging memory. Call it only if the threads of the tiers
 * cannot use the machine's KV memory. block_count 0 = no staging memory: the machine has no tiers,
 * or has replicas of stages. */
struct kv_arena staging_arena(const struct config *config, const struct machine_shape *shape);
/* Returns the number of spans for which a slot has blocks. */
uint32_t staging_slot_spans(const struct kv_arena *staging);
/* Stores the ids of a slot's blocks: the block of the slot's span i in layer group g is
 * ids_out[g * STAGING_SPANS_MAX + i]. */
void staging_slot_blocks(const struct kv_arena *staging, uint32_t slot,
                         kv_block_id ids_out[LAYER_GROUPS_MAX * STAGING_SPANS_MAX]);

/* Blocks in one arena. */
struct staging_side {
    const struct kv_arena *arena;
    const kv_block_id *blocks; /* The block of span i in layer group g: blocks[g * stride + i]. */
    uint32_t stride;
};

/* Computes which bytes of a layer are copied from `source` to `target`: the KV heads that both
 * arenas have, of span_count spans (at most STAGING_SPANS_MAX). Requires that both arenas have the
 * layer. In a layer group with a window, spans before window_first are left out. Returns the number
 * of runs. */
uint32_t staging_layer_runs(const struct staging_side *source, const struct staging_side *target,
                            uint32_t layer, uint32_t window_first, uint32_t span_count,
                            struct kv_run runs_out[STAGING_SPANS_MAX]);

/* Begins to write the KV of span_count spans (at most STAGING_SPANS_MAX) from this process to a
 * peer: the layers and KV heads that both arenas have. own_side is in this process's region,
 * peer_side is in the peer's region (transport.h: the memory that peers may write). In layer groups
 * with a window, spans before window_first are left out. The caller calls transport_flush
 * afterwards. Returns an error of transport_write; a part may then have been written. */
enum status staging_write(struct transport *transport, struct transport_peer *peer,
                          const struct staging_side *own_side, const struct staging_side *peer_side,
                          uint32_t window_first, uint32_t span_count);

#endif
