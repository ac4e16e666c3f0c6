/* sched_machine, part 1: the requests that the machine knows, and their lists. memory.c decides
 * which request gets memory, batch.c which requests run next. */
#include "scheduler/machine/machine.h"

#include "scheduler/machine/state.h"

#include <assert.h>
#include <stdlib.h>

void sched_list_append(struct sched_machine *sm, struct slot_list *list, sched_slot slot)
{
    sm->slots[slot].next = SLOT_NONE;
    sm->slots[slot].previous = list->last;
    if (list->last == SLOT_NONE)
        list->first = slot;
    else
        sm->slots[list->last].next = slot;
    list->last = slot;
    list->count++;
}

void sched_list_remove(struct sched_machine *sm, struct slot_list *list, sched_slot slot)
{
    const struct slot *entry = &sm->slots[slot];
    if (entry->previous == SLOT_NONE)
        list->first = entry->next;
    else
        sm->slots[entry->previous].next = entry->next;
    if (entry->next == SLOT_NONE)
        list->last = entry->previous;
    else
        sm->slots[entry->next].previous = entry->previous;
    list->count--;
}

static bool options_good(const struct sched_machine_options *options)
{
    return options->slot_count >= 1 && options->slot_count <= LIMIT_MACHINE_REQUESTS &&
           options->prompt_batch_tokens >= SCHED_CHUNK_TOKENS &&
           options->prompt_batch_tokens <= LIMIT_BATCH_TOKENS &&
           options->mixed_prompt_tokens >= SCHED_CHUNK_TOKENS &&
           options->mixed_prompt_tokens <= LIMIT_BATCH_TOKENS &&
           options->batch_sequences_max >= 1 &&
           options->batch_sequences_max <= LIMIT_BATCH_SEQUENCES &&
           options->path_count <= LIMIT_STAGE_PATHS &&
           options->batches_in_flight <= LIMIT_BATCHES_IN_FLIGHT / options->path_count &&
           (options->micro_batch_tokens == 0 || options->micro_batch_tokens >= SCHED_CHUNK_TOKENS);
}

static void path_init(struct sched_path *path)
{
    *path = (struct sched_path){
        .decodes = {.first = SLOT_NONE, .last = SLOT_NONE},
        .running_prompt = SLOT_NONE,
    };
    sched_queue_init(&path->prompts);
    sched_queue_init(&path->prompts_with_blocks);
}

enum status sched_machine_open(const struct sched_machine_options *options,
                               struct sched_machine **out)
{
    struct sched_machine_options set = *options;
    set.path_count = options->path_count > 0 ? options->path_count : 1;
    set.batches_in_flight = options->batches_in_flight > 0 ? options->batches_in_flight : 1;
    if (set.decode_batches_in_flight == 0 || set.decode_batches_in_flight > set.batches_in_flight)
        set.decode_batches_in_flight = set.batches_in_flight;
    if (!options_good(&set))
        return ST_INVALID;
    struct sched_machine *sm = calloc(1, sizeof(*sm) + set.slot_count * sizeof(sm->slots[0]));
    if (sm == NULL)
        return ST_NO_MEMORY;
    sm->options = set;
    sched_queue_init(&sm->reservations);
    sm->awaiting = (struct slot_list){.first = SLOT_NONE, .last = SLOT_NONE};
    for (uint32_t i = 0; i < set.path_count; i++)
        path_init(&sm->paths[i]);
    sm->batches = calloc((size_t)set.path_count * set.batches_in_flight, sizeof(sm->batches[0]));
    if (sm->batches == NULL ||
        sched_accounts_open(set.slot_count, &sm->reservation_accounts) != ST_OK ||
        sched_accounts_open(set.slot_count, &sm->prompt_accounts) != ST_OK) {
        sched_machine_close(sm);
        return ST_NO_MEMORY;
    }
    *out = sm;
    return ST_OK;
}

void sched_machine_close(struct sched_machine *sm)
{
    if (sm == NULL)
        return;
    sched_accounts_close(sm->reservation_accounts);
    sched_accounts_close(sm->prompt_accounts);
    free(sm->batches);
    free(sm);
}

void sched_machine_time_set(struct sched_machine *sm, int64_t now_us)
{
    int64_t ageing_us = sm->options.ageing_us;
    sm->now_us = now_us;
    sched_queue_age(sm->reservation_accounts, &sm->reservations, ageing_us, now_us);
    for (uint32_t i = 0; i < sm->options.path_count; i++) {
        sched_queue_age(sm->prompt_accounts, &sm->paths[i].prompts, ageing_us, now_us);
        sched_queue_age(sm->prompt_accounts, &sm->paths[i].prompts_with_blocks, ageing_us, now_us);
    }
}

void sched_machine_mixed_tokens_set(struct sched_machine *sm, uint32_t tokens)
{
    assert(tokens >= SCHED_CHUNK_TOKENS && tokens <= LIMIT_BATCH_TOKENS);
    sm->options.mixed_prompt_tokens = tokens;
}

void sched_machine_fill_tokens_set(struct sched_machine *sm, uint32_t tokens)
{
    sm->options.prompt_fill_tokens = tokens;
}

