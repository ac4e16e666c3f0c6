/* sim_machine_state: the state of a simulated machine, shared by sim_machine*.c: sim_machine.c has
 * the tasks and the decisions about memory, sim_machine_kv.c the blocks and the KV that stays in
 * them, sim_machine_flight.c the batches, and sim_machine_use.c the use of the devices. All
 * functions run on the thread of the simulation that owns the machine. Other parts use
 * sim_machine.h. */
#ifndef TOOLS_SIMULATE_SIM_MACHINE_STATE_H
#define TOOLS_SIMULATE_SIM_MACHINE_STATE_H

#include "scheduler/drafts.h"
#include "scheduler/memory.h"
#include "scheduler/pace.h"
#include "scheduler/paths.h"
#include "tools/simulate/sim_machine.h"
#include "tools/simulate/sim_pool.h"

/* The lower half of the slots is for prompts, the upper half for reservations
 * (sched_memory_options_make). */
#define SIM_SLOTS      LIMIT_MACHINE_REQUESTS
#define SIM_SLOTS_HALF (SIM_SLOTS / 2) /* Slots of each half. */

enum sim_task_kind { TASK_RESERVE, TASK_PROMPT };

/* States of a task. The legal transitions:
 *
 *   FREE -> WAITING -> BEGUN -> REMOVED
 *
 * and from every state except FREE to FREE. */
enum sim_task_state {
    TASK_FREE,    /* No task uses the slot. */
    TASK_WAITING, /* No batch has contained the task. A waiting prompt holds no blocks. */
    TASK_BEGUN,   /* A batch contains the task, or has contained it. */
    TASK_REMOVED, /* Removed while in flight. The end of the last batch frees the slot. */
    TASK_STATE_COUNT
};

/* A task: a request's prompt (TASK_PROMPT); its reservation with its decode, or a copy (both
 * TASK_RESERVE). */
struct sim_task {
    uint8_t kind;       /* enum sim_task_kind. */
    uint8_t state;      /* enum sim_task_state. */
    uint32_t request;   /* The caller's number of the request. */
    uint32_t in_flight; /* Batches in flight that contain the task. */
    /* Prompts: blocks that the prompt takes when it begins; 0 = its reservation has the blocks. */
    uint32_t blocks_to_take;
    /* Reservations: tokens whose KV the next decode reads. Prompts: equal to `cached`. */
    uint32_t tokens;
    uint32_t path;           /* Index of the path that the task's batches go through. */
    uint32_t prompt_tokens;  /* Tokens of the prompt, or of the copy. */
    uint32_t cached;         /* First tokens of the prompt whose KV the machine had already. */
    bool local;              /* Prompt and decode are both on this machine. */
    sim_cache_id reused_run; /* Kept blocks that the task takes first; 0 = none. */
    sim_cache_id kept_run;   /* Receives blocks of the task at its end; 0 = no blocks are kept. */
    uint32_t kept_blocks;    /* Number of blocks that kept_run receives. */
    uint32_t tokens_left;    /* Decodes: tokens left to generate. */
    struct sched_draft_trust draft_trust; /* Decodes: how well the answer's drafts were accepted. */
};

/* A batch in flight. */
struct sim_flight {
    bool in_flight;       /* False: the entry is unused. */
    double begin_s;       /* When the first stage begins the batch. */
    double end_s;         /* When the last stage ends the batch, if the machine shares no cores. */
    double used_s;        /* Computing time of all stages. */
    uint32_t prompt_rows; /* Prompt tokens of the batch. */
    uint32_t decodes;     /* Tokens of the batch that are computed for decodes, with drafts. */
    /* Mean share of the devices that prompts keep busy; set only with options.use_recorded. */
    double prompt_use;
    /* Mean share of the devices that decodes keep busy; set only with options.use_recorded. */
    double decode_use;
    struct sched_batch batch;
};

