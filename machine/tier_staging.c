/* tier_staging: the slots of the staging memory (executor/staging.h), through which tiers read and
 * write KV of stage processes and of GPUs. One slot is for KV that is stored, so that storing takes
 * no room from loads, for which requests wait. */
#include "machine/tiers_state.h"

#define STORE_SLOT 0

void tier_staging_open(struct machine_tiers *t)
{
    const struct kv_arena *staging = &t->machine->executor->staging;
    if (staging->block_count == 0)
        return;
    t->slot_spans = staging_slot_spans(staging);
    for (uint32_t slot = 0; slot < STAGING_SLOTS; slot++)
        staging_slot_blocks(staging, slot, t->slot_blocks[slot]);
}

uint32_t tier_slot_take_store(struct machine_tiers *t, struct tier_store *store)
{
    if (t->slots[STORE_SLOT].store != NULL)
        return STAGING_SLOTS;
    t->slots[STORE_SLOT].store = store;
    return STORE_SLOT;
}

uint32_t tier_slot_take_load(struct machine_tiers *t, struct machine_load *load)
{
    uint32_t slot = STORE_SLOT + 1;
    while (slot < STAGING_SLOTS && t->slots[slot].load != NULL)
        slot++;
    if (slot < STAGING_SLOTS)
        t->slots[slot].load = load;
    return slot;
}

void tier_slot_give(struct machine_tiers *t, uint32_t slot)
{
    t->slots[slot] = (struct tier_slot){.store = NULL};
    t->machine->event_count++; /* another store or load can have it in the next round */
}

static struct executor_copy copy_of(struct machine_tiers *t, uint32_t slot,
                                    const struct kv_tables *tables, uint32_t window_first,
                                    uint32_t first, uint32_t end)
{
    const uint32_t from = window_first > first ? window_first - first : 0;
    t->machine->sends_queued = true;
    return (struct executor_copy){.slot = slot,
                                  .span_count = end - first,
                                  .window_first = from < end - first ? from : end - first,
                                  .blocks = tables->ids + first,
                                  .stride = tables->stride};
}

void tier_slot_fetch(struct machine_tiers *t, uint32_t slot, const struct kv_tables *tables,
                     uint32_t window_first, uint32_t first, uint32_t end)
{
    struct executor *e = t->machine->executor;
    const struct executor_copy copy = copy_of(t, slot, tables, window_first, first, end);
    e->ops->kv_fetch(e, &copy);
}

void tier_slot_deliver(struct machine_tiers *t, uint32_t slot, const struct kv_tables *tables,
                       uint32_t window_first, uint32_t first, uint32_t end)
{
    struct executor *e = t->machine->executor;
    const struct executor_copy copy = copy_of(t, slot, tables, window_first, first, end);
    e->ops->kv_deliver(e, &copy);
}

void machine_tiers_copied(void *self, uint32_t slot, enum status status)
{
    struct machine *m = self;
    const struct tier_slot *user = &m->tiers->slots[slot];
    m->event_count++;
    if (user->store != NULL)
        tier_store_fetched(user->store, status);
    else
        tier_load_delivered(user->load, status);
}
