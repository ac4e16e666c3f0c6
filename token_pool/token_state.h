/* token_state: the structs and functions that token_pool.c (from RESERVE to the end),
 * token_blocks.c (blocks of one request), token_memory.c (how many blocks, and when) and
 * token_step.c (decode steps) share. Only these files include it. Everything runs on the machine's
 * event loop thread. */
#ifndef TOKEN_POOL_TOKEN_STATE_H
#define TOKEN_POOL_TOKEN_STATE_H

#include "scheduler/request.h"
#include "scheduler/slots.h"
#include "token_pool/token_pool.h"

/* Length of a reservation's lease. It is renewed while the prompt machine is connected, whose queue
 * may be long. */
#define TOKEN_LEASE_US 60000000

struct token_request {
    struct message_request name;
    kv_owner_id owner;
    struct request_life life;
    struct transport_peer *gateway;        /* NULL = its connection has ended. */
    char prompt_machine[LIMIT_NAME_BYTES]; /* The machine that writes the request's KV. */
    bool local;                            /* prompt_machine is this machine. */
    bool quarantined; /* The request has ended; its blocks wait for the writer. */
    bool stopped;     /* Cancelled while in a batch. */
    struct sampling sampling;
    uint32_t prompt_tokens;
    uint32_t output_limit;
    struct sched_rank rank;
    uint32_t path; /* Path through the machine's stages. */
    bool pinned;   /* Preempted so often that its whole answer is reserved. */
    /* One allocation: blocks_whole blocks, then `tokens`. */
    kv_block_id *blocks;
    uint32_t block_count;  /* Blocks that the request has, or is to get first. */
    uint32_t blocks_whole; /* Blocks for the prompt and the longest answer. */
    bool taken;            /* The blocks after the first `held` ones were taken from the pool. */
    /* Number of the first blocks that were found in the prefix cache, which owns them. */
    uint32_t held;
    /* Last block of the chain that the request reads in the prefix cache; KV_BLOCK_NONE = none. */
    kv_block_id chain;
    /* The prompt, then the `generated` tokens of the answer; NULL = no prefix cache, or RESERVE had
     * no prompt. */
    uint32_t *tokens;
    uint32_t generated; /* Known tokens of the answer. The first one arrives with KV_READY. */
    uint32_t last_token;
    int64_t began_us; /* Start of its first decode step; -1 = not yet. */
};

struct token_outgoing {
    struct transport_peer *gateway; /* NULL = sent, or its connection has ended. */
    struct message_token token;
};

struct token_writer {
    char name[LIMIT_NAME_BYTES];
    uint32_t connections;
};

struct token_pool {
    struct token_pool_options options;
    struct sched_slots *slots;
    uint64_t serial;            /* Number of requests admitted so far. */
    uint32_t awaited;           /* Requests that await their KV. */
    uint32_t blocks_held;       /* Blocks of requests whose prompts run elsewhere. */
    uint32_t holders;           /* Requests that hold blocks. */
    uint32_t growing;           /* Holders with fewer blocks than they may need. */
    uint32_t leased;            /* Requests with a lease: the awaited and the quarantined ones. */
    struct message_stats stats; /* Only the counters are used. */
    struct message_buffer tokens;
    uint32_t writer_count;
    struct token_writer writers[LIMIT_MACHINES];
    uint32_t outgoing_count;
    struct token_outgoing outgoing[LIMIT_BATCH_SEQUENCES];
    struct token_request requests[]; /* Indexed by slot - first_slot. */
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

/* Records the next token of the answer. */
static inline void token_request_token(struct token_request *request, uint32_t id)
{
    if (request->tokens != NULL)
        request->tokens[request->prompt_tokens + request->generated] = id;
    request->generated++;
    request->last_token = id;
}

/* token_pool.c Frees everything that the request holds, without sending a message. */
void token_request_forget(struct token_pool *pool, struct token_request *request);
/* Ends a request whose KV is awaited. Its blocks stay until no process can write into them. */
void token_request_quarantine(struct token_pool *pool, struct token_request *request,
                              enum request_state end, int64_t now_us);

/* token_memory.c Returns the number of blocks that the request gets before its KV arrives. */
uint32_t token_memory_first(const struct token_pool *pool, const struct token_request *request);
/* True if the request may need more blocks than it has. */
static inline bool token_request_grows(const struct token_request *request)
{
    return request->block_count < request->blocks_whole;
}

/* token_blocks.c Looks the prompt up in the prefix cache and pins the blocks found there until
 * token_blocks_look_end or token_blocks_leave. Returns how many more blocks the request must take
 * from the pool. */
uint32_t token_blocks_look(struct token_pool *pool, struct token_request *request);
void token_blocks_look_end(struct token_pool *pool, struct token_request *request);
/* Takes the remaining blocks. Requires that they are available. */
void token_blocks_take(struct token_pool *pool, struct token_request *request);
/* Takes one more block, which is live. Requires that one is available and that the request may
 * grow. */
void token_blocks_grow(struct token_pool *pool, struct token_request *request);
/* Quarantines the request's blocks, because a writer that has not stopped may write into them. */
void token_blocks_quarantine(struct token_pool *pool, const struct token_request *request);
/* The prompt's KV is complete: marks the blocks as live, and adds the full blocks of the prompt to
 * the prefix cache, where the request reads them. */
void token_blocks_whole(struct token_pool *pool, struct token_request *request);
/* Takes all blocks away from the request, however it ends. Full blocks of prompt and answer go to
 * the prefix cache if their KV is complete; all others are freed. */
void token_blocks_leave(struct token_pool *pool, struct token_request *request);

#endif
