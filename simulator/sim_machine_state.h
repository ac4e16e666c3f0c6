/* sim_machine_state: what the files of sim_machine share: sim_machine.c has the tasks and the
 * memory, sim_machine_flight.c the batches, sim_machine_use.c what they keep busy. */
#ifndef SIMULATOR_SIM_MACHINE_STATE_H
#define SIMULATOR_SIM_MACHINE_STATE_H

#include "scheduler/paths.h"
#include "simulator/sim_machine.h"

/* Slots below half of the table are prompts, the others decodes, as on a real machine. */
#define SLOTS LIMIT_MACHINE_REQUESTS
#define HALF  (SLOTS / 2)

enum sim_task_kind { TASK_FREE, TASK_RESERVE, TASK_PROMPT };

struct sim_task { /* a request in one of its two roles */
    uint8_t kind;
    bool doomed; /* removed while in flight */
    bool local;
    bool holds;
    bool pinned;
    bool began;
    uint32_t request;
    uint32_t in_flight;
    uint32_t blocks; /* that it holds, or will */
    uint32_t blocks_whole;
    uint32_t tokens; /* in its cache */
    uint32_t path;
    struct sched_rank rank;
};

struct sim_flight {
    bool flies;
    double begin_s; /* at its first stage */
    double end_s;
    uint32_t prompt_rows;
    uint32_t decodes;
    double prompt_use; /* where the machine is watched: how many of its devices it keeps busy … */
    double decode_use; /* … on average, as shares of all */
    struct sched_batch batch;
};

struct sim_machine {
    struct sim_machine_options options;
    struct sched_machine *sched;
    uint32_t block_tokens;
    uint32_t blocks;
    uint32_t blocks_free;
    uint32_t share_most; /* of blocks, for prompts of others, while in the mixed pool */
    uint32_t share;
    uint32_t shared_held; /* by reservations whose prompts run elsewhere */
    uint32_t growing;     /* reservations that hold less than they may come to */
    struct sched_paths paths;
    double free_s[LIMIT_STAGES]; /* of each replica of a stage */
    struct sched_rates rates;
    uint32_t flight_count;
    uint32_t flights_of_path;
    struct sim_flight *flights; /* by the batch's index, for all paths */
    uint32_t free_slots[2][HALF];
    uint32_t free_counts[2];
    struct sim_task tasks[SLOTS];
};

/* The task takes its blocks, which are there. */
void sim_task_hold(struct sim_machine *m, struct sim_task *task);
/* It leaves, and its blocks are free. */
void sim_task_end(struct sim_machine *m, sched_slot slot);
/* A batch begins to fly: what sim_machine_use will say of it. */
void sim_flight_watch(const struct sim_machine *m, struct sim_flight *flight,
                      const struct sim_work *work, double now_s);
/* Answers grow, victims leave, and reservations whose turn it is are granted. */
void sim_machine_memory(struct sim_machine *m);

#endif
