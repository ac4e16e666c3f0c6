#include "tests/scheduler/sim_machine.h"

#include "tests/check.h"

#include <string.h>

static uint32_t blocks_of(uint32_t tokens)
{
    return (tokens + SIM_BLOCK_TOKENS - 1) / SIM_BLOCK_TOKENS;
}

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
    memset(m, 0, sizeof(*m));
    m->index = index;
    m->calls = calls;
    m->blocks = m->blocks_free = blocks;
    CHECK(sched_machine_open(&options, &m->sched) == ST_OK);
    CHECK(sched_paths_open(&stage, 1, &m->paths) == ST_OK && m->paths.path_count == shape->paths);
}

void sim_machine_close(struct sim_machine *m)
{
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
                           uint32_t generation, uint32_t tokens, bool local)
{
    CHECK(task_find(m, kind, request, generation) == SIM_SLOTS);
    for (sched_slot slot = 0; slot < SIM_SLOTS; slot++) {
        if (m->tasks[slot].kind != SIM_FREE)
            continue;
        m->tasks[slot] = (struct sim_task){.kind = kind,
                                           .request = request,
                                           .generation = generation,
                                           .local = local,
                                           .blocks = blocks_of(tokens)};
        return slot;
    }
    CHECK(!"a slot is free");
    return 0;
}

/* Of the memory that reservations share with prompts that are decoded elsewhere. */
static bool is_shared(const struct sim_task *task)
{
    return task->kind == SIM_RESERVE && !task->local;
}

static void blocks_take(struct sim_machine *m, struct sim_task *task)
{
    CHECK(task->blocks <= m->blocks_free && !task->holds);
    m->blocks_free -= task->blocks;
    m->shared_held += is_shared(task) ? task->blocks : 0;
    task->holds = true;
}

static void blocks_give(struct sim_machine *m, struct sim_task *task)
{
    if (!task->holds)
        return;
    m->blocks_free += task->blocks;
    m->shared_held -= is_shared(task) ? task->blocks : 0;
    task->holds = false;
}

static void task_end(struct sim_machine *m, sched_slot slot)
{
    sched_machine_remove(m->sched, slot);
    blocks_give(m, &m->tasks[slot]);
    m->tasks[slot].kind = SIM_FREE;
}

void sim_machine_reserve(struct sim_machine *m, const struct sim_reserve *r)
{
    uint32_t whole = r->prompt_tokens + r->output_tokens;
    uint32_t first = r->prompt_tokens + SIM_GROWTH;
    sched_slot slot = task_add(m, SIM_RESERVE, r->request, r->generation,
                               r->pinned || first > whole ? whole : first, r->local);
    struct sim_task *task = &m->tasks[slot];
    task->blocks_whole = blocks_of(whole);
    task->prompt_tokens = r->prompt_tokens;
    task->rank = r->rank;
    task->path = sched_paths_next(&m->paths);
    task->pinned = r->pinned;
    CHECKF(task->blocks_whole <= m->blocks, "machine %u: %u blocks for request %u, it has %u",
           m->index, task->blocks_whole, r->request, m->blocks);
    sched_machine_reserve_add(m->sched, slot, task->blocks, whole, &task->rank);
}

void sim_machine_prompt(struct sim_machine *m, uint32_t request, uint32_t generation,
                        uint32_t tokens, bool local, const struct sched_rank *rank)
{
    sched_slot slot = task_add(m, SIM_PROMPT, request, generation, local ? 0 : tokens, local);
    sched_slot reserved = task_find(m, SIM_RESERVE, request, generation);
    uint32_t path =
        local && reserved < SIM_SLOTS ? m->tasks[reserved].path : sched_paths_next(&m->paths);
    m->tasks[slot].path = path;
    CHECKF(m->tasks[slot].blocks <= m->blocks, "machine %u: %u blocks for prompt %u, it has %u",
           m->index, m->tasks[slot].blocks, request, m->blocks);
    sched_machine_prompt_add(m->sched, slot, path, tokens, m->tasks[slot].blocks, rank);
}

void sim_machine_decode(struct sim_machine *m, uint32_t request, uint32_t generation,
                        uint32_t tokens_left)
{
    sched_slot slot = task_find(m, SIM_RESERVE, request, generation);
    const struct sim_task *task = &m->tasks[slot];
    if (slot == SIM_SLOTS || task->doomed)
        return; /* it was cancelled meanwhile */
    uint32_t room = task->blocks * SIM_BLOCK_TOKENS - task->prompt_tokens;
    sched_machine_decode_add(m->sched, slot,
                             &(struct sched_decode){.path = task->path,
                                                    .tokens_left = tokens_left,
                                                    .room = room < tokens_left ? room : tokens_left,
                                                    .rank = task->rank,
                                                    .pinned = task->pinned});
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
            m->tasks[slot].doomed = true;
            sched_machine_stop(m->sched, slot);
        } else {
            task_end(m, slot);
        }
    }
}

