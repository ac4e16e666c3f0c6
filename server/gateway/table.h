/* gateway_table: the gateway's table of open requests: slots, ids, the states of the requests, and
 * for each state the list of its requests. requests.c owns the table and decides when a state
 * changes. All calls are made on the gateway's event loop thread. The table sends no messages. */
#ifndef SERVER_GATEWAY_TABLE_H
#define SERVER_GATEWAY_TABLE_H

#include "common/limits.h"
#include "events/event_text.h"
#include "scheduler/request.h"
#include "server/fleet/fleet.h"
#include "server/gateway/blame.h"
#include "server/gateway/submit.h"

/* States of a request: which part of the gateway, or which machine, has the request. The state that
 * operators see is in gateway_request.life. The legal transitions, which only
 * request_table_state_set makes:
 *
 *   FREE -> ARRIVING -> SCHEDULED -> RESERVING -> PREFILLING -> PREFILLED
 *             |   ^        |  |          ^            ^
 *             v   |        |  +-> PULLING +-----------+
 *           SUSPECTED      +--------------------------+
 *
 * from SCHEDULED and each state to the right of it, and from DOUBTED, to ARRIVING, when the
 * request's next generation begins; from RESERVING, PREFILLING and PREFILLED to DOUBTED, when the
 * next generation must wait; from each state to ENDING; and from each state to FREE. */
enum gateway_request_state {
    GATEWAY_REQUEST_FREE,       /* No request uses the slot. */
    GATEWAY_REQUEST_ARRIVING,   /* Will be given to the scheduler in the next iteration. */
    GATEWAY_REQUEST_SUSPECTED,  /* Waits until no other suspect is on machines (blame.h). */
    GATEWAY_REQUEST_DOUBTED,    /* Waits until a machine is known to live or not (gateway_doubt). */
    GATEWAY_REQUEST_SCHEDULED,  /* The scheduler knows the request and has not routed it. */
    GATEWAY_REQUEST_PULLING,    /* The prompt machine gets KV that another machine has kept. */
    GATEWAY_REQUEST_RESERVING,  /* RESERVE was sent to the token machine. */
    GATEWAY_REQUEST_PREFILLING, /* PREFILL was sent to the prompt machine. */
    GATEWAY_REQUEST_PREFILLED,  /* The prompt machine has finished with the request. */
    GATEWAY_REQUEST_ENDING,     /* Has ended. `ended` will be called in the next iteration. */
    GATEWAY_REQUEST_STATE_COUNT
};

/* KV that a machine keeps of a request that it no longer has. */
struct gateway_held {
    struct fleet_machine *machine; /* NULL = none. */
    /* transport_peer_number of the connection over which the machine reported the KV. */
    uint64_t connection;
    /* Tokens whose KV the machine keeps in its prefix cache; 0 = not known, because the machine has
     * preempted the request, or the gateway has handed the request over. */
    uint32_t tokens;
    bool checkpoint; /* The KV comes from a checkpoint (gateway_checkpoint). */
};

/* The copy of a running answer's KV on a second machine (checkpoints.h). */
struct gateway_checkpoint {
    struct fleet_machine *machine; /* The second machine; NULL = not chosen. */
    uint64_t connection;           /* transport_peer_number of its connection. */
    struct fleet_machine *source;  /* The token machine of the copy that is under way. */
    uint32_t tokens;  /* Tokens whose KV the second machine has in layers without a window. */
    uint32_t resumed; /* Tokens of the latest copy from which the answer can go on. */
    uint32_t pending; /* Tokens of the copy that is under way; 0 = none. */
    /* The copy that is under way has all full blocks, also of layers with a window. */
    bool whole;
    uint32_t copies; /* Number of copies so far. */
    bool writing;    /* PREFILL of the copy was sent. */
    bool partial;    /* The next copy may only add a part. */
};

/* The place of a running answer in the list of its token machine's next copies (checkpoint_due.h).
 */
struct gateway_copy_due {
    bool run_noticed; /* checkpoints.c has seen that the answer runs on its token machine. */
    struct fleet_machine *machine; /* The machine whose list has the answer; NULL = none. */
    int64_t at_us;                 /* No copy begins before this time. */
    struct gateway_request *previous;
    struct gateway_request *next;
};

/* A machine that another machine has reported as gone. The machine may have died without this
 * gateway's notice. If the request were routed to the machine again, one death would cost the
 * request two resumptions. So the request waits until the machine's connection ends, or until the
 * machine answers a PROBE. */
struct gateway_doubt {
    const struct fleet_machine *machine; /* NULL = none. */
    uint64_t probe;                      /* Number of the PROBE. */
};

struct gateway_request {
    uint64_t id;                        /* 0 = the slot is free. table.c describes its parts. */
    char client_id[GATEWAY_NAME_BYTES]; /* The client's id, for logs; "-" = none. */
    uint64_t history_number;            /* See history_begin. */
    enum gateway_request_state state;
    uint32_t version_index;       /* Index of the request's version in gateway.versions. */
    uint32_t generation;          /* Number of times that the request was scheduled again. */
    struct request_life life;     /* The state that operators see, with the time of each state. */
    struct gateway_client client; /* Functions for its tokens, events and end. */
    /* The fields down to `priority` come from struct gateway_submit; score_prompt is false for a
     * prompt of one token. */
    struct sampling sampling;
    uint32_t *rules; /* NULL = none. */
    uint32_t rule_count;
    const char *constraint; /* NULL = none. */
    uint32_t constraint_bytes;
    bool score_prompt;
    uint8_t pooling;
    uint8_t transfer_mode;
    uint32_t key; /* The schedulers read key, key_hash, weight and priority. */
    uint64_t key_hash;
    uint64_t prefix_salt;
    uint32_t weight;
    int32_t priority;