struct sched_ticket sched_ticket_of(const struct sched_rank *rank, uint32_t tokens)
{
    if (rank == NULL)
        return (struct sched_ticket){.cost = tokens};
    return (struct sched_ticket){.key = rank->key,
                                 .weight = rank->weight,
                                 .priority = rank->priority,
                                 .cost = tokens,
                                 .resumed = rank->resumed};
}

struct slot *sched_slot_unknown(struct sched_machine *sm, sched_slot slot)
{
    assert(slot < sm->options.slot_count);
    assert(sm->slots[slot].state == SLOT_UNKNOWN);
    return &sm->slots[slot];
}

void sched_machine_prompt_add(struct sched_machine *sm, sched_slot slot, uint32_t path,
                              uint32_t tokens, uint32_t blocks, const struct sched_rank *rank)
{
    const struct sched_ticket ticket = sched_ticket_of(rank, tokens);
    assert(tokens >= 1 && path < sm->options.path_count);
    struct slot *entry = sched_slot_unknown(sm, slot);
    entry->state = SLOT_PROMPT_WAITING;
    entry->path = (uint8_t)path;
    entry->tokens = tokens;
    entry->tokens_done = entry->tokens_computed = 0;
    entry->blocks = blocks;
    entry->arrival = sm->arrival_count++;
    entry->request_number = rank != NULL ? rank->request_number : 0;
    sm->prompt_tokens_pending += tokens;
    sched_queue_add(sm->prompt_accounts, sched_prompt_queue(sm, entry), slot, &ticket, sm->now_us);
}

bool sched_machine_prompt_after(const struct sched_machine *sm, uint32_t path, sched_slot after,
                                sched_slot *slot_out)
{
    assert(path < sm->options.path_count);
    *slot_out = after == SCHED_NO_SLOT ? sm->paths[path].prompts.first
                                       : sched_queue_next(sm->prompt_accounts, after);
    return *slot_out != SLOT_NONE;
}

void sched_machine_prompt_left_set(struct sched_machine *sm, sched_slot slot, uint32_t tokens,
                                   uint32_t blocks)
{
    struct slot *entry = &sm->slots[slot];
    assert(entry->state == SLOT_PROMPT_WAITING && entry->blocks > 0 && tokens >= 1 && blocks >= 1);
    sm->prompt_tokens_pending += tokens;
    sm->prompt_tokens_pending -= entry->tokens;
    entry->tokens = tokens;
    entry->blocks = blocks;
}

void sched_machine_remove(struct sched_machine *sm, sched_slot slot)
{
    assert(slot < sm->options.slot_count);
    struct slot *entry = &sm->slots[slot];
    struct sched_path *path = &sm->paths[entry->path];
    assert(entry->in_flight == 0);
    switch ((enum slot_state)entry->state) {
    case SLOT_RESERVING:
        sched_queue_drop(sm->reservation_accounts, &sm->reservations, slot);
        break;
    case SLOT_AWAITING:
        sched_list_remove(sm, &sm->awaiting, slot);
        break;
    case SLOT_PROMPT_WAITING:
        sched_queue_drop(sm->prompt_accounts, sched_prompt_queue(sm, entry), slot);
        sm->prompt_tokens_pending -= entry->tokens;
        break;
    case SLOT_PROMPT_RUNNING:
        sched_machine_stop(sm, slot);
        sm->prompts_running--;
        sm->prompt_tokens_pending -= entry->tokens - entry->tokens_done;
        break;
    case SLOT_DECODING:
        sched_list_remove(sm, &path->decodes, slot);
        sm->decode_tokens_pending -= entry->tokens;
        path->decodes_short -= entry->room == 0 ? 1 : 0;
        break;
    case SLOT_UNKNOWN:
    case SLOT_PROMPT_ENDED:
    case SLOT_DECODE_ENDED:
        break;
    }
    entry->state = SLOT_UNKNOWN;
}

void sched_machine_stop(struct sched_machine *sm, sched_slot slot)
{
    assert(slot < sm->options.slot_count);
    struct sched_path *path = &sm->paths[sm->slots[slot].path];
    if (sm->slots[slot].state == SLOT_PROMPT_RUNNING && path->running_prompt == slot)
        path->running_prompt = SLOT_NONE;
}

bool sched_machine_in_batch(const struct sched_machine *sm, sched_slot slot)
{
    assert(slot < sm->options.slot_count);
    return sm->slots[slot].in_flight > 0;
}

void sched_machine_load(const struct sched_machine *sm, struct sched_machine_load *out)
{
    *out = (struct sched_machine_load){
        .prompts_running = sm->prompts_running,
        .prompt_tokens_pending = sm->prompt_tokens_pending,
        .prompt_tokens_open = sm->prompt_tokens_pending,
        .reservations_waiting = sm->reservations.count,
        .decode_tokens_pending = sm->decode_tokens_pending,
    };
    for (uint32_t i = 0; i < sm->options.path_count; i++) {
        out->prompts_waiting += sm->paths[i].prompts.count + sm->paths[i].prompts_with_blocks.count;
        out->decodes_running += sm->paths[i].decodes.count;
        if (sm->paths[i].running_prompt != SLOT_NONE)
            out->prompt_tokens_open += sm->slots[sm->paths[i].running_prompt].tokens_computed;
    }
}
