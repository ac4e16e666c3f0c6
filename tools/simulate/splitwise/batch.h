/* splitwise_batch: the queues of a splitwise_machine, and the choice of the machine's next batch.
 * machine.c calls the functions, on the thread of the simulation; the machine owns the queues. This
 * part does not know the present time, or how long a batch runs: machine.c does. */
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
/* Returns the number of tokens that one iteration of a batch computes for the task: all tokens of a
 * prompt, 1 for a decode. */
uint32_t splitwise_task_rows(const struct splitwise_machine *m, uint32_t task);

/* Adds a task that is in no batch to m->pending, sorted by preemptions and then by the arrival of
 * the request. Also adds a prompt to m->prompts, and a displaced decode to m->blocked. */
void splitwise_pending_add(struct splitwise_machine *m, uint32_t task);
/* Adds a task that may join a batch to m->waiting, which is sorted by the arrival of the requests.
 * After that, each batch that is built without the task counts as a preemption. Requires that the
 * task is in no batch, and that the prompt of a decode on this machine has ended. */
void splitwise_waiting_add(struct splitwise_machine *m, uint32_t task);

/* Changes the current batch into the next batch: chooses which decodes stay and which tasks of the
 * queues join. The other decodes are displaced: they keep their memory and return to the queues.
 * Requires that the current batch has no prompts. */
void splitwise_batch_build(struct splitwise_machine *m);

#endif
