/* sched_slots: a hash table whose chains are linked through the entries; free entries form a list.
 */
#include "scheduler/slots.h"

#include "common/random.h"

#include <assert.h>
#include <stdlib.h>

#define NONE UINT32_MAX

struct entry {
    uint64_t id;
    uint32_t generation;
    uint32_t next; /* Next in its chain or in the free list. */
    bool used;
};

struct sched_slots {
    sched_slot first;
    uint32_t count;
    uint32_t used;
    uint32_t free_head;
    uint32_t mask;   /* Heads - 1; the number of heads is a power of two. */
    uint32_t *heads; /* Stored behind the entries. */
    struct entry entries[];
};

enum status sched_slots_open(sched_slot first, uint32_t count, struct sched_slots **out)
{
    if (count == 0 || count > LIMIT_MACHINE_REQUESTS)
        return ST_INVALID;
    uint32_t heads = 1;
    while (heads < count)
        heads *= 2;
    struct sched_slots *slots =
        calloc(1, sizeof(*slots) + count * sizeof(slots->entries[0]) + heads * sizeof(uint32_t));
    if (slots == NULL)
        return ST_NO_MEMORY;
    slots->first = first;
    slots->count = count;
    slots->mask = heads - 1;
    slots->heads = (uint32_t *)(slots->entries + count);
    for (uint32_t i = 0; i < heads; i++)
        slots->heads[i] = NONE;
    for (uint32_t i = 0; i < count; i++)
        slots->entries[i].next = i + 1 < count ? i + 1 : NONE;
    *out = slots;
    return ST_OK;
}

void sched_slots_close(struct sched_slots *slots)
{
    free(slots);
}

static uint32_t *head_of(const struct sched_slots *slots, uint64_t id, uint32_t generation)
{
    return &slots->heads[random_at(id, generation) & slots->mask];
}

bool sched_slots_find(const struct sched_slots *slots, uint64_t id, uint32_t generation,
                      sched_slot *slot_out)
{
    uint32_t at = *head_of(slots, id, generation);
    while (at != NONE &&
           (slots->entries[at].id != id || slots->entries[at].generation != generation))
        at = slots->entries[at].next;
    if (at == NONE)
        return false;
    *slot_out = slots->first + at;
    return true;
}

enum status sched_slots_take(struct sched_slots *slots, uint64_t id, uint32_t generation,
                             sched_slot *slot_out)
{
    sched_slot known;
    if (sched_slots_find(slots, id, generation, &known))
        return ST_INVALID;
    uint32_t at = slots->free_head;
    if (at == NONE)
        return ST_NO_RESOURCE;
    struct entry *entry = &slots->entries[at];
    uint32_t *head = head_of(slots, id, generation);
    slots->free_head = entry->next;
    *entry = (struct entry){.id = id, .generation = generation, .next = *head, .used = true};
    *head = at;
    slots->used++;
    *slot_out = slots->first + at;
    return ST_OK;
}

void sched_slots_free(struct sched_slots *slots, sched_slot slot)
{
    assert(sched_slots_used(slots, slot));
    uint32_t at = slot - slots->first;
    struct entry *entry = &slots->entries[at];
    uint32_t *link = head_of(slots, entry->id, entry->generation);
    while (*link != at)
        link = &slots->entries[*link].next;
    *link = entry->next;
    entry->used = false;
    entry->next = slots->free_head;
    slots->free_head = at;
    slots->used--;
}

bool sched_slots_used(const struct sched_slots *slots, sched_slot slot)
{
    assert(slot >= slots->first && slot - slots->first < slots->count);
    return slots->entries[slot - slots->first].used;
}

uint32_t sched_slots_used_count(const struct sched_slots *slots)
{
    return slots->used;
}
