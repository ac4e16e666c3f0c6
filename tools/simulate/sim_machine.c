/* sim_machine, the tasks and the decisions about memory: see the header. */
#include "tools/simulate/sim_machine_state.h"

#include "scheduler/options.h"

#include <assert.h>
#include <stdlib.h>

#define BLOCKS_MAX (1u << 28) /* More than all open requests can use. */

/* ---- life ---- */

static enum status sched_open(struct sim_machine *m)
{
    const struct sched_machine_facts facts = {
        .stage_count = m->options.host->cost.stage_count,
        .path_count = m->paths.path_count,
        .micro_batch_tokens = m->options.host->micro_batch_tokens,
    };
    const struct sched_machine_options options =
        sched_machine_options_make(m->options.config, &facts);
    return sched_machine_open(&options, &m->sched);
}

/* Opens the paths as machine/executor/stage_plan.c does. */
static enum status paths_open(struct sim_machine *m)
{
    const struct sim_cost *cost = &m->options.host->cost;
    struct sched_paths_stage stages[LIMIT_STAGE_PROCESSES];
    for (uint32_t i = 0; i < cost->stage_count; i++)
        stages[i] =
            (struct sched_paths_stage){.replica_count = cost->stages[i].replica_count,
                                       .speeds = cost->speeds + cost->stages[i].first_device};
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
    m->block_count = blocks < BLOCKS_MAX ? (uint32_t)blocks : BLOCKS_MAX;
    for (uint32_t i = 0; i < SIM_SLOTS_HALF; i++) {
        m->free_slots[0][i] = SIM_SLOTS_HALF - 1 - i;
        m->free_slots[1][i] = SIM_SLOTS - 1 - i;
    }
    m->free_counts[0] = m->free_counts[1] = SIM_SLOTS_HALF;
    enum status status = paths_open(m);
    if (status == ST_OK)
        status = sched_open(m);
    if (status == ST_OK) {
        const struct sched_memory_options memory = sched_memory_options_make(
            config, &options->host->cost.groups, m->block_count, options->context_tokens);
        status = sched_memory_open(&memory, m->sched, &m->memory);
    }
    if (status == ST_OK)
        status = sim_kv_open(m);
    if (status != ST_OK) {
        sim_machine_close(m);
        return status;
    }
    sim_machine_mixed_set(m, options->host->home == POOL_MIXED);
    *out = m;
    return ST_OK;
}

void sim_machine_close(struct sim_machine *m)
{
    if (m == NULL)
        return;
    sim_kv_close(m);
    sched_memory_close(m->memory);
    sched_machine_close(m->sched);
    free(m->flights);
    free(m);
}

void sim_machine_mixed_set(struct sim_machine *m, bool mixed)
{
    sched_memory_mixed_set(m->memory, mixed);
}

uint64_t sim_machine_kv_tokens(const struct sim_machine *m)
{
    return sched_memory_tokens_most(sched_memory_options(m->memory), m->block_count);
}

struct sched_kv sim_machine_kv(const struct sim_machine *m)
{
    return sched_memory_kv(sched_memory_options(m->memory));
}

uint64_t sim_machine_mixed_kv_tokens(const struct sim_machine *m)
{
    const struct sched_memory_options *memory = sched_memory_options(m->memory);
    return sched_memory_tokens_most(memory, sched_memory_prompt_share(memory));
}

const struct sched_rates *sim_machine_rates(const struct sim_machine *m)
{
    return &m->rates;
}

double sim_machine_prompt_token_us(const struct sim_machine *m)
{
    return m->pace.prompt_token_us;
}

uint32_t sim_machine_in_flight(const struct sim_machine *m)
{
    return m->flight_count;
}

/* ---- tasks ---- */

/* Changes the state. Asserts that the transition is legal. */
static void task_state_set(struct sim_task *task, enum sim_task_state to)
{
    /* Bit i: the state may change to state i. */
    static const uint32_t legal[TASK_STATE_COUNT] = {
        [TASK_FREE] = 1 << TASK_WAITING,
        [TASK_WAITING] = 1 << TASK_BEGUN | 1 << TASK_FREE,
        [TASK_BEGUN] = 1 << TASK_REMOVED | 1 << TASK_FREE,
        [TASK_REMOVED] = 1 << TASK_FREE,
    };
    assert((legal[task->state] >> to & 1) != 0);
    task->state = (uint8_t)to;
}

