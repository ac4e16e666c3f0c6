/* machine_state: what machine.c (who is known, and where it stands), machine_memory.c (who gets
 * memory) and machine_batch.c (what runs next) share. Every request is in at most one list or
 * queue, linked through its slot: no allocation per event. */
#ifndef SCHEDULER_MACHINE_STATE_H
#define SCHEDULER_MACHINE_STATE_H

#include "scheduler/machine.h"
#include "scheduler/queue.h"

#define SLOT_NONE UINT32_MAX

/* A prompt that goes on in a later batch stops at a multiple of this: whole KV blocks of the
 * default size. */
#define SCHED_CHUNK_TOKENS 16

enum slot_state {
    SLOT_UNKNOWN,
    SLOT_RESERVING,      /* in queue `reservations` */
    SLOT_AWAITING,       /* in list `awaiting`: has its blocks, not its KV */
    SLOT_PROMPT_WAITING, /* in queue `prompts` or `booked` of its path */
    SLOT_PROMPT_RUNNING, /* its first chunk was given to a batch, its last is not done */
    SLOT_PROMPT_ENDED,
    SLOT_DECODING, /* in list `decodes` of its path */
    SLOT_DECODE_ENDED,
};

struct slot {
    uint8_t state;     /* enum slot_state */
    uint8_t path;      /* of a prompt or decode */
    uint8_t in_flight; /* batches that it is in: a decode in one at most */
    uint32_t next;
    uint32_t previous;
    uint32_t blocks;      /* of its prompt or reservation */
    uint32_t tokens;      /* of its prompt, or left to decode */
    uint32_t tokens_done; /* of its prompt: computed, or in flight */
    uint32_t room;        /* decodes only: tokens that its memory holds */
    bool pinned;          /* decodes only */
    struct sched_rank rank;
    uint64_t arrival; /* a number that grows */
    uint64_t number;  /* of a prompt or reservation: its rank's */
};

struct slot_list {
    uint32_t first;
    uint32_t last;
    uint32_t count;
};

/* What runs on one replica of each stage. */
struct sched_path {
    struct sched_queue prompts; /* waiting, and needing blocks to start */
    struct sched_queue booked;  /* waiting, with their blocks already */
    struct slot_list decodes;   /* in the order of their turns: who had one goes to the end */
    uint32_t running;           /* the prompt that has chunks left after its first: at most one */
    bool prompt_had_turn;       /* see places_for_decodes */
    uint32_t decodes_short;     /* with room = 0 */
    uint32_t decodes_flying;    /* in a batch */
    uint32_t batch_oldest;      /* of its batches in flight, which are a ring of so many: */
    uint32_t batch_count;
    uint32_t decode_batch_count; /* of these, that have decodes */
};

struct sched_machine {
    struct sched_machine_options options; /* with 1 for 0 */
    struct sched_fair *memory;            /* who gets memory: */
    struct sched_queue reservations;
    struct slot_list awaiting;
    struct sched_fair *compute; /* whose prompt runs, on whatever path */
    struct sched_path paths[LIMIT_STAGE_PATHS];
    struct sched_batch *batches; /* [path_count][batches_in_flight] */
    int64_t now_us;
    uint64_t arrivals;
    uint32_t prompts_running;
    uint64_t prompt_tokens_pending;
    uint64_t decode_tokens_pending;
    struct slot slots[];
};

/* The slot, which nobody uses. */
struct slot *sched_slot_unknown(struct sched_machine *sm, sched_slot slot);

static inline struct sched_queue *sched_prompt_queue(struct sched_machine *sm,
                                                     const struct slot *entry)
{
    struct sched_path *path = &sm->paths[entry->path];
    return entry->blocks > 0 ? &path->prompts : &path->booked;
}

/* What its turn is about to give it. rank NULL: nobody's. */
struct sched_ticket sched_ticket_of(const struct sched_rank *rank, uint32_t tokens);

void sched_list_append(struct sched_machine *sm, struct slot_list *list, sched_slot slot);
void sched_list_remove(struct sched_machine *sm, struct slot_list *list, sched_slot slot);

#endif
