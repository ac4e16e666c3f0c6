/* sim_machine: one machine of a simulated cluster. It has the real scheduler of a machine and the
 * real policy for KV blocks (sched_memory). It carries out their decisions: it counts the free
 * blocks, and keeps the batches in flight on the paths through the machine's stages.
 * test_simulation.c and test_sharing.c call it on their one thread and pass the virtual time; it
 * reports events through struct sim_calls. It is not the machine of `cleave simulate`
 * (tools/simulate/sim_machine.h): times are simple, and every rule is checked. */
#ifndef TESTS_SCHEDULER_SIM_MACHINE_H
#define TESTS_SCHEDULER_SIM_MACHINE_H

#include "scheduler/machine/machine.h"
#include "scheduler/memory.h"
#include "scheduler/paths.h"

#define SIM_BLOCK_TOKENS 16
#define SIM_SLOTS        256
#define SIM_PATHS        3
#define SIM_FLIGHT       5 /* Batches in flight of one path. */
#define SIM_GROWTH       5 /* Tokens of an answer that are reserved with its prompt. */
#define SIM_PREEMPTIONS  2 /* Most preemptions of one request. */

enum sim_task_kind { SIM_FREE, SIM_RESERVE, SIM_PROMPT };

/* A request's prompt or its reservation. */
struct sim_task {
    enum sim_task_kind kind;
    bool cancelled;    /* Cancelled while in flight, or given up. */
    bool holds_blocks; /* Prompts: `blocks` were taken. */
    uint32_t request;
    uint32_t generation;
    uint32_t path;
    uint32_t in_flight; /* Batches in flight that contain the task. */
    uint32_t blocks;    /* Prompts: blocks that the prompt takes when it starts. */
};

struct sim_machine;

/* Events of the tasks of (request, generation). */
struct sim_calls {
    void (*reserved)(uint32_t machine, uint32_t request, uint32_t generation);
    void (*prompt_done)(uint32_t machine, uint32_t request, uint32_t generation);
    void (*decoded)(uint32_t machine, uint32_t request, uint32_t generation);
    /* The task was preempted, and the machine has forgotten it. */
    void (*preempted)(uint32_t machine, uint32_t request, uint32_t generation);
    /* The reservation was given up while it waits for its KV. It holds its blocks until it is
     * cancelled. */
    void (*yielded)(uint32_t machine, uint32_t request, uint32_t generation);
};

struct sim_machine {
    uint32_t index;
    const struct sim_calls *calls;
    struct sched_machine *sched;
    struct sched_memory *memory;
    uint32_t blocks;
    uint32_t blocks_free;
    uint32_t prompt_holders; /* Prompts that hold blocks. */
    struct sched_paths paths;
    uint32_t in_flight_count;   /* Batches in flight on all paths. */
    int64_t free_us[SIM_PATHS]; /* When the newest batch of each path ends. */
    struct sched_batch batches[SIM_PATHS * SIM_FLIGHT]; /* item_count 0 = not in flight. */
    struct sim_task tasks[SIM_SLOTS];
};

/* The paths of a machine. */
struct sim_shape {
    uint32_t paths;              /* ≤ SIM_PATHS. */
    uint32_t flight;             /* ≤ SIM_FLIGHT. */
    uint32_t micro_batch_tokens; /* As in sched_machine_options. */
};

/* Draws a shape; half of them are one device. */
struct sim_shape sim_shape_draw(uint32_t (*draw)(uint32_t below));
void sim_machine_open(struct sim_machine *m, uint32_t index, uint32_t blocks,
                      const struct sim_shape *shape, const struct sim_calls *calls);
void sim_machine_close(struct sim_machine *m);

struct sim_reserve {
    uint32_t request;
    uint32_t generation;
    uint32_t prompt_tokens;
    uint32_t output_tokens;
    struct sched_rank rank;
    bool local;
    uint32_t preemptions; /* Number of times that the request was preempted. */
};

void sim_machine_reserve(struct sim_machine *m, const struct sim_reserve *reserve);
void sim_machine_prompt(struct sim_machine *m, uint32_t request, uint32_t generation,
                        uint32_t tokens, bool local, const struct sched_rank *rank);
void sim_machine_decode(struct sim_machine *m, uint32_t request, uint32_t generation,
                        uint32_t tokens_left);
/* Returns the number of blocks that a task holds. */
uint32_t sim_task_blocks(const struct sim_machine *m, sched_slot slot);
/* Frees the prompt's blocks, because its KV has been sent or is useless. */
void sim_machine_prompt_free(struct sim_machine *m, uint32_t request, uint32_t generation);
void sim_machine_cancel(struct sim_machine *m, uint32_t request, uint32_t generation);

/* Grants memory, and starts one batch if a path has room for one. Returns true if it did, with the
 * batch in *out. The batch takes duration_us(rows), but ends after the earlier batches of its path.
 */
struct sim_started {
    uint32_t batch;
    int64_t end_us;
};

bool sim_machine_start(struct sim_machine *m, int64_t now_us, int64_t (*duration_us)(uint32_t rows),
                       struct sim_started *out);
void sim_machine_batch_end(struct sim_machine *m, uint32_t batch);

bool sim_machine_idle(const struct sim_machine *m);
void sim_machine_check(const struct sim_machine *m); /* Checks that the blocks add up. */

#endif
