/* cluster_cores: machines that take turns on the cores of one computer (host/turns.h). When all
 * cores compute prompts already, a further machine on these cores computes none sooner: it only
 * takes turns from the others. The same is true of answers. */
#include "scheduler/cluster/state.h"

bool cluster_same_cores(const struct sched_cluster *sc, uint32_t a, uint32_t b)
{
    return sc->machines[a].cores > 0 && sc->machines[a].cores == sc->machines[b].cores;
}

bool cluster_adds_cores(const struct sched_cluster *sc, uint32_t machine, enum pool phase)
{
    uint64_t threads = 0;
    if (sc->machines[machine].cores == 0)
        return true;
    for (uint32_t i = 0; i < sc->options.machine_count; i++)
        if (i != machine && machine_set_has(&sc->routable, i) &&
            cluster_same_cores(sc, i, machine) && pool_serves_phase(sc->machines[i].pool, phase))
            threads += sc->machines[i].threads;
    return threads < sc->machines[machine].core_count;
}

uint64_t cluster_cores_pending(const struct sched_cluster *sc, uint32_t machine)
{
    uint64_t tokens = sc->ranks[MEASURE_PENDING][machine].tokens;
    for (uint32_t i = 0; i < sc->options.machine_count && sc->machines[machine].cores > 0; i++)
        if (i != machine && cluster_same_cores(sc, i, machine))
            tokens += sc->ranks[MEASURE_PENDING][i].tokens;
    return tokens;
}

uint32_t cluster_cores_rate(const struct sched_cluster *sc, uint32_t machine)
{
    uint32_t rate = sc->machines[machine].prompt_tokens_per_s;
    for (uint32_t i = 0; i < sc->options.machine_count && rate == 0; i++)
        if (cluster_same_cores(sc, i, machine))
            rate = sc->machines[i].prompt_tokens_per_s;
    return rate;
}
