/* sim_machine: one machine of a simulated cluster: the real machine-level scheduler, and as much of
 * the two pools as decides who waits for whom: KV blocks, answers that grow into them and are
 * preempted, the share that a mixed machine keeps, the batches in flight on the paths through its
 * stages. Virtual time; what it has to say comes out as calls. */
#ifndef TESTS_SCHEDULER_SIM_MACHINE_H
#define TESTS_SCHEDULER_SIM_MACHINE_H

#include "scheduler/machine.h"
#include "scheduler/paths.h"

#define SIM_BLOCK_TOKENS 16
#define SIM_SLOTS        256
#define SIM_PATHS        3
#define SIM_FLIGHT       5 /* batches of one path */
#define SIM_GROWTH       5 /* tokens of an answer that are booked with its prompt */

enum sim_task_kind { SIM_FREE, SIM_RESERVE, SIM_PROMPT };

struct sim_task { /* a request in one of its two roles */
    enum sim_task_kind kind;
    bool doomed; /* cancelled while in flight, or given up */
    bool local;  /* both phases here */
    uint32_t request;
    uint32_t generation;
    uint32_t path;
    uint32_t in_flight;    /* batches that it is in */
    uint32_t blocks;       /* that it holds, or will */
    uint32_t blocks_whole; /* of a reservation: with its longest answer */
    uint32_t prompt_tokens;
    struct sched_rank rank;
    bool pinned; /* its whole answer is booked */
    bool holds;
};

struct sim_machine;

struct sim_calls { /* what happens to the tasks of request and generation */
    void (*reserved)(uint32_t machine, uint32_t request, uint32_t generation);
    void (*prompt_done)(uint32_t machine, uint32_t request, uint32_t generation);
    void (*decoded)(uint32_t machine, uint32_t request, uint32_t generation);
    /* It was the victim, and the machine has forgotten it. */
    void (*preempted)(uint32_t machine, uint32_t request, uint32_t generation);
    /* It is given up while it awaits its KV; it holds its blocks until it is cancelled. */
    void (*yielded)(uint32_t machine, uint32_t request, uint32_t generation);
};

struct sim_machine {
    uint32_t index;
    const struct sim_calls *calls;
    struct sched_machine *sched;
    uint32_t blocks;
    uint32_t blocks_free;
    uint32_t share;       /* that reservations with prompts elsewhere leave alone */
    uint32_t shared_held; /* by those */
    struct sched_paths paths;
    uint32_t flying;                                    /* batches, on all paths */
    int64_t free_us[SIM_PATHS];                         /* when the path's newest batch ends */
    struct sched_batch batches[SIM_PATHS * SIM_FLIGHT]; /* item_count 0: not in flight */
    struct sim_task tasks[SIM_SLOTS];
};

struct sim_shape {
    uint32_t paths;  /* ≤ SIM_PATHS */
    uint32_t flight; /* ≤ SIM_FLIGHT */
    uint32_t micro_batch_tokens;
};

/* Half of them are one device. */
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
    bool pinned;
};

void sim_machine_reserve(struct sim_machine *m, const struct sim_reserve *reserve);
void sim_machine_prompt(struct sim_machine *m, uint32_t request, uint32_t generation,
                        uint32_t tokens, bool local, const struct sched_rank *rank);
void sim_machine_decode(struct sim_machine *m, uint32_t request, uint32_t generation,
                        uint32_t tokens_left);
/* The prompt's KV has left, or is of no use: its blocks are free. */
void sim_machine_prompt_free(struct sim_machine *m, uint32_t request, uint32_t generation);
void sim_machine_cancel(struct sim_machine *m, uint32_t request, uint32_t generation);

/* Gives memory to those whose turn it is, and starts one batch if a path has room for one: true,
 * and what it is. It takes duration_us(rows), but ends after those before it. */
struct sim_started {
    uint32_t batch;
    int64_t end_us;
};

bool sim_machine_start(struct sim_machine *m, int64_t now_us, int64_t (*duration_us)(uint32_t rows),
                       struct sim_started *out);
void sim_machine_batch_end(struct sim_machine *m, uint32_t batch);

bool sim_machine_idle(const struct sim_machine *m);
void sim_machine_check(const struct sim_machine *m); /* blocks add up */

#endif
