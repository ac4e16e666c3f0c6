/* machine_split: which layers each device of a machine of several devices runs (hardware.h,
 * "devices"): of all splits the one with the most tokens a second within a limit of the latency,
 * found by the partitioner (scheduler/partition.h). Found once, then constant. */
#ifndef SIMULATOR_MACHINE_SPLIT_H
#define SIMULATOR_MACHINE_SPLIT_H

#include "simulator/hardware.h"
#include "simulator/partition_print.h"
#include "simulator/sim_cost.h"

struct machine_split_goal {
    bool prompt;            /* for a prompt machine, else for one that decodes */
    uint32_t prompt_tokens; /* of a typical request */
    uint32_t micro_batch;   /* tokens of a piece of it */
    uint32_t context;       /* of a typical request's decode */
    uint32_t batch;      /* sequences of a group; 0: whatever gives the most tokens a second … */
    uint32_t batch_most; /* … up to so many, and as the KV memory has room for */
    double limit_ms;     /* of TTFT, or of a step; 0: none */
    uint64_t kv_bytes;   /* in all layers */
};

struct machine_split {
    struct partition_cluster cluster; /* one host: the machine */
    struct partition_work work;
    struct partition_costs costs;
    struct partition_plan plan;
    struct profile_link inside;     /* between its devices */
    struct partition_result result; /* all of the above, to be printed */
};

/* What `cleave partition` takes where it is not told otherwise. */
struct machine_split_goal machine_split_goal_default(bool prompt, uint32_t micro_batch,
                                                     uint64_t kv_bytes);

/* Where no split keeps the limit, the best one without it. ST_INVALID, ST_TOO_LARGE: the layers fit
 * in no way, or there are too many devices. The profile outlives the split. */
enum status machine_split_find(const struct hardware *hardware,
                               const struct partition_cluster *cluster,
                               const struct profile *profile, const struct machine_split_goal *goal,
                               struct machine_split **out, struct error *error);
void machine_split_close(struct machine_split *split); /* NULL is fine */

/* The same layers on the same devices. */
bool machine_split_equals(const struct machine_split *a, const struct machine_split *b);
/* Its stages, their devices and the link between them; the rest of *out stays as it is. */
void machine_split_cost(const struct machine_split *split, struct sim_cost *out);
/* Of all its devices that have stages. */
uint32_t machine_split_threads(const struct machine_split *split);

#endif
