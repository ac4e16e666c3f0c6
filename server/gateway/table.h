/* gateway_table: the gateway's table of open requests: their slots, ids and states, and for each
 * state the list of its requests. A request is open from gateway_submit until its slot is freed; an
 * ended request whose `ended` was not called yet is open, too. requests.c owns the table and calls
 * the functions; other files of server/gateway/ call request_slot, and read and write fields of
 * requests. All calls are on the gateway's event loop thread. The table sends no messages. */
#ifndef SERVER_GATEWAY_TABLE_H
#define SERVER_GATEWAY_TABLE_H

#include "common/limits.h"
#include "events/event_text.h"
#include "scheduler/request.h"
#include "server/fleet/fleet.h"
#include "server/gateway/blame.h"
#include "server/gateway/submit.h"

/* States of a request: which part of the gateway, or which machine, has the request. The state that
 * operators see is in gateway_request.life. The legal transitions (request_table_state_set):
 *
 *   FREE -> ARRIVING -> SCHEDULED -> RESERVING -> PREFILLING -> PREFILLED
 *             |   ^        |  |          ^            ^
 *             v   |        |  +-> PULLING +-----------+
 *           SUSPECTED      +--------------------------+
 *
 * Further transitions:
 *   SCHEDULED, PULLING, RESERVING, PREFILLING, PREFILLED, DOUBTED -> ARRIVING
 *   RESERVING, PREFILLING, PREFILLED -> DOUBTED
 *   every state except ENDING -> ENDING
 *   every state except FREE -> FREE */
enum gateway_request_state {
    GATEWAY_REQUEST_FREE,       /* No request uses the slot. */
    GATEWAY_REQUEST_ARRIVING,   /* Waits to be given to the scheduler. */
    GATEWAY_REQUEST_SUSPECTED,  /* Waits until the scheduler knows no other suspect (blame.h). */
    GATEWAY_REQUEST_DOUBTED,    /* Waits until it is known whether a machine lives. */
    GATEWAY_REQUEST_SCHEDULED,  /* The scheduler knows the request and has not routed it. */
    GATEWAY_REQUEST_PULLING,    /* Waits until the prompt machine has got KV (checkpoints.h). */
    GATEWAY_REQUEST_RESERVING,  /* RESERVE was sent to the token machine. */
    GATEWAY_REQUEST_PREFILLING, /* PREFILL was sent to the prompt machine. */
    GATEWAY_REQUEST_PREFILLED,  /* The prompt machine has finished with the request. */
    GATEWAY_REQUEST_ENDING,     /* The request has ended; `ended` was not called yet. */
    GATEWAY_REQUEST_STATE_COUNT
};

/* KV of a request's earlier generations that a machine keeps in its prefix cache. */
struct gateway_held {
    struct fleet_machine *machine; /* NULL = none. */
    uint64_t connection; /* transport_peer_number of the connection; 0 if `tokens` is 0. */
    uint32_t tokens;     /* Tokens whose KV the machine keeps; 0 = not known. */
    bool checkpoint;     /* The KV was copied to the machine (gateway_checkpoint). */
};

/* The copy or pull of a request's KV to a second machine (checkpoints.h). */
struct gateway_checkpoint {
    struct fleet_machine *machine; /* The second machine; NULL = not chosen. */
    uint64_t connection;           /* transport_peer_number of the second machine's connection. */
    struct fleet_machine *source;  /* The machine that writes the copy under way. */
    uint32_t tokens; /* Tokens whose KV the second machine has in layers without a window. */
    uint32_t resumable_tokens; /* Tokens at which the second machine can resume; 0 = none. */
    uint32_t pending_tokens;   /* Tokens of the copy under way; 0 = none. */
    bool pending_is_whole;     /* The copy under way has all full blocks of the request's KV. */
    uint32_t copy_count;       /* Number of the latest copy. */
    bool prefill_sent;         /* PREFILL of the copy under way was sent. */
    bool next_may_be_partial;  /* The next copy may leave out the last blocks. */
};

