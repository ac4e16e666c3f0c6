/* sim_run_state: shared by the files of sim_run. sim_run.c has the loop and the events of machines,
 * sim_run_cluster.c the scheduler, its actions and the failures, sim_run_requests.c the steps of a
 * request. Not for other files. */
#ifndef TOOLS_SIMULATE_SIM_RUN_STATE_H
#define TOOLS_SIMULATE_SIM_RUN_STATE_H

#include "common/text.h"
#include "tools/simulate/event_heap.h"
#include "tools/simulate/sim_machine.h"
#include "tools/simulate/sim_run.h"

/* Meaning of the event of a request's slot. */
enum request_step {
    STEP_RESERVE, /* RESERVE reaches the token machine. */
    STEP_PROMPT,  /* PREFILL reaches the prompt machine. */
    STEP_KV,      /* The KV is on the token machine. */
};

struct run_request {
    struct sim_arrival arrival;
    bool open;
    bool routed;
    bool begun;   /* The prompt has begun, in this attempt or an earlier one. */
    bool first;   /* The first token has been generated. */
    uint8_t step; /* enum request_step. */
    /* Tokens to compute: the prompt and the answer's tokens of earlier attempts. */
    uint32_t prompt;
    uint32_t given_before; /* Tokens of the answer when this attempt began. */
    uint32_t given;
    uint32_t prompt_machine;
    uint32_t token_machine; /* SCHED_NO_MACHINE = none. */
    sched_slot prompt_slot; /* SCHED_NO_SLOT = no task on that machine. */
    sched_slot token_slot;
    uint64_t number;    /* Number of earlier requests. */
    uint32_t preempted; /* Number of preemptions while the request decoded. */
    /* Number of times that its reservation was given up before its KV was there. */
    uint32_t given_up;
    uint32_t restarted;
    double ttft_s;
    double queue_s;
    double prompt_end_s;
    double transfer_s;
};

struct run_host {
    struct sim_machine *machine; /* NULL = the machine is down. */
    enum pool pool;
    enum pool home;
    bool kick; /* True: the machine is in `kicks`. */
    /* While a batch is in flight: begin of the time that is not yet in busy_s. */
    double busy_since_s;
    double out_free_s; /* When the link has sent everything so far; in_free_s: received. */
    double in_free_s;
    uint32_t failures;
};

struct run {
    struct sim_run_options options;
    struct sim_trace *trace;
    struct sim_report *report;
    struct error *error;
    enum status status;
    double now_s;
    struct sched_cluster_options sched_options;
    struct sched_cluster *sc;
    struct text text; /* A line of the event log. */
    struct event_heap events;
    struct sim_cores cores;
    uint64_t number_next;  /* Number of the next request. */
    uint32_t quiet_events; /* Number of events in a row that were no work. */
    uint32_t kick_count;
    uint32_t kicks[SCHED_MACHINES_MAX];
    uint32_t lost_count;
    /* Requests reported as lost that have not arrived again yet. */
    uint32_t lost[LIMIT_CLUSTER_REQUESTS];
    uint32_t open;
    uint32_t queued; /* Open requests whose prompt has not begun yet. */
    uint32_t free_count;
    uint32_t free_slots[LIMIT_CLUSTER_REQUESTS];
    struct run_request requests[LIMIT_CLUSTER_REQUESTS];
    struct run_host hosts[SCHED_MACHINES_MAX];
    struct sim_run_totals *totals;
};

/* Event ids: the end of a batch of each machine, then the failure or repair of each machine, then
 * the scheduler's timer and the report of rates, then the slots of requests. */
static inline uint32_t event_of_failure(const struct run *r, uint32_t host)
{
    return r->options.hosts->count + host;
}

static inline uint32_t event_tick(const struct run *r)
{
    return 2 * r->options.hosts->count;
}

static inline uint32_t event_rates(const struct run *r)
{
    return 2 * r->options.hosts->count + 1;
}

static inline uint32_t event_of_slot(const struct run *r, uint32_t slot)
{
    return 2 * r->options.hosts->count + 2 + slot;
}

static inline int64_t run_now_us(const struct run *r)
{
    return (int64_t)(r->now_s * 1e6);
}

/* ---- sim_run.c ---- */

/* Lets the machine begin its next batch after the current event. */
void run_kick(struct run *r, uint32_t host);
/* Cancels the end of the machine's batches, because it has failed. */
void run_flights_forget(struct run *r, uint32_t host);

/* ---- sim_run_cluster.c ---- */

enum status run_cluster_open(struct run *r);
void run_cluster_close(struct run *r);
/* Gives the scheduler an event, at the current time, and does its actions. */
void run_tell(struct run *r, struct sched_event *event);
void run_tick(struct run *r);
/* Reports the rates of all machines that are up. */
void run_rates(struct run *r);
/* Lets the machine fail, or brings it back. */
void run_failure(struct run *r, uint32_t host);

/* Record the current use of a machine, or the number of requests, if use is recorded. */
void run_usage_machine(struct run *r, uint32_t host);
void run_usage_requests(struct run *r);

/* ---- sim_run_requests.c ---- */

extern const struct sim_machine_calls run_machine_calls;

void run_arrive(struct run *r, const struct sim_arrival *arrival);
void run_step(struct run *r, uint32_t slot);
void run_routed(struct run *r, const struct sched_action *action);
void run_not_served(struct run *r, const struct sched_action *action);
/* Ends all open requests as failed. */
void run_abandon(struct run *r);
/* Handles the loss of one of the request's machines: removes its tasks on other machines, and lets
 * the request arrive again. */
void run_lost(struct run *r, uint32_t slot);

#endif
