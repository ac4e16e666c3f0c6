#include "tests/scheduler/sim_machine.h"

#include "tests/check.h"

#include <string.h>

struct sim_shape sim_shape_draw(uint32_t (*draw)(uint32_t below))
{
    if (draw(2) == 0)
        return (struct sim_shape){.paths = 1, .flight = 1};
    return (struct sim_shape){.paths = 1 + draw(SIM_PATHS),
                              .flight = 1 + draw(SIM_FLIGHT),
                              .micro_batch_tokens = draw(3) == 0 ? 0 : 16 + draw(100)};
}

void sim_machine_open(struct sim_machine *m, uint32_t index, uint32_t blocks,
                      const struct sim_shape *shape, const struct sim_calls *calls)
{
    static const uint32_t speeds[SIM_PATHS] = {3, 2, 1};
    const struct sched_paths_stage stage = {shape->paths, speeds};
    const struct sched_machine_options options = {.slot_count = SIM_SLOTS,
                                                  .prompt_batch_tokens = 256,
                                                  .mixed_prompt_tokens = 64,
                                                  .batch_sequences_max = 8,
                                                  .ageing_us = 50000,
                                                  .path_count = shape->paths,
                                                  .batches_in_flight = shape->flight,
                                                  .micro_batch_tokens = shape->micro_batch_tokens};
    /* The context is longer than the blocks hold, so a mixed machine keeps half of the blocks for
     * prompts. */
    const struct sched_memory_options memory = {.block_count = blocks,
                                                .block_tokens = SIM_BLOCK_TOKENS,
                                                .context_tokens = LIMIT_CONTEXT_TOKENS,
                                                .slot_count = SIM_SLOTS,
                                                .growth_tokens = SIM_GROWTH,
                                                .preemptions_max = SIM_PREEMPTIONS};
    memset(m, 0, sizeof(*m));
    m->index = index;
    m->calls = calls;
    m->blocks = m->blocks_free = blocks;
    CHECK(sched_machine_open(&options, &m->sched) == ST_OK);
    CHECK(sched_memory_open(&memory, m->sched, &m->memory) == ST_OK);
    CHECK(sched_paths_open(&stage, 1, &m->paths) == ST_OK && m->paths.path_count == shape->paths);
}

void sim_machine_close(struct sim_machine *m)
{
    sched_memory_close(m->memory);
    sched_machine_close(m->sched);
    m->sched = NULL;
}

static sched_slot task_find(const struct sim_machine *m, enum sim_task_kind kind, uint32_t request,
                            uint32_t generation)
{
    for (sched_slot slot = 0; slot < SIM_SLOTS; slot++) {
        const struct sim_task *task = &m->tasks[slot];
        if (task->kind == kind && task->request == request && task->generation == generation)
            return slot;
    }
    return SIM_SLOTS;
}

static sched_slot task_add(struct sim_machine *m, enum sim_task_kind kind, uint32_t request,
                           uint32_t generation)
{
    CHECK(task_find(m, kind, request, generation) == SIM_SLOTS);
    for (sched_slot slot = 0; slot < SIM_SLOTS; slot++) {
        if (m->tasks[slot].kind != SIM_FREE)
            continue;
        m->tasks[slot] =
            (struct sim_task){.kind = kind, .request = request, .generation = generation};
        return slot;
    }
    CHECK(!"a slot is free");
    return 0;
}

uint32_t sim_task_blocks(const struct sim_machine *m, sched_slot slot)
{
    if (m->tasks[slot].kind == SIM_PROMPT)
        return m->tasks[slot].holds_blocks ? m->tasks[slot].blocks : 0;
    const struct sched_memory_blocks *blocks = sched_memory_blocks(m->memory, slot);
    return blocks->granted ? blocks->count : 0;
}

static void prompt_take(struct sim_machine *m, struct sim_task *task)
{
    CHECK(task->blocks <= m->blocks_free && !task->holds_blocks);
    m->blocks_free -= task->blocks;
    task->holds_blocks = task->blocks > 0;
    m->prompt_holders += task->holds_blocks;
}

static void task_end(struct sim_machine *m, sched_slot slot)
{
    m->blocks_free += sim_task_blocks(m, slot);
    m->prompt_holders -= m->tasks[slot].holds_blocks;
    if (m->tasks[slot].kind == SIM_PROMPT)
        sched_machine_remove(m->sched, slot);
    else
        sched_memory_remove(m->memory, slot);
    m->tasks[slot].kind = SIM_FREE;
}

