/* machine_state: the state of sched_machine, private to machine.c (requests and their states),
 * memory.c (which request gets memory) and batch.c (what runs next). These files run on the thread
 * that calls sched_machine; not thread-safe. Pure: no clock, no I/O. A request is in at most one
 * list or queue, linked through its slot, so no call allocates after opening. The files know
 * numbers of blocks, but no block ids (kvcache/kv_tables.h does). */
#ifndef SCHEDULER_MACHINE_STATE_H
#define SCHEDULER_MACHINE_STATE_H

#include "scheduler/machine/machine.h"
#include "scheduler/queue.h"

#define SLOT_NONE UINT32_MAX

/* A chunk that does not end its prompt has a multiple of this number of tokens. */
#define SCHED_CHUNK_TOKENS LIMIT_CHUNK_TOKENS_MIN

enum slot_state {
    SLOT_UNKNOWN, /* The slot is unused, or its reservation is granted and nothing followed yet. */
    SLOT_RESERVING, /* The request is in the queue `reservations`. */
    SLOT_AWAITING,  /* The request is in the list `awaiting`: it has its blocks, but not its KV. */
    /* The prompt is in the queue `prompts` or `prompts_with_blocks` of its path. */
    SLOT_PROMPT_WAITING,
    SLOT_PROMPT_RUNNING, /* The first chunk was in a batch; the last chunk is not computed. */
    SLOT_PROMPT_ENDED,   /* The prompt is computed. */
    SLOT_DECODING,       /* The decode is in the list `decodes` of its path. */
    SLOT_DECODE_ENDED,   /* The decode has no token left to generate. */
};

/* A request. */
struct slot {
    uint8_t state; /* enum slot_state */
    uint8_t path;  /* Path of a prompt or decode. */
    /* Number of batches in flight that contain the request; at most 1 for a decode. */
    uint8_t in_flight;
    uint32_t next; /* Neighbours in the list `awaiting` or `decodes`. */
    uint32_t previous;
    uint32_t blocks;          /* Prompt or reservation: blocks that must still be taken. */
    uint32_t tokens;          /* Prompt: tokens to compute. Decode: tokens left to generate. */
    uint32_t tokens_done;     /* Prompt: tokens that are computed or in a batch in flight. */
    uint32_t tokens_computed; /* Prompt: tokens that are computed. */
    uint32_t room;            /* Decode: number of next tokens that its blocks can hold. */
    uint32_t draft;           /* Decode: drafted tokens that its next step may check. */
    bool pinned;              /* Decode: it is never a victim. */
    struct sched_rank rank;   /* Decode: urgency and API key. */
    uint64_t arrival;         /* Order of arrival of a prompt or reservation. */
    uint64_t request_number;  /* Prompt or reservation: sched_rank.request_number. */
};

/* Returns true if the decode could check more drafted tokens if it had more blocks. */
static inline bool sched_draft_lacks_room(const struct slot *entry)
{
    return entry->draft > 0 && entry->draft >= entry->room && entry->room < entry->tokens;
}

/* A list linked through the slots. */
struct slot_list {
    uint32_t first;
    uint32_t last;
    uint32_t count;
};

/* The work of one path: one replica of each stage. */
struct sched_path {
    struct sched_queue prompts;             /* Waiting prompts that need blocks to start. */
    struct sched_queue prompts_with_blocks; /* Waiting prompts that have their blocks already. */
    /* Decodes in the order in which they run next. */
    struct slot_list decodes;
    /* The prompt that has had a chunk in a batch and has chunks left; SLOT_NONE = none. */
    uint32_t running_prompt;
    /* The previous batch had a prompt (places_for_decodes in batch.c). A batch may be empty. */
    bool prompt_in_last_batch;
    uint32_t decodes_short;     /* Decodes with room = 0. */
    bool drafts_short;          /* A decode may lack room for its draft (sched_draft_lacks_room). */
    uint32_t decodes_in_flight; /* Decodes that are in a batch in flight. */
    /* The path's part of sched_machine.batches is a ring; this is the index of its oldest batch. */
    uint32_t batch_oldest;
    uint32_t batch_count;        /* Batches in flight. */
    uint32_t decode_batch_count; /* Batches in flight that have decodes. */
};

struct sched_machine {
    struct sched_machine_options options;        /* With defaults filled in. */
    struct sched_accounts *reservation_accounts; /* Accounts of the API keys. */
    struct sched_queue reservations;
    struct slot_list awaiting;
    struct sched_accounts *prompt_accounts; /* Accounts of the API keys, common to all paths. */
    struct sched_path paths[LIMIT_STAGE_PATHS];
    struct sched_batch *batches; /* [path_count][batches_in_flight] */
    int64_t now_us;              /* Time of the latest sched_machine_time_set. */
    uint64_t arrival_count;      /* Number of prompts and reservations that have arrived. */
    uint32_t prompts_running;    /* See struct sched_machine_load. */
    uint64_t prompt_tokens_pending;
    uint64_t decode_tokens_pending;
    struct slot slots[];
};

/* Returns the request in the slot. Requires the state SLOT_UNKNOWN (asserted). */
struct slot *sched_slot_unknown(struct sched_machine *sm, sched_slot slot);

/* Returns the queue in which a waiting prompt belongs. */
static inline struct sched_queue *sched_prompt_queue(struct sched_machine *sm,
                                                     const struct slot *prompt)
{
    struct sched_path *path = &sm->paths[prompt->path];
    return prompt->blocks > 0 ? &path->prompts : &path->prompts_with_blocks;
}

/* Returns the ticket of a request with the cost `tokens`. rank NULL = no key, priority 0. */
struct sched_ticket sched_ticket_of(const struct sched_rank *rank, uint32_t tokens);

/* Puts the slot at the end of the list. */
void sched_list_append(struct sched_machine *sm, struct slot_list *list, sched_slot slot);
/* Removes the slot from the list, which must contain it. */
void sched_list_remove(struct sched_machine *sm, struct slot_list *list, sched_slot slot);

#endif
