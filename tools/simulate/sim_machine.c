/* sim_machine, the tasks and the memory: see the header. */
#include "tools/simulate/sim_machine_state.h"

#include "scheduler/options.h"

#include <assert.h>
#include <stdlib.h>

#define BLOCKS_MAX (1u << 28) /* More than all open requests can use. */

/* ---- life ---- */

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static enum status sched_open(struct sim_machine *m)
{
    const struct sched_machine_facts facts = {
        .stage_count = m->options.host->cost.stage_count,
        .path_count = m->paths.path_count,
        /* Unlike a machine whose config names a profile: the layers were split for the config's
         * micro-batch (sim_host.c), so the simulation does not look for a better one. */
        .micro_batch_tokens = 0,
    };
    const struct sched_machine_options options =
        sched_machine_options_make(m->options.config, &facts);
    return sched_machine_open(&options, &m->sched);
}

/* Opens the paths as machine/executor/stage_plan.c does. */
static enum status paths_open(struct sim_machine *m)
{
    const struct sim_cost *cost = &m->options.host->cost;
    struct sched_paths_stage stages[LIMIT_STAGES];
    for (uint32_t i = 0; i < cost->stage_count; i++)
        stages[i] =
            (struct sched_paths_stage){.replica_count = cost->stages[i].replica_count,
                                       .speeds = cost->speeds + cost->stages[i].first_place};
    enum status status = sched_paths_open(stages, cost->stage_count, &m->paths);
    if (status != ST_OK)
        return status;
    m->flights_of_path = sched_batches_in_flight(cost->stage_count, m->paths.path_count);
    m->flights = calloc((size_t)m->flights_of_path * m->paths.path_count, sizeof(m->flights[0]));
    return m->flights == NULL ? ST_NO_MEMORY : ST_OK;
}

enum status sim_machine_open(const struct sim_machine_options *options, struct sim_machine **out)
{
    struct sim_machine *m = calloc(1, sizeof(*m));
    if (m == NULL)
        return ST_NO_MEMORY;
    const struct config *config = options->config;
    m->options = *options;
    m->block_tokens = config->kv.block_tokens;
    uint64_t blocks = options->host->kv_tokens / m->block_tokens;
    m->blocks = m->blocks_free = blocks < BLOCKS_MAX ? (uint32_t)blocks : BLOCKS_MAX;
    m->share_most =
        least((options->context_tokens + m->block_tokens - 1) / m->block_tokens, m->blocks / 2);
    for (uint32_t i = 0; i < HALF; i++) {
        m->free_slots[0][i] = HALF - 1 - i;
        m->free_slots[1][i] = SLOTS - 1 - i;
    }
    m->free_counts[0] = m->free_counts[1] = HALF;
    enum status status = paths_open(m);
    if (status == ST_OK)
        status = sched_open(m);
    if (status != ST_OK) {
        sim_machine_close(m);
        return status;
    }
    sim_machine_role(m, options->host->home);
    *out = m;
    return ST_OK;
}

void sim_machine_close(struct sim_machine *m)
{
    if (m == NULL)
        return;
    sched_machine_close(m->sched);
    free(m->flights);
    free(m);
}

void sim_machine_role(struct sim_machine *m, enum pool pool)
{
    m->share = pool == POOL_MIXED ? m->share_most : 0;
}

uint64_t sim_machine_kv_tokens(const struct sim_machine *m)
{
    return (uint64_t)m->blocks * m->block_tokens;
}

uint64_t sim_machine_mixed_kv_tokens(const struct sim_machine *m)
{
    return (uint64_t)m->share_most * m->block_tokens;
}

const struct sched_rates *sim_machine_rates(const struct sim_machine *m)
{
    return &m->rates;
}

uint32_t sim_machine_in_flight(const struct sim_machine *m)
{
    return m->flight_count;
}

/* ---- tasks ---- */

static uint32_t blocks_of(const struct sim_machine *m, uint32_t tokens)
{
    return (tokens + m->block_tokens - 1) / m->block_tokens;
}

static enum status task_add(struct sim_machine *m, const struct sim_task *task,
                            sched_slot *slot_out)
{
    int half = task->kind == TASK_RESERVE;
    if (m->free_counts[half] == 0)
        return ST_NO_RESOURCE;
    *slot_out = m->free_slots[half][--m->free_counts[half]];
    m->tasks[*slot_out] = *task;
    return ST_OK;
}

/* True if the task uses the part of the memory that is limited while prompts that are decoded
 * elsewhere have their share. */
static bool is_shared(const struct sim_task *task)
{
    return task->kind == TASK_RESERVE && !task->local;
}

static bool is_growing(const struct sim_task *task)
{
    return task->kind == TASK_RESERVE && task->holds && task->blocks < task->blocks_whole;
}

void sim_task_hold(struct sim_machine *m, struct sim_task *task)
{
    assert(task->blocks <= m->blocks_free && !task->holds);
    m->blocks_free -= task->blocks;
    m->shared_held += is_shared(task) ? task->blocks : 0;
    task->holds = true;
    m->growing += is_growing(task);
}

