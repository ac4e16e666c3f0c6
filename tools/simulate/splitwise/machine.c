/* splitwise_machine, the runs: see the header. A run is one iteration of a batch with a prompt, or
 * the iterations of a batch of decodes until the first of them ends. An arrival can cut the run at
 * the next iteration boundary. */
#include "tools/simulate/splitwise/machine.h"

#include "tools/simulate/splitwise/batch.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#define MIXED_FACTOR 1.1 /* Factor of a batch with prompts and decodes. */

void splitwise_machine_init(struct splitwise_machine *m, uint32_t index,
                            const struct splitwise_options *options,
                            struct splitwise_request *requests, const struct cost_curve *curve,
                            uint32_t memory_tokens)
{
    assert(options->batch_tasks_max >= 1 && options->batch_tasks_max <= SPLITWISE_BATCH_TASKS);
    *m = (struct splitwise_machine){
        .index = index,
        .options = options,
        .requests = requests,
        .curve = curve,
        .memory_tokens = memory_tokens,
        .prompts = {.first = SPLITWISE_NONE, .last = SPLITWISE_NONE},
        .blocked = {.first = SPLITWISE_NONE, .last = SPLITWISE_NONE},
    };
}

void splitwise_machine_done(struct splitwise_machine *m)
{
    free(m->pending.tasks);
    free(m->waiting.tasks);
    m->pending.tasks = m->waiting.tasks = NULL;
}

static double iteration_s(const struct splitwise_machine *m)
{
    double rows = (double)m->batch_tokens;
    if (m->batch_prompts == 0)
        return cost_curve_decodes_s(m->curve, rows);
    double prompts_s = cost_curve_prompts_s(m->curve, rows);
    return m->batch_prompts == m->batch_count ? prompts_s : prompts_s * MIXED_FACTOR;
}

static uint32_t soonest_end(const struct splitwise_machine *m)
{
    uint32_t soonest = UINT32_MAX;
    for (uint32_t i = 0; i < m->batch_count; i++)
        soonest = m->ends_at[i] < soonest ? m->ends_at[i] : soonest;
    return soonest;
}

void splitwise_machine_run_start(struct splitwise_machine *m, double now_s)
{
    m->run_cut = false;
    splitwise_batch_build(m);
    if (m->batch_count == 0)
        return;
    m->iteration_s = iteration_s(m);
    m->ends_at_min = soonest_end(m);
    m->run_iterations = m->batch_prompts > 0 ? 1 : (double)(m->ends_at_min - m->iterations);
    m->run_ends_s = now_s + m->iteration_s * m->run_iterations;
}

/* Like Python's x // d. */
static double floor_divide(double x, double d)
{
    double quotient = (x - fmod(x, d)) / d;
    double whole = floor(quotient);
    return quotient - whole > 0.5 ? whole + 1 : whole;
}

/* Cuts the run at the next iteration boundary. */
static void pause(struct splitwise_machine *m, double now_s)
{
    if (m->run_cut || m->batch_prompts > 0)
        return;
    m->run_cut = true;
    double begun_s = m->run_ends_s - m->iteration_s * m->run_iterations;
    double elapsed_s = now_s - begun_s;
    double iterations = floor_divide(elapsed_s, m->iteration_s) + 1;
    if (iterations > m->run_iterations) /* The boundary would be after the run's end. */
        return;
    m->run_iterations = iterations;
    m->run_ends_s = now_s + (m->iteration_s * iterations - elapsed_s);
}

static void arrival_starts(struct splitwise_machine *m, uint32_t task, double now_s)
{
    if (splitwise_machine_fits(m, splitwise_task_memory(m, task)))
        splitwise_machine_run_start(m, now_s);
}

void splitwise_machine_arrive(struct splitwise_machine *m, uint32_t slot, enum splitwise_kind kind,
                              double now_s)
{
    uint32_t number = splitwise_task_number(slot, kind);
    struct splitwise_task *task = splitwise_task_at(m, number);
    uint32_t rows = splitwise_task_rows(m, number);
    uint64_t most = m->options->batch_tokens_max;
    *task = (struct splitwise_task){.state = SPLITWISE_QUEUED};
    bool behind = kind == SPLITWISE_DECODE &&
                  (m->requests[slot].tasks[SPLITWISE_PROMPT].state == SPLITWISE_QUEUED ||
                   m->requests[slot].tasks[SPLITWISE_PROMPT].state == SPLITWISE_RUNNING);
    if (!behind)
        splitwise_waiting_add(m, number);
    splitwise_pending_add(m, number);
    if (m->batch_count == 0)
        arrival_starts(m, number, now_s);
    else if (m->batch_count < m->options->batch_tasks_max && m->batch_tokens + rows <= most)
        pause(m, now_s);
    else if (kind == SPLITWISE_PROMPT && m->batch_prompts < m->batch_count &&
             m->batch_tokens - (m->batch_count - m->batch_prompts) + rows <= most)
        pause(m, now_s);
}

void splitwise_machine_transfer_end(struct splitwise_machine *m, double now_s)
{
    if (m->pending.count == 0)
        return;
    if (m->batch_count == 0)
        arrival_starts(m, m->pending.tasks[0], now_s);
    else if (m->batch_count < m->options->batch_tasks_max &&
             m->batch_tokens < m->options->batch_tokens_max)
        pause(m, now_s);
}

static void task_end(struct splitwise_machine *m, uint32_t number)
{
    struct splitwise_request *request = splitwise_request_of(m, number);
    splitwise_task_at(m, number)->state = SPLITWISE_ENDED;
    if (!splitwise_is_prompt(number)) {
        m->used_tokens -= request->held_tokens;
        request->held_tokens = 0;
        return;
    }
    m->batch_prompts--;
    /* A decode that arrived with its prompt is now the first task of its request. */
    if (request->tasks[SPLITWISE_DECODE].state == SPLITWISE_QUEUED)
        splitwise_waiting_add(m, splitwise_task_number(number / 2, SPLITWISE_DECODE));
}

uint32_t splitwise_machine_run_end(struct splitwise_machine *m, uint32_t *ended_out)
{
    uint32_t ended = 0;
    uint32_t kept = 0;
    m->iterations += (uint32_t)m->run_iterations;
    if (m->batch_prompts == 0 && m->ends_at_min > m->iterations)
        return 0;
    for (uint32_t i = 0; i < m->batch_count; i++) {
        uint32_t number = m->batch[i];
        if (m->ends_at[i] == m->iterations) {
            ended_out[ended++] = number;
            continue;
        }
        m->batch[kept] = number;
        m->ends_at[kept++] = m->ends_at[i];
    }
    m->batch_count = kept;
    for (uint32_t i = 0; i < ended; i++)
        task_end(m, ended_out[i]);
    return ended;
}
