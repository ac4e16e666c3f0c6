/* sched_machine, part 3: the next batch. Decodes are added first, one row each; then the prompt
 * that is between two chunks; then waiting prompts in the order of their queues, whole, while they
 * fit. No prompt is overtaken, with one exception: prompts whose blocks are reserved already pass a
 * prompt that waits for blocks, because they hold memory that is returned only after they have run.
 *
 * With several batches in flight, a decode that is in a batch is skipped, and a batch takes no more
 * than its share of the decodes: new decodes go to the batches with fewer, and when decodes leave,
 * the shares shrink. A prompt is given to batches chunk by chunk and ends with its last chunk. */
#include "scheduler/machine/machine.h"

#include "scheduler/machine/state.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

/* Room left for prompts while a batch is built. */
struct room {
    struct sched_path *path;
    struct sched_batch *batch;
    uint32_t budget; /* Most prompt tokens of a batch of this kind. */
    uint32_t tokens;
    uint32_t places; /* Sequences left. */
    uint32_t blocks;
};

static void batch_add(struct sched_machine *sm, struct sched_batch *batch,
                      const struct sched_batch_item *item)
{
    assert(batch->item_count < LIMIT_BATCH_SEQUENCES);
    assert(batch->row_count + item->token_count <= LIMIT_BATCH_TOKENS);
    batch->items[batch->item_count++] = *item;
    batch->row_count += item->token_count;
    sm->slots[item->slot].in_flight++;
}

/* All paths share one memory. Returns the blocks needed by the first prompts of other paths that
 * come before `prompt`. */
static uint64_t kept_for_others(const struct sched_machine *sm, const struct sched_path *path,
                                sched_slot prompt)
{
    uint64_t kept = 0;
    for (uint32_t i = 0; i < sm->options.path_count; i++) {
        sched_slot head = sm->paths[i].prompts.first;
        if (&sm->paths[i] != path && head != SLOT_NONE &&
            sched_queue_before(sm->prompt_accounts, head, prompt))
            kept += sm->slots[head].blocks;
    }
    return kept;
}

/* Returns the next prompt that may start: the first one of both queues, or the first one with
 * reserved blocks if `blocks` is too few for the first of the others. */
static sched_slot prompt_next(const struct sched_machine *sm, const struct sched_path *path,
                              uint32_t blocks)
{
    sched_slot head = path->prompts.first;
    sched_slot booked = path->prompts_with_blocks.first;
    if (head == SLOT_NONE || sm->slots[head].blocks + kept_for_others(sm, path, head) > blocks)
        return booked;
    if (booked != SLOT_NONE && sched_queue_before(sm->prompt_accounts, booked, head))
        return booked;
    return head;
}

/* If a prompt can run, one place of the batch is kept for it; otherwise a machine full of decodes
 * would never start a prompt. If a batch has only one place, prompts and decodes alternate. */
static uint32_t places_for_decodes(const struct sched_machine *sm, const struct sched_path *path,
                                   uint32_t blocks_free)
{
    uint32_t places = sm->options.batch_sequences_max;
    if (path->running_prompt == SLOT_NONE && prompt_next(sm, path, blocks_free) == SLOT_NONE)
        return places;
    if (places > 1)
        return places - 1;
    return path->prompt_in_last_batch ? 1 : 0;
}

static uint32_t share_of(uint32_t count, uint32_t parts)
{
    return (count + parts - 1) / parts;
}

/* Most decodes of the next batch: an even share of all decodes, including those in flight, so that
 * new decodes go where there are fewer; and at most an even share of the idle ones for each batch
 * that may begin now, so that none of those batches is left without decodes. */
static uint32_t decodes_part(const struct sched_machine *sm, const struct sched_path *path)
{
    uint32_t flights = sm->options.decode_batches_in_flight;
    uint32_t able = path->decodes.count - path->decodes_short;
    if (path->decode_batch_count == flights)
        return 0;
    uint32_t of_all = share_of(able, flights);
    uint32_t of_idle = share_of(able - path->decodes_in_flight, flights - path->decode_batch_count);
    return of_all < of_idle ? of_all : of_idle;
}

/* Returns how many drafted tokens the decode's step checks: as many as it has, its memory holds and
 * the batch has rows for if `others` more decodes each get a row. */
static uint32_t draft_rows(const struct sched_machine *sm, sched_slot slot, uint32_t others,
                           uint32_t *rows_left)
{
    const struct slot *entry = &sm->slots[slot];
    uint32_t most = entry->room < entry->tokens ? entry->room : entry->tokens;
    uint32_t draft = entry->draft < most ? entry->draft : most - 1;
    uint32_t free_rows = *rows_left > others + 1 ? *rows_left - others - 1 : 0;
    draft = draft < free_rows ? draft : free_rows;
    *rows_left -= *rows_left > 0 ? 1 + draft : 0;
    return draft;
}