void sim_task_end(struct sim_machine *m, sched_slot slot)
{
    struct sim_task *task = &m->tasks[slot];
    int half = task->kind == TASK_RESERVE;
    sched_machine_remove(m->sched, slot);
    if (task->holds) {
        m->growing -= is_growing(task);
        m->blocks_free += task->blocks;
        m->shared_held -= is_shared(task) ? task->blocks : 0;
    }
    task->kind = TASK_FREE;
    m->free_slots[half][m->free_counts[half]++] = slot;
}

enum status sim_machine_reserve(struct sim_machine *m, const struct sim_reserve *r,
                                sched_slot *slot_out)
{
    uint32_t whole = r->prompt_tokens + r->output_tokens;
    uint32_t growth = m->options.config->scheduler.growth_tokens;
    uint32_t first = r->prompt_tokens + (growth > 0 ? growth : 1);
    bool at_once = r->pinned || growth >= r->output_tokens;
    struct sim_task task = {.kind = TASK_RESERVE,
                            .request = r->request,
                            .local = r->local,
                            .pinned = at_once,
                            .blocks = blocks_of(m, at_once ? whole : first),
                            .blocks_whole = blocks_of(m, whole),
                            .tokens = r->prompt_tokens,
                            .rank = r->rank,
                            .path = sched_paths_next(&m->paths)};
    enum status status = task_add(m, &task, slot_out);
    if (status == ST_OK)
        sched_machine_reserve_add(m->sched, *slot_out, task.blocks, whole, &task.rank);
    return status;
}

enum status sim_machine_prompt(struct sim_machine *m, uint32_t request, uint32_t tokens,
                               sched_slot reserved, const struct sched_rank *rank,
                               sched_slot *slot_out)
{
    bool local = reserved != SCHED_NO_SLOT;
    struct sim_task task = {.kind = TASK_PROMPT,
                            .request = request,
                            .local = local,
                            .blocks = local ? 0 : blocks_of(m, tokens),
                            .rank = *rank,
                            .path = local ? m->tasks[reserved].path : sched_paths_next(&m->paths)};
    enum status status = task_add(m, &task, slot_out);
    if (status == ST_OK)
        sched_machine_prompt_add(m->sched, *slot_out, task.path, tokens, task.blocks, rank);
    return status;
}

void sim_machine_decode(struct sim_machine *m, sched_slot slot, uint32_t tokens_left)
{
    const struct sim_task *task = &m->tasks[slot];
    uint32_t room = task->blocks * m->block_tokens - task->tokens;
    sched_machine_decode_add(
        m->sched, slot,
        &(struct sched_decode){.path = task->path,
                               .tokens_left = tokens_left,
                               .room = task->pinned || room > tokens_left ? tokens_left : room,
                               .rank = task->rank,
                               .pinned = task->pinned});
}

void sim_machine_remove(struct sim_machine *m, sched_slot slot)
{
    struct sim_task *task = &m->tasks[slot];
    assert(task->kind != TASK_FREE);
    if (task->in_flight == 0) {
        sim_task_end(m, slot);
        return;
    }
    task->doomed = true;
    if (task->kind == TASK_PROMPT)
        sched_machine_stop(m->sched, slot);
}

/* ---- memory ---- */

/* Preempts one decode. False: the decode to preempt is in flight. */
static bool victim_leave(struct sim_machine *m)
{
    sched_slot slot;
    if (!sched_machine_victim(m->sched, &slot))
        return false;
    uint32_t request = m->tasks[slot].request;
    sim_task_end(m, slot);
    m->options.calls->preempted(m->options.self, m->options.index, request);
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
        task->blocks++;
        m->growing -= task->blocks == task->blocks_whole;
        m->blocks_free--;
        m->shared_held += is_shared(task) ? 1 : 0;
        sched_machine_grown(m->sched, slot, m->block_tokens);
    }
}

/* Returns the blocks that new requests must leave to answers that grow. */
static uint32_t growth_reserve(const struct sim_machine *m)
{
    uint64_t share =
        (uint64_t)m->blocks * m->options.config->scheduler.growth_reserve_percent / 100;
    if (m->growing == 0)
        return 0;
    return share > m->growing ? (uint32_t)share : m->growing;
}

static void reservations_grant(struct sim_machine *m)
{
    sched_slot slot;
    while (sched_machine_reserve_head(m->sched, &slot)) {
        const struct sim_task *task = &m->tasks[slot];
        uint32_t most = m->blocks - m->share;
        uint32_t room = most > m->shared_held ? most - m->shared_held : 0;
        bool older = task->blocks > most && m->shared_held == 0;
        uint32_t reserve = growth_reserve(m);
        if (!task->local && !older && task->blocks > room)
            return;
        if (!sched_machine_reserve_next(
                m->sched, m->blocks_free > reserve ? m->blocks_free - reserve : 0, &slot))
            return;
        sim_task_hold(m, &m->tasks[slot]);
        m->options.calls->reserved(m->options.self, m->options.index, m->tasks[slot].request);
    }
}

void sim_machine_memory(struct sim_machine *m)
{
    decodes_grow(m);
    reservations_grant(m);
}
