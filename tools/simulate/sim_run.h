/* sim_run: simulates a cluster that serves a trace: the gateway's scheduler (sched_cluster),
 * machines with the machine-level scheduler (sim_machine.h), transfers of KV that share links,
 * failures of machines, moves of machines to other pools, and checkpoints of answers. Requests
 * share prefixes if the trace has hash ids and kv/prefix_cache is on. `cleave simulate` and `cleave
 * plan` call sim_run, on any thread: a run owns all its state and uses virtual time. For example,
 * HTTP, API keys and several gateways are not simulated. */
#ifndef TOOLS_SIMULATE_SIM_RUN_H
#define TOOLS_SIMULATE_SIM_RUN_H

#include "tools/simulate/sim_machines.h"
#include "tools/simulate/sim_report.h"
#include "tools/simulate/sim_tier.h"
#include "tools/simulate/sim_usage.h"

/* A failure of a machine at a given time. */
struct sim_kill {
    double at_s; /* Virtual time: seconds since the start of the trace. */
    uint32_t machine;
};

struct sim_run_options {
    const struct sim_machines *machines; /* The cluster's machines and the facts about them. */
    const struct config *config;
    /* Time of a message between gateway and machine, including the work at both ends. */
    double message_s;
    uint32_t cores;   /* Cores that all machines share; 0 = each machine has its own. */
    double failure_s; /* Mean time until a machine fails at random; 0 = no random failures. */
    double repair_s;  /* Time until a failed machine is up again. */
    /* [kill_count]: failures in ascending order of time. A kill of a machine that is down has no
     * effect. */
    const struct sim_kill *kills;
    uint32_t kill_count;
    uint64_t seed;      /* Seed of the failures and of the drafts. */
    double draft_right; /* See struct sim_machine_options. */
    /* The machines' tiers for KV; all zeros = none. Used only if requests share prefixes, and only
     * by machines with one stage and without windows. */
    struct sim_tier_kind tiers[TIER_KIND_COUNT];
    /* Receives the scheduler's events in the format of log/events_file; NULL = none. */
    FILE *events;
    /* Receives the use of the machines. The caller opens the struct for the number of machines;
     * sim_run sets the names and ends the recording. NULL = none. */
    struct sim_usage *usage;
};

struct sim_machine_totals {
    /* Time with a batch in flight. Batches that a failure ended do not count. */
    double busy_s;
    /* The part of busy_s in which the batch that began last has prompt tokens. */
    double prompt_busy_s;
    uint64_t prompt_tokens; /* Prompt tokens that the machine computed. */
    uint64_t output_tokens; /* Tokens that the machine generated. */
    uint32_t failures;
    enum pool home; /* Home pool at the end. */
};

struct sim_run_totals {
    uint64_t events;       /* Events of the simulation, without arrivals. */
    uint64_t moves;        /* Moves of machines to another pool. */
    uint32_t open_max;     /* Most requests that were open at the same time. */
    double last_s;         /* Virtual time of the end. */
    uint64_t copies;       /* Copies of KV that were written for checkpoints. */
    uint64_t copied_bytes; /* KV bytes of the copies for checkpoints. */
    bool prefixes;         /* Requests share prefixes, and machines have prefix caches. */
    /* Only with `prefixes`: tokens of prompts that began, in all attempts. */
    uint64_t prefix_query_tokens;
    /* The part of prefix_query_tokens that was found in the machines' prefix caches. */
    uint64_t prefix_hit_tokens;
    uint64_t draft_tokens;                 /* Drafted tokens that steps have checked. */
    uint64_t draft_tokens_accepted;        /* Drafted tokens that the model accepted. */
    uint64_t tier_tokens[TIER_KIND_COUNT]; /* Tokens that were loaded from each kind of tier. */
    struct sim_machine_totals machines[SCHED_MACHINES_MAX]; /* By the machine's index. */
};

/* Runs the whole trace, and adds each request to `report`; requests that would never end are added
 * as failed. A request that is larger than any machine is not added but rejected
 * (sim_trace_reject). Returns the errors of the trace and of sim_machine_open. ST_INVALID: a
 * request is rejected, and the trace does not skip wrong rows. ST_NO_RESOURCE: a machine has no
 * free slot for a prompt or a reservation. ST_IO: `events` cannot be written. ST_NO_MEMORY. */
enum status sim_run(const struct sim_run_options *options, struct sim_trace *trace,
                    struct sim_report *report, struct sim_run_totals *out, struct error *error);

/* Sets *out_j to the energy in joules that the CPUs or GPUs of all machines take while they
 * compute, with the powers of the profile. Requires that each machine has a host of its own.
 * Returns false if a power is unknown, or if a machine has stages, which may share a host. */
bool sim_energy_j(const struct sim_machines *machines, const struct sim_run_totals *totals,
                  double *out_j);

#endif