static enum status task_add(struct sim_machine *m, const struct sim_task *task,
                            sched_slot *slot_out)
{
    int half = task->kind == TASK_RESERVE;
    if (m->free_counts[half] == 0)
        return ST_NO_RESOURCE;
    *slot_out = m->free_slots[half][--m->free_counts[half]];
    m->tasks[*slot_out] = *task;
    task_state_set(&m->tasks[*slot_out], TASK_WAITING);
    return ST_OK;
}

void sim_task_begin(struct sim_machine *m, sched_slot slot)
{
    struct sim_task *task = &m->tasks[slot];
    task_state_set(task, TASK_BEGUN);
    if (task->kind == TASK_PROMPT)
        sim_kv_prompt_take(m, slot);
    m->prompt_holders += task->blocks_to_take > 0;
}

void sim_task_end(struct sim_machine *m, sched_slot slot)
{
    struct sim_task *task = &m->tasks[slot];
    int half = task->kind == TASK_RESERVE;
    uint32_t blocks = sim_kv_task_end(m, slot);
    if (task->kind == TASK_RESERVE) {
        sched_memory_remove(m->memory, slot);
    } else {
        m->prompt_holders -= blocks > 0;
        sched_machine_remove(m->sched, slot);
    }
    task_state_set(task, TASK_FREE);
    m->free_slots[half][m->free_counts[half]++] = slot;
}

/* Frees the slot of a task that was just added and is not known to the schedulers. */
static void task_undo(struct sim_machine *m, sched_slot slot)
{
    struct sim_task *task = &m->tasks[slot];
    int half = task->kind == TASK_RESERVE;
    task_state_set(task, TASK_FREE);
    m->free_slots[half][m->free_counts[half]++] = slot;
}

/* Adds a task with its tables. */
static enum status task_open(struct sim_machine *m, const struct sim_task *task,
                             uint32_t tokens_max, uint32_t keep, sched_slot *slot_out)
{
    const struct sched_memory_options *memory = sched_memory_options(m->memory);
    enum status status = task_add(m, task, slot_out);
    if (status != ST_OK)
        return status;
    status = sim_kv_task_open(m, *slot_out, sched_memory_spans_of(memory, tokens_max), keep);
    if (status != ST_OK)
        task_undo(m, *slot_out);
    return status;
}

enum status sim_machine_reserve(struct sim_machine *m, const struct sim_reserve *r,
                                sched_slot *slot_out)
{
    struct sim_task task = {.kind = TASK_RESERVE,
                            .request = r->request,
                            .tokens = r->prompt_tokens,
                            .prompt_tokens = r->prompt_tokens,
                            .cached = r->cached,
                            .local = r->local,
                            .path = sched_paths_next(&m->paths),
                            .reused_run = r->kept};
    enum status status =
        task_open(m, &task, r->prompt_tokens + r->output_tokens,
                  sched_memory_kept_spans(sched_memory_options(m->memory), r->local), slot_out);
    if (status == ST_OK)
        sched_memory_reserve(m->memory, *slot_out,
                             &(struct sched_memory_request){.prompt_tokens = r->prompt_tokens,
                                                            .answer_tokens = r->output_tokens,
                                                            .preemptions = r->preemptions,
                                                            .path = task.path,
                                                            .prompt_is_local = r->local,
                                                            .rank = r->rank});
    return status;
}

/* The blocks of the cached tokens count too: they are no longer free while the prompt reads them.
 */