void sim_machine_reserve(struct sim_machine *m, const struct sim_reserve *r)
{
    uint32_t blocks = sched_memory_blocks_of(sched_memory_options(m->memory),
                                             r->prompt_tokens + r->output_tokens, r->local);
    sched_slot slot = task_add(m, SIM_RESERVE, r->request, r->generation);
    m->tasks[slot].path = sched_paths_next(&m->paths);
    CHECKF(blocks <= m->blocks, "machine %u: %u blocks for request %u, it has %u", m->index, blocks,
           r->request, m->blocks);
    sched_memory_reserve(m->memory, slot,
                         &(struct sched_memory_request){.prompt_tokens = r->prompt_tokens,
                                                        .answer_tokens = r->output_tokens,
                                                        .preemptions = r->preemptions,
                                                        .path = m->tasks[slot].path,
                                                        .prompt_is_local = r->local,
                                                        .rank = r->rank});
}

void sim_machine_prompt(struct sim_machine *m, uint32_t request, uint32_t generation,
                        uint32_t tokens, bool local, const struct sched_rank *rank)
{
    sched_slot slot = task_add(m, SIM_PROMPT, request, generation);
    sched_slot reserved = task_find(m, SIM_RESERVE, request, generation);
    uint32_t path =
        local && reserved < SIM_SLOTS ? m->tasks[reserved].path : sched_paths_next(&m->paths);
    m->tasks[slot].path = path;
    m->tasks[slot].blocks =
        local ? 0 : sched_memory_blocks_of(sched_memory_options(m->memory), tokens, true);
    CHECKF(m->tasks[slot].blocks <= m->blocks, "machine %u: %u blocks for prompt %u, it has %u",
           m->index, m->tasks[slot].blocks, request, m->blocks);
    sched_machine_prompt_add(m->sched, slot, path, tokens, m->tasks[slot].blocks, rank);
}

void sim_machine_decode(struct sim_machine *m, uint32_t request, uint32_t generation,
                        uint32_t tokens_left)
{
    sched_slot slot = task_find(m, SIM_RESERVE, request, generation);
    if (slot == SIM_SLOTS || m->tasks[slot].cancelled)
        return; /* The request was cancelled meanwhile. */
    sched_memory_decode(m->memory, slot, tokens_left);
}

void sim_machine_prompt_free(struct sim_machine *m, uint32_t request, uint32_t generation)
{
    sched_slot slot = task_find(m, SIM_PROMPT, request, generation);
    if (slot < SIM_SLOTS)
        task_end(m, slot);
}

void sim_machine_cancel(struct sim_machine *m, uint32_t request, uint32_t generation)
{
    static const enum sim_task_kind kinds[] = {SIM_RESERVE, SIM_PROMPT};
    for (int i = 0; i < 2; i++) {
        sched_slot slot = task_find(m, kinds[i], request, generation);
        if (slot == SIM_SLOTS)
            continue;
        if (m->tasks[slot].in_flight > 0) {
            m->tasks[slot].cancelled = true;
            sched_machine_stop(m->sched, slot);
        } else {
            task_end(m, slot);
        }
    }
}

static void victim_leave(struct sim_machine *m, sched_slot slot)
{
    struct sim_task task = m->tasks[slot];
    CHECK(task.in_flight == 0);
    CHECK(task.kind == SIM_RESERVE);
    task_end(m, slot);
    m->calls->preempted(m->index, task.request, task.generation);
}

static void decodes_grow(struct sim_machine *m)
{
    sched_slot slot;
    enum sched_memory_growth growth;
    while ((growth = sched_memory_grow(m->memory, m->blocks_free, &slot)) != SCHED_GROWTH_DONE) {
        CHECK((growth == SCHED_GROWTH_SPAN) == (m->blocks_free > 0));
        if (growth == SCHED_GROWTH_SPAN)
            m->blocks_free--;
        else
            victim_leave(m, slot);
    }
    CHECK(!sched_machine_short_find(m->sched, &slot) ||
          (m->blocks_free == 0 && m->in_flight_count > 0));
}

static void reservations_grant(struct sim_machine *m)
{
    sched_slot slot;
    while (sched_memory_candidate_find(m->memory, &slot)) {
        uint32_t blocks = sched_memory_blocks(m->memory, slot)->count;
        if (!sched_memory_grant(m->memory, slot, blocks, m->blocks_free))
            return;
        CHECK(blocks <= m->blocks_free);
        m->blocks_free -= blocks;
        m->calls->reserved(m->index, m->tasks[slot].request, m->tasks[slot].generation);
    }
}

