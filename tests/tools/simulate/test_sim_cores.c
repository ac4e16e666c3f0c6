/* Goal: machines that share a host's cores take as long as on a real host: turns rotate in order
 * and end with layers, machines that compute beside others are slower, no work is lost, and never
 * more threads compute than there are cores. Method: cases worked out by hand; random ones with
 * rules that always hold. */
#include "common/random.h"
#include "tests/check.h"
#include "tools/simulate/sim_cores.h"

#include <math.h>
#include <string.h>

#define MS        1e-3
#define SAME_S    1e-7
#define MACHINES  6
#define CASES     300
#define EVENTS    400
#define STEPS_MAX 100000

static struct sim_cores cores;

static void init(uint32_t count, uint32_t turn_ms, const uint32_t *threads, uint32_t machines)
{
    sim_cores_init(&cores, count, turn_ms, threads, machines);
}

static void begin(uint32_t machine, double now_s, double work_s, uint32_t layers, bool prompts)
{
    const struct sim_cores_work work = {
        .work_s = work_s, .busy_slowdown = 1, .layers = layers, .prompts = prompts};
    sim_cores_batch_begin(&cores, machine, now_s, &work);
}

static bool is_next(uint32_t machine, double *at_s)
{
    double due_s, first_s = INFINITY;
    for (uint32_t i = 0; i < cores.machine_count; i++)
        if (sim_cores_due(&cores, i, &due_s) && due_s < first_s)
            first_s = due_s;
    return sim_cores_due(&cores, machine, at_s) && *at_s == first_s;
}

/* Checks that the next event belongs to this machine at this time, and whether it ends the
 * machine's batch. */
static void expect(uint32_t machine, double at_s, bool ends)
{
    double due_s = -1;
    CHECKF(is_next(machine, &due_s) && fabs(due_s - at_s) < SAME_S, "machine %u at %.6f, want %.6f",
           machine, due_s, at_s);
    CHECKF(sim_cores_turn_end(&cores, machine, due_s) == ends, "machine %u at %.6f", machine, at_s);
    if (ends)
        sim_cores_batch_end(&cores, machine, due_s);
}

/* One core, layers of 1 ms, turns of 3 ms. */
static void turns_go_round(void)
{
    double due_s;
    init(1, 3, (uint32_t[]){1, 1}, 2);
    begin(0, 0, 8 * MS, 8, true);
    begin(1, 0.5 * MS, 4 * MS, 4, true);
    CHECK(!sim_cores_due(&cores, 1, &due_s));
    expect(0, 3 * MS, false);
    expect(1, 6 * MS, false);
    expect(0, 9 * MS, false);
    expect(1, 10 * MS, true);
    expect(0, 12 * MS, true);
}

/* A turn ends at the end of a layer: with layers of 2 ms, a turn ends after 4 ms. A machine that
 * did not have to wait has used up its turn when another machine arrives, so its turn ends with its
 * current layer. */
static void turns_end_with_layers(void)
{
    init(1, 3, (uint32_t[]){1, 1}, 2);
    begin(0, 0, 20 * MS, 10, true);
    begin(1, 11 * MS, 1 * MS, 1, true);
    expect(0, 12 * MS, false);
    expect(1, 13 * MS, true);
    begin(1, 13.5 * MS, 1 * MS, 1, true);
    expect(0, 17 * MS, false);
    expect(1, 18 * MS, true);
    expect(0, 22 * MS, true);
}

/* A step that is not longer than a turn is not interrupted. */
static void decodes_have_longer_turns(void)
{
    init(1, 3, (uint32_t[]){1, 1}, 2);
    begin(0, 0, 11 * MS, 11, false);
    begin(1, 0, 5 * MS, 5, true);
    expect(0, 11 * MS, true);
    expect(1, 16 * MS, true);
}

/* A machine that waits for both cores is not overtaken by a machine that needs one. */
static void large_ones_are_not_overtaken(void)
{
    double due_s;
    init(2, 100, (uint32_t[]){1, 2, 1}, 3);
    begin(0, 0, 10 * MS, 1, true);
    begin(1, 1 * MS, 10 * MS, 1, true);
    begin(2, 2 * MS, 10 * MS, 1, true);
    CHECK(!sim_cores_due(&cores, 1, &due_s) && !sim_cores_due(&cores, 2, &due_s));
    expect(0, 10 * MS, true);
    expect(1, 20 * MS, true);
    expect(2, 30 * MS, true);
}

