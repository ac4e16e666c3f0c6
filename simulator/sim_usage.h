/* sim_usage: how the machines of a simulation are used over time: levels that change at moments,
 * such as how much of a machine's KV memory is held, and their means over intervals of equal
 * length. There is a fixed number of intervals; they become twice as long when time goes beyond the
 * last one, so memory does not grow with the time that is simulated. One thread. */
#ifndef SIMULATOR_SIM_USAGE_H
#define SIMULATOR_SIM_USAGE_H

#include "common/limits.h"
#include "common/status.h"

#include <stdint.h>

#define SIM_USAGE_INTERVALS 512 /* even */

enum sim_usage_level {                   /* of one machine */
                       SIM_USAGE_PROMPT, /* share of its devices that compute prompts … */
                       SIM_USAGE_DECODE, /* … and decodes */
                       SIM_USAGE_KV,     /* share of its KV memory that is held */
                       SIM_USAGE_BATCH,  /* requests in its batches in flight */
                       SIM_USAGE_LEVELS
};

enum sim_usage_cluster_level {
    SIM_USAGE_OPEN,   /* requests that have come and not ended */
    SIM_USAGE_QUEUED, /* … of them, those that wait for their prompt to begin */
    SIM_USAGE_CLUSTER_LEVELS
};

struct sim_usage_gauge {
    double level;
    double since_s;                   /* not counted yet */
    double sums[SIM_USAGE_INTERVALS]; /* level × seconds */
};

struct sim_usage {
    uint32_t machine_count;
    char (*names)[LIMIT_NAME_BYTES]; /* [machine_count], for whoever shows it */
    double interval_s;
    double end_s;
    struct sim_usage_gauge *gauges; /* machine after machine, then the cluster's */
};

/* Of machines without names. ST_NO_MEMORY. */
enum status sim_usage_open(struct sim_usage *usage, uint32_t machine_count);
void sim_usage_close(struct sim_usage *usage); /* fine for one that is all 0 */

/* From now on. Times of one gauge do not fall. */
void sim_usage_set(struct sim_usage *usage, uint32_t machine, enum sim_usage_level level,
                   double value, double now_s);
void sim_usage_set_cluster(struct sim_usage *usage, enum sim_usage_cluster_level level,
                           double value, double now_s);
/* Nothing is set any more: counts up to there. */
void sim_usage_end(struct sim_usage *usage, double now_s);

/* Once it has ended: how many intervals have begun, and the mean in one of them; of the last one,
 * up to the end. */
uint32_t sim_usage_count(const struct sim_usage *usage);
double sim_usage_mean(const struct sim_usage *usage, uint32_t machine, enum sim_usage_level level,
                      uint32_t interval);
double sim_usage_cluster_mean(const struct sim_usage *usage, enum sim_usage_cluster_level level,
                              uint32_t interval);

#endif
