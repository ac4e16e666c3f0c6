/* splitwise_machine: a machine of the Splitwise paper's simulator.
 *
 * A request is two *tasks*: a prompt, which is not cut into chunks, and a decode. A task takes all
 * its memory when it first runs. An *iteration* computes a batch once. A batch of decodes computes
 * several iterations in one piece (a *run*); an arriving task can cut the run at the next boundary
 * between iterations. A decode that is *displaced* from a batch keeps its memory. A waiting task
 * that is not chosen for a batch counts as *preempted*; a task that was preempted preemptions_max
 * times goes first.
 *
 * Properties of the reference that no server should have: the place of a task in `pending` depends
 * on its number of preemptions at insertion, which changes later. A decode whose prompt runs on the
 * same machine arrives together with the prompt, and cuts runs that it cannot join. The end of a
 * transfer cuts a run of the machine that sent the KV.
 *
 * splitwise.c owns the machines, calls them on one thread and passes the virtual time. This part
 * does not route requests and does not simulate transfers. */
#ifndef TOOLS_SIMULATE_SPLITWISE_MACHINE_H
#define TOOLS_SIMULATE_SPLITWISE_MACHINE_H

#include "common/status.h"
#include "tools/report/cost_table.h"

#include <stdbool.h>
#include <stdint.h>

#define SPLITWISE_BATCH_TASKS 512
#define SPLITWISE_NONE        UINT32_MAX

struct splitwise_options {
    /* Most tasks of a batch, ≤ SPLITWISE_BATCH_TASKS; the paper's value is 512. */
    uint32_t batch_tasks_max;
    /* Most tokens of a batch, which the first task alone may exceed; the paper's value is 2048. */
    uint32_t batch_tokens_max;
    /* A task that was preempted this often goes first; the paper's value is 4. */
    uint32_t preemptions_max;
};

/* The number of a task is 2 × the slot of its request, plus 1 for the decode. */
enum splitwise_kind { SPLITWISE_PROMPT, SPLITWISE_DECODE };

static inline uint32_t splitwise_task_number(uint32_t slot, enum splitwise_kind kind)
{
    return 2 * slot + kind;
}

/* A prompt or a decode, and its place in the queues of its machine. */
struct splitwise_task {
    uint8_t state; /* enum splitwise_state (batch.h). */
    /* The task is in `waiting`: its preemptions are preemptions + (builds − since_build). */
    bool counts_builds;
    uint32_t preemptions; /* Preemptions until since_build. */
    uint32_t since_build; /* The machine's `builds` when the task entered `waiting`. */
    uint32_t next;        /* Next task in a list of the machine; SPLITWISE_NONE = none. */
    uint32_t previous;    /* Previous task in the list; SPLITWISE_NONE = none. */
};

/* A request with its two tasks. */
struct splitwise_request {
    double arrival_s;
    uint32_t prompt_tokens;
    uint32_t answer_tokens; /* Tokens of the decode: the answer's tokens except the first. */
    uint32_t answer_left;   /* Tokens left to decode; valid while the decode is in no batch. */
    uint32_t held_tokens;   /* Tokens of KV that the request's tasks took when they first ran. */
    uint64_t chosen_build;  /* Last build that chose a task of the request. */
    struct splitwise_task tasks[2];
};

/* A list of tasks, linked by `next` and `previous`. */
struct splitwise_list {
    uint32_t first; /* SPLITWISE_NONE = the list is empty. */
    uint32_t last;  /* SPLITWISE_NONE = the list is empty. */
};

/* A growing array of tasks. */
struct splitwise_array {
    uint32_t *tasks;
    uint32_t count;
    uint32_t capacity;
};

struct splitwise_machine {
    uint32_t index;
    const struct splitwise_options *options;
    struct splitwise_request *requests; /* The requests of all machines. */
    const struct cost_curve *curve;
    uint32_t memory_tokens; /* Tokens of KV that fit beside the weights. */
    /* Tokens of KV that requests hold. The caller updates both machines at a transfer, and the
     * prompt machine when a request ends with its prompt. */
    uint32_t used_tokens;

