/* sim_machine: see the header. Slots below half of the table are prompts, the others decodes, as on
 * a real machine. */
#include "simulator/sim_machine.h"

#include "scheduler/paths.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS LIMIT_MACHINE_REQUESTS
#define HALF  (SLOTS / 2)

enum task_kind { TASK_FREE, TASK_RESERVE, TASK_PROMPT };

struct task { /* a request in one of its two roles */
    uint8_t kind;
    bool doomed; /* removed while in flight */
    bool local;
    bool holds;
    bool pinned;
    bool began;
    uint32_t request;
    uint32_t in_flight;
    uint32_t blocks; /* that it holds, or will */
    uint32_t blocks_whole;
    uint32_t tokens; /* in its cache */
    uint32_t path;
    struct sched_rank rank;
};

struct flight {
    bool flies;
    double begin_s; /* at its first stage */
    double end_s;
    uint32_t prompt_rows;
    uint32_t decodes;
    struct sched_batch batch;
};

struct sim_machine {
    struct sim_machine_options options;
    struct sched_machine *sched;
    uint32_t block_tokens;
    uint32_t blocks;
    uint32_t blocks_free;
    uint32_t share_most; /* of blocks, for prompts of others, while in the mixed pool */
    uint32_t share;
    uint32_t shared_held; /* by reservations whose prompts run elsewhere */
    uint32_t growing;     /* reservations that hold less than they may come to */
    struct sched_paths paths;
    double free_s[LIMIT_STAGES]; /* of each replica of a stage */
    struct sched_rates rates;
    uint32_t flight_count;
    uint32_t flights_of_path;
    struct flight *flights; /* by the batch's index, for all paths */
    uint32_t free_slots[2][HALF];
    uint32_t free_counts[2];
    struct task tasks[SLOTS];
};

/* ---- life ---- */

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t micro_batch_tokens(const struct config *config)
{
    uint32_t said = config->scheduler.micro_batch_tokens;
    return said > 0 ? said : config->scheduler.prompt_fill_tokens;
}

static enum status sched_open(struct sim_machine *m)
{
    const struct config *config = m->options.config;
    const struct sched_machine_options options = {
        .slot_count = SLOTS,
        .prompt_fill_tokens = config->scheduler.prompt_fill_tokens,
        .prompt_batch_tokens = config->scheduler.prompt_batch_tokens,
        .mixed_prompt_tokens =
            least(config->scheduler.mixed_prompt_tokens, config->scheduler.prompt_batch_tokens),
        .batch_sequences_max = config->scheduler.batch_sequences_max,
        .ageing_us = config->scheduler.ageing_ms * 1000ll,
        .path_count = m->paths.path_count,
        .batches_in_flight = m->flights_of_path,
        .decode_batches_in_flight = m->options.host->cost.stage_count,
        .micro_batch_tokens = micro_batch_tokens(config),
    };
    return sched_machine_open(&options, &m->sched);
}

/* As machine/stage_plan.c: one batch more than stages, which waits at the first one. */
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
    uint32_t most = LIMIT_BATCHES_IN_FLIGHT / m->paths.path_count;
    m->flights_of_path = cost->stage_count > 1 ? least(cost->stage_count + 1, most) : 1;
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
    m->blocks = m->blocks_free = (uint32_t)(options->host->kv_tokens / m->block_tokens);
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

