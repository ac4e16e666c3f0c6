/* lanes: each thread as a device of its own (compute/lanes.h), and when that is faster.
 *
 * Threads that share the products each read a part of the weights, but every cache line that one
 * core writes and another reads must travel between the cores, and a decode step has some thousands
 * of such lines. Lanes read all weights several times, each core over its own path to memory. Which
 * way is faster depends on the CPU and on the batch (docs/performance.md measures both), so batches
 * are timed (lane_choice.h). At first, the distance between the cores decides: two threads exchange
 * a cache line for a few microseconds. A virtual machine's cores can become near or far while it
 * runs, and what it reports about its caches is not true. */
#include "compute/cpu/cpu.h"
#include "compute/cpu/lane_choice.h"

#include "common/clock.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* A lane reads all the weights: with fewer rows per lane than LANE_ROWS_MIN that costs more than it
 * gains. With many rows, the traffic between cores is small compared with the arithmetic, and
 * threads that take items from each other's shares end at the same time. */
#define LANE_ROWS_MIN 4
#define LANE_ROWS_MAX 128
/* Round trip of one cache line, best of several, on AMD CPUs: 60 to 100 ns within one last-level
 * cache, 240 to 400 ns between two. Only the first guess depends on it: on Intel Ice Lake it
 * is often longer, although lanes are slower there. */
#define FAR_NS       160
#define PROBE_ROUNDS 8
/* Beyond this the other thread is not running, and the probe has no result. */
#define PROBE_LIMIT_NS 20000
#define PROBE_EVERY_NS 30000000

struct lanes {
    enum compute_lanes when;
    uint32_t count;
    bool far;
    bool far_probed; /* Result of the last probe; `far` changes only after two equal results. */
    int64_t probed_ns;
    uint32_t probed; /* Thread of the last probe. */
    struct lane_choice choice;
    /* The latest batch for which `choice` was asked; rows 0 = it was not asked. */
    struct {
        uint32_t rows;
        bool far;
        bool in_lanes;
        int64_t begun_ns;
    } batch;
    struct compute *lanes[WORKERS_THREADS_MAX];
};

/* ---- how far two threads are from each other ---- */

struct probe {
    uint32_t other;
    int64_t best_ns; /* 0 = unknown. */
    _Alignas(64) _Atomic uint32_t word;
};

/* False: the value did not arrive in time. */
static bool probe_await(struct probe *probe, uint32_t value, int64_t deadline_ns)
{
    while (atomic_load_explicit(&probe->word, memory_order_acquire) != value)
        if (clock_system_ns() > deadline_ns)
            return false;
    return true;
}

/* Item 0 asks, item `other` answers; the items between do nothing. */
static void probe_item(void *context, uint32_t item, uint32_t thread)
{
    struct probe *probe = context;
    const int64_t begun_ns = clock_system_ns(), deadline_ns = begun_ns + PROBE_LIMIT_NS;
    if (item != thread || (item != 0 && item != probe->other))
        return; /* Another thread took the item: its distance is not to be measured. */
    for (uint32_t i = 0; i < PROBE_ROUNDS; i++) {
        if (item != 0) {
            if (!probe_await(probe, 2 * i + 1, deadline_ns))
                return;
            atomic_store_explicit(&probe->word, 2 * i + 2, memory_order_release);
            continue;
        }
        int64_t asked_ns = clock_system_ns();
        atomic_store_explicit(&probe->word, 2 * i + 1, memory_order_release);
        if (!probe_await(probe, 2 * i + 2, deadline_ns))
            return;
        int64_t took_ns = clock_system_ns() - asked_ns;
        if (probe->best_ns == 0 || took_ns < probe->best_ns)
            probe->best_ns = took_ns;
    }
}

/* Each probe measures another thread. If one thread is far, all count as far. */
static bool lanes_far(struct compute *c)
{
    struct lanes *lanes = c->lanes;
    const int64_t at_ns = clock_system_ns();
    if (lanes->probed_ns != 0 && at_ns - lanes->probed_ns < PROBE_EVERY_NS)
        return lanes->far;
    lanes->probed_ns = at_ns;
    lanes->probed = lanes->probed % (lanes->count - 1) + 1;
    struct probe probe = {.other = lanes->probed};
    workers_run(c->workers, probe_item, &probe, lanes->count);
    const bool far = probe.best_ns > FAR_NS;
    if (probe.best_ns != 0 && far == lanes->far_probed)
        lanes->far = far;
    if (probe.best_ns != 0)
        lanes->far_probed = far;
    return lanes->far;
}

