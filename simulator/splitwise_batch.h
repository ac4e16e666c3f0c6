/* splitwise_batch: the queues of a splitwise_machine and the next batch from them. For
 * splitwise_machine.c only. */
#ifndef SIMULATOR_SPLITWISE_BATCH_H
#define SIMULATOR_SPLITWISE_BATCH_H

#include "simulator/splitwise_machine.h"

enum splitwise_state {
    SPLITWISE_UNKNOWN,
    SPLITWISE_QUEUED,  /* has never run, and has no memory of its own */
    SPLITWISE_RUNNING, /* in the batch */
    SPLITWISE_BLOCKED, /* displaced; has its memory */
    SPLITWISE_ENDED,
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

/* Memory that the task takes when it first runs; rows that it has in each iteration. */
uint32_t splitwise_task_memory(const struct splitwise_machine *m, uint32_t task);
uint32_t splitwise_task_rows(const struct splitwise_machine *m, uint32_t task);

/* Into the queue of tasks. */
void splitwise_pending_add(struct splitwise_machine *m, uint32_t task);
/* It is the first task of its request here, and in no batch. */
void splitwise_waiting_add(struct splitwise_machine *m, uint32_t task);

/* Displaces what does not go on, and takes in what comes: batch, memory and queues are as the next
 * run has them. */
void splitwise_batch_build(struct splitwise_machine *m);

#endif
