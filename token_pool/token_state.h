/* token_state: what token_pool.c (from RESERVE to its end), token_blocks.c (its blocks),
 * token_memory.c (how many, and when) and token_step.c (the decode steps) share. */
#ifndef TOKEN_POOL_TOKEN_STATE_H
#define TOKEN_POOL_TOKEN_STATE_H

#include "scheduler/request.h"
#include "scheduler/slots.h"
#include "token_pool/token_pool.h"

/* A reservation's lease, renewed while the prompt machine is connected: its queue may be long. */
#define TOKEN_LEASE_US 60000000

struct token_request {
    struct message_request name;
    kv_owner_id owner;
    struct request_life life;
    struct transport_peer *gateway;        /* NULL: gone */
    char prompt_machine[LIMIT_NAME_BYTES]; /* who writes its KV */
    bool local;                            /* that is this machine */
    bool quarantined;                      /* given up; its blocks wait for the writer */
    bool stopped;                          /* given up while in a batch */
    struct message_sampling sampling;
    uint32_t prompt_tokens;
    uint32_t output_limit;
    struct sched_rank rank;
    uint32_t path; /* through the machine's stages */
    bool pinned;   /* was preempted so often that its whole answer is booked */
    /* One allocation: blocks_whole blocks, prompt and answer. */
    kv_block_id *blocks;
    uint32_t block_count;  /* that it has, or gets first */
    uint32_t blocks_whole; /* for prompt and longest answer */
    bool taken;            /* blocks behind the first `held` ones are taken from the pool */
    uint32_t held;         /* the first blocks, found in the prefix cache: it owns them */
    kv_block_id chain;     /* the end of what the request reads there; KV_BLOCK_NONE */
    uint32_t *tokens;   /* prompt, then the answer's `generated`; NULL: the prompt was not told */
    uint32_t generated; /* tokens of the answer that are known; the first one comes with KV_READY */
    uint32_t last_token;
    int64_t began_us; /* its first step; -1: not yet */
};

struct token_outgoing {
    struct transport_peer *gateway; /* NULL: sent */
    struct message_token token;
};

struct token_writer {
    char name[LIMIT_NAME_BYTES];
    uint32_t connections;
};

struct token_pool {
    struct token_pool_options options;
    struct sched_slots *slots;
    uint64_t serial;      /* of the request admitted last */
    uint32_t awaited;     /* requests that wait for their KV */
    uint32_t blocks_held; /* of requests that are not local */
    uint32_t holders;     /* requests that hold blocks */
    uint32_t growing;     /* of these, with fewer than they may need */
    uint64_t preemptions;
    uint32_t leased; /* requests with a lease: those, and the quarantined ones */
    uint64_t generated_tokens_done;
    struct message_buffer tokens;
    uint32_t writer_count;
    struct token_writer writers[LIMIT_MACHINES];
    uint32_t outgoing_count;
    struct token_outgoing outgoing[LIMIT_BATCH_SEQUENCES];
    struct token_request requests[]; /* by slot - first_slot */
};

static inline struct token_request *token_request_of(struct token_pool *pool, sched_slot slot)
{
    return &pool->requests[slot - pool->options.first_slot];
}

static inline sched_slot token_slot_of(const struct token_pool *pool,
                                       const struct token_request *request)
{
    return pool->options.first_slot + (sched_slot)(request - pool->requests);
}

/* The next token of the answer is known. */
static inline void token_request_token(struct token_request *request, uint32_t id)
{
    if (request->tokens != NULL)
        request->tokens[request->prompt_tokens + request->generated] = id;
    request->generated++;
    request->last_token = id;
}

/* token_pool.c: gives back all that the request holds. Nobody hears of it. */
void token_request_forget(struct token_pool *pool, struct token_request *request);
/* Given up while KV was awaited: the blocks stay until nobody can write into them any more. */
void token_request_quarantine(struct token_pool *pool, struct token_request *request,
                              enum request_state end, int64_t now_us);

/* token_memory.c: blocks that it gets before its KV comes. */
uint32_t token_memory_first(const struct token_pool *pool, const struct token_request *request);
static inline bool token_request_grows(const struct token_request *request)
{
    return request->block_count < request->blocks_whole;
}

/* token_blocks.c: blocks that the request has to take from the pool now, with what the prefix cache
 * has of its prompt; that is held from then on, until token_blocks_look_end or token_blocks_leave.
 */
uint32_t token_blocks_look(struct token_pool *pool, struct token_request *request);
void token_blocks_look_end(struct token_pool *pool, struct token_request *request);
/* Takes them: there are as many available. */
void token_blocks_take(struct token_pool *pool, struct token_request *request);
/* One more, live: there is one available, and the request grows. */
void token_blocks_grow(struct token_pool *pool, struct token_request *request);
/* A writer that has not stopped may write into them. */
void token_blocks_quarantine(struct token_pool *pool, const struct token_request *request);
/* The prompt's KV is whole: its full blocks are the prefix cache's, which the request reads. */
void token_blocks_whole(struct token_pool *pool, struct token_request *request);
/* The blocks leave the request, whatever its end: full blocks of prompt and answer stay in the
 * prefix cache if their KV is whole, the others are free. */
void token_blocks_leave(struct token_pool *pool, struct token_request *request);

#endif
