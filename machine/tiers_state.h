/* tiers_state: the structs and functions that the files about tiers share. These files decide which
 * KV is stored in tiers (kvcache/tiers/tiers.h) and loaded from them. tiers.c: opening, closing,
 * the event loop's turn, statistics. tier_stores.c: KV on its way to tiers. tier_loads.c: KV on its
 * way from tiers. tier_staging.c: the staging memory (executor/staging.h). The header is private to
 * these files; state.h has the functions for the other files of machine/. Everything runs on the
 * machine's event loop thread. */
#ifndef MACHINE_TIERS_STATE_H
#define MACHINE_TIERS_STATE_H

#include "kvcache/tiers/tiers.h"
#include "machine/executor/staging.h"
#include "machine/state.h"
#include "scheduler/tier_loads.h"
#include "transport/message_tier.h"

/* All loads together use at most 1 / TIERS_BLOCKS_DIVISOR of the machine's blocks. The same limit
 * holds for all stores together. A load without other loads, or a store without other stores, may
 * use more. */
#define TIERS_BLOCKS_DIVISOR 2

struct tier_store; /* See tier_stores.c. */

/* The user of a slot of the staging memory; store and load both NULL = the slot is free. */
struct tier_slot {
    struct tier_store *store;
    struct machine_load *load;
};

struct machine_tiers {
    struct machine *machine;
    struct tiers *tiers;
    uint32_t count;                              /* Number of tiers. */
    struct message_tier counts[TIER_KIND_COUNT]; /* [count]; only the counters are used. */
    struct sched_tier_loads loads_measured[TIER_KIND_COUNT]; /* [count]: times of loads so far. */
    uint64_t load_number;                                    /* Number of loads so far. */
    uint32_t load_blocks;                                    /* Blocks that loads have taken. */
    uint32_t store_blocks;                                   /* Blocks that stores read. */
    struct tier_store *stores;                               /* Stores that have not ended. */
    struct machine_load *loads;                              /* Loads that are not freed. */
    bool loads_ended;    /* A load has ended since the latest turn. */
    bool load_is_adding; /* A load is adding its spans to the prefix cache. */
    bool closing;        /* machine_tiers_close was called. */

    /* Spans for which a slot has room; 0 = there is no staging memory, and the tiers use the
     * machine's KV memory. */
    uint32_t slot_spans;
    struct tier_slot slots[STAGING_SLOTS];
    /* The ids of each slot's blocks, in the order of staging_slot_blocks. */
    kv_block_id slot_blocks[STAGING_SLOTS][LAYER_GROUPS_MAX * STAGING_SPANS_MAX];
};

/* Returns the number of blocks of `spans` spans in all layer groups. */
static inline uint32_t tiers_blocks(const struct machine *m, uint32_t spans)
{
    return spans * layer_groups_count(&m->arena.groups);
}

/* Returns the bytes of a record, which holds the KV of one block (kvcache/tiers/tier_record.h). */
static inline uint64_t tiers_record_bytes(const struct machine *m)
{
    return tier_record_bytes(&m->arena);
}

/* tier_stores.c */
/* The callback of kv_prefix_added_set; `self` is the struct machine_tiers. Begins to store the
 * chain of `spans` spans that has entered the prefix cache, if no load has added the chain. */
void tier_stores_added(void *self, uint64_t salt, const uint32_t *tokens, uint32_t spans);
/* Lets the oldest store that waits for a slot try to take the slot. Cancels all stores if requests
 * wait and memory is short. */
void tier_stores_turn(struct machine_tiers *t);
/* Called when the KV of the store's slot is in the staging memory, or could not be copied. */
void tier_store_fetched(struct tier_store *store, enum status status);
/* Makes each store end when its running jobs and its copy have ended. */
void tier_stores_cancel(struct machine_tiers *t);
/* Frees the stores that are left. Requires that tier_stores_cancel was called, and that the tiers
 * are closed. */
void tier_stores_close(struct machine_tiers *t);

/* tier_loads.c */
/* Returns the least number of tokens whose KV is loaded from the tier in one load;
 * SCHED_TIER_LOADS_NEVER = no KV is loaded. */
uint32_t tier_least_tokens(const struct machine_tiers *t, uint32_t tier);
/* Gives free slots to the loads that wait for a slot, the oldest load first. */
void tier_loads_turn(struct machine_tiers *t);
/* Called when the KV of the load's slot is in the stage processes or the GPU, or could not be
 * copied. */
void tier_load_delivered(struct machine_load *load, enum status status);
/* Marks the loads whose prompts have waited kv/tiers/wait_ms. Returns true if this call has marked
 * a load. */
bool tier_loads_late(struct machine_tiers *t);
void tier_loads_cancel(struct machine_tiers *t); /* Asks the jobs of all loads to end early. */
/* Frees the loads that are left. Requires that machine_held_close and tier_loads_cancel were
 * called, and that the tiers are closed. */
void tier_loads_close(struct machine_tiers *t);

/* tier_staging.c */
/* Sets slot_spans and slot_blocks. No effect without staging memory. */
void tier_staging_open(struct machine_tiers *t);
/* Return the number of a free slot, which now belongs to the store or the load; STAGING_SLOTS = no
 * slot is free. One slot is for stores, the others are for loads. */
uint32_t tier_slot_take_store(struct machine_tiers *t, struct tier_store *store);
uint32_t tier_slot_take_load(struct machine_tiers *t, struct machine_load *load);
void tier_slot_give(struct machine_tiers *t, uint32_t slot); /* Frees the slot. */
/* Begins to copy the KV of the spans [first, end) of the tables from the stage processes or the GPU
 * to the slot. In layer groups with a window, only the spans from window_first on are copied. At
 * the end of the copy, tier_store_fetched is called. */
void tier_slot_fetch(struct machine_tiers *t, uint32_t slot, const struct kv_tables *tables,
                     uint32_t window_first, uint32_t first, uint32_t end);
/* Begins to copy KV from the slot to the stage processes or the GPU, with the parameters of
 * tier_slot_fetch. At the end of the copy, tier_load_delivered is called. */
void tier_slot_deliver(struct machine_tiers *t, uint32_t slot, const struct kv_tables *tables,
                       uint32_t window_first, uint32_t first, uint32_t end);

#endif
