/* sim_usage: see the header. */
#include "tools/simulate/sim_usage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define INTERVAL_FIRST_S 0x1p-10

static uint32_t gauge_count(const struct sim_usage *usage)
{
    return usage->machine_count * SIM_USAGE_LEVELS + SIM_USAGE_CLUSTER_LEVELS;
}

static struct sim_usage_gauge *gauge_of(const struct sim_usage *usage, uint32_t machine,
                                        enum sim_usage_level level)
{
    return &usage->gauges[machine * SIM_USAGE_LEVELS + level];
}

static struct sim_usage_gauge *cluster_gauge(const struct sim_usage *usage,
                                             enum sim_usage_cluster_level level)
{
    return &usage->gauges[usage->machine_count * SIM_USAGE_LEVELS + level];
}

enum status sim_usage_open(struct sim_usage *usage, uint32_t machine_count)
{
    *usage = (struct sim_usage){.machine_count = machine_count, .interval_s = INTERVAL_FIRST_S};
    usage->gauges = calloc(gauge_count(usage), sizeof(usage->gauges[0]));
    usage->names = calloc(machine_count + 1, sizeof(usage->names[0]));
    if (usage->gauges != NULL && usage->names != NULL)
        return ST_OK;
    sim_usage_close(usage);
    return ST_NO_MEMORY;
}

void sim_usage_close(struct sim_usage *usage)
{
    free(usage->gauges);
    free(usage->names);
    *usage = (struct sim_usage){.machine_count = 0};
}

/* Makes the intervals twice as long. */
static void widen(struct sim_usage *usage)
{
    usage->interval_s *= 2;
    for (uint32_t g = 0; g < gauge_count(usage); g++) {
        double *sums = usage->gauges[g].sums;
        for (uint32_t i = 0; i < SIM_USAGE_INTERVALS / 2; i++)
            sums[i] = sums[2 * i] + sums[2 * i + 1];
        memset(sums + SIM_USAGE_INTERVALS / 2, 0, SIM_USAGE_INTERVALS / 2 * sizeof(sums[0]));
    }
}

/* Adds the gauge's level since since_s to its sums. */
static void count(struct sim_usage *usage, struct sim_usage_gauge *gauge, double now_s)
{
    while (now_s >= usage->interval_s * SIM_USAGE_INTERVALS)
        widen(usage);
    double from_s = gauge->since_s;
    gauge->since_s = now_s;
    if (gauge->level == 0)
        return;
    uint32_t i = (uint32_t)(from_s / usage->interval_s);
    for (; from_s < now_s; i++) {
        double end_s = (i + 1) * usage->interval_s;
        double to_s = end_s < now_s ? end_s : now_s;
        gauge->sums[i] += gauge->level * (to_s - from_s);
        from_s = to_s;
    }
}

static void gauge_set(struct sim_usage *usage, struct sim_usage_gauge *gauge, double value,
                      double now_s)
{
    if (gauge->level == value)
        return;
    count(usage, gauge, now_s);
    gauge->level = value;
}

void sim_usage_set(struct sim_usage *usage, uint32_t machine, enum sim_usage_level level,
                   double value, double now_s)
{
    gauge_set(usage, gauge_of(usage, machine, level), value, now_s);
}

void sim_usage_set_cluster(struct sim_usage *usage, enum sim_usage_cluster_level level,
                           double value, double now_s)
{
    gauge_set(usage, cluster_gauge(usage, level), value, now_s);
}

void sim_usage_end(struct sim_usage *usage, double now_s)
{
    for (uint32_t g = 0; g < gauge_count(usage); g++)
        count(usage, &usage->gauges[g], now_s);
    usage->end_s = now_s;
}

uint32_t sim_usage_count(const struct sim_usage *usage)
{
    return (uint32_t)ceil(usage->end_s / usage->interval_s);
}

static double mean(const struct sim_usage *usage, const struct sim_usage_gauge *gauge, uint32_t i)
{
    double left_s = usage->end_s - i * usage->interval_s;
    return gauge->sums[i] / (left_s < usage->interval_s ? left_s : usage->interval_s);
}

double sim_usage_mean(const struct sim_usage *usage, uint32_t machine, enum sim_usage_level level,
                      uint32_t interval)
{
    return mean(usage, gauge_of(usage, machine, level), interval);
}

double sim_usage_cluster_mean(const struct sim_usage *usage, enum sim_usage_cluster_level level,
                              uint32_t interval)
{
    return mean(usage, cluster_gauge(usage, level), interval);
}