static void without_turns_all_are_slower(void)
{
    init(2, 0, (uint32_t[]){2, 2}, 2);
    begin(0, 0, 10 * MS, 10, true);
    begin(1, 4 * MS, 10 * MS, 10, true);
    expect(0, 16 * MS, true);
    expect(1, 20 * MS, true);
}

/* Two of the three other cores are busy, then one: a batch takes 1 + 0.3 × 2 / 3 and 1 + 0.3 / 3
 * times as long. */
static void those_beside_slow_down(void)
{
    init(4, 6, (uint32_t[]){1, 1, 1}, 3);
    begin(1, 0, 6 * MS, 1, true);
    begin(2, 0, 60 * MS, 1, true);
    sim_cores_batch_begin(
        &cores, 0, 0,
        &(struct sim_cores_work){
            .work_s = 10 * MS, .busy_slowdown = 1.3, .layers = 1, .prompts = true});
    expect(1, 6 * MS, true);
    expect(0, 6 * MS + 5 * MS * 1.1, true);
    expect(2, 60 * MS, true);
}

/* ---- by chance ---- */

static uint64_t seed, draws;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, draws++) % below);
}

static void check_threads(void)
{
    uint32_t computing = 0, holders = 0, waiting = 0;
    for (uint32_t i = 0; i < cores.machine_count; i++) {
        const struct sim_cores_machine *m = &cores.machines[i];
        computing += m->state == SIM_CORES_COMPUTES ? m->threads : 0;
        holders += m->state == SIM_CORES_COMPUTES;
        waiting += m->state == SIM_CORES_WAITS;
    }
    CHECK(cores.turn_s == 0 || holders <= 1 || computing <= cores.cores);
    CHECK(waiting == 0 || holders > 0);
}

/* Machines begin at random times. Each batch ends, not earlier than its work allows, and all
 * machines together never do more work than the cores can. */
static void random_case(void)
{
    uint32_t threads[MACHINES], machines = 1 + draw(MACHINES), left = EVENTS;
    double next_s[MACHINES], began_s[MACHINES], work_s[MACHINES], now_s = 0, done_s = 0;
    for (uint32_t i = 0; i < machines; i++) {
        threads[i] = 1 + draw(3);
        next_s[i] = draw(20) * MS;
    }
    init(1 + draw(4), draw(3) == 0 ? 0 : 1 + draw(8), threads, machines);
    for (uint32_t step = 0; step < STEPS_MAX; step++) {
        uint32_t machine = machines;
        double at_s = INFINITY, due_s;
        for (uint32_t i = 0; i < machines; i++) {
            bool away = cores.machines[i].state == SIM_CORES_IDLE;
            bool due = away ? left > 0 : sim_cores_due(&cores, i, &due_s);
            if (due && (away ? next_s[i] : due_s) < at_s) {
                machine = i;
                at_s = away ? next_s[i] : due_s;
            }
        }
        if (machine == machines)
            break;
        CHECKF(at_s >= now_s - SAME_S, "%.9f after %.9f", at_s, now_s);
        now_s = at_s > now_s ? at_s : now_s;
        if (cores.machines[machine].state == SIM_CORES_IDLE) {
            left--;
            began_s[machine] = now_s;
            work_s[machine] = (draw(30) + 1) * MS * 0.7;
            begin(machine, now_s, work_s[machine], 1 + draw(12), draw(2) == 0);
        } else if (sim_cores_turn_end(&cores, machine, now_s)) {
            CHECK(now_s - began_s[machine] >= work_s[machine] - SAME_S);
            done_s += work_s[machine] * cores.machines[machine].threads;
            next_s[machine] = now_s + draw(10) * MS;
            sim_cores_batch_end(&cores, machine, now_s);
        }
        check_threads();
    }
    CHECK(left == 0);
    for (uint32_t i = 0; i < machines; i++)
        CHECK(cores.machines[i].state == SIM_CORES_IDLE);
    CHECKF(done_s <= now_s * cores.cores + SAME_S * EVENTS, "%.6f s of work in %.6f s on %u cores",
           done_s, now_s, cores.cores);
}

int main(void)
{
    seed = test_seed();
    turns_go_round();
    turns_end_with_layers();
    decodes_have_longer_turns();
    large_ones_are_not_overtaken();
    without_turns_all_are_slower();
    those_beside_slow_down();
    for (uint32_t i = 0; i < CASES; i++)
        random_case();
    return 0;
}
