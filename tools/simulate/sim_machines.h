/* sim_machines: the machines of a simulated cluster and the facts about them: times, memory, links.
 * A struct sim_machine_facts describes one machine. In variables of the simulations, `host` and
 * `hosts` are machines, not computers. The machines come from a config file, or are given as a
 * number of machines of each kind of hardware. `cleave simulate` and `cleave plan` own and fill a
 * struct sim_machines, on the thread of the simulation. A simulation does not change the struct:
 * the state of its machines is in sim_machine.h. */
#ifndef TOOLS_SIMULATE_SIM_MACHINES_H
#define TOOLS_SIMULATE_SIM_MACHINES_H

#include "config/config.h"
#include "scheduler/cluster/cluster.h"
#include "tools/simulate/machine_split.h"

#define SIM_KINDS_MAX 32

/* The facts about one machine. */
struct sim_machine_facts {
    char name[LIMIT_NAME_BYTES];
    enum pool home;
    struct sim_cost cost;
    /* Size of the KV memory in tokens of one layer group. A token of a request needs room in each
     * layer group (common/layer_groups.h). */
    uint64_t kv_tokens;
    /* Number of ranks that each hold the whole KV; 0 or 1 = the machine holds the KV once. */
    uint32_t kv_copies;
    /* Rate of KV in each direction, to machines on the same host; 0 = KV takes no time. */
    double link_bytes_per_s;
    double link_latency_s; /* Latency to machines on the same host. */
    /* link_bytes_per_s is the hardware file's rate, to machines on any host. */
    bool link_is_from_hardware;
    uint32_t threads; /* Threads, for machines that share the cores of a host; 0 = not known. */
    /* Micro-batch size that the profile gives for a machine with stages; 0 = the config's size. */
    uint32_t micro_batch_tokens;
    const struct hardware *hardware; /* NULL = the machine comes from a config. */
};

/* The machines, and the hardware, times and splits that they share. Machines point into this
 * struct, so it must not be moved. */
struct sim_machines {
    uint32_t count;
    struct sim_machine_facts machines[SCHED_MACHINES_MAX];
    /* Profile that the times come from, closed by sim_machines_done; NULL = none. */
    struct profile *profile;
    uint32_t kind_count; /* Entries of `kinds`, `curves` and `splits`. */
    struct hardware kinds[SIM_KINDS_MAX];
    struct cost_curve curves[SIM_KINDS_MAX];
    struct machine_split *splits[SIM_KINDS_MAX]; /* NULL, except for kinds with several devices. */
    /* True: `reference` has the times of a DGX-A100 from the table of sim_machines_add. The
     * Splitwise paper states its SLO as multiples of these times. */
    bool has_reference;
    struct cost_curve reference;
    uint64_t weights_bytes;      /* Weights of the model, if times come from a table. */
    uint64_t kv_bytes_per_token; /* KV of one token, if times come from a table. */
    /* Tokens of the longest request; set by the caller, perhaps by sim_machines_context_tokens. */
    uint32_t context_tokens;
};

/* Adds the machines of the config, with the times of machines->profile. ST_USAGE:
 * machines->profile is NULL. Other errors name the machine. */
enum status sim_machines_of_config(struct sim_machines *machines, const struct config *config,
                                   struct error *error);

/* Adds machines. `spec` is COUNT:POOL:FILE, e.g. "25:prompt:deploy/hardware/h100.json". The times
 * come from machines->profile or, if the hardware file names rows of a table, from the file `table`
 * (perf_model.csv), for the model `model` (such as "bloom-176b"). The layers of a machine with
 * several devices are split with the defaults of `cleave partition`. Exceptions: the config gives
 * the micro-batch, and the hardware file or the config gives the KV memory. */
enum status sim_machines_add(struct sim_machines *machines, const char *spec, const char *table,
                             const char *model, const struct config *config, struct error *error);

/* Adds `count` machines of a kind, with the times of machines->profile. split: layer split of each
 * machine; NULL = each machine has one device. `hardware` and `split` must outlive *machines. */
enum status sim_machines_add_kind(struct sim_machines *machines, uint32_t count, enum pool pool,
                                  const struct hardware *hardware,
                                  const struct machine_split *split, const struct config *config,
                                  struct error *error);

/* Returns the device of the profile that a hardware file with "device" names; NULL = the profile
 * has no such device, and the error says which device is missing. */
const struct profile_device *sim_machines_device(const struct profile *profile,
                                                 const struct hardware *hardware,
                                                 struct error *error);

/* Returns the tokens of the longest request that fits at least one machine, at most
 * LIMIT_CONTEXT_TOKENS. */
uint32_t sim_machines_context_tokens(const struct sim_machines *machines,
                                     const struct config *config);

/* The link over which a machine writes KV to another machine. */
struct sim_link {
    double bytes_per_s; /* 0 = KV takes no time. */
    double latency_s;
};

/* Returns the link between two machines. Between hosts, this is the profile's link between the two
 * hosts, limited by the rates of hardware files. On one host, or if the profile has no such link,
 * the slower machine gives the rate (0 if machine `from` has no rate), and machine `from` gives the
 * latency. The rate is divided by the copies that machine `to` stores (kv_copies). */
struct sim_link sim_machines_link(const struct sim_machines *machines, uint32_t from, uint32_t to);

/* Frees the splits and closes the profile. */
void sim_machines_done(struct sim_machines *machines);

#endif
