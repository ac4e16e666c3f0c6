/* splitwise_machine: a machine as the simulator of the Splitwise paper has it (README of the
 * reference results, "Machine level"), for results that agree with its to the last digits but one.
 *
 * Why this is not sched_machine with other parameters: here a request is two tasks, a prompt that
 * is never cut into chunks and a decode; a batch holds tasks, not rows; a decode that others
 * displace from a batch keeps its memory, and who was passed over more often goes first; decodes
 * run many iterations in one piece, which an arrival cuts at the next boundary; memory is taken
 * when a task first runs, all of it. A server does none of this: sched_machine cuts prompts, lets
 * every decode ride along, books memory before the prompt runs, and decides anew after each step.
 * What is between machines (pools, who gets what) is sched_cluster, the server's own.
 *
 * The reference's quirks that no server should have, all of them in splitwise_machine.c and
 * splitwise_batch.c: the queue of tasks is sorted when a task is put in, by a number that changes
 * afterwards; a decode whose prompt runs on the same machine arrives together with that prompt, and
 * cuts runs that it cannot join; the end of a transfer cuts the runs of its source.
 *
 * One thread; virtual time comes in with each call. */
#ifndef SIMULATOR_SPLITWISE_MACHINE_H
#define SIMULATOR_SPLITWISE_MACHINE_H

#include "common/status.h"
#include "simulator/cost_table.h"

#include <stdbool.h>
#include <stdint.h>

#define SPLITWISE_BATCH_TASKS 512
#define SPLITWISE_NONE        UINT32_MAX

struct splitwise_options {
    uint32_t batch_tasks_max;  /* 512, ≤ SPLITWISE_BATCH_TASKS */
    uint32_t batch_tokens_max; /* 2048; the first task of a batch may have more */
    uint32_t preemptions_max;  /* 4: who was passed over so often goes first */
};

/* A task's number is 2 × its request's slot, and one more for the decode. */
enum splitwise_kind { SPLITWISE_PROMPT, SPLITWISE_DECODE };

static inline uint32_t splitwise_task_of(uint32_t slot, enum splitwise_kind kind)
{
    return 2 * slot + kind;
}

struct splitwise_task {
    uint8_t state;        /* enum splitwise_state, splitwise_batch.h */
    bool counts;          /* it waits, and is its request's first task here: */
    uint32_t preemptions; /* … then these are those of the time before `since` */
    uint32_t since;       /* … a build of its machine */
    uint32_t next;        /* in a list of its machine */
    uint32_t previous;
};

struct splitwise_request {
    double arrival_s;
    uint32_t prompt_tokens;
    uint32_t answer_tokens; /* of the decode: one less than the request's */
    uint32_t answer_left;   /* while its decode is in no batch */
    uint32_t held_tokens;   /* of memory: by its decode's machine, or its prompt's */
    uint64_t chosen;        /* the last build that chose one of its tasks */
    struct splitwise_task tasks[2];
};

struct splitwise_list {
    uint32_t first;
    uint32_t last;
};

struct splitwise_array {
    uint32_t *tasks;
    uint32_t count;
    uint32_t room;
};

struct splitwise_machine {
    uint32_t index;
    const struct splitwise_options *options;
    struct splitwise_request *requests; /* of all machines */
    const struct cost_curve *curve;
    uint32_t memory_tokens; /* that fit beside the weights */
    uint32_t used_tokens;

    struct splitwise_array
        pending; /* tasks that are in no batch, in the order of splitwise_batch.c */
    struct splitwise_array waiting; /* of these, the first of each request, by request arrival */
    struct splitwise_list prompts;  /* of `pending`, in order of arrival here */
    struct splitwise_list blocked;  /* of `pending`, decodes that were displaced, in that order */
    uint32_t builds;

    uint32_t batch[SPLITWISE_BATCH_TASKS];
    uint32_t ends_at[SPLITWISE_BATCH_TASKS]; /* … its last iteration, by `iterations` */
    uint32_t batch_count;
    uint32_t batch_prompts;
    uint64_t batch_tokens;
    uint32_t soonest;    /* of ends_at, decodes only */
    uint32_t iterations; /* that were run */
    uint64_t displaced;  /* decodes that left a batch before they had ended */

    double iteration_s;
    double run_iterations; /* of the run that goes on */
    double run_ends_s;     /* valid while batch_count > 0 */
    bool paused;
    bool out_of_memory; /* an array could not grow: the simulation cannot go on */
};

void splitwise_machine_init(struct splitwise_machine *m, uint32_t index,
                            const struct splitwise_options *options,
                            struct splitwise_request *requests, const struct cost_curve *curve,
                            uint32_t memory_tokens);
void splitwise_machine_done(struct splitwise_machine *m);

/* A task arrives: the prompt; the decode, with its KV or together with its prompt. */
void splitwise_machine_arrive(struct splitwise_machine *m, uint32_t slot, enum splitwise_kind kind,
                              double now_s);
/* A transfer from here has ended, and its memory is free. */
void splitwise_machine_sent(struct splitwise_machine *m, double now_s);

/* The run is over (run_ends_s). Tasks that have ended leave the batch, and their numbers, at most
 * SPLITWISE_BATCH_TASKS, go to ended_out, in order; what a decode held is free again. Then the
 * caller does what follows from that, and calls splitwise_machine_go_on. */
uint32_t splitwise_machine_run_over(struct splitwise_machine *m, uint32_t *ended_out);
/* Builds the next batch and starts its run. */
void splitwise_machine_go_on(struct splitwise_machine *m, double now_s);

/* Nothing waits, and nothing runs. */
static inline bool splitwise_machine_idle(const struct splitwise_machine *m)
{
    return m->batch_count == 0 && m->waiting.count == 0;
}

static inline bool splitwise_machine_fits(const struct splitwise_machine *m, uint32_t tokens)
{
    return (uint64_t)m->used_tokens + tokens <= m->memory_tokens;
}

#endif
