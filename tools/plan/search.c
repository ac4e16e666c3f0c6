/* plan_search: see the header. Levels: first every 8th split of a cell, then the splits halfway
 * between, and so on. */
#include "tools/plan/search.h"

#include "tools/plan/points.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define STRIDE_FIRST 8
#define TIE          1e-9

struct task {
    struct plan_cell *cell;
    struct plan_point *point;
    double worst;   /* worst_ratio of the outcome of a final run. */
    uint32_t guess; /* Expected boundary; 0 = none. */
    uint32_t bar;   /* A lower value cannot make this split the best; 0 = every value is useful. */
};

struct crew { /* The tasks of one level and their workers. */
    struct plan_search *search;
    struct task *tasks;
    uint32_t count;
    void (*work)(struct crew *crew, struct task *task, struct error *error);
    atomic_uint next;
    atomic_bool failed;
    atomic_ullong runs;
    pthread_mutex_t mutex; /* Protects the fields below. */
    uint64_t done;
    uint64_t points;
    enum status status;
    struct error error;
};

/* ---- workers ---- */

static void crew_fail(struct crew *crew, enum status status, const struct error *error)
{
    pthread_mutex_lock(&crew->mutex);
    if (crew->status == ST_OK) {
        crew->status = status;
        crew->error = *error;
    }
    pthread_mutex_unlock(&crew->mutex);
    atomic_store(&crew->failed, true);
}

static void *worker_main(void *argument)
{
    struct crew *crew = argument;
    struct error error = {""};
    for (;;) {
        uint32_t i = atomic_fetch_add(&crew->next, 1);
        if (i >= crew->count || atomic_load(&crew->failed))
            return NULL;
        crew->work(crew, &crew->tasks[i], &error);
        pthread_mutex_lock(&crew->mutex);
        crew->done++;
        if (crew->search->progress != NULL)
            crew->search->progress(crew->search->self, crew->done, crew->points,
                                   atomic_load(&crew->runs));
        pthread_mutex_unlock(&crew->mutex);
    }
}

/* Runs the tasks of a level. The calling thread is a worker too. If no further thread can be
 * started, the existing ones do all tasks. */
static enum status crew_run(struct crew *crew, struct task *tasks, uint32_t count,
                            struct error *error)
{
    pthread_t threads[64];
    uint32_t started = 0;
    uint32_t wanted = crew->search->worker_count;
    crew->tasks = tasks;
    crew->count = count;
    atomic_store(&crew->next, 0);
    while (started + 1 < wanted && started + 1 < count && started < 64 &&
           pthread_create(&threads[started], NULL, worker_main, crew) == 0)
        started++;
    worker_main(crew);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    return crew->status == ST_OK ? ST_OK : error_set(error, crew->status, "%s", crew->error.text);
}

/* ---- one point ---- */

/* Tries one value. Returns false if the simulation failed; crew_fail was then called. */
static bool meets(struct crew *crew, const struct task *task, uint32_t value, bool *met_out,
                  struct error *error)
{
    struct plan_search *search = crew->search;
    struct plan_mix mix;
    double rate_per_s;
    plan_point_mix_at(search, task->cell, task->point, value, &mix, &rate_per_s);
    if (plan_memo_find(search->memo, &mix, rate_per_s, met_out))
        return true;
    enum status status = plan_try_meets(search->inputs, &mix, rate_per_s, met_out, error);
    atomic_fetch_add(&crew->runs, 1);
    if (status == ST_OK && plan_memo_add(search->memo, &mix, rate_per_s, *met_out) != ST_OK)
        status = error_set(error, ST_NO_MEMORY, "out of memory");
    if (status != ST_OK)
        crew_fail(crew, status, error);
    return status == ST_OK;
}

/* Finds the largest value that meets the SLO: growing steps from the guess, then halving. */
static void point_solve(struct crew *crew, struct task *task, struct error *error)
{
    uint32_t low = 0; /* Largest value that meets the SLO; 0 needs no try. */
    uint32_t high = task->point->value_max + 1;
    uint32_t at = task->bar > 0 ? task->bar : task->guess;
    uint32_t step = 1;
    bool met = false;
    while (high - low > 1) {
        if (at <= low || at >= high)
            at = low + (high - low) / 2;
        if (!meets(crew, task, at, &met, error))
            return;
        if (!met && at == task->bar) {
            task->point->state = PLAN_PRUNED;
            return;
        }
        if (met)
            low = at;
        else
            high = at;
        bool guessed = task->bar > 0 || task->guess > 0;
        at = !guessed ? 0 : met ? low + step : high > step ? high - step : 0;
        step *= 2;
        if (high <= task->point->value_max && low > 0)
            at = 0;
    }
    plan_point_solved(task->cell, task->point, low);
}

/* Runs a split that is among the best ones, to find the one with the most room below the limits. */
static void point_finish(struct crew *crew, struct task *task, struct error *error)
{
    struct plan_mix mix;
    double rate_per_s;
    struct plan_outcome outcome;
    plan_point_mix_at(crew->search, task->cell, task->point, task->point->boundary, &mix,
                      &rate_per_s);
    enum status status = plan_try(crew->search->inputs, &mix, rate_per_s, &outcome, error);
    atomic_fetch_add(&crew->runs, 1);
    if (status != ST_OK)
        crew_fail(crew, status, error);
    task->worst = outcome.worst_ratio;
}

