/* sched_machine, part 2: which request gets KV memory next, and which gives it up.
 *
 * Why no request waits for ever in a deadlock between machines: a request that holds blocks here
 * and does not await KV is running, being sent or being given back, and ends by itself. If all
 * holders await their KV and none is given up, each holder has a lower number than all prompts that
 * wait here. The prompt of a holder is computed, or waits on a machine where the same is true for a
 * still lower number. Numbers are the same on all machines, so such a chain ends at a prompt that
 * runs. And a request is given up only for lower numbers, of which there is a finite number.
 *
 * Why growth ends: a decode that is short is not pinned, so a victim exists (perhaps the decode
 * itself) unless the least urgent decode is in flight. Each victim is one decode less. When the
 * batch of the least urgent decode has ended, either blocks are free or that decode is the victim.
 * Only a less urgent decode that has joined a batch meanwhile can delay this. That decode had its
 * memory before, because no request gets memory while a decode is short, so each decode delays it
 * at most once. */
#include "scheduler/machine/machine.h"

#include "scheduler/machine/state.h"

#include <assert.h>
#include <stddef.h>

/* ---- reservations ---- */

void sched_machine_reserve_add(struct sched_machine *sm, sched_slot slot, uint32_t blocks,
                               uint32_t tokens, const struct sched_rank *rank)
{
    const struct sched_ticket ticket = sched_ticket_of(rank, tokens);
    struct slot *entry = sched_slot_unknown(sm, slot);
    entry->state = SLOT_RESERVING;
    entry->blocks = blocks;
    entry->arrival = sm->arrival_count++;
    entry->request_number = rank != NULL ? rank->request_number : 0;
    sched_queue_add(sm->reservation_accounts, &sm->reservations, slot, &ticket, sm->now_us);
}

bool sched_machine_reserve_head(const struct sched_machine *sm, sched_slot *slot_out)
{
    if (sm->reservations.first == SLOT_NONE)
        return false;
    *slot_out = sm->reservations.first;
    return true;
}

void sched_machine_reserve_left_set(struct sched_machine *sm, sched_slot slot, uint32_t blocks)
{
    assert(sm->slots[slot].state == SLOT_RESERVING);
    sm->slots[slot].blocks = blocks;
}

/* Blocks needed by the first prompt of each path that arrived before the reservation. Such prompts,
 * which are decoded elsewhere, need blocks too, and reservations that came later must not take all
 * of them. */
static uint64_t kept_for_prompts(const struct sched_machine *sm, sched_slot reservation)
{
    uint64_t kept = 0;
    for (uint32_t i = 0; i < sm->options.path_count; i++) {
        sched_slot prompt = sm->paths[i].prompts.first;
        if (prompt != SLOT_NONE && sm->slots[prompt].arrival < sm->slots[reservation].arrival)
            kept += sm->slots[prompt].blocks;
    }
    return kept;
}

bool sched_machine_reserve_next(struct sched_machine *sm, uint32_t blocks_free,
                                sched_slot *slot_out)
{
    sched_slot head = sm->reservations.first;
    if (head == SLOT_NONE)
        return false;
    uint64_t needed = sm->slots[head].blocks + kept_for_prompts(sm, head);
    if (needed > blocks_free)
        return false;
    sched_queue_take(sm->reservation_accounts, &sm->reservations, head);
    sm->slots[head].state = SLOT_UNKNOWN; /* Until the request's prompt or KV arrives. */
    *slot_out = head;
    return true;
}

/* ---- reservations to give up ---- */

void sched_machine_await_begin(struct sched_machine *sm, sched_slot slot)
{
    sched_slot_unknown(sm, slot)->state = SLOT_AWAITING;
    sched_list_append(sm, &sm->awaiting, slot);
}

/* Returns the prompt that is next among those of all paths that need blocks. */
static sched_slot prompt_first(const struct sched_machine *sm)
{
    sched_slot first = SLOT_NONE;
    for (uint32_t i = 0; i < sm->options.path_count; i++) {
        sched_slot head = sm->paths[i].prompts.first;
        if (head != SLOT_NONE &&
            (first == SLOT_NONE || sched_queue_before(sm->prompt_accounts, head, first)))
            first = head;
    }
    return first;
}

/* Returns the lowest number of these prompts. */
static uint64_t prompt_oldest(const struct sched_machine *sm)
{
    uint64_t oldest = UINT64_MAX;
    for (uint32_t i = 0; i < sm->options.path_count; i++) {
        sched_slot slot = sm->paths[i].prompts.first;
        for (; slot != SLOT_NONE; slot = sched_queue_next(sm->prompt_accounts, slot))
            oldest =
                sm->slots[slot].request_number < oldest ? sm->slots[slot].request_number : oldest;
    }
    return oldest;
}

