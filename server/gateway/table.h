/* gateway_table: the gateway's table of open requests: slots, ids and the two lists of requests that
 * wait for the iteration. It changes no request's state; requests.c does. The gateway's loop
 * thread makes every call. */
#ifndef SERVER_GATEWAY_TABLE_H
#define SERVER_GATEWAY_TABLE_H

#include "common/limits.h"
#include "scheduler/request.h"
#include "server/fleet/fleet.h"
#include "server/gateway/submit.h"

enum request_list { LIST_NONE, LIST_ARRIVING, LIST_ENDING, LIST_COUNT };

struct gateway_request {
    uint64_t id;            /* 0 = the slot is free. request_id_next describes its parts. */
    uint32_t version_index; /* Version, in the router. */
    uint32_t generation;
    struct request_life life;
    struct gateway_client client;
    struct sampling sampling; /* As submitted. */
    bool score_prompt;
    uint8_t kv_path;
    uint32_t key; /* key, key_hash, weight and priority are for the schedulers. */
    uint64_t key_hash;
    uint32_t weight;
    int32_t priority;

    /* The prompt, then the delivered tokens: together the prompt of a resumed generation. */
    uint32_t *tokens;
    uint32_t prompt_count;
    uint32_t delivered;   /* Tokens of the answer that the client got. */
    uint32_t base;        /* `delivered` when this generation began: its index 0. */
    uint32_t scored_next; /* Next prompt position whose score is wanted. */
    uint32_t losses;      /* Consecutive losses since a token was delivered. */
    uint32_t suspicion;   /* Sum of GATEWAY_SUSPECT_* of these losses. */
    uint32_t preemptions; /* How often a machine preempted it. */
    /* Machine that had its KV before this generation; NULL = none. */
    struct fleet_machine *held_machine;

    bool scheduled;    /* The scheduler knows it. */
    bool reserve_sent; /* RESERVE of this generation was sent. */
    bool prefill_sent;
    bool prefilled;
    struct fleet_machine *prompt_machine; /* Routed to; NULL = none. */
    struct fleet_machine *token_machine;

    /* [GATEWAY_EARLY_MAX]: tokens that overtook the first one; allocated at need. */
    struct message_token *early;
    uint32_t early_count;

    int64_t reserve_us; /* When RESERVE was sent. */
    int64_t first_us;   /* When the first token was delivered; -1 = not yet. */
    int64_t last_us;    /* When the latest token was delivered. */
    uint8_t finish;     /* enum message_finish of the latest token. */

    enum request_list list;
    struct gateway_request *before;
    struct gateway_request *after;
    enum gateway_end end;
    uint32_t retry_after_s;
    char end_text[256];
};

struct request_table {
    uint64_t id_tag;     /* Upper 32 bits of every id. */
    uint64_t id_counter; /* Requests ever taken. */
    uint32_t open_count;
    uint32_t free_slots[LIMIT_CLUSTER_REQUESTS];
    struct {
        struct gateway_request *first;
        struct gateway_request *last;
    } lists[LIST_COUNT];
    struct gateway_request slots[LIMIT_CLUSTER_REQUESTS];
};

void request_table_init(struct request_table *table, uint32_t id_tag);
/* Takes a free slot. Only the id is set, and all other fields are 0. Returns NULL if none is free. */
struct gateway_request *request_table_take(struct request_table *table);
/* Frees the slot, with the request's tokens. */
void request_table_free(struct request_table *table, struct gateway_request *r);
/* Returns the open request with that id; NULL = none. */
struct gateway_request *request_table_find(struct request_table *table, uint64_t id);
/* Returns the open request after `r` in the order of slots, and the first one after NULL; NULL = no
 * further request. `r` may have been freed. */
struct gateway_request *request_table_next(struct request_table *table,
                                           const struct gateway_request *r);

void request_list_add(struct request_table *table, struct gateway_request *r,
                      enum request_list list);
void request_list_remove(struct request_table *table, struct gateway_request *r);

/* A request's slot is its number in the schedulers. */
static inline uint32_t request_slot(const struct gateway_request *r)
{
    return (uint32_t)(r->id % LIMIT_CLUSTER_REQUESTS);
}

#endif