/* False: it is in flight. */
static bool victim_leave(struct sim_machine *m)
{
    sched_slot slot;
    if (!sched_machine_victim(m->sched, &slot)) {
        CHECK(m->flying > 0);
        return false;
    }
    struct sim_task task = m->tasks[slot];
    CHECK(task.in_flight == 0);
    CHECK(task.kind == SIM_RESERVE && !task.pinned);
    task_end(m, slot);
    m->calls->preempted(m->index, task.request, task.generation);
    return true;
}

static void decodes_grow(struct sim_machine *m)
{
    sched_slot slot;
    while (sched_machine_short(m->sched, &slot)) {
        struct sim_task *task = &m->tasks[slot];
        if (m->blocks_free == 0) {
            if (!victim_leave(m))
                return;
            continue;
        }
        CHECK(task->blocks < task->blocks_whole);
        task->blocks++;
        m->blocks_free--;
        m->shared_held += is_shared(task) ? 1 : 0;
        sched_machine_grown(m->sched, slot, SIM_BLOCK_TOKENS);
    }
}

/* A block for each that grows. */
static uint32_t growth_reserve(const struct sim_machine *m)
{
    uint32_t growing = 0;
    for (sched_slot slot = 0; slot < SIM_SLOTS; slot++) {
        const struct sim_task *task = &m->tasks[slot];
        growing += task->kind == SIM_RESERVE && task->holds && task->blocks < task->blocks_whole;
    }
    return growing;
}

static void reservations_grant(struct sim_machine *m)
{
    sched_slot slot;
    while (sched_machine_reserve_head(m->sched, &slot)) {
        uint32_t most = m->blocks - m->share;
        uint32_t room = most > m->shared_held ? most - m->shared_held : 0;
        uint32_t reserve = growth_reserve(m);
        uint32_t unused = m->blocks_free > reserve ? m->blocks_free - reserve : 0;
        bool older = m->tasks[slot].blocks > most && m->shared_held == 0;
        if (m->tasks[slot].local || older || room > unused)
            room = unused;
        if (!sched_machine_reserve_next(m->sched, room, &slot))
            return;
        blocks_take(m, &m->tasks[slot]);
        if (!m->tasks[slot].local)
            sched_machine_awaits(m->sched, slot);
        m->calls->reserved(m->index, m->tasks[slot].request, m->tasks[slot].generation);
    }
}

/* Its blocks come back when its gateway has heard of it. */
static void reservation_yield(struct sim_machine *m)
{
    sched_slot slot;
    uint32_t holders = 0;
    for (sched_slot i = 0; i < SIM_SLOTS; i++)
        holders += m->tasks[i].kind != SIM_FREE && m->tasks[i].holds;
    if (!sched_machine_yields(m->sched, m->blocks_free, holders, &slot))
        return;
    struct sim_task *task = &m->tasks[slot];
    CHECK(task->kind == SIM_RESERVE && !task->local && task->holds && task->in_flight == 0);
    CHECK(m->flying == 0 && !task->doomed);
    sched_machine_remove(m->sched, slot);
    task->doomed = true;
    m->calls->yielded(m->index, task->request, task->generation);
}

/* Of what comes out of the scheduler: who is in it, and that they may be. */
static void batch_begin(struct sim_machine *m, const struct sched_batch *batch)
{
    for (uint32_t i = 0; i < batch->item_count; i++) {
        const struct sched_batch_item *item = &batch->items[i];
        struct sim_task *task = &m->tasks[item->slot];
        CHECK(task->kind != SIM_FREE && !task->doomed && task->path == batch->path);
        CHECK(item->prompt == (task->kind == SIM_PROMPT));
        CHECK(item->prompt || task->in_flight == 0);
        if (item->prompt && item->starts)
            blocks_take(m, task);
        task->in_flight++;
    }
}

bool sim_machine_start(struct sim_machine *m, int64_t now_us, int64_t (*duration_us)(uint32_t rows),
                       struct sim_started *out)
{
    static struct sched_batch batch;
    uint32_t path = 0;
    sched_machine_time(m->sched, now_us);
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
    m->flying++;
    batch_begin(m, &batch);
    int64_t end_us = now_us + duration_us(batch.row_count);
    m->free_us[path] = end_us > m->free_us[path] ? end_us : m->free_us[path];
    *out = (struct sim_started){.batch = batch.index, .end_us = m->free_us[path]};
    return true;
}

static void item_end(struct sim_machine *m, const struct sched_batch_item *item)
{
    struct sim_task task = m->tasks[item->slot];
    if (task.doomed) {
        if (task.in_flight == 0)
            task_end(m, item->slot);
        return;
    }
    if (item->prompt) {
        if (item->ends)
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
    m->flying--;
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
    uint32_t shared = 0;
    for (sched_slot slot = 0; slot < SIM_SLOTS; slot++) {
        const struct sim_task *task = &m->tasks[slot];
        if (task->kind == SIM_FREE || !task->holds)
            continue;
        held += task->blocks;
        shared += task->kind == SIM_RESERVE && !task->local ? task->blocks : 0;
    }
    CHECKF(held + m->blocks_free == m->blocks && shared == m->shared_held,
           "machine %u: %u blocks held, %u free, of %u", m->index, held, m->blocks_free, m->blocks);
}
