/* splitwise: simulates a cluster like the simulator of the Splitwise paper (policy
 * splitwise-compat): sched_cluster with the paper's rules, machines like the paper's (machine.h),
 * and transfers that do not slow each other down. The results agree with the reference to 1e-9 s
 * (reference.h). `cleave simulate` and `cleave plan` call splitwise_run, on any thread: a run owns
 * all its state. This part simulates no profiles, failures or layer-wise transfers (sim_run.h). */
#ifndef TOOLS_SIMULATE_SPLITWISE_SPLITWISE_H
#define TOOLS_SIMULATE_SPLITWISE_SPLITWISE_H

#include "scheduler/cluster/cluster.h"
#include "tools/simulate/sim_trace.h"
#include "tools/simulate/sim_usage.h"
#include "tools/simulate/splitwise/machine.h"

/* The kind of a machine: its home pool, batch times and memory. Each machine is on its own host. */
struct splitwise_machine_kind {
    enum pool home;                 /* Pool of the machine; POOL_MIXED for the baseline. */
    const struct cost_curve *curve; /* Times of the machine's batches; must outlive the run. */
    uint64_t memory_bytes;          /* Memory for weights and KV. */
};

struct splitwise_setup {
    bool split; /* True: the reference's scheduler mixed_pool. False: token_jsq, the baseline. */
    uint32_t host_count;
    const struct splitwise_machine_kind *hosts; /* [host_count]: must outlive the run. */
    uint64_t weights_bytes;                     /* Weights of the model. */
    uint64_t kv_bytes_per_token;                /* KV of one token in all layers. */
    double link_bytes_per_s;                    /* Rate of each transfer of KV. */
    double retry_s; /* Seconds until a transfer that found no memory is tried again. */
    uint32_t prompt_queue_threshold_tokens; /* See struct sched_cluster_options. */
    struct splitwise_options machine;       /* Limits of a machine's batches. */
    uint32_t open_max;                      /* Most open requests; 0 = SCHED_REQUESTS_MAX. */
    /* Receives the use of the machines. The caller opens the struct for the number of machines and
     * sets the names; the run ends the recording. A request with a waiting task counts as queued.
     * NULL = none. */
    struct sim_usage *usage;
    /* The run ends with ST_CANCELLED when *stop is true; `done` may set *stop. NULL = none. */
    const bool *stop;
};

/* Sets the paper's values: link_bytes_per_s 200 GiB/s, retry_s 1, prompt_queue_threshold_tokens
 * 8192; in `machine`, the paper's values of struct splitwise_options. The other fields become 0. */
void splitwise_setup_default(struct splitwise_setup *out);

/* The times of a request that has ended. */
struct splitwise_result {
    const struct sim_arrival *arrival; /* Valid during the call; `blocks` may be invalid. */
    double ttft_s;
    double tbt_s; /* (e2e − ttft) / output tokens, as in the reference. */
    double e2e_s;
    uint32_t prompt_machine;
    uint32_t token_machine;
};

struct splitwise_totals {
    uint64_t requests;  /* Requests that were served. */
    uint64_t events;    /* Events of the simulation and of the scheduler. */
    uint64_t transfers; /* Transfers of KV that have begun. */
    uint64_t retries;   /* Tries of a transfer that found no memory. */
    uint64_t displaced; /* Decode tasks that were displaced from a batch before their last token. */
    uint64_t moves;     /* Moves of machines between pools. */
    uint32_t open_max;  /* Most requests that were open at the same time. */
    /* Requests that never end, because they wait for memory that no request will free. After an
     * error: requests that were open. */
    uint32_t unended_requests;
    double last_s; /* Virtual time at which the last request was served. */
};

typedef void (*splitwise_done_call)(void *self, const struct splitwise_result *result);

/* Runs the whole trace and calls `done` when a request is served. Returns the errors of the trace.
 * ST_INVALID: a request is larger than any machine, and the trace does not skip wrong rows.
 * ST_NO_RESOURCE: more than open_max requests are open. ST_CANCELLED: see setup->stop.
 * ST_NO_MEMORY. */
enum status splitwise_run(const struct splitwise_setup *setup, struct sim_trace *trace,
                          splitwise_done_call done, void *self, struct splitwise_totals *out,
                          struct error *error);

#endif
