/* cluster_speed: what the scheduler makes of the measured rates of the machines. Machines whose
 * rates differ little count as equal: their queues are compared in tokens, through the trees, and
 * the noise of measurements decides nothing. Between unequal machines, time decides: of two idle
 * ones the faster is chosen, and queues are as long as the machines are fast. */
#include "scheduler/cluster/state.h"

/* Prompts of this many TTFT targets ago count half in struct recent_prompts. */
#define RECENT_TARGETS 16

/* The fastest machine is at most this many percent faster than the slowest: they are equal. */
#define EQUAL_PERCENT 25

static uint64_t known_rate(const struct cluster_machine *machine, enum measure measure)
{
    return measure == MEASURE_PENDING ? machine->prompt_tokens_per_s : machine->output_tokens_per_s;
}

static bool step_known(const struct sched_step_time *step)
{
    return step->fixed_ns > 0 || step->row_ns > 0;
}

static void mean_step_refresh(struct sched_cluster *sc)
{
    uint64_t fixed_ns = 0, row_ns = 0, known = 0;
    for (uint32_t i = 0; i < sc->options.machine_count; i++) {
        const struct cluster_machine *machine = &sc->machines[i];
        if (!machine->up || !step_known(&machine->step))
            continue;
        fixed_ns += machine->step.fixed_ns;
        row_ns += machine->step.row_ns;
        known++;
    }
    sc->mean_step = (struct sched_step_time){0};
    if (known > 0)
        sc->mean_step = (struct sched_step_time){.fixed_ns = (uint32_t)(fixed_ns / known),
                                                 .row_ns = (uint32_t)(row_ns / known)};
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
            sc->options.compare_time && known > 1 && most * 100 > least * (100 + EQUAL_PERCENT);
    }
    mean_step_refresh(sc);
}

uint64_t cluster_step_ns(const struct sched_cluster *sc, uint32_t machine, uint64_t decodes)
{
    const struct sched_step_time *own = &sc->machines[machine].step;
    const struct sched_step_time *step = step_known(own) ? own : &sc->mean_step;
    return step->fixed_ns + step->row_ns * decodes;
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

/* Returns the machine's recent prompts as they count now. */
static struct recent_prompts recent(const struct sched_cluster *sc, uint32_t machine)
{
    struct recent_prompts now = sc->machines[machine].recent_prompts;
    double window_us = RECENT_TARGETS * (double)sc->options.one_machine_targets.ttft_us;
    double passed_us = now.tokens > 0 ? (double)(sc->now_us - now.at_us) : 0;
    double kept = window_us / (window_us + passed_us);
    now.tokens *= kept;
    now.us = now.us * kept + passed_us;
    now.at_us = sc->now_us;
    return now;
}

void cluster_prompts_add(struct sched_cluster *sc, uint32_t machine, uint64_t tokens)
{
    if (!sc->options.one_machine_routes)
        return;
    struct recent_prompts now = recent(sc, machine);
    now.tokens += (double)tokens;
    sc->machines[machine].recent_prompts = now;
}

double cluster_prompts_part(const struct sched_cluster *sc, uint32_t machine)
{
    struct recent_prompts now = recent(sc, machine);
    double least_us = (double)sc->options.one_machine_targets.ttft_us;
    double us = now.tokens * US_PER_S / (double)cluster_rate(sc, machine, MEASURE_PENDING);
    double part = us / (now.us > least_us ? now.us : least_us);
    return part < 1 ? part : 1;
}
