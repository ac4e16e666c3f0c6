/* sim_usage: records how the machines of a simulation are used over time. A gauge is a level that
 * changes at certain moments, e.g. the share of a machine's KV memory that is held. The mean of a
 * gauge over each interval of equal length is kept. When the time reaches the end of the last
 * interval, all intervals become twice as long, so memory does not grow. `cleave simulate` and
 * `cleave plan` own the struct, and a simulation sets the levels, on one thread. This part draws
 * nothing. */
#ifndef TOOLS_SIMULATE_SIM_USAGE_H
#define TOOLS_SIMULATE_SIM_USAGE_H

#include "common/limits.h"
#include "common/status.h"

#include <stdint.h>

#define SIM_USAGE_INTERVALS 512 /* Even. */

/* Gauges of one machine. */
enum sim_usage_level {
    SIM_USAGE_PROMPT, /* Share of the machine's devices that computes prompts. */
    SIM_USAGE_DECODE, /* Share of the machine's devices that computes decodes. */
    SIM_USAGE_KV,     /* Share of the machine's KV memory that is held. */
    SIM_USAGE_BATCH,  /* Requests in the machine's batches in flight. */
    SIM_USAGE_LEVELS
};

/* Gauges of the cluster. */
enum sim_usage_cluster_level {
    SIM_USAGE_OPEN,   /* Requests that have arrived and not ended. */
    SIM_USAGE_QUEUED, /* Open requests whose prompt has not begun (or see splitwise_setup.usage). */
    SIM_USAGE_CLUSTER_LEVELS
};

struct sim_usage_gauge {
    double level;                     /* Current level. */
    double since_s;                   /* Time up to which the levels are in `sums`. */
    double sums[SIM_USAGE_INTERVALS]; /* Level × seconds. */
};

struct sim_usage {
    uint32_t machine_count;
    /* [machine_count]: names for reports, set by sim_run or by the caller of splitwise_run. */
    char (*names)[LIMIT_NAME_BYTES];
    double interval_s; /* Length of an interval. */
    double end_s;      /* End of the recording. */
    /* The gauges of each machine, then the gauges of the cluster. */
    struct sim_usage_gauge *gauges;
};

/* Allocates the gauges, and empty names. Returns ST_NO_MEMORY on failure. */
enum status sim_usage_open(struct sim_usage *usage, uint32_t machine_count);
void sim_usage_close(struct sim_usage *usage); /* A struct of zeros is fine. */

/* Sets a machine's gauge to `value` from now_s on. Requires that now_s is not before the gauge's
 * previous now_s. */
void sim_usage_set(struct sim_usage *usage, uint32_t machine, enum sim_usage_level level,
                   double value, double now_s);
/* Sets a gauge of the cluster to `value` from now_s on. now_s: as in sim_usage_set. */
void sim_usage_set_cluster(struct sim_usage *usage, enum sim_usage_cluster_level level,
                           double value, double now_s);
/* Ends the recording at now_s. */
void sim_usage_end(struct sim_usage *usage, double now_s);

/* Call the next three functions after sim_usage_end. */

/* Returns the number of intervals up to the end of the recording. */
uint32_t sim_usage_count(const struct sim_usage *usage);
/* Returns a machine's mean level in an interval. The last interval ends with the recording. */
double sim_usage_mean(const struct sim_usage *usage, uint32_t machine, enum sim_usage_level level,
                      uint32_t interval);
/* Returns the cluster's mean level in an interval. */
double sim_usage_cluster_mean(const struct sim_usage *usage, enum sim_usage_cluster_level level,
                              uint32_t interval);

#endif