/* A running answer's place in the list of its token machine (checkpoint_due.h). */
struct gateway_copy_due {
    bool run_noticed; /* checkpoints.c has seen that the answer runs on its token machine. */
    struct fleet_machine *machine;    /* The machine whose list has the answer; NULL = none. */
    int64_t at_us;                    /* The answer's next copy does not begin before this time. */
    struct gateway_request *previous; /* Neighbours in the machine's list. */
    struct gateway_request *next;
};

/* A machine that is connected to this gateway, but that another machine has reported as gone. The
 * request waits until the connection ends or the machine answers a PROBE. */
struct gateway_doubt {
    const struct fleet_machine *machine; /* NULL = none. */
    uint64_t probe;                      /* Number in the PROBE. */
};

struct gateway_request {
    uint64_t id;                             /* 0 = the slot is free. */
    char client_id[GATEWAY_CLIENT_ID_BYTES]; /* Id of the HTTP request, for logs; "-" = none. */
    uint64_t history_number;                 /* See history_begin. */
    enum gateway_request_state state;
    uint32_t version_index;       /* Index of the request's version in gateway.versions. */
    uint32_t generation;          /* Number of resumptions so far. */
    struct request_life life;     /* The state that operators see, with the time of each state. */
    struct gateway_client client; /* Functions for the request's tokens, events and end. */
    /* The fields down to `priority` are those of struct gateway_submit, except that score_prompt is
     * false for a prompt of one token, and that weight is at least 1. */
    struct sampling sampling;
    uint32_t *token_rules; /* NULL = none. */
    uint32_t token_rule_words;
    const char *constraint; /* NULL = none. */
    uint32_t constraint_bytes;
    bool score_prompt;
    uint8_t pooling;
    uint8_t transfer_mode;
    uint32_t key;
    uint64_t key_hash;
    uint64_t prefix_salt;
    uint32_t weight;
    int32_t priority;

    uint32_t *tokens;           /* The prompt, then the delivered tokens. */
    uint32_t prompt_count;      /* Tokens of the prompt. */
    uint32_t delivered;         /* Tokens of the answer that the client has received. */
    uint32_t delivered_before;  /* Value of `delivered` when this generation began. */
    uint32_t scored_next;       /* Next prompt position whose score is delivered; at first 1. */
    struct request_blame blame; /* Counts of losses. */
    uint32_t preemptions;       /* Preemptions after the token machine had generated tokens. */
    struct gateway_checkpoint checkpoint;
    struct gateway_copy_due copy_due;
    struct gateway_held held;
    struct event_decision decision; /* The scheduler's choice, until its outcome is logged. */
    struct gateway_doubt doubt;
    /* Tokens in the prompt machine's latest PROGRESS; 0 = none yet, or the prompt machine is also
     * the token machine. */
    uint32_t prompt_progress;
    uint32_t token_progress; /* Tokens in the token machine's latest PROGRESS; 0 = none yet. */

    struct fleet_machine *pull_source;    /* GATEWAY_REQUEST_PULLING: the machine that has KV. */
    uint32_t pull_tokens;                 /* Tokens whose KV pull_source has. */
    struct fleet_machine *prompt_machine; /* NULL = not routed. */
    struct fleet_machine *token_machine;  /* NULL = not routed, or none is needed. */
    /* Prompt machine and token machine of the latest earlier generation that was routed; NULL =
     * none. */
    const struct fleet_machine *machines_before[2];

    struct message_token *early_tokens; /* Tokens that overtook the generation's first token. */
    uint32_t early_count;               /* Number of `early_tokens`. */

