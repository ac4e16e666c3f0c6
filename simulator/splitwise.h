/* splitwise: the simulation that the Splitwise paper's simulator would run (policy
 * splitwise-compat): the server's cluster-level scheduler, told to decide as that one does, over
 * machines that are its (splitwise_machine.h), and transfers that take their time beside each
 * other. Its results are the reference's to 1e-9 s (reference.h). One thread; virtual time. */
#ifndef SIMULATOR_SPLITWISE_H
#define SIMULATOR_SPLITWISE_H

#include "scheduler/cluster.h"
#include "simulator/sim_trace.h"
#include "simulator/sim_usage.h"
#include "simulator/splitwise_machine.h"

struct splitwise_host {
    enum sched_pool home; /* of the baseline: SCHED_POOL_MIXED */
    const struct cost_curve *curve;
    uint64_t memory_bytes;
};

struct splitwise_setup {
    bool split; /* mixed_pool; otherwise token_jsq, the baseline */
    uint32_t host_count;
    const struct splitwise_host *hosts; /* [host_count], kept by the caller until the end */
    uint64_t weights_bytes;
    uint64_t kv_bytes_per_token;
    double link_bytes_per_s;
    double retry_s; /* a transfer that found no memory tries again after so long */
    uint32_t prompt_queue_threshold_tokens;
    struct splitwise_options machine;
    uint32_t open_most; /* requests at a time, room for so many is made; 0: SCHED_REQUESTS_MAX */
    /* Opened for so many machines, ended here; NULL: none. Queued requests are those with a task in
     * no batch. */
    struct sim_usage *usage;
    const bool *stop; /* NULL; or: the run ends, with ST_CANCELLED, when `done` has set it */
};

/* The paper's: 200 GiB/s, 1 s, 8192 tokens; batches of 512 tasks and 2048 tokens, 4 preemptions. */
void splitwise_setup_default(struct splitwise_setup *out);

struct splitwise_result {
    const struct sim_arrival *arrival;
    double ttft_s;
    double tbt_s; /* (e2e − ttft) / output tokens, as the reference has it */
    double e2e_s;
    uint32_t prompt_machine;
    uint32_t token_machine;
};

struct splitwise_totals {
    uint64_t requests; /* that were served */
    uint64_t events;
    uint64_t transfers;
    uint64_t retries;   /* of transfers */
    uint64_t displaced; /* decodes that left a batch before they had ended */
    uint64_t moves;     /* of machines between pools */
    uint32_t open_most; /* requests at a time */
    uint32_t unended;   /* requests that wait for ever: for memory that nobody will free */
    double last_s;
};

typedef void (*splitwise_done_call)(void *self, const struct splitwise_result *result);

/* Runs the whole trace; `done` is called for each request at its end. Errors: the trace's own, and
 * a request that is larger than any machine (as the trace treats wrong rows). */
enum status splitwise_run(const struct splitwise_setup *setup, struct sim_trace *trace,
                          splitwise_done_call done, void *self, struct splitwise_totals *out,
                          struct error *error);

#endif
