/* splitwise_batch: see machine.h for the reasons. Waiting tasks are kept in two orders:
 *
 * `pending`: all tasks, with the decodes that wait for their own prompt, sorted by (number of
 * preemptions, arrival of the request). The number of preemptions grows while a task is in the
 * queue, so the queue is sorted only as far as the numbers grew equally. A new task's position is
 * nevertheless found by bisection, as in the reference; where the order is broken, the result
 * depends on which elements the bisection compares.
 *
 * `waiting`: one task of each request that is not in the batch, sorted by the request's arrival.
 *
 * Each build preempts all tasks of `waiting` that it does not take, so the machine counts builds
 * instead of counting in each task. */
#include "tools/simulate/splitwise/batch.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- arrays and lists ---- */

static bool array_insert(struct splitwise_machine *m, struct splitwise_array *array, uint32_t at,
                         uint32_t task)
{
    if (array->count == array->capacity) {
        uint32_t room = array->capacity == 0 ? 64 : array->capacity * 2;
        uint32_t *tasks = realloc(array->tasks, room * sizeof(tasks[0]));
        m->out_of_memory |= tasks == NULL;
        if (tasks == NULL)
            return false;
        array->tasks = tasks;
        array->capacity = room;
    }
    memmove(array->tasks + at + 1, array->tasks + at, (array->count - at) * sizeof(uint32_t));
    array->tasks[at] = task;
    array->count++;
    return true;
}

static void array_remove(struct splitwise_array *array, uint32_t task)
{
    uint32_t at = 0;
    while (array->tasks[at] != task)
        at++;
    array->count--;
    memmove(array->tasks + at, array->tasks + at + 1, (array->count - at) * sizeof(uint32_t));
}

static void list_append(struct splitwise_machine *m, struct splitwise_list *list, uint32_t number)
{
    struct splitwise_task *task = splitwise_task_at(m, number);
    task->next = SPLITWISE_NONE;
    task->previous = list->last;
    if (list->last == SPLITWISE_NONE)
        list->first = number;
    else
        splitwise_task_at(m, list->last)->next = number;
    list->last = number;
}

static void list_remove(struct splitwise_machine *m, struct splitwise_list *list, uint32_t number)
{
    const struct splitwise_task *task = splitwise_task_at(m, number);
    if (task->previous == SPLITWISE_NONE)
        list->first = task->next;
    else
        splitwise_task_at(m, task->previous)->next = task->next;
    if (task->next == SPLITWISE_NONE)
        list->last = task->previous;
    else
        splitwise_task_at(m, task->next)->previous = task->previous;
}

/* ---- tasks ---- */

uint32_t splitwise_task_memory(const struct splitwise_machine *m, uint32_t task)
{
    const struct splitwise_request *request = splitwise_request_of(m, task);
    return splitwise_is_prompt(task) ? request->prompt_tokens + 1 : request->answer_tokens;
}

uint32_t splitwise_task_rows(const struct splitwise_machine *m, uint32_t task)
{
    return splitwise_is_prompt(task) ? splitwise_request_of(m, task)->prompt_tokens : 1;
}

static uint32_t preemptions(const struct splitwise_machine *m, const struct splitwise_task *task)
{
    return task->preemptions + (task->counts_builds ? m->builds - task->since_build : 0);
}

/* ---- the queues ---- */

void splitwise_pending_add(struct splitwise_machine *m, uint32_t number)
{
    const struct splitwise_task *task = splitwise_task_at(m, number);
    uint32_t passed = preemptions(m, task);
    double arrival_s = splitwise_request_of(m, number)->arrival_s;
    uint32_t low = 0;
    uint32_t high = m->pending.count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        uint32_t other = m->pending.tasks[middle];
        uint32_t its = preemptions(m, splitwise_task_at(m, other));
        bool before =
            passed != its ? passed < its : arrival_s < splitwise_request_of(m, other)->arrival_s;
        if (before)
            high = middle;
        else
            low = middle + 1;
    }
    if (!array_insert(m, &m->pending, low, number))
        return;
    if (splitwise_is_prompt(number))
        list_append(m, &m->prompts, number);
    else if (task->state == SPLITWISE_BLOCKED)
        list_append(m, &m->blocked, number);
}

void splitwise_waiting_add(struct splitwise_machine *m, uint32_t number)
{
    struct splitwise_task *task = splitwise_task_at(m, number);
    double arrival_s = splitwise_request_of(m, number)->arrival_s;
    uint32_t low = 0;
    uint32_t high = m->waiting.count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (arrival_s < splitwise_request_of(m, m->waiting.tasks[middle])->arrival_s)
            high = middle;
        else
            low = middle + 1;
    }
    task->counts_builds = true;
    task->since_build = m->builds;
    array_insert(m, &m->waiting, low, number);
}

static void queues_leave(struct splitwise_machine *m, uint32_t number)
{
    struct splitwise_task *task = splitwise_task_at(m, number);
    array_remove(&m->pending, number);
    array_remove(&m->waiting, number);
    if (splitwise_is_prompt(number))
        list_remove(m, &m->prompts, number);
    else if (task->state == SPLITWISE_BLOCKED)
        list_remove(m, &m->blocked, number);
    task->preemptions = preemptions(m, task);
    task->counts_builds = false;
}

/* ---- choosing the next batch ---- */

struct build {
    uint64_t serial;
    uint64_t memory;
    uint64_t rows;
    uint32_t count;
    uint32_t kept; /* Tasks of the current batch that stay; the others are displaced. */
    uint32_t new_count;
    uint32_t new_tasks[SPLITWISE_BATCH_TASKS];
};

