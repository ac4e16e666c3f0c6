/* sched_machine, second part: who gets KV memory next, and who gives it up. */
#include "scheduler/machine.h"

#include "scheduler/machine_state.h"

#include <assert.h>

/* ---- reservations ---- */

void sched_machine_reserve_add(struct sched_machine *sm, sched_slot slot, uint32_t blocks,
                               uint32_t tokens, const struct sched_rank *rank)
{
    const struct sched_ticket ticket = sched_ticket_of(rank, tokens);
    struct slot *entry = sched_slot_unknown(sm, slot);
    entry->state = SLOT_RESERVING;
    entry->blocks = blocks;
    entry->arrival = sm->arrivals++;
    sched_queue_add(sm->memory, &sm->reservations, slot, &ticket, sm->now_us);
}

bool sched_machine_reserve_head(const struct sched_machine *sm, sched_slot *slot_out)
{
    if (sm->reservations.first == SLOT_NONE)
        return false;
    *slot_out = sm->reservations.first;
    return true;
}

void sched_machine_reserve_left(struct sched_machine *sm, sched_slot slot, uint32_t blocks)
{
    assert(sm->slots[slot].state == SLOT_RESERVING);
    sm->slots[slot].blocks = blocks;
}

/* A prompt that is decoded elsewhere needs blocks too, and reservations whose prompts run here may
 * take all there are: those that came after it do not. */
static uint32_t kept_for_prompts(const struct sched_machine *sm, sched_slot reservation)
{
    sched_slot prompt = sm->prompts.first;
    if (prompt == SLOT_NONE || sm->slots[prompt].arrival > sm->slots[reservation].arrival)
        return 0;
    return sm->slots[prompt].blocks;
}

bool sched_machine_reserve_next(struct sched_machine *sm, uint32_t blocks_free,
                                sched_slot *slot_out)
{
    sched_slot head = sm->reservations.first;
    if (head == SLOT_NONE)
        return false;
    uint64_t needed = (uint64_t)sm->slots[head].blocks + kept_for_prompts(sm, head);
    if (needed > blocks_free)
        return false;
    sched_queue_take(sm->memory, &sm->reservations, head);
    sm->slots[head].state = SLOT_UNKNOWN; /* until its prompt or its KV arrives */
    *slot_out = head;
    return true;
}

/* ---- decodes that grow ---- */

void sched_machine_decode_add(struct sched_machine *sm, sched_slot slot,
                              const struct sched_decode *decode)
{
    assert(slot < sm->options.slot_count);
    struct slot *entry = &sm->slots[slot];
    assert(entry->state == SLOT_UNKNOWN || entry->state == SLOT_PROMPT_ENDED);
    assert(!decode->pinned || decode->room >= decode->tokens_left);
    entry->tokens = decode->tokens_left;
    entry->room = decode->room;
    entry->rank = decode->rank;
    entry->pinned = decode->pinned;
    entry->state = decode->tokens_left > 0 ? SLOT_DECODING : SLOT_DECODE_ENDED;
    if (decode->tokens_left == 0)
        return;
    sm->decode_tokens_pending += decode->tokens_left;
    sm->decodes_short += entry->room == 0 ? 1 : 0;
    sched_list_append(sm, &sm->decodes, slot);
}

bool sched_machine_short(const struct sched_machine *sm, sched_slot *slot_out)
{
    if (sm->decodes_short == 0)
        return false;
    sched_slot slot = sm->decodes.first;
    while (sm->slots[slot].room > 0)
        slot = sm->slots[slot].next;
    *slot_out = slot;
    return true;
}

void sched_machine_grown(struct sched_machine *sm, sched_slot slot, uint32_t tokens)
{
    struct slot *entry = &sm->slots[slot];
    assert(entry->state == SLOT_DECODING && !entry->in_batch && tokens >= 1);
    sm->decodes_short -= entry->room == 0 ? 1 : 0;
    entry->room += tokens;
}

static bool less_urgent(const struct sched_rank *a, const struct sched_rank *b)
{
    return a->priority != b->priority ? a->priority > b->priority : a->born_us > b->born_us;
}

bool sched_machine_victim(const struct sched_machine *sm, sched_slot *slot_out)
{
    sched_slot victim = SLOT_NONE;
    for (sched_slot slot = sm->decodes.first; slot != SLOT_NONE; slot = sm->slots[slot].next) {
        const struct slot *entry = &sm->slots[slot];
        if (!entry->pinned &&
            (victim == SLOT_NONE || less_urgent(&entry->rank, &sm->slots[victim].rank)))
            victim = slot;
    }
    *slot_out = victim;
    return victim != SLOT_NONE;
}
