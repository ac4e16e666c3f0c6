/* sim_host: the machines of a simulated cluster: those of a config file, with the times of a
 * profile; or so many of each kind of hardware. */
#ifndef SIMULATOR_SIM_HOST_H
#define SIMULATOR_SIM_HOST_H

#include "common/config.h"
#include "scheduler/cluster.h"
#include "simulator/machine_split.h"

#define SIM_KINDS_MAX 32

struct sim_host {
    char name[LIMIT_NAME_BYTES];
    enum sched_pool home;
    struct sim_cost cost;
    uint64_t kv_tokens;      /* that its memory holds */
    double link_bytes_per_s; /* KV, each way */
    double link_latency_s;
    uint32_t threads;                /* of a computer whose cores machines share */
    const struct hardware *hardware; /* NULL: the config has it */
};

/* What machines are made from, and they; what is here stays where it is while they live. */
struct sim_hosts {
    uint32_t count;
    struct sim_host hosts[SCHED_MACHINES_MAX];
    struct profile *profile; /* or NULL */
    uint32_t kind_count;
    struct hardware kinds[SIM_KINDS_MAX];
    struct cost_curve curves[SIM_KINDS_MAX];
    struct machine_split *splits[SIM_KINDS_MAX]; /* of kinds with several devices */
    bool has_reference; /* the table has the DGX-A100 that the paper's SLO compares with */
    struct cost_curve reference;
    uint64_t weights_bytes; /* of the table's model */
    uint64_t kv_bytes_per_token;
    uint32_t context_tokens; /* the longest request */
};

/* Of the config: its machines, with what the profile has measured of their devices. */
enum status sim_hosts_of_config(struct sim_hosts *hosts, const struct config *config,
                                struct error *error);

/* `spec` is COUNT:POOL:FILE, such as "25:prompt:deploy/hardware/h100.json". Times come from
 * `table` and `model` (perf_model.csv, "bloom-176b"), or from hosts->profile. Machines of several
 * devices are split as `cleave partition` splits them by default. */
enum status sim_hosts_add(struct sim_hosts *hosts, const char *spec, const char *table,
                          const char *model, const struct config *config, struct error *error);

/* Machines of a kind, whose times are in hosts->profile, split so (NULL: it has one device). Both
 * stay where they are while the hosts live. */
enum status sim_hosts_add_kind(struct sim_hosts *hosts, uint32_t count, enum sched_pool pool,
                               const struct hardware *hardware, const struct machine_split *split,
                               const struct config *config, struct error *error);

void sim_hosts_done(struct sim_hosts *hosts);

#endif
