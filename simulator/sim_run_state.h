/* sim_run_state: what the files of sim_run share. sim_run.c has the loop and the machines' events;
 * sim_run_cluster.c the scheduler, what it says, and machines that come and go; sim_run_requests.c
 * each request's way. */
#ifndef SIMULATOR_SIM_RUN_STATE_H
#define SIMULATOR_SIM_RUN_STATE_H

#include "server/text.h"
#include "simulator/event_heap.h"
#include "simulator/sim_machine.h"
#include "simulator/sim_run.h"

/* What the event of a request's slot is. */
enum request_step {
    STEP_RESERVE, /* RESERVE reaches its token machine */
    STEP_PROMPT,  /* PREFILL reaches its prompt machine */
    STEP_KV,      /* its KV is where it is decoded */
};

struct run_request {
    struct sim_arrival arrival;
    bool open;
    bool routed;
    bool begun;            /* its prompt began, at some time */
    bool first;            /* its first token is out */
    uint8_t step;          /* enum request_step */
    uint32_t prompt;       /* tokens to compute: its own, and those that it was given before */
    uint32_t given_before; /* tokens of its answer, when it was routed last */
    uint32_t given;
    uint32_t prompt_machine;
    uint32_t token_machine; /* SCHED_NO_MACHINE: none */
    sched_slot prompt_slot; /* SCHED_NO_SLOT: it has no task there */
    sched_slot token_slot;
    uint32_t preempted;
    uint32_t restarted;
    double ttft_s;
    double queue_s;
    double prompt_end_s;
    double transfer_s;
};

struct run_host {
    struct sim_machine *machine; /* NULL: it is down */
    enum sched_pool pool;
    enum sched_pool home;
    bool kick;           /* it may have something to begin */
    double busy_since_s; /* while a batch is in flight: not counted yet */
    double out_free_s;   /* its link: when what was pushed so far has left */
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
    struct text text; /* a line of the event log */
    struct event_heap events;
    struct sim_cores cores;
    uint32_t quiet_events; /* in a row, that were no work */
    uint32_t kick_count;
    uint32_t kicks[SCHED_MACHINES_MAX];
    uint32_t lost_count;
    uint32_t lost[LIMIT_CLUSTER_REQUESTS]; /* told, and not routed again yet */
    uint32_t open;
    uint32_t queued; /* of them: no prompt has begun yet */
    uint32_t free_count;
    uint32_t free_slots[LIMIT_CLUSTER_REQUESTS];
    struct run_request requests[LIMIT_CLUSTER_REQUESTS];
    struct run_host hosts[SCHED_MACHINES_MAX];
    struct sim_run_totals *totals;
};

/* Events: a batch's end of each machine; its failure or repair; then these two; then slots. */
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

/* The machine may have something to begin: it is looked at when the event is through. */
void run_kick(struct run *r, uint32_t host);
/* A batch of the machine ends no more. */
void run_flights_forget(struct run *r, uint32_t host);

/* ---- sim_run_cluster.c ---- */

enum status run_cluster_open(struct run *r);
void run_cluster_close(struct run *r);
/* Tells the scheduler, and does what it says. Its time is set here. */
void run_tell(struct run *r, struct sched_event *event);
void run_tick(struct run *r);
/* Tells the rates of all machines that are up. */
void run_rates(struct run *r);
/* The machine fails, or is up again. */
void run_failure(struct run *r, uint32_t host);

/* What is used from now on, where somebody wants to know: of a machine; and how many requests there
 * are. */
void run_usage_machine(struct run *r, uint32_t host);
void run_usage_requests(struct run *r);

/* ---- sim_run_requests.c ---- */

extern const struct sim_machine_calls run_machine_calls;

void run_arrive(struct run *r, const struct sim_arrival *arrival);
void run_step(struct run *r, uint32_t slot);
void run_routed(struct run *r, const struct sched_action *action);
void run_not_served(struct run *r, const struct sched_action *action);
/* Those that are still open have failed. */
void run_abandon(struct run *r);
/* One of its machines is gone: its tasks elsewhere go, and it arrives again. */
void run_lost(struct run *r, uint32_t slot);

#endif
