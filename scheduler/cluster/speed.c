/* cluster_speed: what the scheduler makes of the measured rates of the machines. Machines whose rates
 * differ little count as equal: their queues are compared in tokens, through the trees, and the
 * noise of measurements decides nothing. Between unequal machines, time decides: of two idle ones
 * the faster is chosen, and queues are as long as the machines are fast. */
#include "scheduler/cluster/state.h"

#define US_PER_S 1000000

/* The fastest machine is at most this many percent faster than the slowest: they are equal. */
#define EQUAL_PERCENT 25

static uint64_t known_rate(const struct cluster_machine *machine, enum measure measure)
{
    return measure == MEASURE_PENDING ? machine->prompt_tokens_per_s : machine->output_tokens_per_s;
}

void cluster_speeds_refresh(struct sched_cluster *sc)
{
    for (int measure = 0; measure < MEASURE_COUNT; measure++) {
        uint64_t sum = 0, known = 0, least = UINT64_MAX, most = 0;
        for (uint32_t i = 0; i < sc->options.machine_count; i++) {
            uint64_t rate = known_rate(&sc->machines[i], (enum measure)measure);
            if (!sc->machines[i].up || rate == 0)
                continue;
            sum += rate;
            known++;
            least = rate < least ? rate : least;
            most = rate > most ? rate : most;
        }
        sc->mean_rate[measure] = known > 0 ? sum / known : US_PER_S;
        sc->unequal[measure] =
            sc->options.equal_time && known > 1 && most * 100 > least * (100 + EQUAL_PERCENT);
    }
}

uint64_t cluster_rate(const struct sched_cluster *sc, uint32_t machine, enum measure measure)
{
    uint64_t rate = known_rate(&sc->machines[machine], measure);
    return rate > 0 ? rate : sc->mean_rate[measure];
}

uint64_t cluster_work_us(const struct sched_cluster *sc, uint32_t machine, enum measure measure,
                         uint64_t more)
{
    uint64_t tokens = sc->ranks[measure][machine].tokens + more;
    return tokens * US_PER_S / cluster_rate(sc, machine, measure);
}
