/* sim_cores: the cores of one host that all simulated machines share. As on a real host
 * (host/turns.h), the machines take turns: the machine that has waited longest is next. While
 * another machine waits, a turn ends with the layer during which the time slice ends. Without turns
 * all machines compute at once, and more slowly if all their threads together outnumber the
 * cores. Machines that compute at the same time also slow each other down, because they share
 * memory and caches. A machine computes one batch at a time. A simulation (sim_run.h) owns the
 * struct, and calls the functions on one thread. The functions read no clock: the caller passes the
 * virtual time in seconds. */
#ifndef TOOLS_SIMULATE_SIM_CORES_H
#define TOOLS_SIMULATE_SIM_CORES_H

#include "common/limits.h"
#include "scheduler/cluster/cluster.h"

#include <stdbool.h>
#include <stdint.h>

/* The work of a batch. */
struct sim_cores_work {
    double work_s;        /* Time while no other machine computes. */
    double busy_slowdown; /* ≥ 1: slowdown when other machines compute on all other cores. */
    uint32_t layers;      /* ≥ 1: number of layers, equally long. */
    bool prompts;         /* True: the batch has prompt tokens. False: only decodes. */
    /* Length of the batch's turns. 0 = turn_ms of sim_cores_init for a batch with prompts, and
     * SCHED_DECODE_TURNS × turn_ms for a batch without prompts. */
    double turn_s;
};

/* IDLE = the machine has no batch. WAITS = the batch waits for a turn. COMPUTES = the batch is
 * computed. */
enum sim_cores_state { SIM_CORES_IDLE, SIM_CORES_WAITS, SIM_CORES_COMPUTES };

struct sim_cores_machine {
    uint32_t threads;
    uint8_t state; /* enum sim_cores_state. */
    struct sim_cores_work work;
    double work_left_s; /* Work left at since_s. */
    /* Waiting: when the wait began. Computing: the time to which work_left_s refers. */
    double since_s;
    double turn_began_s;     /* Begin of the machine's turn. */
    double speed;            /* 1 = full speed. */
    double decode_step_s;    /* Work of the latest batch without prompts; 0 = none. */
    double decode_step_at_s; /* When the latest batch without prompts began. */
};

struct sim_cores {
    uint32_t cores; /* 0 = every machine has its own cores, and this part is not used. */
    double turn_s;  /* turn_ms of sim_cores_init, in seconds; 0 = no turns. */
    uint32_t machine_count;
    struct sim_cores_machine machines[SCHED_MACHINES_MAX];
};

/* Makes idle machines. turn_ms: scheduler/turn_ms; 0 = no turns. With CONFIG_AUTO, the turn_s of
 * each batch must be set. threads[machine_count]: threads of each machine. 0 threads count as 1.
 * With turns, more threads than cores count as the number of cores. */
void sim_cores_init(struct sim_cores *c, uint32_t cores, uint32_t turn_ms, const uint32_t *threads,
                    uint32_t machine_count);

/* Begins a batch. Requires that the machine has none. */
void sim_cores_batch_begin(struct sim_cores *c, uint32_t machine, double now_s,
                           const struct sim_cores_work *work);
/* Adds up work_s of the latest decode step of each other machine, if this step began in the last
 * second. Returns the sum. */
double sim_cores_steps_s(const struct sim_cores *c, uint32_t machine, double now_s);
/* Ends the machine's batch, because the batch is computed or the machine is gone. Does nothing if
 * the machine has no batch. */
void sim_cores_batch_end(struct sim_cores *c, uint32_t machine, double now_s);
/* Stores when the machine's batch or turn ends. Returns false if the machine waits or has no batch.
 * sim_cores_batch_begin, sim_cores_batch_end and sim_cores_turn_end can change this time for all
 * machines. */
bool sim_cores_due(const struct sim_cores *c, uint32_t machine, double *at_s);
/* Call this function at the time that sim_cores_due stored. Returns true if the batch is computed:
 * then call sim_cores_batch_end. False = the turn is over; the batch waits for the next turn. */
bool sim_cores_turn_end(struct sim_cores *c, uint32_t machine, double now_s);

#endif
