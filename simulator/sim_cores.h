/* sim_cores: the cores of one computer that all simulated machines share. As on a real one
 * (common/turns.h), machines that together have more threads than there are cores take turns: who
 * has waited longest is next, and while somebody waits, a turn ends with the layer that is over
 * after its slice. Without turns (`scheduler/turn_ms` 0) all compute at once, each more slowly.
 * Those that compute at the same time slow each other down, as they share memory and caches. Pure;
 * virtual time in seconds. A machine computes one batch at a time. */
#ifndef SIMULATOR_SIM_CORES_H
#define SIMULATOR_SIM_CORES_H

#include "common/limits.h"
#include "scheduler/cluster.h"

#include <stdbool.h>
#include <stdint.h>

struct sim_cores_work {
    double work_s;   /* of a machine that nobody disturbs */
    double beside;   /* ≥ 1: how many times as long while others compute on all other cores */
    uint32_t layers; /* that take alike long; ≥ 1 */
    bool prompts; /* some of it is of prompts; else its slices are SCHED_DECODE_TURNS times as long
                   */
};

enum sim_cores_state { SIM_CORES_AWAY, SIM_CORES_WAITS, SIM_CORES_COMPUTES };

struct sim_cores_machine {
    uint32_t threads;
    uint8_t state; /* enum sim_cores_state */
    struct sim_cores_work work;
    double left_s;       /* of the work, at since_s */
    double since_s;      /* it waits, or left_s counts from then on */
    double turn_began_s; /* its turn */
    double speed;        /* of 1 */
};

struct sim_cores {
    uint32_t cores; /* 0: every machine has its own, and nothing here is used */
    double turn_s;  /* 0: no turns */
    uint32_t machine_count;
    struct sim_cores_machine machines[SCHED_MACHINES_MAX];
};

/* turn_ms: the config's. threads[machine_count]: of each machine; 0 is taken as 1. */
void sim_cores_init(struct sim_cores *c, uint32_t cores, uint32_t turn_ms, const uint32_t *threads,
                    uint32_t machine_count);

/* The machine, which has no batch, begins one. */
void sim_cores_begin(struct sim_cores *c, uint32_t machine, double now_s,
                     const struct sim_cores_work *work);
/* Its batch is over, or the machine is gone; nothing happens if it has none. */
void sim_cores_leave(struct sim_cores *c, uint32_t machine, double now_s);
/* When the machine's batch ends, or its turn, unless something else happens before; false: it
 * waits, or has no batch. Each of the calls here may change that of every machine. */
bool sim_cores_due(const struct sim_cores *c, uint32_t machine, double *at_s);
/* That time has come. True: its batch is computed, and wants sim_cores_leave. */
bool sim_cores_step(struct sim_cores *c, uint32_t machine, double now_s);

#endif