bool sched_machine_deadlock_victim(const struct sched_machine *sm, uint32_t blocks_free,
                                   uint32_t holders, sched_slot *slot_out)
{
    if (sm->awaiting.count == 0 || sm->awaiting.count != holders)
        return false;
    sched_slot first = prompt_first(sm);
    if (first == SLOT_NONE || sm->slots[first].blocks <= blocks_free)
        return false;
    sched_slot youngest = sm->awaiting.first;
    for (sched_slot slot = youngest; slot != SLOT_NONE; slot = sm->slots[slot].next)
        if (sm->slots[slot].request_number > sm->slots[youngest].request_number)
            youngest = slot;
    *slot_out = youngest;
    return sm->slots[youngest].request_number > prompt_oldest(sm);
}

/* ---- decodes that grow ---- */

void sched_machine_decode_add(struct sched_machine *sm, sched_slot slot,
                              const struct sched_decode *decode)
{
    assert(slot < sm->options.slot_count && decode->path < sm->options.path_count);
    struct slot *entry = &sm->slots[slot];
    struct sched_path *path = &sm->paths[decode->path];
    assert(entry->state == SLOT_UNKNOWN || entry->state == SLOT_AWAITING ||
           entry->state == SLOT_PROMPT_ENDED);
    assert(!decode->pinned || decode->room_tokens >= decode->tokens_left);
    if (entry->state == SLOT_AWAITING)
        sched_list_remove(sm, &sm->awaiting, slot);
    entry->path = (uint8_t)decode->path;
    entry->tokens = decode->tokens_left;
    entry->room = decode->room_tokens;
    entry->draft = 0;
    entry->rank = decode->rank;
    entry->pinned = decode->pinned;
    entry->state = decode->tokens_left > 0 ? SLOT_DECODING : SLOT_DECODE_ENDED;
    if (decode->tokens_left == 0)
        return;
    sm->decode_tokens_pending += decode->tokens_left;
    path->decodes_short += entry->room == 0 ? 1 : 0;
    sched_list_append(sm, &path->decodes, slot);
}

bool sched_machine_short_find(const struct sched_machine *sm, sched_slot *slot_out)
{
    const struct sched_path *path = sm->paths;
    const struct sched_path *end = path + sm->options.path_count;
    while (path < end && path->decodes_short == 0)
        path++;
    if (path == end)
        return false;
    sched_slot slot = path->decodes.first;
    while (sm->slots[slot].room > 0)
        slot = sm->slots[slot].next;
    *slot_out = slot;
    return true;
}

/* Finds the path's first decode that lacks room for its draft and is in no batch. *any_out: there
 * is one, perhaps in a batch. */
static sched_slot draft_short(const struct sched_machine *sm, const struct sched_path *path,
                              bool *any_out)
{
    *any_out = false;
    for (sched_slot slot = path->decodes.first; slot != SLOT_NONE; slot = sm->slots[slot].next) {
        if (!sched_draft_lacks_room(&sm->slots[slot]))
            continue;
        *any_out = true;
        if (sm->slots[slot].in_flight == 0)
            return slot;
    }
    return SLOT_NONE;
}

bool sched_machine_draft_short_find(struct sched_machine *sm, sched_slot *slot_out)
{
    for (uint32_t i = 0; i < sm->options.path_count; i++) {
        struct sched_path *path = &sm->paths[i];
        if (!path->drafts_short)
            continue;
        const sched_slot slot = draft_short(sm, path, &path->drafts_short);
        if (slot == SLOT_NONE)
            continue;
        *slot_out = slot;
        return true;
    }
    return false;
}

void sched_machine_decode_grow(struct sched_machine *sm, sched_slot slot, uint32_t tokens)
{
    struct slot *entry = &sm->slots[slot];
    assert(entry->state == SLOT_DECODING && entry->in_flight == 0 && tokens >= 1);
    sm->paths[entry->path].decodes_short -= entry->room == 0 ? 1 : 0;
    entry->room += tokens;
}

static bool less_urgent(const struct sched_rank *a, const struct sched_rank *b)
{
    return a->priority != b->priority ? a->priority > b->priority : a->born_us > b->born_us;
}

/* Returns the least urgent decode of `victim` (SLOT_NONE = none) and the path's decodes that are
 * not pinned. */
static sched_slot least_urgent(const struct sched_machine *sm, const struct sched_path *path,
                               sched_slot victim)
{
    for (sched_slot slot = path->decodes.first; slot != SLOT_NONE; slot = sm->slots[slot].next) {
        const struct slot *entry = &sm->slots[slot];
        if (!entry->pinned &&
            (victim == SLOT_NONE || less_urgent(&entry->rank, &sm->slots[victim].rank)))
            victim = slot;
    }
    return victim;
}

/* A victim in flight is waited for; otherwise a more urgent decode would lose its memory instead.
 */
bool sched_machine_victim_find(const struct sched_machine *sm, sched_slot *slot_out)
{
    sched_slot victim = SLOT_NONE;
    for (uint32_t i = 0; i < sm->options.path_count; i++)
        victim = least_urgent(sm, &sm->paths[i], victim);
    *slot_out = victim;
    return victim != SLOT_NONE && sm->slots[victim].in_flight == 0;
}
