/* sched_machine, third part: the next batch. Decodes come first, one row each; then the prompt
 * that is between two chunks; then waiting prompts in the order of their queues, whole, while they
 * fit. Nobody is overtaken, with one exception: a prompt that waits for blocks lets prompts pass
 * whose blocks are booked already, for those hold memory and give it back only when they have run.
 */
#include "scheduler/machine.h"

#include "scheduler/machine_state.h"

#include <assert.h>
#include <string.h>

/* What is left for prompts while a batch is built. */
struct room {
    uint32_t budget; /* prompt tokens of a whole batch of this kind */
    uint32_t tokens;
    uint32_t places; /* sequences */
    uint32_t blocks;
};

static void batch_add(struct sched_machine *sm, const struct sched_batch_item *item)
{
    struct sched_batch *batch = &sm->batch;
    assert(batch->item_count < LIMIT_BATCH_SEQUENCES);
    assert(batch->row_count + item->token_count <= LIMIT_BATCH_TOKENS);
    batch->items[batch->item_count++] = *item;
    batch->row_count += item->token_count;
    sm->slots[item->slot].in_batch = true;
}

/* The next prompt that may start: the first one, or the first of the booked ones when `blocks` does
 * not do for the first of the others. */
static sched_slot prompt_next(const struct sched_machine *sm, uint32_t blocks)
{
    sched_slot head = sm->prompts.first;
    sched_slot booked = sm->booked.first;
    if (head == SLOT_NONE || sm->slots[head].blocks > blocks)
        return booked;
    if (booked != SLOT_NONE && sched_queue_before(sm->compute, booked, head))
        return booked;
    return head;
}

/* A prompt that can run has one place for sure: else a machine full of decodes would never take a
 * prompt again. Where there is only one place at all, prompts and decodes take turns. */
static uint32_t places_for_decodes(const struct sched_machine *sm, uint32_t blocks_free)
{
    uint32_t places = sm->options.batch_sequences_max;
    if (sm->running == SLOT_NONE && prompt_next(sm, blocks_free) == SLOT_NONE)
        return places;
    if (places > 1)
        return places - 1;
    return sm->prompt_had_turn ? 1 : 0;
}

/* Those that got a turn go to the end of the list, in order: with more decodes than places, every
 * one runs once before any runs twice. */
static uint32_t decodes_add(struct sched_machine *sm, uint32_t places)
{
    uint32_t count = 0;
    bool rotate = places < sm->decodes.count;
    sched_slot slot = sm->decodes.first;
    for (uint32_t looks = sm->decodes.count; looks > 0 && count < places; looks--) {
        sched_slot next = sm->slots[slot].next;
        if (sm->slots[slot].room == 0) {
            slot = next;
            continue;
        }
        count++;
        batch_add(sm, &(struct sched_batch_item){.slot = slot, .token_count = 1});
        if (rotate) {
            sched_list_remove(sm, &sm->decodes, slot);
            sched_list_append(sm, &sm->decodes, slot);
        }
        slot = next;
    }
    return count;
}

static void chunk_add(struct sched_machine *sm, sched_slot slot, struct room *room)
{
    struct slot *entry = &sm->slots[slot];
    uint32_t left = entry->tokens - entry->tokens_done;
    uint32_t chunk =
        left <= room->tokens ? left : room->tokens / SCHED_CHUNK_TOKENS * SCHED_CHUNK_TOKENS;
    assert(chunk > 0 && room->places > 0);
    batch_add(sm, &(struct sched_batch_item){
                      .slot = slot,
                      .prompt = true,
                      .starts = entry->tokens_done == 0,
                      .ends = chunk == left,
                      .first_token = entry->tokens_done,
                      .token_count = chunk,
                  });
    room->tokens -= chunk;
    room->places--;
    sm->running = chunk == left ? SLOT_NONE : slot;
}

/* False when the prompt has to wait for the next batch. One that no batch of this kind holds whole
 * begins in a batch of its own: only then is its chunk as large as the budget allows. */
static bool prompt_fits(const struct sched_machine *sm, sched_slot slot, const struct room *room)
{
    if (room->places == 0)
        return false;
    return sm->slots[slot].tokens <= room->tokens || room->tokens == room->budget;
}

/* More rows would not be computed faster, and the prompts that are in would wait for them. */
static bool batch_filled(const struct sched_machine *sm, const struct room *room)
{
    uint32_t most = sm->options.prompt_fill_tokens;
    return most > 0 && room->budget - room->tokens >= most;
}

static void prompts_add(struct sched_machine *sm, struct room *room)
{
    if (sm->running != SLOT_NONE)
        chunk_add(sm, sm->running, room);
    while (sm->running == SLOT_NONE) {
        sched_slot slot = prompt_next(sm, room->blocks);
        if (slot == SLOT_NONE || batch_filled(sm, room) || !prompt_fits(sm, slot, room))
            return;
        struct slot *entry = &sm->slots[slot];
        sched_queue_take(sm->compute, sched_prompt_queue(sm, entry), slot);
        entry->state = SLOT_PROMPT_RUNNING;
        room->blocks -= entry->blocks;
        chunk_add(sm, slot, room);
    }
}

bool sched_machine_batch_next(struct sched_machine *sm, uint32_t blocks_free,
                              struct sched_batch *out)
{
    const struct sched_machine_options *options = &sm->options;
    assert(sm->batch.item_count == 0);
    uint32_t decodes = decodes_add(sm, places_for_decodes(sm, blocks_free));
    uint32_t budget = options->prompt_batch_tokens;
    if (decodes > 0 && options->mixed_prompt_tokens < budget)
        budget = options->mixed_prompt_tokens;
    if (budget > LIMIT_BATCH_TOKENS - decodes)
        budget = LIMIT_BATCH_TOKENS - decodes;
    struct room room = {
        .budget = budget,
        .tokens = budget,
        .places = options->batch_sequences_max - decodes,
        .blocks = blocks_free,
    };
    if (room.places > 0)
        prompts_add(sm, &room);
    sm->prompt_had_turn = sm->batch.item_count > decodes;
    out->item_count = sm->batch.item_count;
    out->row_count = sm->batch.row_count;
    memcpy(out->items, sm->batch.items, sm->batch.item_count * sizeof(out->items[0]));
    return sm->batch.item_count > 0;
}

static void prompt_advance(struct sched_machine *sm, const struct sched_batch_item *item)
{
    struct slot *entry = &sm->slots[item->slot];
    entry->tokens_done += item->token_count;
    sm->prompt_tokens_pending -= item->token_count;
    if (item->ends)
        entry->state = SLOT_PROMPT_ENDED;
}

static void decode_advance(struct sched_machine *sm, const struct sched_batch_item *item)
{
    struct slot *entry = &sm->slots[item->slot];
    entry->tokens--;
    entry->room--;
    sm->decode_tokens_pending--;
    if (entry->tokens > 0) {
        sm->decodes_short += entry->room == 0 ? 1 : 0;
        return;
    }
    sched_list_remove(sm, &sm->decodes, item->slot);
    entry->state = SLOT_DECODE_ENDED;
}

void sched_machine_batch_done(struct sched_machine *sm)
{
    assert(sm->batch.item_count > 0);
    for (uint32_t i = 0; i < sm->batch.item_count; i++) {
        const struct sched_batch_item *item = &sm->batch.items[i];
        sm->slots[item->slot].in_batch = false;
        if (item->prompt)
            prompt_advance(sm, item);
        else
            decode_advance(sm, item);
    }
    sm->batch.item_count = 0;
    sm->batch.row_count = 0;
}
