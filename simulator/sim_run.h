/* sim_run: a simulated cluster as it would serve: the gateway's scheduler (sched_cluster) with the
 * options that a gateway gives it, machines with the server's machine-level scheduler
 * (sim_machine.h), KV that is pushed layer by layer over links that transfers share, machines that
 * fail, and pools that change. Not simulated: HTTP and text, prefix caches, keys (all requests are
 * nobody's), several gateways. One thread; virtual time. */
#ifndef SIMULATOR_SIM_RUN_H
#define SIMULATOR_SIM_RUN_H

#include "simulator/sim_host.h"
#include "simulator/sim_report.h"
#include "simulator/sim_usage.h"

struct sim_run_options {
    const struct sim_hosts *hosts;
    const struct config *config;
    double message_s; /* of a message between gateway and machines, and what each of them does */
    uint32_t cores;   /* that all machines share; 0: each one has its own */
    double failure_s; /* mean time to the failure of a machine; 0: none fails */
    double repair_s;  /* until it is up again */
    uint64_t seed;
    FILE *events;            /* the scheduler's events, as log/events_file has them; NULL: none */
    struct sim_usage *usage; /* opened for so many machines; named and ended here; NULL: none */
};

struct sim_host_totals {
    double busy_s;
    uint64_t prompt_tokens;
    uint64_t output_tokens;
    uint32_t failures;
    enum sched_pool home; /* at the end */
};

struct sim_run_totals {
    uint64_t events;
    uint64_t moves; /* of machines to another pool */
    uint32_t open_most;
    double last_s;
    struct sim_host_totals hosts[SCHED_MACHINES_MAX];
};

/* Runs the whole trace; each request's end goes to `report`. Errors: the trace's own, requests
 * that are larger than any machine (as the trace treats wrong rows), and no memory. */
enum status sim_run(const struct sim_run_options *options, struct sim_trace *trace,
                    struct sim_report *report, struct sim_run_totals *out, struct error *error);

#endif
