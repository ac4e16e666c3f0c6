/* tiers_state: the structs and functions that the files about tiers share. These files decide which
 * KV is stored in tiers (kvcache/tiers/tiers.h) and loaded from them. tiers.c: opening, closing,
 * the event loop's turn. tier_stores.c: KV on its way to tiers. tier_loads.c: KV on its way from
 * tiers. tier_staging.c: the staging memory (executor/staging.h). No other file includes this
 * header; state.h has the functions for the other files of machine/. Everything runs on the
 * machine's event loop thread. */
#ifndef MACHINE_TIERS_STATE_H
#define MACHINE_TIERS_STATE_H

#include "kvcache/tiers/tiers.h"
#include "machine/executor/staging.h"
#include "machine/state.h"
#include "scheduler/tier_loads.h"
#include "transport/message_tier.h"

/* All loads together use at most 1 / TIERS_BLOCKS_DIVISOR of the machine's blocks, and so do all
 * stores. */
#define TIERS_BLOCKS_DIVISOR 2

struct tier_store; /* See tier_stores.c. */

/* A slot of the staging memory; free = both are NULL. */
struct tier_slot {
    struct tier_store *store;
    struct machine_load *load;
};

struct machine_tiers {
    struct machine *machine;
    struct tiers *tiers;
    uint32_t count;                              /* Number of tiers. */
    struct message_tier counts[TIER_KIND_COUNT]; /* By tier; only the counters are used. */
    struct sched_tier_loads loads_measured[TIER_KIND_COUNT]; /* By tier. */
    uint64_t load_number;                                    /* Number of loads so far. */
    uint32_t load_blocks;                                    /* Blocks that loads have taken. */
    uint32_t store_blocks;                                   /* Blocks that stores read. */
    struct tier_store *stores;                               /* Stores that have not ended. */
    struct machine_load *loads;                              /* Loads that are not freed. */
    bool loads_ended;    /* A load has ended since the latest turn. */
    bool load_is_adding; /* A load is adding its spans to the prefix cache. */
    bool closing;

    /* Spans of a slot; 0 = there is no staging memory: the tiers use the machine's KV memory. */
    uint32_t slot_spans;
    struct tier_slot slots[STAGING_SLOTS];
    /* [STAGING_SLOTS]: staging_slot_blocks. */
    kv_block_id slot_blocks[STAGING_SLOTS][LAYER_GROUPS_MAX * STAGING_SPANS_MAX];
};

/* Returns the number of blocks of `spans` spans in all layer groups. */
static inline uint32_t tiers_blocks(const struct machine *m, uint32_t spans)
{
    return spans * layer_groups_count(&m->arena.groups);
}

static inline uint64_t tiers_record_bytes(const struct machine *m)
{
    return tier_record_bytes(&m->arena);
}

/* tier_stores.c */
/* Begins to store a chain that has entered the prefix cache (kv_prefix_added_set). */
void tier_stores_added(void *self, uint64_t salt, const uint32_t *tokens, uint32_t spans);
/* Goes on with the stores that wait for a slot, and ends all storing early if requests wait and
 * memory is short. */
void tier_stores_turn(struct machine_tiers *t);
/* Called when the KV of the store's slot is in the staging memory, or could not be copied. */
void tier_store_fetched(struct tier_store *store, enum status status);
void tier_stores_cancel(struct machine_tiers *t);
/* Frees the stores that no job has. Requires tier_stores_cancel, and that no job is left. */
void tier_stores_close(struct machine_tiers *t);

/* tier_loads.c */
/* Returns the least number of tokens whose KV is loaded from the tier. */
uint32_t tier_least_tokens(const struct machine_tiers *t, uint32_t tier);
/* Goes on with the loads that wait for a slot. */
void tier_loads_turn(struct machine_tiers *t);
/* Called when the KV of the load's slot is in the stage processes or the GPU, or could not be
 * copied. */
void tier_load_delivered(struct machine_load *load, enum status status);
/* Marks the loads whose prompts no longer wait. Returns true if there are any. */
bool tier_loads_late(struct machine_tiers *t);
void tier_loads_cancel(struct machine_tiers *t);
/* Frees the loads that no job has. Requires tier_loads_cancel, and that no job is left. */
void tier_loads_close(struct machine_tiers *t);

/* tier_staging.c */
void tier_staging_open(struct machine_tiers *t);
/* Return the number of a free slot, which now belongs to the store or the load; STAGING_SLOTS = no
 * slot is free. */
uint32_t tier_slot_take_store(struct machine_tiers *t, struct tier_store *store);
uint32_t tier_slot_take_load(struct machine_tiers *t, struct machine_load *load);
void tier_slot_give(struct machine_tiers *t, uint32_t slot);
/* Begins to copy KV of the spans [first, end) of the tables from the stage processes or the GPU to
 * the slot; in groups with a window, of the spans from window_first on. tier_store_fetched
 * follows. */
void tier_slot_fetch(struct machine_tiers *t, uint32_t slot, const struct kv_tables *tables,
                     uint32_t window_first, uint32_t first, uint32_t end);
/* Does what tier_slot_fetch does, but copies from the slot to the stage processes or
 * the GPU. tier_load_delivered follows. */
void tier_slot_deliver(struct machine_tiers *t, uint32_t slot, const struct kv_tables *tables,
                       uint32_t window_first, uint32_t first, uint32_t end);

#endif
