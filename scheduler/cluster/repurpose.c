/* sched_cluster, home pools that follow the demand. The work that arrives for each phase is summed
 * in buckets of an eighth of the window: prompt tokens, and answers × the mean length of recent
 * answers. (Arrivals are counted, not finished work: a phase that is too slow would hide its own
 * demand.) Divided by the rates that machines report, this is the number of machines that each
 * phase needs; divided by the machines whose home is that phase's pool, it is the load of the
 * phase.
 *
 * At the end of each bucket, one machine may be wanted elsewhere. The conditions: the busier
 * phase's load is at least LOAD_PERCENT_MIN, and one machine more would lower it by
 * repurpose_gain_percent_min while the other phase's load stays below that. The reverse change
 * would need the same gain, which the same demand never allows, so homes do not swing. A change
 * also needs HOLD evaluations in a row that agree and repurpose_interval_us_min since the previous
 * change, and it leaves a machine for each phase. Machines that would add no cores to the other
 * phase (cores.c) stay. */
#include "scheduler/cluster/state.h"

#define HOLD             3
#define LOAD_PERCENT_MIN 50 /* Load of the busier phase; below this, requests do not wait. */

static struct demand *filling(struct sched_cluster *sc)
{
    return &sc->demand[sc->demand_bucket];
}

void cluster_demand_arrived(struct sched_cluster *sc, const struct cluster_request *request)
{
    struct demand *demand = filling(sc);
    demand->prompt_tokens += request->prompt_tokens;
    demand->answers += request->output_tokens > 0 ? 1 : 0;
}

void cluster_demand_ended(struct sched_cluster *sc, uint32_t generated)
{
    struct demand *demand = filling(sc);
    demand->ended++;
    demand->generated += generated;
}

void cluster_demand_others(struct sched_cluster *sc, const struct sched_others *others)
{
    struct demand *demand = filling(sc);
    demand->prompt_tokens += others->arrived_prompt_tokens;
    demand->answers += others->arrived_answers;
}

struct homes {
    uint32_t count[POOL_COUNT];
    double rate[POOL_COUNT]; /* Mean tokens per second of one machine. */
};

/* Returns false if no rate is known for one of the phases. */
static bool homes_count(const struct sched_cluster *sc, struct homes *out)
{
    uint32_t known[2] = {0};
    double sum[2] = {0};
    *out = (struct homes){.count = {0}};
    for (uint32_t i = 0; i < sc->options.machine_count; i++) {
        const struct cluster_machine *machine = &sc->machines[i];
        if (!machine_set_has(&sc->routable, i))
            continue;
        out->count[machine->home]++;
        known[0] += machine->prompt_tokens_per_s > 0 ? 1 : 0;
        known[1] += machine->output_tokens_per_s > 0 ? 1 : 0;
        sum[0] += machine->prompt_tokens_per_s;
        sum[1] += machine->output_tokens_per_s;
    }
    if (known[0] == 0 || known[1] == 0)
        return false;
    out->rate[POOL_PROMPT] = sum[0] / known[0];
    out->rate[POOL_TOKEN] = sum[1] / known[1];
    return true;
}

/* Number of machines that each phase needs, over the whole window. */
static void demand_sum(const struct sched_cluster *sc, const struct homes *homes, double out[2])
{
    struct demand sum = {0};
    for (int i = 0; i < DEMAND_BUCKETS; i++) {
        sum.prompt_tokens += sc->demand[i].prompt_tokens;
        sum.answers += sc->demand[i].answers;
        sum.ended += sc->demand[i].ended;
        sum.generated += sc->demand[i].generated;
    }
    double window_s = (double)sc->options.repurpose_window_us / 1e6;
    double answer = sum.ended > 0 ? (double)sum.generated / (double)sum.ended : 0;
    out[POOL_PROMPT] = (double)sum.prompt_tokens / window_s / homes->rate[POOL_PROMPT];
    out[POOL_TOKEN] = (double)sum.answers * answer / window_s / homes->rate[POOL_TOKEN];
}