struct sim_machine {
    struct sim_machine_options options;
    struct sched_machine *sched; /* The machine-level scheduler. */
    struct sched_memory *memory; /* Policy for the blocks of reservations. */
    uint32_t block_tokens;       /* kv/block_tokens. */
    uint32_t block_count;        /* Number of blocks of the KV memory. */
    /* The blocks by their ids, if requests share prefixes; NULL = `cache` counts the blocks. */
    struct sim_pool *pool;
    struct sim_holding *holdings; /* [SIM_SLOTS]: the blocks of each task; NULL without `pool`. */
    uint32_t pinned_count;        /* Entries of `pinned` in use. */
    sched_slot pinned[LIMIT_BATCH_SEQUENCES]; /* Prompts that sim_kv_prompts_pin has pinned. */
    struct sim_cache cache;                   /* Without `pool`: free blocks, and KV in them. */
    uint32_t prompt_holders;                  /* Prompts that hold blocks. */
    struct sched_paths paths;
    double free_s[LIMIT_STAGE_PROCESSES]; /* When each replica of each stage is free. */
    struct sched_rates rates;
    struct sched_pace pace;
    /* Times of decode steps, which decide the length of drafts. */
    struct sched_drafts drafts;
    uint64_t draft_draws;                   /* Random numbers drawn for drafts. */
    uint32_t flight_count;                  /* Batches in flight. */
    uint32_t flights_of_path;               /* Largest number of batches in flight on one path. */
    struct sim_flight *flights;             /* Indexed by the batch's index, over all paths. */
    uint32_t free_slots[2][SIM_SLOTS_HALF]; /* Unused slots of the lower and of the upper half. */
    uint32_t free_counts[2];                /* Entries of free_slots in use, for each half. */
    struct sim_task tasks[SIM_SLOTS];
};

/* Begins a waiting task. A prompt without reservation takes its blocks. Requires that enough blocks
 * are free. */
void sim_task_begin(struct sim_machine *m, sched_slot slot);
/* Removes the task and frees its blocks. */
void sim_task_end(struct sim_machine *m, sched_slot slot);
/* Sets prompt_use and decode_use of a batch that begins. Does nothing without
 * options.use_recorded. */
void sim_flight_use_set(const struct sim_machine *m, struct sim_flight *flight,
                        const struct profile_work *work, double now_s);
/* Sets how many drafted tokens the next step of a decode checks. */
void sim_draft_set(struct sim_machine *m, sched_slot slot);
/* Gives blocks to answers that need more, and preempts decodes if blocks are short. */
void sim_machine_grow(struct sim_machine *m);

/* ---- sim_machine_kv.c ---- */

/* Open and close the blocks. sim_kv_open returns ST_NO_MEMORY or the errors of sim_pool_open. */
enum status sim_kv_open(struct sim_machine *m);
void sim_kv_close(struct sim_machine *m);
/* Returns the number of blocks that can be taken. */
uint32_t sim_kv_available(const struct sim_machine *m);
/* Opens the task's block tables, without blocks. spans_max: most spans of the task. keep: spans
 * that a group with a window keeps (layer_groups_spans_kept). Does nothing without a pool, or for a
 * local prompt, which uses the blocks of its reservation. Returns ST_NO_MEMORY on failure. */
enum status sim_kv_task_open(struct sim_machine *m, sched_slot slot, uint32_t spans_max,
                             uint32_t keep);
/* Takes the reservation's blocks if sched_memory grants them. False = the reservation must wait. */
bool sim_kv_reservation_grant(struct sim_machine *m, sched_slot slot);
/* Takes a copy's blocks if sched_memory grants them. False = the copy is refused. */
bool sim_kv_copy_grant(struct sim_machine *m, sched_slot slot);
/* Takes the blocks of one more span of an answer. */
void sim_kv_answer_grow(struct sim_machine *m, sched_slot slot);
/* Takes the blocks of a prompt that begins. Does nothing for a local prompt. */
void sim_kv_prompt_take(struct sim_machine *m, sched_slot slot);
/* Frees the task's blocks, or gives them to the cache if their KV is kept. Returns the number of
 * blocks that the task held. */
uint32_t sim_kv_task_end(struct sim_machine *m, sched_slot slot);
/* Looks up the path's next prompts in the prefix cache, and pins what it finds. Call this function
 * before sched_machine_batch_next. Does nothing without a pool. */
void sim_kv_prompts_pin(struct sim_machine *m, uint32_t path);
/* Unpins the prompts of sim_kv_prompts_pin that are not in the batch. Call this function after
 * sched_machine_batch_next. */
void sim_kv_prompts_unpin(struct sim_machine *m);

#endif