    /* Tasks in no batch (splitwise_pending_add), including decodes that still wait for their prompt
     * here. */
    struct splitwise_array pending;
    /* The tasks of `pending` except decodes that still wait for their prompt here, by the request's
     * arrival (splitwise_waiting_add). */
    struct splitwise_array waiting;
    struct splitwise_list prompts; /* The prompts in `pending`, by arrival at the machine. */
    /* The displaced decodes in `pending`, in the order of their displacement. */
    struct splitwise_list blocked;
    uint32_t builds; /* Number of batches that were built; counts empty batches, too. */

    uint32_t batch[SPLITWISE_BATCH_TASKS]; /* [batch_count]: tasks of the current batch. */
    /* [batch_count]: value of `iterations` after the task's last iteration. */
    uint32_t ends_at[SPLITWISE_BATCH_TASKS];
    uint32_t batch_count;
    uint32_t batch_prompts; /* Prompts in the batch. */
    uint64_t batch_tokens;  /* Tokens that an iteration of the batch computes. */
    uint32_t ends_at_min;   /* Smallest of ends_at; used for batches of decodes. */
    uint32_t iterations;    /* Iterations that have been run. */
    uint64_t displaced;     /* Decodes that left a batch before their end. */

    double iteration_s;    /* Time of one iteration of the current run. */
    double run_iterations; /* Iterations of the current run. */
    double run_ends_s;     /* End of the current run; valid while batch_count > 0. */
    bool run_cut;          /* The run was cut: it ends with the current iteration. */
    bool out_of_memory;    /* An array could not grow, so the simulation must stop. */
};

/* Makes an idle machine. `options`, `requests` and `curve` must outlive the machine. */
void splitwise_machine_init(struct splitwise_machine *m, uint32_t index,
                            const struct splitwise_options *options,
                            struct splitwise_request *requests, const struct cost_curve *curve,
                            uint32_t memory_tokens);
void splitwise_machine_done(struct splitwise_machine *m);

/* Adds an arriving task: a prompt, or a decode that arrives with its KV or together with its
 * prompt. If no batch runs and the task fits the memory, starts a run. If a batch of decodes runs
 * and has room for the task, cuts the run; a prompt may also replace decodes. */
void splitwise_machine_arrive(struct splitwise_machine *m, uint32_t slot, enum splitwise_kind kind,
                              double now_s);
/* Reports that a transfer from this machine has ended; the caller has freed the memory of the KV.
 * If no batch runs, starts a run if the first task of `pending` fits the memory. If a batch of
 * decodes has room for one more token and task, cuts the run, even if no task of `pending` fits.
 * Does nothing if `pending` is empty. */
void splitwise_machine_transfer_end(struct splitwise_machine *m, double now_s);

/* Ends the run; call this function at run_ends_s. Removes ended tasks from the batch, frees the
 * memory of ended decodes, and stores the numbers of the ended tasks, at most
 * SPLITWISE_BATCH_TASKS. Returns how many tasks have ended. The caller handles the ended tasks and
 * then calls splitwise_machine_run_start. */
uint32_t splitwise_machine_run_end(struct splitwise_machine *m, uint32_t *ended_out);
/* Builds the next batch and starts its run. Starts nothing if the batch is empty. */
void splitwise_machine_run_start(struct splitwise_machine *m, double now_s);

/* Returns true if no task waits and no task runs. */
static inline bool splitwise_machine_idle(const struct splitwise_machine *m)
{
    return m->batch_count == 0 && m->waiting.count == 0;
}

/* Returns true if `tokens` more tokens of KV fit into the memory. */
static inline bool splitwise_machine_fits(const struct splitwise_machine *m, uint32_t tokens)
{
    return (uint64_t)m->used_tokens + tokens <= m->memory_tokens;
}

#endif