/* Decodes that were added move to the end of the list, in order. If there are more decodes than a
 * batch takes, each one runs once before any runs twice. */
static uint32_t decodes_add(struct sched_machine *sm, struct room *room)
{
    struct sched_path *path = room->path;
    uint32_t part = decodes_part(sm, path);
    uint32_t most = part < room->places ? part : room->places;
    uint32_t count = 0;
    /* No drafts beside a prompt: the rows of the prompt keep the device busy. */
    uint32_t rows_left = room->places == sm->options.batch_sequences_max ? room->places : 0;
    bool rotate = sm->options.batches_in_flight > 1 || room->places < path->decodes.count;
    sched_slot slot = path->decodes.first;
    for (uint32_t looks = path->decodes.count; looks > 0 && count < most; looks--) {
        sched_slot next = sm->slots[slot].next;
        if (sm->slots[slot].room == 0 || sm->slots[slot].in_flight > 0) {
            slot = next;
            continue;
        }
        count++;
        batch_add(
            sm, room->batch,
            &(struct sched_batch_item){
                .slot = slot, .token_count = 1 + draft_rows(sm, slot, most - count, &rows_left)});
        if (rotate) {
            sched_list_remove(sm, &path->decodes, slot);
            sched_list_append(sm, &path->decodes, slot);
        }
        slot = next;
    }
    path->decodes_in_flight += count;
    return count;
}

static void chunk_add(struct sched_machine *sm, sched_slot slot, struct room *room)
{
    struct slot *entry = &sm->slots[slot];
    uint32_t left = entry->tokens - entry->tokens_done;
    uint32_t chunk =
        left <= room->tokens ? left : room->tokens / SCHED_CHUNK_TOKENS * SCHED_CHUNK_TOKENS;
    assert(chunk > 0 && room->places > 0);
    batch_add(sm, room->batch,
              &(struct sched_batch_item){
                  .slot = slot,
                  .is_prompt = true,
                  .is_first_chunk = entry->tokens_done == 0,
                  .is_last_chunk = chunk == left,
                  .first_token = entry->tokens_done,
                  .token_count = chunk,
              });
    entry->tokens_done += chunk;
    room->tokens -= chunk;
    room->places--;
    room->path->running_prompt = chunk == left ? SLOT_NONE : slot;
}

/* Returns false when the prompt has to wait for the next batch. A prompt that is larger than any
 * batch of this kind begins in a batch of its own, so that its chunk is as large as the budget
 * allows. With several batches in flight the rest follows at once, and each batch should be full: a
 * stage with less work than the others waits for them. */
static bool prompt_fits(const struct sched_machine *sm, sched_slot slot, const struct room *room)
{
    if (room->places == 0)
        return false;
    if (sm->options.batches_in_flight > 1 && room->tokens >= SCHED_CHUNK_TOKENS)
        return true;
    return sm->slots[slot].tokens <= room->tokens || room->tokens == room->budget;
}

/* More rows would not be computed faster, and the prompts in the batch would wait for them. With
 * several batches in flight, micro_batch_tokens serves this purpose. */
static bool batch_filled(const struct sched_machine *sm, const struct room *room)
{
    uint32_t most = sm->options.prompt_fill_tokens;
    return sm->options.batches_in_flight == 1 && most > 0 && room->budget - room->tokens >= most;
}

static void prompts_add(struct sched_machine *sm, struct room *room)
{
    struct sched_path *path = room->path;
    if (path->running_prompt != SLOT_NONE)
        chunk_add(sm, path->running_prompt, room);
    while (path->running_prompt == SLOT_NONE) {
        sched_slot slot = prompt_next(sm, path, room->blocks);
        if (slot == SLOT_NONE || batch_filled(sm, room) || !prompt_fits(sm, slot, room))
            return;
        struct slot *entry = &sm->slots[slot];
        sched_queue_take(sm->prompt_accounts, sched_prompt_queue(sm, entry), slot);
        entry->state = SLOT_PROMPT_RUNNING;
        sm->prompts_running++;
        room->blocks -= entry->blocks;
        chunk_add(sm, slot, room);
    }
}

/* Most prompt tokens of a batch with this many decodes. */
static uint32_t prompt_budget(const struct sched_machine_options *options, uint32_t decodes)
{
    uint32_t budget = options->prompt_batch_tokens;
    uint32_t micro = options->batches_in_flight > 1 ? options->micro_batch_tokens : 0;
    if (micro > 0 && micro < budget)
        budget = micro;
    if (decodes > 0 && options->mixed_prompt_tokens < budget)
        budget = options->mixed_prompt_tokens;
    if (budget > LIMIT_BATCH_TOKENS - decodes)
        budget = LIMIT_BATCH_TOKENS - decodes;
    return budget;
}