/* True if no request of a running batch holds blocks: all were cancelled. */
static bool batches_are_cancelled(const struct sim_machine *m)
{
    for (uint32_t index = 0; index < SIM_PATHS * SIM_FLIGHT; index++)
        for (uint32_t i = 0; i < m->batches[index].item_count; i++)
            if (!m->tasks[m->batches[index].items[i].slot].cancelled)
                return false;
    return true;
}

/* Gives up a reservation if there is a deadlock. Its blocks are free when its gateway has handled
 * the message and cancels it. */
static void reservation_yield(struct sim_machine *m)
{
    sched_slot slot;
    if (!sched_memory_deadlock_victim(m->memory, m->blocks_free, m->prompt_holders, &slot))
        return;
    struct sim_task *task = &m->tasks[slot];
    CHECK(task->kind == SIM_RESERVE && sim_task_blocks(m, slot) > 0 && task->in_flight == 0);
    CHECK(batches_are_cancelled(m) && !task->cancelled);
    sched_memory_quarantine(m->memory, slot);
    task->cancelled = true;
    m->calls->yielded(m->index, task->request, task->generation);
}

/* Marks the tasks of the new batch as in flight, and checks that they may be in it. */
static void batch_begin(struct sim_machine *m, const struct sched_batch *batch)
{
    for (uint32_t i = 0; i < batch->item_count; i++) {
        const struct sched_batch_item *item = &batch->items[i];
        struct sim_task *task = &m->tasks[item->slot];
        CHECK(task->kind != SIM_FREE && !task->cancelled && task->path == batch->path);
        CHECK(item->is_prompt == (task->kind == SIM_PROMPT));
        CHECK(item->is_prompt || task->in_flight == 0);
        if (item->is_prompt && item->is_first_chunk)
            prompt_take(m, task);
        task->in_flight++;
    }
}

bool sim_machine_start(struct sim_machine *m, int64_t now_us, int64_t (*duration_us)(uint32_t rows),
                       struct sim_started *out)
{
    static struct sched_batch batch;
    uint32_t path = 0;
    sched_machine_time_set(m->sched, now_us);
    decodes_grow(m);
    reservations_grant(m);
    while (path < m->paths.path_count &&
           !sched_machine_batch_next(m->sched, path, m->blocks_free, &batch))
        path++;
    if (path == m->paths.path_count) {
        reservation_yield(m);
        return false;
    }
    CHECK(batch.index < SIM_PATHS * SIM_FLIGHT && m->batches[batch.index].item_count == 0);
    m->batches[batch.index] = batch;
    m->in_flight_count++;
    batch_begin(m, &batch);
    int64_t end_us = now_us + duration_us(batch.row_count);
    m->free_us[path] = end_us > m->free_us[path] ? end_us : m->free_us[path];
    *out = (struct sim_started){.batch = batch.index, .end_us = m->free_us[path]};
    return true;
}

static void item_end(struct sim_machine *m, const struct sched_batch_item *item)
{
    struct sim_task task = m->tasks[item->slot];
    if (task.cancelled) {
        if (task.in_flight == 0)
            task_end(m, item->slot);
        return;
    }
    if (item->is_prompt) {
        if (item->is_last_chunk)
            m->calls->prompt_done(m->index, task.request, task.generation);
        return;
    }
    m->calls->decoded(m->index, task.request, task.generation);
}

void sim_machine_batch_end(struct sim_machine *m, uint32_t index)
{
    struct sched_batch batch = m->batches[index];
    CHECK(batch.item_count > 0);
    m->batches[index].item_count = 0;
    m->in_flight_count--;
    sched_machine_batch_done(m->sched, index);
    for (uint32_t i = 0; i < batch.item_count; i++) {
        struct sim_task *task = &m->tasks[batch.items[i].slot];
        CHECK(task->in_flight-- > 0);
        CHECK(sched_machine_in_batch(m->sched, batch.items[i].slot) == (task->in_flight > 0));
    }
    for (uint32_t i = 0; i < batch.item_count; i++)
        item_end(m, &batch.items[i]);
}

bool sim_machine_idle(const struct sim_machine *m)
{
    for (sched_slot slot = 0; slot < SIM_SLOTS; slot++)
        if (m->tasks[slot].kind != SIM_FREE)
            return false;
    return true;
}

void sim_machine_check(const struct sim_machine *m)
{
    uint32_t held = 0;
    for (sched_slot slot = 0; slot < SIM_SLOTS; slot++)
        if (m->tasks[slot].kind != SIM_FREE)
            held += sim_task_blocks(m, slot);
    CHECKF(held + m->blocks_free == m->blocks, "machine %u: %u blocks held, %u free, of %u",
           m->index, held, m->blocks_free, m->blocks);
}