static bool is_full(const struct splitwise_machine *m, const struct build *b)
{
    return b->count == m->options->batch_tasks_max;
}

static bool is_too_much(const struct splitwise_machine *m, const struct build *b, uint32_t task)
{
    return b->count > 0 && b->rows + splitwise_task_rows(m, task) > m->options->batch_tokens_max;
}

static bool is_chosen(const struct splitwise_machine *m, const struct build *b, uint32_t task)
{
    return splitwise_request_of(m, task)->chosen_build == b->serial;
}

/* Adds the task to the batch that is built. Returns false if there is not enough memory for it. */
static bool choose(struct splitwise_machine *m, struct build *b, uint32_t task)
{
    uint32_t memory = splitwise_task_memory(m, task);
    if (splitwise_task_at(m, task)->state == SPLITWISE_BLOCKED)
        memory = 0;
    else if (b->memory + memory > m->memory_tokens)
        return false;
    b->memory += memory;
    b->rows += splitwise_task_rows(m, task);
    b->count++;
    b->new_tasks[b->new_count++] = task;
    splitwise_request_of(m, task)->chosen_build = b->serial;
    return true;
}

/* Chooses tasks that were preempted too often. A task without memory is skipped. */
static void choose_passed_over(struct splitwise_machine *m, struct build *b)
{
    for (uint32_t i = 0; i < m->pending.count; i++) {
        uint32_t task = m->pending.tasks[i];
        if (preemptions(m, splitwise_task_at(m, task)) < m->options->preemptions_max ||
            is_full(m, b) || is_too_much(m, b, task))
            return;
        if (!is_chosen(m, b, task))
            choose(m, b, task);
    }
}

static void choose_prompts(struct splitwise_machine *m, struct build *b)
{
    for (uint32_t task = m->prompts.first; task != SPLITWISE_NONE;
         task = splitwise_task_at(m, task)->next) {
        if (is_full(m, b) || is_too_much(m, b, task))
            return;
        if (!is_chosen(m, b, task) && !choose(m, b, task))
            return;
    }
}

static void choose_blocked(struct splitwise_machine *m, struct build *b)
{
    for (uint32_t task = m->blocked.first; task != SPLITWISE_NONE;
         task = splitwise_task_at(m, task)->next) {
        if (is_full(m, b) || is_too_much(m, b, task))
            return;
        if (!is_chosen(m, b, task))
            choose(m, b, task);
    }
}

/* Keeps as many decodes of the current batch as have room. The batch has only decodes with one
 * token each. */
static void choose_running(struct splitwise_machine *m, struct build *b)
{
    uint32_t places = m->options->batch_tasks_max - b->count;
    uint64_t most = m->options->batch_tokens_max;
    uint64_t rows = b->rows < most ? most - b->rows : 0;
    uint32_t kept = m->batch_count < places ? m->batch_count : places;
    b->kept = kept < rows ? kept : (uint32_t)rows;
    b->count += b->kept;
    b->rows += b->kept;
}

static void choose_by_arrival(struct splitwise_machine *m, struct build *b)
{
    if (b->kept < m->batch_count)
        return; /* Running decodes were displaced, so the batch is full for new tasks too. */
    for (uint32_t i = 0; i < m->waiting.count; i++) {
        uint32_t task = m->waiting.tasks[i];
        if (is_full(m, b))
            return;
        if (is_chosen(m, b, task))
            continue;
        if (is_too_much(m, b, task) || !choose(m, b, task))
            return;
    }
}

/* ---- changing the batch ---- */

static void displace(struct splitwise_machine *m, uint32_t from)
{
    for (uint32_t i = from; i < m->batch_count; i++) {
        uint32_t number = m->batch[i];
        splitwise_request_of(m, number)->answer_left = m->ends_at[i] - m->iterations;
        splitwise_task_at(m, number)->state = SPLITWISE_BLOCKED;
        splitwise_pending_add(m, number);
        splitwise_waiting_add(m, number);
    }
    m->displaced += m->batch_count - from;
    m->batch_count = from;
}

static void take_in(struct splitwise_machine *m, uint32_t number)
{
    struct splitwise_task *task = splitwise_task_at(m, number);
    struct splitwise_request *request = splitwise_request_of(m, number);
    bool prompt = splitwise_is_prompt(number);
    queues_leave(m, number);
    if (task->state == SPLITWISE_QUEUED) {
        uint32_t memory = splitwise_task_memory(m, number);
        m->used_tokens += memory;
        request->held_tokens += memory;
    }
    task->state = SPLITWISE_RUNNING;
    m->batch_prompts += prompt ? 1 : 0;
    m->ends_at[m->batch_count] = m->iterations + (prompt ? 1 : request->answer_left);
    m->batch[m->batch_count++] = number;
}

void splitwise_batch_build(struct splitwise_machine *m)
{
    struct build b;
    /* Distinct per machine, because a request can be on two machines. */
    b.serial = (uint64_t)(m->builds + 1) << 32 | m->index;
    b.memory = m->used_tokens;
    b.rows = 0;
    b.count = b.kept = b.new_count = 0;
    assert(m->batch_prompts == 0);
    if (m->pending.count > 0) {
        choose_passed_over(m, &b);
        choose_prompts(m, &b);
        choose_blocked(m, &b);
    }
    choose_running(m, &b);
    choose_by_arrival(m, &b);
    m->batch_tokens = b.rows;
    displace(m, b.kept);
    for (uint32_t i = 0; i < b.new_count; i++)
        take_in(m, b.new_tasks[i]);
    m->builds++;
}