/* ---- levels ---- */

static uint32_t guess_of(const struct plan_cell *cell, uint32_t i, uint32_t stride)
{
    uint32_t sum = 0;
    uint32_t count = 0;
    const struct plan_point *point = &cell->points[i];
    for (int side = -1; side <= 1; side += 2) {
        int64_t at = (int64_t)i + side * (int64_t)stride;
        if (at < 0 || at >= cell->point_count || cell->points[at].state != PLAN_SOLVED ||
            cell->points[at].boundary == 0)
            continue;
        /* With the rate fixed, boundary and value_max both count token machines. */
        const struct plan_point *other = &cell->points[at];
        int64_t value = (int64_t)other->boundary + point->value_max - other->value_max;
        if (value > 0) {
            sum += (uint32_t)value;
            count++;
        }
    }
    return count > 0 ? sum / count : 0;
}

/* Makes the tasks of a level. Marks splits that need no try as pruned, and counts them as done. */
static uint32_t level_tasks(struct crew *crew, uint32_t stride, struct task *tasks)
{
    const struct plan_search *search = crew->search;
    uint32_t count = 0;
    for (uint32_t c = 0; c < search->cell_count; c++) {
        struct plan_cell *cell = &search->cells[c];
        const struct plan_point *best = plan_cell_best(search->inputs, cell);
        for (uint32_t i = 0; i < cell->point_count; i += stride) {
            struct plan_point *point = &cell->points[i];
            if (point->state != PLAN_OPEN)
                continue;
            struct task task = {.cell = cell, .point = point, .guess = guess_of(cell, i, stride)};
            if (!search->all_boundaries && best != NULL)
                task.bar = plan_point_value_wanted(search->inputs, cell, point, best);
            if (task.bar <= point->value_max) {
                tasks[count++] = task;
                continue;
            }
            point->state = PLAN_PRUNED;
            crew->done++;
        }
    }
    return count;
}

static uint32_t final_tasks(const struct plan_search *search, struct task *tasks)
{
    uint32_t count = 0;
    for (uint32_t c = 0; c < search->cell_count; c++) {
        struct plan_cell *cell = &search->cells[c];
        const struct plan_point *best = plan_cell_best(search->inputs, cell);
        for (uint32_t i = 0; i < cell->point_count && best != NULL; i++)
            if (plan_point_equals(search->inputs, cell, &cell->points[i], best))
                tasks[count++] = (struct task){.cell = cell, .point = &cell->points[i]};
    }
    return count;
}

static enum status bests_take(struct plan_search *search, const struct task *tasks, uint32_t count,
                              struct crew *crew, struct error *error)
{
    enum status status = ST_OK;
    for (uint32_t i = 0; i < count && status == ST_OK; i++) {
        struct plan_cell *cell = tasks[i].cell;
        bool first = i == 0 || tasks[i - 1].cell != cell;
        const struct task *best = &tasks[i];
        for (uint32_t j = i + 1; first && j < count && tasks[j].cell == cell; j++)
            best = tasks[j].worst < best->worst - TIE ? &tasks[j] : best;
        if (!first)
            continue;
        cell->found = true;
        plan_point_mix_at(search, cell, best->point, best->point->boundary, &cell->best,
                          &cell->best_rate_per_s);
        status =
            plan_try(search->inputs, &cell->best, cell->best_rate_per_s, &cell->outcome, error);
        atomic_fetch_add(&crew->runs, 1);
    }
    return status;
}

static enum status levels_run(struct crew *crew, struct task *tasks, struct error *error)
{
    struct plan_search *search = crew->search;
    enum status status = ST_OK;
    crew->work = point_solve;
    for (uint32_t stride = STRIDE_FIRST; stride > 0 && status == ST_OK; stride /= 2) {
        uint32_t count = level_tasks(crew, stride, tasks);
        status = crew_run(crew, tasks, count, error);
    }
    if (status != ST_OK)
        return status;
    crew->work = point_finish;
    uint32_t count = final_tasks(search, tasks);
    crew->points = crew->done + count;
    status = crew_run(crew, tasks, count, error);
    return status == ST_OK ? bests_take(search, tasks, count, crew, error) : status;
}

enum status plan_search_run(struct plan_search *search, struct error *error)
{
    struct crew crew = {.search = search, .status = ST_OK};
    enum status status = ST_OK;
    for (uint32_t c = 0; c < search->cell_count && status == ST_OK; c++) {
        status = plan_points_make(search, &search->cells[c], error);
        crew.points += search->cells[c].point_count;
    }
    if (status != ST_OK)
        return status;
    struct task *tasks = calloc(crew.points + 1, sizeof(tasks[0]));
    if (tasks == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    pthread_mutex_init(&crew.mutex, NULL);
    status = levels_run(&crew, tasks, error);
    search->runs = atomic_load(&crew.runs);
    pthread_mutex_destroy(&crew.mutex);
    free(tasks);
    return status;
}

void plan_search_done(struct plan_search *search)
{
    for (uint32_t c = 0; c < search->cell_count; c++) {
        free(search->cells[c].points);
        search->cells[c].points = NULL;
        search->cells[c].point_count = 0;
    }
}
