/* prompt_state: the structs and functions that prompt_pool.c (admission and end of requests),
 * prompt_chunk.c (batches), prompt_prefix.c (prefix cache) and prompt_push.c (KV transfers) share.
 *
 * A request ends in one of two ways:
 * - Delivered: its first token was sent and its KV flushed, then KV_READY to the token machine
 *   (KV_ABORTED if the first token ended the answer), then PREFILLED to the gateway.
 * - Stopped (cancelled or failed): no more writes are issued, the issued ones are flushed, then
 *   KV_ABORTED to the token machine.
 *
 * Either way its blocks are freed only when no write from them is in flight and no batch uses
 * them. */
#ifndef PROMPT_POOL_PROMPT_STATE_H
#define PROMPT_POOL_PROMPT_STATE_H

#include "prompt_pool/prompt_pool.h"
#include "scheduler/request.h"
#include "scheduler/slots.h"

struct prompt_request {
    struct message_request name;
    kv_owner_id owner;
    struct request_life life;
    struct transport_peer *gateway; /* NULL = its connection has ended. */
    /* The token machine; NULL = none, this machine, or its connection has ended. */
    struct transport_peer *target;
    uint32_t target_number; /* Number of the target in prompt_links. */
    uint32_t target_path;   /* Path through the target's stages. */
    uint32_t path;          /* Path through our stages. */
    struct sampling sampling;
    uint32_t output_limit;
    bool local; /* The blocks belong to the token pool of this machine. */
    bool score;
    bool layerwise;
    /* Cancelled or failed: the request is forgotten when no batch and no transfer uses it. */
    bool stopped;
    bool finished;  /* The first token ended the answer, so nothing is decoded. */
    bool flushing;  /* A flush is pending. */
    bool written;   /* Writes were issued since the last flush. */
    bool asked;     /* The last chunk has begun, so the stages flush without being asked. */
    bool unsettled; /* The request is in `ended`. */
    enum status write_status;

    uint32_t *prompt; /* One allocation: prompt, target_blocks, own_blocks. */
    uint32_t prompt_count;
    kv_block_id *target_blocks; /* Indexed like `blocks`; valid from index `held` on. */
    /* Number of the first blocks that the token machine already has. They are not pushed. */
    uint32_t held;
    const kv_block_id *blocks; /* own_blocks, or the token pool's blocks. */
    kv_block_id *own_blocks;
    uint32_t block_count; /* Number of blocks that the prompt fills. */
    /* Number of the prompt's first blocks that were found in a prefix cache: this pool's, or the
     * token pool's if `local`. */
    uint32_t cached;
    /* Last block of the chain that the request reads in the prefix cache; KV_BLOCK_NONE = none. */
    kv_block_id chain;
    bool taken; /* The own_blocks after the cached ones were taken from the pool. */

    /* What the running chunk has to push: blocks [push_first, push_end) of the layers from
     * push_layer on. */
    uint32_t push_first;
    uint32_t push_end;
    uint32_t push_layer;

    struct message_token first; /* Token 0 of the answer. */
    int64_t sampled_us;
    int64_t first_write_us; /* -1 = none yet. */
    uint64_t bytes;
};

struct prompt_pool {
    struct prompt_pool_options options;
    struct sched_slots *slots;
    struct message_buffer tokens; /* Tokens of one request, until they are sent. */
    uint32_t token_count;         /* Number of tokens in `tokens`. */
    uint64_t serial;              /* Number of requests admitted so far. */
    uint32_t holders;             /* Requests that have taken blocks. */
    uint32_t looked_count;        /* Prompts whose prefixes were looked up for the next batch. */
    sched_slot looked[LIMIT_BATCH_SEQUENCES];
    uint32_t running_count; /* Prompt items of the running batch. */
    sched_slot running[LIMIT_BATCH_SEQUENCES];
    /* Prompts whose last chunk has run, until prompt_pool_settle. SCHED_NO_SLOT = stopped. */
    uint32_t ended_count;
    sched_slot ended[LIMIT_BATCH_SEQUENCES];
    struct message_stats stats;
    struct prompt_request requests[]; /* Indexed by slot - first_slot. */
};

static inline struct prompt_request *prompt_request_of(struct prompt_pool *pool, sched_slot slot)
{
    return &pool->requests[slot - pool->options.first_slot];
}

static inline sched_slot prompt_slot_of(const struct prompt_pool *pool,
                                        const struct prompt_request *request)
{
    return pool->options.first_slot + (sched_slot)(request - pool->requests);
}

/* prompt_pool.c Reports FAILED to the gateway (once) and stops the request. */
void prompt_request_fail(struct prompt_pool *pool, struct prompt_request *request,
                         enum status status, const char *text, int64_t now_us);
/* Forgets the request as soon as no batch and no transfer uses it. Call it again after each batch
 * and flush of the request. */
void prompt_request_stop(struct prompt_pool *pool, struct prompt_request *request);
/* The prompt phase is over: sends PREFILLED to the gateway and forgets the request. */
void prompt_request_complete(struct prompt_pool *pool, struct prompt_request *request,
                             int64_t now_us);

/* prompt_prefix.c Returns the number of prompt tokens left to compute. */
uint32_t prompt_prefix_left(const struct prompt_pool *pool, const struct prompt_request *request);
/* The prompt starts: adds its length and its cached tokens to the counters. */
void prompt_prefix_count(struct prompt_pool *pool, const struct prompt_request *request);
/* The whole prompt is computed: adds its full blocks to the prefix cache. */
void prompt_prefix_add(struct prompt_pool *pool, struct prompt_request *request);
/* Frees the request's blocks and its chain in the prefix cache. */
void prompt_prefix_free(struct prompt_pool *pool, const struct prompt_request *request);

/* prompt_push.c Writes layers [push_layer, layer_end) of the blocks [push_first, push_end). */
void prompt_push_layers(struct prompt_pool *pool, struct prompt_request *request,
                        uint32_t layer_end, int64_t now_us);
/* Stores what the machine's stages push for the chunk that begins, and counts it as written. */
void prompt_push_plan(struct prompt_pool *pool, struct prompt_request *request, bool last,
                      int64_t now_us, struct prompt_push *out);
/* Begins a flush of the request's writes. */
void prompt_push_flush(struct prompt_pool *pool, struct prompt_request *request);
/* Tells the token machine, or the token pool of this machine, that no more writes follow. */
void prompt_push_abort(struct prompt_pool *pool, const struct prompt_request *request);

#endif
