/* sim_machine, the batches: see the header. A batch goes through the stages one after the other, on
 * the replicas of its path. A machine with several stages has several batches in flight. */
#include "tools/simulate/sim_machine_state.h"

#include "common/random.h"
#include "scheduler/options.h"

#include <assert.h>
#include <string.h>

#define DRAFT_KEY 0x647261667473 /* Key of random numbers. */

/* Marks the batch's tasks, and sums up its work. */
static void flight_begin(struct sim_machine *m, struct sim_flight *flight,
                         struct profile_work *work)
{
    uint32_t tokens[LIMIT_BATCH_SEQUENCES];
    uint32_t contexts[LIMIT_BATCH_SEQUENCES];
    uint32_t prompts = 0;
    uint64_t decode_context = 0;
    *work = (struct profile_work){0};
    for (uint32_t i = 0; i < flight->batch.item_count; i++) {
        const struct sched_batch_item *item = &flight->batch.items[i];
        struct sim_task *task = &m->tasks[item->slot];
        task->in_flight++;
        if (task->state == TASK_WAITING) {
            sim_task_begin(m, item->slot);
            m->options.calls->began(m->options.self, m->options.index, task->request, task->cached);
        }
        if (!item->is_prompt) {
            decode_context += (uint64_t)task->tokens * item->token_count;
            work->decodes += item->token_count;
            continue;
        }
        tokens[prompts] = item->token_count;
        contexts[prompts++] = task->tokens + item->first_token;
        work->prompt_tokens += item->token_count;
        work->prompts_ending += item->is_last_chunk;
    }
    if (prompts > 0)
        work->prompt_context = profile_batch_context(tokens, contexts, prompts);
    if (work->decodes > 0)
        work->decode_context = (double)decode_context / work->decodes;
    flight->prompt_rows = work->prompt_tokens;
    flight->decodes = work->decodes;
}

/* Sets begin and end of the batch: at each stage it waits for the replica of its path. Returns the
 * sum of the computing times. */
static double flight_times(struct sim_machine *m, struct sim_flight *flight,
                           const struct profile_work *work, double now_s)
{
    const struct sim_cost *cost = &m->options.host->cost;
    double at_s = now_s;
    double work_s = 0;
    for (uint32_t stage = 0; stage < cost->stage_count; stage++) {
        uint32_t replica = sched_paths_replica(&m->paths, flight->batch.path, stage);
        double *free_s = &m->free_s[cost->stages[stage].first_device + replica];
        double stage_s = sim_cost_stage_s(cost, stage, replica, work);
        at_s = at_s > *free_s ? at_s : *free_s;
        if (stage == 0)
            flight->begin_s = at_s;
        at_s += stage_s;
        work_s += stage_s;
        *free_s = at_s;
        if (stage + 1 < cost->stage_count)
            at_s += sim_cost_between_s(cost, work);
    }
    flight->end_s = at_s;
    return work_s;
}

/* Does what machine/batch.c does: records the tokens of open prompts, and limits the prompt tokens
 * of batches that also decode. */
static void pace_prompts(struct sim_machine *m, double now_s)
{
    struct sched_machine_load load;
    sched_machine_load(m->sched, &load);
    sched_pace_open_add(&m->pace, load.prompt_tokens_open, (int64_t)(now_s * 1e6));
    sched_pace_limits_apply(m->options.config, &m->pace,
                            m->flights_of_path * m->paths.path_count > 1, m->sched);
}

static double turn_s(const struct sim_machine *m, bool prompts, double steps_s)
{
    const struct config *config = m->options.config;
    if (config->scheduler.turn_ms != CONFIG_AUTO)
        return 0;
    const struct sched_pace_targets targets = sched_pace_targets_make(config);
    return sched_pace_turn_us(&m->pace, &targets, prompts, steps_s * 1e6) / 1e6;
}

/* Returns true if the path can have one more batch in flight. */
static bool path_has_room(const struct sim_machine *m, uint32_t path)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < m->flights_of_path * m->paths.path_count; i++)
        count += m->flights[i].in_flight && m->flights[i].batch.path == path;
    return count < m->flights_of_path;
}

static bool batch_next(struct sim_machine *m, uint32_t path, struct sched_batch *out)
{
    if (!path_has_room(m, path))
        return false;
    sim_kv_prompts_pin(m, path);
    bool any = sched_machine_batch_next(m->sched, path, sim_kv_available(m), out);
    sim_kv_prompts_unpin(m);
    return any;
}

bool sim_machine_start(struct sim_machine *m, double now_s, double steps_s,
                       struct sim_cores_work *work_out)
{
    struct sched_batch batch;
    uint32_t path = 0;
    pace_prompts(m, now_s);
    while (path < m->paths.path_count && !batch_next(m, path, &batch))
        path++;
    if (path == m->paths.path_count)
        return false;
    struct profile_work work;
    struct sim_flight *flight = &m->flights[batch.index];
    assert(!flight->in_flight);
    flight->in_flight = true;
    flight->batch.index = batch.index;
    flight->batch.path = batch.path;
    flight->batch.item_count = batch.item_count;
    memcpy(flight->batch.items, batch.items, batch.item_count * sizeof(batch.items[0]));
    m->flight_count++;
    flight_begin(m, flight, &work);
    *work_out = (struct sim_cores_work){.work_s = flight_times(m, flight, &work, now_s),
                                        .busy_slowdown =
                                            sim_cost_busy_slowdown(&m->options.host->cost, &work),
                                        .layers = m->options.host->cost.layer_count,
                                        .prompts = work.prompt_tokens > 0,
                                        .turn_s = turn_s(m, work.prompt_tokens > 0, steps_s)};
    flight->used_s = work_out->work_s;
    sim_flight_use_set(m, flight, &work, now_s);
    if (m->flights_of_path * m->paths.path_count > 1) /* The machine may begin another batch. */
        sim_machine_grow(m);
    return true;
}

