/* sim_cores: see the header. */
#include "tools/simulate/sim_cores.h"

#include "scheduler/machine/machine.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>

/* Times that differ by less count as equal, because the sum of a batch's layers is rounded. */
#define SAME_S 1e-9
/* A machine counts as not decoding when its last decode step began longer ago (host/turns.c). */
#define STEP_OLD_S 1.0

void sim_cores_init(struct sim_cores *c, uint32_t cores, uint32_t turn_ms, const uint32_t *threads,
                    uint32_t machine_count)
{
    *c =
        (struct sim_cores){.cores = cores, .turn_s = turn_ms / 1e3, .machine_count = machine_count};
    for (uint32_t i = 0; i < machine_count; i++) {
        uint32_t own = threads[i] > 0 ? threads[i] : 1;
        bool capped = turn_ms > 0 && own > cores;
        c->machines[i] = (struct sim_cores_machine){.threads = capped ? cores : own, .speed = 1};
    }
}

static bool has_turns(const struct sim_cores *c)
{
    return c->turn_s > 0;
}

static uint32_t threads_that(const struct sim_cores *c, enum sim_cores_state state)
{
    uint32_t threads = 0;
    for (uint32_t i = 0; i < c->machine_count; i++)
        threads += c->machines[i].state == state ? c->machines[i].threads : 0;
    return threads;
}

/* Subtracts the work done by now. */
static void settle(struct sim_cores_machine *m, double now_s)
{
    double left_s = m->work_left_s - (now_s - m->since_s) * m->speed;
    m->work_left_s = left_s > 0 ? left_s : 0;
    m->since_s = now_s;
}

/* ---- turns ---- */

static struct sim_cores_machine *longest_waiting(struct sim_cores *c)
{
    struct sim_cores_machine *longest = NULL;
    for (uint32_t i = 0; i < c->machine_count; i++) {
        struct sim_cores_machine *m = &c->machines[i];
        if (m->state == SIM_CORES_WAITS && (longest == NULL || m->since_s < longest->since_s))
            longest = m;
    }
    return longest;
}

/* Grants turns in the order of waiting while the threads fit. A smaller machine does not overtake a
 * larger one. */
static void turns_grant(struct sim_cores *c, double now_s)
{
    for (;;) {
        uint32_t used = threads_that(c, SIM_CORES_COMPUTES);
        struct sim_cores_machine *next = longest_waiting(c);
        if (next == NULL || (used > 0 && used + next->threads > c->cores))
            return;
        next->state = SIM_CORES_COMPUTES;
        next->since_s = next->turn_began_s = now_s;
    }
}

static double slice_s(const struct sim_cores *c, const struct sim_cores_machine *m)
{
    if (m->work.turn_s > 0)
        return m->work.turn_s;
    return c->turn_s * (m->work.prompts ? 1 : SCHED_DECODE_TURNS);
}

/* Returns the end of the first layer that ends at or after the end of the time slice. */
static double turn_end_s(const struct sim_cores *c, const struct sim_cores_machine *m)
{
    double layer_s = m->work.work_s / m->work.layers;
    double done_s = m->work.work_s - m->work_left_s; /* Work done at since_s. */
    double slice_end_s = m->turn_began_s + slice_s(c, m);
    double over_s = slice_end_s > m->since_s ? (slice_end_s - m->since_s) * m->speed : 0;
    double layers = layer_s > 0 ? ceil((done_s + over_s - SAME_S) / layer_s) : m->work.layers;
    double end_s = layers * layer_s < m->work.work_s ? layers * layer_s - done_s : m->work_left_s;
    return m->since_s + (end_s > 0 ? end_s : 0) / m->speed;
}

/* ---- the calls ---- */

/* Sets the speed of every computing machine. The machines share the cores' time. They also share
 * memory and caches: the more of the other cores compute, the slower a machine is. */
static void speeds_set(struct sim_cores *c, double now_s)
{
    uint32_t wanted = threads_that(c, SIM_CORES_COMPUTES);
    double core_share = wanted > c->cores ? (double)c->cores / wanted : 1;
    for (uint32_t i = 0; i < c->machine_count; i++) {
        struct sim_cores_machine *m = &c->machines[i];
        if (m->state != SIM_CORES_COMPUTES)
            continue;
        uint32_t busy = wanted < c->cores ? wanted : c->cores;
        uint32_t others = busy > m->threads ? busy - m->threads : 0;
        double share = others > 0 ? (double)others / (c->cores - m->threads) : 0;
        settle(m, now_s);
        m->speed = core_share / (1 + (m->work.busy_slowdown - 1) * share);
    }
}

static void share_anew(struct sim_cores *c, double now_s)
{
    if (has_turns(c))
        turns_grant(c, now_s);
    speeds_set(c, now_s);
}

void sim_cores_batch_begin(struct sim_cores *c, uint32_t machine, double now_s,
                           const struct sim_cores_work *work)
{
    struct sim_cores_machine *m = &c->machines[machine];
    assert(m->state == SIM_CORES_IDLE && work->layers >= 1);
    m->work = *work;
    if (!work->prompts) {
        m->decode_step_s = work->work_s;
        m->decode_step_at_s = now_s;
    }
    m->work_left_s = work->work_s;
    m->since_s = now_s;
    m->state = has_turns(c) ? SIM_CORES_WAITS : SIM_CORES_COMPUTES;
    share_anew(c, now_s);
}

double sim_cores_steps_s(const struct sim_cores *c, uint32_t machine, double now_s)
{
    double sum_s = 0;
    for (uint32_t i = 0; i < c->machine_count; i++)
        if (i != machine && now_s - c->machines[i].decode_step_at_s < STEP_OLD_S)
            sum_s += c->machines[i].decode_step_s;
    return sum_s;
}

void sim_cores_batch_end(struct sim_cores *c, uint32_t machine, double now_s)
{
    c->machines[machine].state = SIM_CORES_IDLE;
    share_anew(c, now_s);
}

bool sim_cores_due(const struct sim_cores *c, uint32_t machine, double *at_s)
{
    const struct sim_cores_machine *m = &c->machines[machine];
    if (m->state != SIM_CORES_COMPUTES)
        return false;
    *at_s = m->since_s + m->work_left_s / m->speed;
    if (has_turns(c) && threads_that(c, SIM_CORES_WAITS) > 0)
        *at_s = turn_end_s(c, m);
    return true;
}

bool sim_cores_turn_end(struct sim_cores *c, uint32_t machine, double now_s)
{
    struct sim_cores_machine *m = &c->machines[machine];
    assert(m->state == SIM_CORES_COMPUTES);
    settle(m, now_s);
    if (m->work_left_s <= SAME_S)
        return true;
    m->state = SIM_CORES_WAITS;
    share_anew(c, now_s);
    return false;
}
