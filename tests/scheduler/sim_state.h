/* sim_state: the records of a test about the machines and requests of its simulated cluster, and a
 * function that prints them when a check fails. test_simulation.c and test_sharing.c own the arrays
 * of records and change them, on their one thread. This part decides nothing. */
#ifndef TESTS_SCHEDULER_SIM_STATE_H
#define TESTS_SCHEDULER_SIM_STATE_H

#include "scheduler/cluster/cluster.h"
#include "tests/scheduler/sim_machine.h"
#include "tests/scheduler/sim_options.h"

enum state { GONE, WAITING, ROUTED };

struct request {
    enum state state;
    bool resumed;
    uint32_t generation;
    uint32_t prompt_tokens; /* Tokens of the prompt in this generation. */
    uint32_t wanted;        /* Tokens that this generation must generate. */
    uint32_t key;
    int32_t priority;
    uint32_t prompt_machine;
    uint32_t token_machine;
    bool prompt_sent;
    bool prefilled; /* SCHED_PREFILLED was reported to the scheduler. */
    uint32_t preemptions;
    uint32_t yields;
    int64_t born_us;
    uint64_t number;              /* Grows from request to request. */
    uint32_t answered;            /* Tokens that this generation has generated. */
    uint32_t held;                /* 1 + the machine that held its KV; 0 = none. */
    uint64_t waiting_since_event; /* Number of events when it began to wait. */
};

struct machine {
    struct sim_machine sim;
    bool up; /* True: the machine is connected. */
    bool draining;
    uint32_t starts; /* Grows with each start. */
    double slowdown; /* Factor on the machine's times. */
    enum pool home;
    enum pool pool;
    uint64_t kv_tokens;
    uint64_t mixed_kv_tokens;
    bool link[SIM_MACHINES];
};

/* Returns the request's rank, as a gateway sends it. */
struct sched_rank sim_rank_of(const struct request *r);

/* Prints the state. machines[SIM_MACHINES], requests[SIM_REQUESTS]. */
void sim_dump(const struct sched_cluster *cluster, const struct machine *machines,
              const struct request *requests, const struct sched_cluster_options *options);

#endif