static uint32_t ring_index(const struct sched_machine *sm, uint32_t path, uint32_t age)
{
    uint32_t flights = sm->options.batches_in_flight;
    return path * flights + (sm->paths[path].batch_oldest + age) % flights;
}

bool sched_machine_batch_next(struct sched_machine *sm, uint32_t path_index, uint32_t blocks_free,
                              struct sched_batch *out)
{
    const struct sched_machine_options *options = &sm->options;
    assert(path_index < options->path_count);
    struct sched_path *path = &sm->paths[path_index];
    out->item_count = out->row_count = 0;
    if (path->batch_count == options->batches_in_flight)
        return false;
    uint32_t index = ring_index(sm, path_index, path->batch_count);
    struct sched_batch *batch = &sm->batches[index];
    batch->index = index;
    batch->path = path_index;
    batch->item_count = batch->row_count = 0;
    struct room room = {
        .path = path,
        .batch = batch,
        .places = places_for_decodes(sm, path, blocks_free),
        .blocks = blocks_free,
    };
    uint32_t decodes = decodes_add(sm, &room);
    room.places = options->batch_sequences_max - decodes;
    room.budget = room.tokens = prompt_budget(options, decodes);
    if (room.places > 0)
        prompts_add(sm, &room);
    path->prompt_in_last_batch = batch->item_count > decodes;
    path->batch_count += batch->item_count > 0 ? 1 : 0;
    path->decode_batch_count += decodes > 0 ? 1 : 0;
    memcpy(out, batch, offsetof(struct sched_batch, items));
    memcpy(out->items, batch->items, batch->item_count * sizeof(out->items[0]));
    return batch->item_count > 0;
}

static void prompt_advance(struct sched_machine *sm, const struct sched_batch_item *item)
{
    sm->prompt_tokens_pending -= item->token_count;
    sm->slots[item->slot].tokens_computed += item->token_count;
    if (!item->is_last_chunk)
        return;
    sm->slots[item->slot].state = SLOT_PROMPT_ENDED;
    sm->prompts_running--;
}

static void decode_advance(struct sched_machine *sm, struct sched_path *path,
                           const struct sched_batch_item *item)
{
    struct slot *entry = &sm->slots[item->slot];
    path->decodes_in_flight--;
    entry->tokens--;
    entry->room--;
    sm->decode_tokens_pending--;
    if (entry->tokens > 0) {
        path->decodes_short += entry->room == 0 ? 1 : 0;
        path->drafts_short |= sched_draft_lacks_room(entry);
        return;
    }
    sched_list_remove(sm, &path->decodes, item->slot);
    entry->state = SLOT_DECODE_ENDED;
}

void sched_machine_draft_set(struct sched_machine *sm, sched_slot slot, uint32_t tokens)
{
    assert(slot < sm->options.slot_count);
    struct slot *entry = &sm->slots[slot];
    entry->draft = tokens;
    sm->paths[entry->path].drafts_short |= sched_draft_lacks_room(entry);
}

void sched_machine_decode_advance(struct sched_machine *sm, sched_slot slot, uint32_t tokens)
{
    struct slot *entry = &sm->slots[slot];
    assert(entry->in_flight == 0 && (tokens == 0 || entry->state == SLOT_DECODING));
    assert(tokens <= entry->room && (tokens < entry->tokens || tokens == 0));
    if (tokens == 0)
        return;
    entry->tokens -= tokens;
    entry->room -= tokens;
    sm->decode_tokens_pending -= tokens;
    sm->paths[entry->path].decodes_short += entry->room == 0 ? 1 : 0;
    sm->paths[entry->path].drafts_short |= sched_draft_lacks_room(entry);
}

bool sched_machine_batch_oldest(const struct sched_machine *sm, uint32_t path, uint32_t *index_out)
{
    assert(path < sm->options.path_count);
    *index_out = ring_index(sm, path, 0);
    return sm->paths[path].batch_count > 0;
}

void sched_machine_batch_done(struct sched_machine *sm, uint32_t index)
{
    uint32_t flights = sm->options.batches_in_flight;
    assert(index < sm->options.path_count * flights);
    struct sched_path *path = &sm->paths[index / flights];
    const struct sched_batch *batch = &sm->batches[index];
    assert(path->batch_count > 0 && path->batch_oldest == index % flights);
    for (uint32_t i = 0; i < batch->item_count; i++) {
        const struct sched_batch_item *item = &batch->items[i];
        sm->slots[item->slot].in_flight--;
        if (item->is_prompt)
            prompt_advance(sm, item);
        else
            decode_advance(sm, path, item);
    }
    path->batch_oldest = (path->batch_oldest + 1) % flights;
    path->batch_count--;
    path->decode_batch_count -=
        batch->items[0].is_prompt ? 0 : 1; /* Decodes come before prompts. */
}
