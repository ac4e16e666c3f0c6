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
        if (i != machine && set_has(&sc->routable, i) && cluster_same_cores(sc, i, machine) &&
            pool_serves_phase(sc->machines[i].pool, phase))
            threads += sc->machines[i].threads;
    return threads < sc->machines[machine].core_count;
}
