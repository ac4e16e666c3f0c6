/* splitwise_batch: the queues of a splitwise_machine, and the choice of the machine's next batch.
 * Only machine.c calls it, on the thread of its simulation; the machine owns the queues. This part
 * knows no times: machine.c computes how long a batch runs. */
#ifndef TOOLS_SIMULATE_SPLITWISE_BATCH_H
#define TOOLS_SIMULATE_SPLITWISE_BATCH_H

#include "tools/simulate/splitwise/machine.h"

/* State of a task. */
enum splitwise_state {
    SPLITWISE_UNKNOWN, /* Has not arrived. */
    SPLITWISE_QUEUED,  /* Has never run, and holds no memory of its own. */
    SPLITWISE_RUNNING, /* In the batch. */
    SPLITWISE_BLOCKED, /* Displaced from a batch; keeps its memory. */
    SPLITWISE_ENDED,   /* Computed; in no queue. */
};

static inline struct splitwise_request *splitwise_request_of(const struct splitwise_machine *m,
                                                             uint32_t task)
{
    return &m->requests[task / 2];
}

static inline struct splitwise_task *splitwise_task_at(const struct splitwise_machine *m,
                                                       uint32_t task)
{
    return &m->requests[task / 2].tasks[task % 2];
}

static inline bool splitwise_is_prompt(uint32_t task)
{
    return task % 2 == SPLITWISE_PROMPT;
}

/* Returns the memory that the task takes when it first runs, in tokens of KV. */
uint32_t splitwise_task_memory(const struct splitwise_machine *m, uint32_t task);
/* Returns the number of tokens that the task computes in each iteration. */
uint32_t splitwise_task_rows(const struct splitwise_machine *m, uint32_t task);

/* Adds the task to the machine's `pending`. */
void splitwise_pending_add(struct splitwise_machine *m, uint32_t task);
/* Adds the task to the machine's `waiting`. Requires that the task is in no batch and is the first
 * task of its request on this machine that has not ended. */
void splitwise_waiting_add(struct splitwise_machine *m, uint32_t task);

/* Chooses the next batch: displaces decodes that do not stay, and takes in new tasks. Updates
 * batch, memory and queues. Requires that the batch has no prompts. */
void splitwise_batch_build(struct splitwise_machine *m);

#endif
