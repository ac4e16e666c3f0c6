/* flight_model: what a plain table of requests says of a machine with several batches in flight and
 * several paths: its load, and what each batch must be like. Where requests have ranks, the order
 * of prompts is not looked at. */
#ifndef TESTS_SCHEDULER_FLIGHT_MODEL_H
#define TESTS_SCHEDULER_FLIGHT_MODEL_H

#include "scheduler/machine.h"

#include <stdbool.h>

#define SLOTS  48
#define PATHS  3
#define FLIGHT 5

enum kind { UNKNOWN, RESERVING, BOOKED, WAITING, RUNNING, PROMPT_ENDED, DECODING, DECODE_ENDED };

struct request {
    enum kind kind;
    uint32_t path;
    uint32_t tokens;    /* of the prompt, or left to decode */
    uint32_t given;     /* of the prompt, to batches */
    uint32_t done;      /* of these, computed */
    uint32_t in_flight; /* batches that it is in */
    uint32_t blocks;    /* asked for by prompt or reservation */
    uint32_t held;
    uint32_t room; /* of a decode */
    uint64_t arrival;
    struct sched_rank rank;
    bool pinned;
    bool doomed;        /* cancelled while in flight */
    uint64_t last_turn; /* of a decode: batches of its path before */
};

struct path {
    struct sched_batch flying[FLIGHT]; /* the oldest first */
    uint32_t count;
    uint64_t batches;
};

struct flight_model {
    struct sched_machine *sm;
    struct sched_machine_options options;
    struct request requests[SLOTS];
    struct path paths[PATHS];
    uint32_t blocks_total;
    uint32_t blocks_free;
    bool ranked;
    /* How often a prompt's chunk was taken while one before it was in flight, and a prompt begun in
     * what was left of a batch. */
    uint64_t chunks_behind, cut_in;
};

/* It is a prompt that waits on the path, for its blocks or with them. */
bool flight_waits(const struct request *request, uint32_t path, bool needs_blocks);
/* Could a prompt of the path start, or go on, with what is free? Unranked. */
bool flight_prompt_can_run(const struct flight_model *m, uint32_t path);
/* Batches of a path that may have decodes at a time, and those in flight that do. */
uint32_t flight_decode_most(const struct flight_model *m);
uint32_t flight_decode_batches(const struct path *path);

/* The machine's load is that of the table. */
void flight_check_load(const struct flight_model *m);
/* The batch is as machine.h says; then its items are taken. */
void flight_take(struct flight_model *m, const struct sched_batch *batch, bool could_prompt);
/* No decode of the path has waited for too long. */
void flight_check_turns(const struct flight_model *m, uint32_t path);

#endif