enum status sim_machine_prompt(struct sim_machine *m, const struct sim_prompt *p,
                               sched_slot *slot_out)
{
    bool local = p->reserved != SCHED_NO_SLOT;
    const struct sched_memory_options *memory = sched_memory_options(m->memory);
    assert(p->cached < p->tokens);
    struct sim_task task = {
        .kind = TASK_PROMPT,
        .request = p->request,
        .tokens = p->cached,
        .prompt_tokens = p->tokens,
        .cached = p->cached,
        .local = local,
        .reused_run = local ? 0 : p->kept,
        .blocks_to_take = local ? 0 : sched_memory_blocks_of(memory, p->tokens, true),
        .path = local ? m->tasks[p->reserved].path : sched_paths_next(&m->paths),
    };
    enum status status =
        task_open(m, &task, p->tokens, sched_memory_kept_spans(memory, true), slot_out);
    if (status == ST_OK)
        sched_machine_prompt_add(m->sched, *slot_out, task.path, p->tokens - p->cached,
                                 task.blocks_to_take, &p->rank);
    return status;
}

void sim_machine_decode(struct sim_machine *m, sched_slot slot, uint32_t tokens_left)
{
    sched_memory_decode(m->memory, slot, tokens_left);
    m->tasks[slot].tokens_left = tokens_left;
    sim_draft_set(m, slot);
}

void sim_machine_remove(struct sim_machine *m, sched_slot slot)
{
    struct sim_task *task = &m->tasks[slot];
    assert(task->state != TASK_FREE);
    if (task->in_flight == 0) {
        sim_task_end(m, slot);
        return;
    }
    task_state_set(task, TASK_REMOVED);
    if (task->kind == TASK_PROMPT)
        sched_machine_stop(m->sched, slot);
}

bool sim_machine_copy(struct sim_machine *m, uint32_t request, uint32_t tokens, bool windows,
                      const struct sim_kept *kept, sched_slot *slot_out)
{
    const struct sched_memory_options *memory = sched_memory_options(m->memory);
    struct sim_task task = {.kind = TASK_RESERVE,
                            .request = request,
                            .tokens = tokens,
                            .prompt_tokens = tokens,
                            .cached = kept != NULL ? sim_machine_kept_tokens(m, kept) : 0,
                            .reused_run = kept != NULL ? kept->id : 0};
    uint32_t keep = windows ? sched_memory_kept_spans(memory, false) : 0;
    if (task_open(m, &task, tokens, keep, slot_out) != ST_OK)
        return false;
    sched_memory_copy_add(m->memory, *slot_out, tokens, windows);
    if (!sim_kv_copy_grant(m, *slot_out)) {
        sim_task_end(m, *slot_out);
        return false;
    }
    return true;
}

uint32_t sim_machine_copy_cached(const struct sim_machine *m, sched_slot slot)
{
    return m->tasks[slot].cached;
}

/* ---- memory: the decisions of sched_memory ---- */

/* Frees the request's blocks and reports that it lost them. */
static void request_preempt(struct sim_machine *m, sched_slot slot, bool decoding)
{
    uint32_t request = m->tasks[slot].request;
    sim_task_end(m, slot);
    m->options.calls->preempted(m->options.self, m->options.index, request, decoding);
}

void sim_machine_grow(struct sim_machine *m)
{
    sched_slot slot;
    for (;;) {
        switch (sched_memory_grow(m->memory, sim_kv_available(m), &slot)) {
        case SCHED_GROWTH_DONE:
            return;
        case SCHED_GROWTH_SPAN:
            sim_kv_answer_grow(m, slot);
            break;
        case SCHED_GROWTH_PREEMPT:
            request_preempt(m, slot, true);
            break;
        }
    }
}

void sim_machine_grant(struct sim_machine *m, double now_s)
{
    sched_slot slot;
    sched_machine_time_set(m->sched, (int64_t)(now_s * 1e6));
    sim_machine_grow(m);
    while (sched_memory_candidate_find(m->memory, &slot)) {
        if (!sim_kv_reservation_grant(m, slot))
            return;
        m->options.calls->reserved(m->options.self, m->options.index, m->tasks[slot].request,
                                   m->tasks[slot].cached);
    }
}

void sim_machine_deadlock_break(struct sim_machine *m)
{
    sched_slot slot;
    if (sched_memory_deadlock_victim(m->memory, sim_kv_available(m), m->prompt_holders, &slot))
        request_preempt(m, slot, false);
}