/* ---- the lanes ---- */

uint32_t cpu_lanes_count(const struct compute *c)
{
    return c->lanes != NULL ? c->lanes->count : 1;
}

uint32_t cpu_lanes_pick(struct compute *c, uint32_t row_count)
{
    struct lanes *lanes = c->lanes;
    if (lanes == NULL || lanes->when == COMPUTE_LANES_NEVER)
        return 1;
    if (lanes->when == COMPUTE_LANES_ALWAYS)
        return lanes->count;
    lanes->batch.rows = 0;
    if (row_count < LANE_ROWS_MIN * lanes->count || row_count > LANE_ROWS_MAX * lanes->count)
        return 1;
    lanes->batch.far = lanes_far(c);
    lanes->batch.rows = row_count;
    lanes->batch.begun_ns = clock_system_ns();
    lanes->batch.in_lanes = lane_choice_pick(&lanes->choice, row_count, lanes->count,
                                             lanes->batch.far, lanes->batch.begun_ns / 1000);
    return lanes->batch.in_lanes ? lanes->count : 1;
}

void cpu_lanes_done(struct compute *c)
{
    struct lanes *lanes = c->lanes;
    if (lanes == NULL || lanes->batch.rows == 0)
        return;
    const int64_t now_ns = clock_system_ns();
    lane_choice_add(&lanes->choice, lanes->batch.rows, lanes->count, lanes->batch.far,
                    lanes->batch.in_lanes, now_ns / 1000,
                    fmax(1, (double)(now_ns - lanes->batch.begun_ns)) * 1e-3);
    lanes->batch.rows = 0;
}

struct compute *cpu_lane(struct compute *c, uint32_t i)
{
    assert(i < c->lanes->count);
    return c->lanes->lanes[i];
}

struct steps {
    void (*step)(void *context, uint32_t i);
    void *context;
};

static void step_item(void *context, uint32_t item, uint32_t thread)
{
    (void)thread;
    const struct steps *steps = context;
    steps->step(steps->context, item);
}

void cpu_lanes_run(struct compute *c, uint32_t count, void (*step)(void *context, uint32_t i),
                   void *context)
{
    struct steps steps = {.step = step, .context = context};
    workers_run(c->workers, step_item, &steps, count);
}

static enum status lane_open(const struct compute *c, uint32_t i, struct compute **out,
                             struct error *error)
{
    struct compute *lane = cpu_memory_allocate(sizeof(*lane));
    if (lane == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for the CPU backend");
    memset(lane, 0, sizeof(*lane));
    *out = lane;
    lane->kernels = c->kernels;
    lane->floats = c->floats;
    lane->exact = c->exact;
    lane->prefetch = c->prefetch;
    lane->ahead_base = workers_threads(c->workers) + i;
    return workers_open(1, &lane->workers, error);
}

enum status cpu_lanes_open(struct compute *c, enum compute_lanes when, struct lanes **out,
                           struct error *error)
{
    static const enum compute_lanes rules[] = {
        [CPU_CHOICE_AUTO] = COMPUTE_LANES_AUTO,
        [CPU_CHOICE_NEVER] = COMPUTE_LANES_NEVER,
        [CPU_CHOICE_ALWAYS] = COMPUTE_LANES_ALWAYS,
    };
    if (when == COMPUTE_LANES_AUTO) {
        enum cpu_choice choice;
        if (cpu_choice_read("CLEAVE_LANES", &choice, error) != ST_OK)
            return ST_INVALID;
        when = rules[choice];
    }
    struct lanes *lanes = calloc(1, sizeof(*lanes));
    if (lanes == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for the CPU backend");
    *out = lanes;
    lanes->when = when;
    lanes->count = workers_threads(c->workers);
    enum status status = ST_OK;
    for (uint32_t i = 0; i < lanes->count && status == ST_OK; i++)
        status = lane_open(c, i, &lanes->lanes[i], error);
    return status;
}

void cpu_lanes_close(struct lanes *lanes)
{
    for (uint32_t i = 0; lanes != NULL && i < lanes->count; i++)
        if (lanes->lanes[i] != NULL)
            cpu_compute_free(lanes->lanes[i]);
    free(lanes);
}

void cpu_lanes_forget(struct lanes *lanes, const struct compute_matrix *m)
{
    for (uint32_t i = 0; lanes != NULL && i < lanes->count; i++)
        if (lanes->lanes[i]->last_product == m)
            lanes->lanes[i]->last_product = NULL;
}