    int64_t reserve_us;             /* When RESERVE was sent. */
    struct gateway_summary summary; /* Incomplete until the request ends (request_summary.h). */
    int64_t resuming_us; /* When the resumption of a begun answer began; 0 = not being resumed. */
    int64_t first_us;    /* When the first token was delivered; -1 = not yet. */
    int64_t last_us;     /* When the latest token was delivered. */
    uint8_t finish;      /* enum message_finish of the latest token. */

    /* Neighbours in the list of the requests in the same state. */
    struct gateway_request *list_previous;
    struct gateway_request *list_next;
    /* GATEWAY_REQUEST_ENDING: the arguments of the call of `ended`. */
    enum gateway_end end;
    uint32_t retry_after_s;
    char end_text[256];
};

struct request_table {
    uint64_t id_tag;     /* Upper 32 bits of every id. */
    uint64_t id_counter; /* Number of requests added so far. */
    uint32_t open_count;
    uint32_t slots_end; /* Slots from this index on have never been used. */
    /* Indices of the free slots; the last open_count elements have no meaning. */
    uint32_t free_slots[LIMIT_CLUSTER_REQUESTS];
    struct request_list { /* In the order in which the requests entered the state. */
        struct gateway_request *first;
        struct gateway_request *last;
        uint32_t count;
    } lists[GATEWAY_REQUEST_STATE_COUNT]; /* By state; GATEWAY_REQUEST_FREE has no list. */
    struct gateway_request slots[LIMIT_CLUSTER_REQUESTS];
};

/* Opens an empty table. Requires that *table is all zeros. */
void request_table_init(struct request_table *table, uint32_t id_tag);
/* Takes a free slot for a request, and sets its id and the fields that *submit determines. The
 * caller sets the state. Requires that a slot is free. Returns ST_NO_MEMORY on failure. */
enum status request_table_add(struct request_table *table, const struct gateway_submit *submit,
                              struct gateway_request **out);
/* Frees the slot and the memory that the request owns. */
void request_table_free(struct request_table *table, struct gateway_request *r);
/* Returns the open request with this id; NULL = none. */
struct gateway_request *request_table_find(struct request_table *table, uint64_t id);
/* Returns the open request in the next slot after the slot of `r`, which may have been freed. r =
 * NULL: returns the first open request. Returns NULL if no open request has a higher slot. */
struct gateway_request *request_table_next(struct request_table *table,
                                           const struct gateway_request *r);

/* Returns true if the scheduler knows a suspect (blame.h). except: a request that does not count;
 * NULL = none. */
bool request_table_suspect_is_scheduled(const struct request_table *table,
                                        const struct gateway_request *except);

/* Moves a request to GATEWAY_REQUEST_SCHEDULED and returns this request; NULL = none. Takes the
 * first request in GATEWAY_REQUEST_ARRIVING or, if there is none, in GATEWAY_REQUEST_SUSPECTED.
 * While the scheduler knows a suspect, no suspect is taken: suspects in GATEWAY_REQUEST_ARRIVING
 * move to GATEWAY_REQUEST_SUSPECTED. */
struct gateway_request *request_table_arrived_take(struct request_table *table);
/* Returns true if the machine is one of the request's machines, or of `machines_before`. */
bool request_had_machine(const struct gateway_request *r, const struct fleet_machine *m);

/* Changes the request's state, and moves the request to the end of the new state's list. Requires
 * that the transition is legal. */
void request_table_state_set(struct request_table *table, struct gateway_request *r,
                             enum gateway_request_state to);

/* Returns the request's slot, which is its number in the schedulers. */
static inline uint32_t request_slot(const struct gateway_request *r)
{
    return (uint32_t)(r->id % LIMIT_CLUSTER_REQUESTS);
}

/* Returns true if PREFILL of this generation was sent and the request has not ended. */
static inline bool request_prompt_is_sent(const struct gateway_request *r)
{
    return r->state == GATEWAY_REQUEST_PREFILLING || r->state == GATEWAY_REQUEST_PREFILLED;
}

#endif