/* ---- drafts ---- */

/* Returns a draft of `count` tokens after a place with many equal tokens. */
static struct sched_draft draft_of(uint32_t count)
{
    struct sched_draft draft = {.count = count};
    memset(draft.classes, SCHED_DRAFT_MOST, count);
    return draft;
}

static uint32_t answers_of(const struct sim_machine *m)
{
    struct sched_machine_load load;
    sched_machine_load(m->sched, &load);
    return load.decodes_running > 0 ? load.decodes_running : 1;
}

/* Returns how many tokens a draft of the answer has. */
static uint32_t draft_most(const struct sim_machine *m, const struct sim_task *task)
{
    const uint32_t most = m->options.config->scheduler.speculative_tokens;
    if (m->options.draft_right <= 0 || task->tokens_left <= 1)
        return 0;
    return task->tokens_left - 1 < most ? task->tokens_left - 1 : most;
}

void sim_draft_set(struct sim_machine *m, sched_slot slot)
{
    struct sim_task *task = &m->tasks[slot];
    const struct sched_draft draft = draft_of(draft_most(m, task));
    if (draft.count == 0)
        return;
    sched_machine_draft_set(
        m->sched, slot, sched_drafts_length(&m->drafts, &task->draft_trust, answers_of(m), &draft));
}

/* Draws how many of the checked tokens are right. */
static uint32_t drafts_accepted(struct sim_machine *m, uint32_t checked)
{
    uint32_t accepted = 0;
    while (accepted < checked &&
           (double)(random_at(m->options.seed ^ DRAFT_KEY,
                              (uint64_t)m->options.index << 40 | m->draft_draws++) >>
                    11) *
                   0x1p-53 <
               m->options.draft_right)
        accepted++;
    return accepted;
}

/* ---- the end of a batch ---- */

/* Batches that end at the same time are on different paths, so their order does not matter. */
static struct sim_flight *flight_next(const struct sim_machine *m)
{
    struct sim_flight *next = NULL;
    uint32_t count = m->flights_of_path * m->paths.path_count;
    for (uint32_t i = 0; i < count; i++)
        if (m->flights[i].in_flight && (next == NULL || m->flights[i].end_s < next->end_s))
            next = &m->flights[i];
    assert(next != NULL);
    return next;
}

double sim_machine_due_s(const struct sim_machine *m)
{
    return flight_next(m)->end_s;
}

/* Ends the step of an answer (token_pool_decode_done): a token, and one for each drafted token that
 * is right. */
static void decode_end(struct sim_machine *m, const struct sched_batch_item *item)
{
    const struct sim_machine_calls *calls = m->options.calls;
    struct sim_task *task = &m->tasks[item->slot];
    const uint32_t checked = item->token_count - 1, accepted = drafts_accepted(m, checked);
    const struct sched_draft draft = draft_of(draft_most(m, task));
    const double cost = sched_drafts_cost(&m->drafts, answers_of(m), &draft, checked);
    if (checked > 0)
        calls->drafted(m->options.self, checked, accepted);
    for (uint32_t i = 0; i <= accepted; i++) {
        task->tokens++;
        const bool last = --task->tokens_left == 0;
        calls->decoded(m->options.self, m->options.index, task->request);
        if (last) /* The request has ended, and its task with it. */
            return;
    }
    sched_draft_trust_add(&task->draft_trust, &draft, checked, accepted, cost);
    sched_machine_decode_advance(m->sched, item->slot, accepted);
    sim_draft_set(m, item->slot);
}

static void item_end(struct sim_machine *m, const struct sched_batch_item *item, double begin_s,
                     double now_s)
{
    const struct sim_machine_calls *calls = m->options.calls;
    struct sim_task *task = &m->tasks[item->slot];
    if (task->state == TASK_REMOVED) {
        if (task->in_flight == 0)
            sim_task_end(m, item->slot);
    } else if (item->is_prompt) {
        calls->chunk_done(m->options.self, m->options.index,
                          &(struct sim_chunk){.request = task->request,
                                              .first_token = task->tokens + item->first_token,
                                              .tokens = item->token_count,
                                              .ends = item->is_last_chunk,
                                              .begin_s = begin_s,
                                              .end_s = now_s});
    } else {
        decode_end(m, item);
    }
}

void sim_machine_batch_end(struct sim_machine *m, double now_s)
{
    struct sim_flight *flight = flight_next(m);
    double begin_s = flight->begin_s;
    uint64_t us = (uint64_t)((now_s - begin_s) * 1e6);
    if (flight->prompt_rows > 0)
        sched_rates_prompts_add(&m->rates, 1, flight->prompt_rows, us);
    else
        sched_rates_decodes_add(&m->rates, 1, flight->decodes, us);
    if (flight->prompt_rows == 0)
        sched_drafts_step_add(&m->drafts.steps, flight->decodes, us > 0 ? us : 1);
    sched_pace_batch_add(&m->pace, flight->decodes, flight->prompt_rows,
                         (uint64_t)(flight->used_s * 1e6));
    sched_machine_batch_done(m->sched, flight->batch.index);
    for (uint32_t i = 0; i < flight->batch.item_count; i++)
        m->tasks[flight->batch.items[i].slot].in_flight--;
    for (uint32_t i = 0; i < flight->batch.item_count; i++)
        item_end(m, &flight->batch.items[i], begin_s, now_s);
    flight->in_flight = false;
    m->flight_count--;
}
