/* flight_model: a simple model of the scheduler of one machine (scheduler/machine/machine.h) with
 * several batches in flight and several paths: a table of its requests. From the table it computes
 * the expected load, and checks each batch that the scheduler builds. test_machine_flight_random.c
 * calls it on its one thread and updates the table itself. If requests have ranks, the order of
 * prompts is not checked. */
#ifndef TESTS_SCHEDULER_FLIGHT_MODEL_H
#define TESTS_SCHEDULER_FLIGHT_MODEL_H

#include "scheduler/machine/machine.h"

#include <stdbool.h>

#define SLOTS  48
#define PATHS  3
#define FLIGHT 5 /* Most batches in flight of one path. */

/* States of a request. */
enum kind {
    UNKNOWN,      /* The slot is unused. */
    RESERVING,    /* A reservation waits for its blocks. */
    BOOKED,       /* The reservation has its blocks. */
    WAITING,      /* No batch has contained the prompt. */
    RUNNING,      /* A batch has contained a chunk of the prompt. */
    PROMPT_ENDED, /* The prompt is computed. */
    DECODING,
    DECODE_ENDED
};

struct request {
    enum kind kind;
    uint32_t path;
    uint32_t tokens;           /* Tokens of the prompt, or tokens left to decode. */
    uint32_t scheduled_tokens; /* Tokens of the prompt that are in a batch or computed. */
    uint32_t computed_tokens;  /* Tokens of the prompt that are computed. */
    uint32_t in_flight;        /* Batches in flight that contain the request. */
    uint32_t blocks;           /* Blocks that the prompt or reservation asked for. */
    uint32_t held_blocks;      /* Blocks that the request holds. */
    uint32_t room;             /* Tokens that a decode's blocks have room for. */
    uint64_t arrival;          /* Order of the prompts' arrivals. */
    struct sched_rank rank;
    bool pinned;         /* A decode that must not be preempted. */
    bool cancelled;      /* Was cancelled while a batch in flight contains it. */
    uint64_t last_batch; /* For a decode: number of batches of its path before it last took part. */
};

struct path {
    struct sched_batch batches_in_flight[FLIGHT]; /* Oldest first. */
    uint32_t in_flight_count;
    uint64_t batch_count; /* Number of batches of the path so far. */
};

struct flight_model {
    struct sched_machine *sm; /* The tested scheduler. */
    struct sched_machine_options options;
    struct request requests[SLOTS];
    struct path paths[PATHS];
    uint32_t blocks_total;
    uint32_t blocks_free;
    bool ranked; /* True: requests have ranks. */
    /* Number of chunks in batches while an earlier chunk of their prompt was in flight. */
    uint64_t chunks_behind;
    /* Number of prompts whose first chunk filled the rest of a batch. */
    uint64_t prompts_cut_in;
};

/* Returns true if the request is a prompt that waits on the path, with or without its blocks. */
bool flight_waits(const struct request *request, uint32_t path, bool needs_blocks);
/* Returns true if a prompt of the path can begin or continue with the free blocks. For requests
 * without ranks. */
bool flight_prompt_can_run(const struct flight_model *m, uint32_t path);
/* Return the most batches of a path that may contain decodes at the same time, and the number of
 * its batches in flight that do. */
uint32_t flight_decode_most(const struct flight_model *m);
uint32_t flight_decode_batches(const struct path *path);

/* Checks that the machine's load is that of the table. */
void flight_check_load(const struct flight_model *m);
/* Checks the batch against the rules of machine.h, then marks its items as in flight. could_prompt:
 * result of flight_prompt_can_run before the batch was taken. */
void flight_take(struct flight_model *m, const struct sched_batch *batch, bool could_prompt);
/* Checks that no decode of the path has waited too long. */
void flight_check_turns(const struct flight_model *m, uint32_t path);

#endif
