/* machine_state: the state of sched_machine, private to machine.c (requests and their states),
 * memory.c (which request gets memory) and batch.c (what runs next). These files run on the thread
 * that calls sched_machine; not thread-safe. Pure: no clock, no I/O. Every request is in at most
 * one list or queue, linked through its slot, so no call allocates after opening. They do not
 * decide which blocks a request gets (kvcache/kv_tables.h). */
#ifndef SCHEDULER_MACHINE_STATE_H
#define SCHEDULER_MACHINE_STATE_H

#include "scheduler/machine/machine.h"
#include "scheduler/queue.h"

#define SLOT_NONE UINT32_MAX

/* A chunk that does not end its prompt has a multiple of this many tokens: whole KV blocks of the
 * default size. */
#define SCHED_CHUNK_TOKENS LIMIT_CHUNK_TOKENS_MIN

enum slot_state {
    /* The slot is unused, or its reservation is granted and its prompt, which will run here, has
     * not been added. */
    SLOT_UNKNOWN,
    SLOT_RESERVING,      /* In the queue `reservations`. */
    SLOT_AWAITING,       /* In the list `awaiting`: has its blocks, but not its KV. */
    SLOT_PROMPT_WAITING, /* In the queue `prompts` or `prompts_with_blocks` of its path. */
    SLOT_PROMPT_RUNNING, /* A batch has its first chunk; its last chunk is not computed. */
    SLOT_PROMPT_ENDED,   /* Its prompt is computed. */
    SLOT_DECODING,       /* In the list `decodes` of its path. */
    SLOT_DECODE_ENDED,   /* It has no token left to generate. */
};

/* A request. */
struct slot {
    uint8_t state;     /* enum slot_state */
    uint8_t path;      /* Path of a prompt or decode. */
    uint8_t in_flight; /* Batches that contain it; at most one for a decode. */
    uint32_t next;     /* Neighbours in the list `awaiting` or `decodes`. */
    uint32_t previous;
    uint32_t blocks;         /* Blocks that its prompt or reservation must still take. */
    uint32_t tokens;         /* Prompt: its tokens. Decode: tokens left to generate. */
    uint32_t tokens_done;    /* Tokens of its prompt that are computed or in flight. */
    uint32_t room;           /* Decode: tokens that its blocks can still hold. */
    uint32_t draft;          /* Decode: drafted tokens that its next step may check. */
    bool pinned;             /* Decode: never a victim. */
    struct sched_rank rank;  /* Decode: urgency and API key. */
    uint64_t arrival;        /* Order of arrival of a prompt or reservation. */
    uint64_t request_number; /* Prompt or reservation: sched_rank.request_number. */
};

/* Returns true if the decode could check more drafted tokens if its blocks held more tokens. */
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
    uint32_t running_prompt; /* Prompt that was begun and has chunks left; SLOT_NONE = none. */
    /* The previous batch had a prompt (places_for_decodes in batch.c). */
    bool prompt_in_last_batch;
    uint32_t decodes_short;     /* Decodes with room = 0. */
    bool drafts_short;          /* A decode may lack room for its draft (sched_draft_lacks_room). */
    uint32_t decodes_in_flight; /* Decodes that are in a batch in flight. */
    /* The path's part of `batches` is a ring. Index of its oldest batch in flight. */
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
    uint32_t prompts_running;
    uint64_t prompt_tokens_pending;
    uint64_t decode_tokens_pending;
    struct slot slots[];
};

/* Returns the request in the slot. Requires that its state is SLOT_UNKNOWN. */
struct slot *sched_slot_unknown(struct sched_machine *sm, sched_slot slot);

/* Returns the queue in which a waiting prompt belongs. */
static inline struct sched_queue *sched_prompt_queue(struct sched_machine *sm,
                                                     const struct slot *prompt)
{
    struct sched_path *path = &sm->paths[prompt->path];
    return prompt->blocks > 0 ? &path->prompts : &path->prompts_with_blocks;
}

/* Returns the ticket of a request with this rank and the cost `tokens`. rank NULL = no key,
 * priority 0. */
struct sched_ticket sched_ticket_of(const struct sched_rank *rank, uint32_t tokens);

/* Append the slot at the end of a list; remove the slot from the list that it is in. */
void sched_list_append(struct sched_machine *sm, struct slot_list *list, sched_slot slot);
void sched_list_remove(struct sched_machine *sm, struct slot_list *list, sched_slot slot);

#endif