    /* The prompt, then the delivered tokens: together the prompt of a resumed generation. */
    uint32_t *tokens;
    uint32_t prompt_count;
    uint32_t delivered;         /* Tokens of the answer that the client has received. */
    uint32_t delivered_before;  /* Value of `delivered` when this generation began. */
    uint32_t scored_next;       /* Next prompt position whose score is wanted. */
    struct request_blame blame; /* Counts of lost and crashed machines that computed the request. */
    uint32_t preemptions;       /* Number of times that a machine preempted the request. */
    struct gateway_checkpoint checkpoint;
    struct gateway_copy_due copy_due;
    struct gateway_held held;       /* KV from earlier generations. */
    struct event_decision decision; /* What its route does with that KV. */
    struct gateway_doubt doubt;
    /* Tokens at the start of the prompt whose KV is complete on this generation's machines, while
     * the prompt is computed (PROGRESS). */
    uint32_t prompt_progress;
    uint32_t token_progress;

    struct fleet_machine *pull_source;    /* PULLING: the machine that has the KV. */
    uint32_t pull_tokens;                 /* PULLING: tokens whose KV it has. */
    struct fleet_machine *prompt_machine; /* NULL = not routed. */
    struct fleet_machine *token_machine;  /* NULL = not routed, or none is needed. */
    /* The prompt machine and the token machine of the latest generation before this one that was
     * routed; NULL = none. Their connections may end before the gateway learns that they
     * crashed. */
    const struct fleet_machine *machines_before[2];

    /* [EARLY_MAX] (requests.c): tokens that arrived before the first one; NULL = none yet. */
    struct message_token *early_tokens;
    uint32_t early_count;

    int64_t reserve_us; /* When RESERVE was sent. */
    /* The request's times up to now, and the machines of its latest routed generation. */
    struct gateway_summary summary;
    int64_t resuming_us; /* When a begun answer lost its machines or memory; 0 = the answer runs. */
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
    uint64_t id_counter; /* Requests ever taken. */
    uint32_t open_count;
    uint32_t free_slots[LIMIT_CLUSTER_REQUESTS];
    struct request_list { /* In the order in which the requests entered the state. */
        struct gateway_request *first;
        struct gateway_request *last;
        uint32_t count;
    } lists[GATEWAY_REQUEST_STATE_COUNT]; /* By state; the list of GATEWAY_REQUEST_FREE is empty. */
    struct gateway_request slots[LIMIT_CLUSTER_REQUESTS];
};

void request_table_init(struct request_table *table, uint32_t id_tag);
/* Takes a free slot, and sets the request's id and the fields that come from *submit; the caller
 * sets the state. Prompt and rules are copied, the constraint is not. Requires that a slot is free.
 * Returns ST_NO_MEMORY on failure. */
enum status request_table_add(struct request_table *table, const struct gateway_submit *submit,
                              struct gateway_request **out);
/* Frees the slot, and the memory that the request has for tokens and rules. */
void request_table_free(struct request_table *table, struct gateway_request *r);
/* Returns the open request with this id; NULL = none. */
struct gateway_request *request_table_find(struct request_table *table, uint64_t id);
/* Returns the open request after `r` in the order of slots, and the first one after NULL; NULL = no
 * further request. `r` may have been freed. */
struct gateway_request *request_table_next(struct request_table *table,
                                           const struct gateway_request *r);

/* Returns true if the scheduler knows a suspect (blame.h) other than `except`; NULL = any. */
bool request_table_suspect_is_out(const struct request_table *table,
                                  const struct gateway_request *except);

/* Moves the request that arrived first to GATEWAY_REQUEST_SCHEDULED and returns this request; NULL
 * = none. If no request has arrived, takes a waiting suspect, unless the scheduler knows another
 * suspect. A suspect that arrives while the scheduler knows another suspect is moved to
 * GATEWAY_REQUEST_SUSPECTED. */
struct gateway_request *request_table_arrived_take(struct request_table *table);
/* Returns true if the machine is one of the request's machines, or of `machines_before`. */
bool request_had_machine(const struct gateway_request *r, const struct fleet_machine *m);

/* Changes the request's state, and moves the request to the end of that state's list. Asserts that
 * the transition is legal: every caller has checked the state, so no message of a machine can cause
 * an illegal one. */
void request_table_state_set(struct request_table *table, struct gateway_request *r,
                             enum gateway_request_state to);

/* Returns the request's slot, which is its number in the schedulers. */
static inline uint32_t request_slot(const struct gateway_request *r)
{
    return (uint32_t)(r->id % LIMIT_CLUSTER_REQUESTS);
}

/* Returns true if PREFILL of this generation was sent. */
static inline bool request_prompt_is_sent(const struct gateway_request *r)
{
    return r->state == GATEWAY_REQUEST_PREFILLING || r->state == GATEWAY_REQUEST_PREFILLED;
}

#endif