void sim_machine_role(struct sim_machine *m, enum sched_pool pool)
{
    m->share = pool == SCHED_POOL_MIXED ? m->share_most : 0;
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

static enum status task_add(struct sim_machine *m, const struct task *task, sched_slot *slot_out)
{
    int half = task->kind == TASK_RESERVE;
    if (m->free_counts[half] == 0)
        return ST_NO_RESOURCE;
    *slot_out = m->free_slots[half][--m->free_counts[half]];
    m->tasks[*slot_out] = *task;
    return ST_OK;
}

/* Of the memory that reservations share with prompts that are decoded elsewhere. */
static bool is_shared(const struct task *task)
{
    return task->kind == TASK_RESERVE && !task->local;
}

static bool is_growing(const struct task *task)
{
    return task->kind == TASK_RESERVE && task->holds && task->blocks < task->blocks_whole;
}

static void blocks_take(struct sim_machine *m, struct task *task)
{
    assert(task->blocks <= m->blocks_free && !task->holds);
    m->blocks_free -= task->blocks;
    m->shared_held += is_shared(task) ? task->blocks : 0;
    task->holds = true;
    m->growing += is_growing(task);
}

static void task_end(struct sim_machine *m, sched_slot slot)
{
    struct task *task = &m->tasks[slot];
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
    struct task task = {.kind = TASK_RESERVE,
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
    struct task task = {.kind = TASK_PROMPT,
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
    const struct task *task = &m->tasks[slot];
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
    struct task *task = &m->tasks[slot];
    assert(task->kind != TASK_FREE);
    if (task->in_flight == 0) {
        task_end(m, slot);
        return;
    }
    task->doomed = true;
    if (task->kind == TASK_PROMPT)
        sched_machine_stop(m->sched, slot);
}

/* ---- memory ---- */

/* False: the one that has to give way is in flight. */
static bool victim_leave(struct sim_machine *m)
{
    sched_slot slot;
    if (!sched_machine_victim(m->sched, &slot))
        return false;
    uint32_t request = m->tasks[slot].request;
    task_end(m, slot);
    m->options.calls->preempted(m->options.self, m->options.index, request);
    return true;
}

static void decodes_grow(struct sim_machine *m)
{
    sched_slot slot;
    while (sched_machine_short(m->sched, &slot)) {
        struct task *task = &m->tasks[slot];
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

/* What a new request leaves to those that grow. */
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
        const struct task *task = &m->tasks[slot];
        uint32_t most = m->blocks - m->share;
        uint32_t room = most > m->shared_held ? most - m->shared_held : 0;
        bool older = task->blocks > most && m->shared_held == 0;
        uint32_t reserve = growth_reserve(m);
        if (!task->local && !older && task->blocks > room)
            return;
        if (!sched_machine_reserve_next(
                m->sched, m->blocks_free > reserve ? m->blocks_free - reserve : 0, &slot))
            return;
        blocks_take(m, &m->tasks[slot]);
        m->options.calls->reserved(m->options.self, m->options.index, m->tasks[slot].request);
    }
}

/* ---- batches ---- */

/* Marks who is in it, and says what it is to be computed. */
static void flight_begin(struct sim_machine *m, struct flight *flight, struct sim_work *work)
{
    uint32_t tokens[LIMIT_BATCH_SEQUENCES];
    uint32_t contexts[LIMIT_BATCH_SEQUENCES];
    uint32_t prompts = 0;
    uint64_t decode_context = 0;
    *work = (struct sim_work){0};
    for (uint32_t i = 0; i < flight->batch.item_count; i++) {
        const struct sched_batch_item *item = &flight->batch.items[i];
        struct task *task = &m->tasks[item->slot];
        task->in_flight++;
        if (!task->began)
            m->options.calls->began(m->options.self, m->options.index, task->request);
        task->began = true;
        if (!item->prompt) {
            decode_context += task->tokens;
            work->decodes++;
            continue;
        }
        if (item->starts)
            blocks_take(m, task);
        tokens[prompts] = item->token_count;
        contexts[prompts++] = item->first_token;
        work->prompt_tokens += item->token_count;
        work->prompts_ending += item->ends;
    }
    if (prompts > 0)
        work->prompt_context = profile_batch_context(tokens, contexts, prompts);
    if (work->decodes > 0)
        work->decode_context = (double)decode_context / work->decodes;
    flight->prompt_rows = work->prompt_tokens;
    flight->decodes = work->decodes;
}

/* Stage after stage, each when the replica on the batch's path is free. */
static void flight_times(struct sim_machine *m, struct flight *flight, const struct sim_work *work,
                         double now_s, double *work_s_out)
{
    const struct sim_cost *cost = &m->options.host->cost;
    double at_s = now_s;
    *work_s_out = 0;
    for (uint32_t stage = 0; stage < cost->stage_count; stage++) {
        uint32_t replica = sched_paths_replica(&m->paths, flight->batch.path, stage);
        double *free_s = &m->free_s[cost->stages[stage].first_place + replica];
        double stage_s = sim_cost_stage_s(cost, stage, replica, work);
        at_s = at_s > *free_s ? at_s : *free_s;
        if (stage == 0)
            flight->begin_s = at_s;
        at_s += stage_s;
        *work_s_out += stage_s;
        *free_s = at_s;
        if (stage + 1 < cost->stage_count)
            at_s += sim_cost_between_s(cost, work);
    }
    flight->end_s = at_s;
}

bool sim_machine_start(struct sim_machine *m, double now_s, double *work_s_out)
{
    struct sched_batch batch;
    uint32_t path = 0;
    sched_machine_time(m->sched, (int64_t)(now_s * 1e6));
    decodes_grow(m);
    reservations_grant(m);
    while (path < m->paths.path_count &&
           !sched_machine_batch_next(m->sched, path, m->blocks_free, &batch))
        path++;
    if (path == m->paths.path_count)
        return false;
    struct sim_work work;
    struct flight *flight = &m->flights[batch.index];
    assert(!flight->flies);
    flight->flies = true;
    flight->batch.index = batch.index;
    flight->batch.path = batch.path;
    flight->batch.item_count = batch.item_count;
    memcpy(flight->batch.items, batch.items, batch.item_count * sizeof(batch.items[0]));
    m->flight_count++;
    flight_begin(m, flight, &work);
    flight_times(m, flight, &work, now_s, work_s_out);
    return true;
}

/* Of those that end at the same time, any: they are on different paths. */
static struct flight *flight_next(const struct sim_machine *m)
{
    struct flight *next = NULL;
    uint32_t count = m->flights_of_path * m->paths.path_count;
    for (uint32_t i = 0; i < count; i++)
        if (m->flights[i].flies && (next == NULL || m->flights[i].end_s < next->end_s))
            next = &m->flights[i];
    assert(next != NULL);
    return next;
}

double sim_machine_due_s(const struct sim_machine *m)
{
    return flight_next(m)->end_s;
}

static void item_end(struct sim_machine *m, const struct sched_batch_item *item, double begin_s,
                     double now_s)
{
    const struct sim_machine_calls *calls = m->options.calls;
    struct task *task = &m->tasks[item->slot];
    if (task->doomed) {
        if (task->in_flight == 0)
            task_end(m, item->slot);
    } else if (item->prompt) {
        calls->chunk_done(m->options.self, m->options.index,
                          &(struct sim_chunk){.request = task->request,
                                              .tokens = item->token_count,
                                              .ends = item->ends,
                                              .begin_s = begin_s,
                                              .end_s = now_s});
    } else {
        task->tokens++;
        calls->decoded(m->options.self, m->options.index, task->request);
    }
}

void sim_machine_batch_end(struct sim_machine *m, double now_s)
{
    struct flight *flight = flight_next(m);
    double begin_s = flight->begin_s;
    uint64_t us = (uint64_t)((now_s - begin_s) * 1e6);
    if (flight->prompt_rows > 0)
        sched_rates_prompts(&m->rates, flight->prompt_rows, us);
    else
        sched_rates_decodes(&m->rates, 1, flight->decodes, us);
    sched_machine_batch_done(m->sched, flight->batch.index);
    for (uint32_t i = 0; i < flight->batch.item_count; i++)
        m->tasks[flight->batch.items[i].slot].in_flight--;
    for (uint32_t i = 0; i < flight->batch.item_count; i++)
        item_end(m, &flight->batch.items[i], begin_s, now_s);
    flight->flies = false;
    m->flight_count--;
}
