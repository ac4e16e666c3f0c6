/* prompt_state: what prompt_pool.c (who is known, and how each one ends), prompt_chunk.c (what
 * runs) and prompt_push.c (KV on its way) share.
 *
 * A request ends in one of two ways. It is delivered: tokens sent, KV flushed, KV_READY, PREFILLED.
 * Or it is stopped (cancelled or failed): no more writes are issued, what was issued is flushed,
 * KV_ABORTED. Either way its blocks are freed only when no write from them is in flight and no
 * batch uses them. */
#ifndef PROMPT_POOL_PROMPT_STATE_H
#define PROMPT_POOL_PROMPT_STATE_H

#include "prompt_pool/prompt_pool.h"
#include "scheduler/request.h"
#include "scheduler/slots.h"

struct prompt_request {
    struct message_request name;
    kv_owner_id owner;
    struct request_life life;
    struct transport_peer *gateway; /* NULL: gone */
    struct transport_peer *target;  /* the token machine; NULL: none, ours, or gone */
    uint32_t target_number;         /* its, of prompt_links */
    uint32_t target_path;           /* that the request takes through its stages */
    uint32_t path;                  /* and through ours */
    struct message_sampling sampling;
    uint32_t output_limit;
    bool local; /* the blocks are the token pool's, on this machine */
    bool score;
    bool layerwise;
    bool stopped;   /* cancelled or failed: leaves as soon as nothing of it runs or flies */
    bool finished;  /* its first token ended it: the token machine has nothing to do */
    bool flushing;  /* a flush is on its way */
    bool written;   /* writes were issued since the last flush */
    bool asked;     /* the stages flush by themselves: the last chunk has begun */
    bool unsettled; /* in `ended` */
    enum status write_status;

    uint32_t *prompt; /* one allocation: prompt, target_blocks, own blocks */
    uint32_t prompt_count;
    kv_block_id *target_blocks; /* those behind the first `held` */
    uint32_t held;              /* blocks that the token machine has: they are not pushed */
    const kv_block_id *blocks;  /* own_blocks, or the token pool's */
    kv_block_id *own_blocks;
    uint32_t block_count; /* that the prompt fills */
    uint32_t cached;      /* of them the first ones, found in the prefix cache: here, or (local) by
                             the token pool */
    kv_block_id chain;    /* the end of what it reads there; KV_BLOCK_NONE */
    bool taken;           /* own_blocks behind those are taken from the pool */

    /* What the running chunk has to push: blocks [push_first, push_end) of layers [push_layer,
     * all). */
    uint32_t push_first;
    uint32_t push_end;
    uint32_t push_layer;

    struct message_token first; /* the answer's token 0 */
    int64_t sampled_us;
    int64_t first_write_us; /* -1: none yet */
    uint64_t bytes;
};

struct prompt_pool {
    struct prompt_pool_options options;
    struct sched_slots *slots;
    struct message_buffer tokens; /* tokens of one request, until they are sent */
    uint32_t token_count;         /* in it */
    uint64_t serial;              /* of the request admitted last */
    uint32_t holders;             /* requests that have taken blocks */
    uint32_t looked_count;        /* prompts whose prefixes were looked up for the next batch */
    sched_slot looked[LIMIT_BATCH_SEQUENCES];
    uint32_t running_count; /* prompt items of the batch that runs */
    sched_slot running[LIMIT_BATCH_SEQUENCES];
    uint32_t ended_count; /* prompts whose last chunk ran: to be settled, unless they are stopped */
    sched_slot ended[LIMIT_BATCH_SEQUENCES];
    struct message_stats stats;
    struct prompt_request requests[]; /* by slot - first_slot */
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

/* prompt_pool.c: tells the gateway (once), and stops. */
void prompt_request_fail(struct prompt_pool *pool, struct prompt_request *request,
                         enum status status, const char *text, int64_t now_us);
/* Leaves the pool as soon as nothing of it runs or flies. Call it again after each such event. */
void prompt_request_stop(struct prompt_pool *pool, struct prompt_request *request);
/* The prompt phase is over: PREFILLED to the gateway, and forgotten. */
void prompt_request_complete(struct prompt_pool *pool, struct prompt_request *request,
                             int64_t now_us);

/* prompt_prefix.c: tokens to compute. */
uint32_t prompt_prefix_left(const struct prompt_pool *pool, const struct prompt_request *request);
/* The prompt starts: counts what was found, and what was not. */
void prompt_prefix_count(struct prompt_pool *pool, const struct prompt_request *request);
/* All of the prompt is computed: its full blocks are the cache's. */
void prompt_prefix_add(struct prompt_pool *pool, struct prompt_request *request);
/* Gives back what the request holds of the cache and of the pool. */
void prompt_prefix_free(struct prompt_pool *pool, const struct prompt_request *request);

/* prompt_push.c: pushes layers [push_layer, layer_end) of blocks [push_first, push_end). */
void prompt_push_layers(struct prompt_pool *pool, struct prompt_request *request,
                        uint32_t layer_end, int64_t now_us);
/* What the machine's stages push for the chunk that begins, if it has some; then the request counts
 * it as written. */
void prompt_push_plan(struct prompt_pool *pool, struct prompt_request *request, bool last,
                      int64_t now_us, struct prompt_push *out);
void prompt_push_flush(struct prompt_pool *pool, struct prompt_request *request);
void prompt_push_abort(struct prompt_pool *pool, const struct prompt_request *request);

#endif