/* Returns the pool that should get one machine of the other; POOL_COUNT = neither. */
static enum pool pool_wanting(const struct sched_cluster *sc)
{
    struct homes homes;
    double demand[2];
    if (!homes_count(sc, &homes) || homes.count[POOL_PROMPT] == 0 || homes.count[POOL_TOKEN] == 0)
        return POOL_COUNT;
    demand_sum(sc, &homes, demand);
    double prompt_load = demand[POOL_PROMPT] / homes.count[POOL_PROMPT];
    double token_load = demand[POOL_TOKEN] / homes.count[POOL_TOKEN];
    enum pool to = prompt_load > token_load ? POOL_PROMPT : POOL_TOKEN;
    enum pool from = to == POOL_PROMPT ? POOL_TOKEN : POOL_PROMPT;
    double load = prompt_load > token_load ? prompt_load : token_load;
    if (homes.count[from] < 2 || load * 100 < LOAD_PERCENT_MIN)
        return POOL_COUNT;
    double with_one_more = demand[to] / (homes.count[to] + 1);
    double with_one_less = demand[from] / (homes.count[from] - 1);
    double after = with_one_more > with_one_less ? with_one_more : with_one_less;
    return after * 100 <= load * (100 - sc->options.repurpose_gain_percent_min) ? to : POOL_COUNT;
}

/* Returns the machine with the least work among those with home pool `from` that can become mixed
 * and add cores to the other pool. */
static uint32_t least_busy(const struct sched_cluster *sc, enum pool from)
{
    enum pool to = from == POOL_PROMPT ? POOL_TOKEN : POOL_PROMPT;
    enum measure measure = from == POOL_PROMPT ? MEASURE_PENDING : MEASURE_MEMORY;
    uint32_t best = SCHED_NO_MACHINE;
    for (uint32_t i = 0; i < sc->options.machine_count; i++)
        if (machine_set_has(&sc->routable, i) && sc->machines[i].home == from &&
            sc->machines[i].large_requests == 0 && cluster_adds_cores(sc, i, to) &&
            (best == SCHED_NO_MACHINE || cluster_rank_before(sc->ranks[measure], i, best)))
            best = i;
    return best;
}

static void evaluate(struct sched_cluster *sc)
{
    enum pool to = pool_wanting(sc);
    sc->repurpose_votes = to == sc->repurpose_to ? sc->repurpose_votes + 1 : 1;
    sc->repurpose_to = to;
    bool rested = sc->repurposed_us < 0 ||
                  sc->now_us - sc->repurposed_us >= sc->options.repurpose_interval_us_min;
    if (to == POOL_COUNT || sc->repurpose_votes < HOLD || !rested)
        return;
    uint32_t machine = least_busy(sc, to == POOL_PROMPT ? POOL_TOKEN : POOL_PROMPT);
    if (machine == SCHED_NO_MACHINE)
        return; /* No machine can move now. The next evaluation tries again. */
    sc->repurposed_us = sc->now_us;
    sc->repurpose_votes = 0;
    cluster_pool_home(sc, machine, to);
    cluster_pool_pair(sc);
}

void cluster_demand_tick(struct sched_cluster *sc)
{
    int64_t bucket_us = sc->options.repurpose_window_us / DEMAND_BUCKETS;
    if (bucket_us <= 0) {
        sc->demand_until_us = -1;
        return;
    }
    if (sc->demand_until_us < 0 ||
        sc->now_us - sc->demand_until_us > sc->options.repurpose_window_us) {
        /* The measurement starts, or there is a gap that was not measured. */
        for (int i = 0; i < DEMAND_BUCKETS; i++)
            sc->demand[i] = (struct demand){0};
        sc->demand_filled = 0;
        sc->demand_until_us = sc->now_us + bucket_us;
        return;
    }
    while (sc->now_us >= sc->demand_until_us) {
        sc->demand_until_us += bucket_us;
        if (sc->demand_filled < DEMAND_BUCKETS)
            sc->demand_filled++;
        if (sc->demand_filled == DEMAND_BUCKETS)
            evaluate(sc);
        sc->demand_bucket = (sc->demand_bucket + 1) % DEMAND_BUCKETS;
        *filling(sc) = (struct demand){0};
    }
}
