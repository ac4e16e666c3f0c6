/* machine_state: private to machine.c (requests and their states), memory.c (which request
 * gets memory) and batch.c (what runs next). Every request is in at most one list or queue,
 * linked through its slot, so that no event allocates. Pure and not thread-safe, as machine.h. */
#ifndef SCHEDULER_MACHINE_STATE_H
#define SCHEDULER_MACHINE_STATE_H

#include "scheduler/machine/machine.h"
#include "scheduler/queue.h"

#define SLOT_NONE UINT32_MAX

/* A chunk that does not end its prompt has a multiple of this many tokens: whole KV blocks of the
 * default size. */
#define SCHED_CHUNK_TOKENS LIMIT_CHUNK_TOKENS

enum slot_state {
    SLOT_UNKNOWN,
    SLOT_RESERVING,      /* In the queue `reservations`. */
    SLOT_AWAITING,       /* In the list `awaiting`: has its blocks, but not its KV. */
    SLOT_PROMPT_WAITING, /* In the queue `prompts` or `booked` of its path. */
    SLOT_PROMPT_RUNNING, /* A batch got its first chunk; its last chunk is not done. */
    SLOT_PROMPT_ENDED,
    SLOT_DECODING, /* In the list `decodes` of its path. */
    SLOT_DECODE_ENDED,
};

struct slot {
    uint8_t state;     /* enum slot_state */
    uint8_t path;      /* Path of a prompt or decode. */
    uint8_t in_flight; /* Batches that contain it; at most one for a decode. */
    uint32_t next;
    uint32_t previous;
    uint32_t blocks;      /* Blocks that its prompt or reservation needs. */
    uint32_t tokens;      /* Prompt: its tokens. Decode: tokens left to generate. */
    uint32_t tokens_done; /* Tokens of its prompt that are computed or in flight. */
    uint32_t room;        /* Decodes: tokens for which memory is there. */
    bool pinned;          /* Decodes: never a victim. */
    struct sched_rank rank;
    uint64_t arrival; /* Order of arrival. */
    uint64_t number;  /* rank.number of a prompt or reservation. */
};

struct slot_list {
    uint32_t first;
    uint32_t last;
    uint32_t count;
};

/* The work of one path: one replica of each stage. */
struct sched_path {
    struct sched_queue prompts; /* Waiting prompts that need blocks to start. */
    struct sched_queue booked;  /* Waiting prompts that have their blocks already. */
    /* In the order in which they run next: a decode that a batch took goes to the end. */
    struct slot_list decodes;
    /* Prompt whose first chunk was taken and that has chunks left; at most one. */
    uint32_t running;
    bool prompt_had_turn;    /* The previous batch had a prompt: see places_for_decodes. */
    uint32_t decodes_short;  /* Decodes with room = 0. */
    uint32_t decodes_flying; /* Decodes in a batch. */
    /* Index of the oldest batch in the path's ring of batches_in_flight. */
    uint32_t batch_oldest;
    uint32_t batch_count;
    uint32_t decode_batch_count; /* Batches in flight that have decodes. */
};

struct sched_machine {
    struct sched_machine_options options; /* With defaults filled in. */
    /* Order of requests for memory, used by `reservations`. */
    struct sched_fair *memory;
    struct sched_queue reservations;
    struct slot_list awaiting;
    struct sched_fair *compute; /* Order of prompts, used by the queues of all paths. */
    struct sched_path paths[LIMIT_STAGE_PATHS];
    struct sched_batch *batches; /* [path_count][batches_in_flight] */
    int64_t now_us;
    uint64_t arrivals;
    uint32_t prompts_running;
    uint64_t prompt_tokens_pending;
    uint64_t decode_tokens_pending;
    struct slot slots[];
};

/* Returns the slot's entry. Requires that the slot is unused. */
struct slot *sched_slot_unknown(struct sched_machine *sm, sched_slot slot);

static inline struct sched_queue *sched_prompt_queue(struct sched_machine *sm,
                                                     const struct slot *entry)
{
    struct sched_path *path = &sm->paths[entry->path];
    return entry->blocks > 0 ? &path->prompts : &path->booked;
}

/* The queue ticket for a request with this rank; its cost is `tokens`. rank NULL = no key, priority
 * 0. */
struct sched_ticket sched_ticket_of(const struct sched_rank *rank, uint32_t tokens);

void sched_list_append(struct sched_machine *sm, struct slot_list *list, sched_slot slot);
void sched_list_remove(struct sched_machine *sm, struct slot_list *list, sched_slot slot);

#endif
