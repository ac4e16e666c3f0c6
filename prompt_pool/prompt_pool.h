/* prompt_pool: the prompt side of a request's life on one machine: admitted by PREFILL, its prompt
 * computed in chunks, the KV of each layer pushed into the token machine's blocks while the next
 * layer computes, its first token sent to the gateway, then KV_READY.
 *
 * It owns its requests and the blocks that it takes for them. It decides nothing about batches
 * (sched_machine does) and computes nothing (the caller's engine does): it says what a chunk
 * consists of, and is told what came out. One event loop thread makes every call; it never logs,
 * and never waits. */
#ifndef PROMPT_POOL_PROMPT_POOL_H
#define PROMPT_POOL_PROMPT_POOL_H

#include "common/status.h"
#include "kvcache/kv_pool.h"
#include "kvcache/kv_prefix.h"
#include "kvcache/kv_transfer.h"
#include "prompt_pool/prompt_links.h"
#include "scheduler/machine.h"
#include "scheduler/paths.h"
#include "transport/message.h"
#include "transport/transport.h"

struct prompt_pool;

/* The blocks of a prompt that is decoded here too. */
struct prompt_local {
    uint32_t path; /* that its reservation takes through this machine's stages */
    const kv_block_id *blocks;
    uint32_t block_count;
    uint32_t held_count; /* the first ones have their KV already: less than the prompt has tokens */
};

/* What a pool needs from the machine that it is part of. */
struct prompt_pool_calls {
    /* Queues a message for a peer. The peer may be found dead later, never inside the call. */
    void (*send)(void *self, struct transport_peer *peer, const struct message *message);
    void (*send_tokens)(void *self, struct transport_peer *peer,
                        const struct message_buffer *tokens);
    /* KV that stays on this machine, which decodes the request too. The blocks that are booked for
     * the request (ST_NOT_FOUND: none are): they stay as they are until one of the other two calls.
     */
    enum status (*local_blocks)(void *self, const struct message_request *request,
                                struct prompt_local *out);
    void (*local_ready)(void *self, const struct message_kv_ready *ready, int64_t now_us);
    void (*local_aborted)(void *self, const struct message_request *request);
    /* KV that goes to another machine, `target` of prompt_links, whose stages the request takes on
     * `path`. One layer of blocks [first, first + count): from `source` here to `blocks` there.
     * NULL on a machine with stages, which write what a batch's chunks say (struct prompt_chunk).
     */
    enum status (*write)(void *self, uint32_t target, uint32_t path, uint32_t layer,
                         const kv_block_id *source, const kv_block_id *blocks, uint32_t first,
                         uint32_t count);
    /* prompt_pool_flushed follows, later, when all that was written of the request is there.
     * own_path: of ours. asked: the stages have been asked already (struct prompt_push, last). */
    void (*flush)(void *self, uint32_t own_path, uint32_t target, uint32_t path, uint64_t cookie,
                  bool asked);
};

struct prompt_pool_options {
    const char *name; /* of this machine; kept */
    struct sched_machine *sched;
    struct kv_pool *kv;
    struct kv_prefix *prefix; /* NULL: each prompt is computed from its first token on */
    struct kv_arena arena;    /* of this machine's region */
    uint32_t blocks_max;      /* of one prompt */
    struct prompt_links *links;
    sched_slot first_slot;
    uint32_t slot_count;
    uint32_t vocab;
    uint32_t context_tokens;
    uint8_t kv_path; /* enum message_kv_path for requests that say AUTO */
    uint32_t layerwise_threshold_tokens;
    struct sched_paths *paths; /* through this machine's stages; NULL: there is one */
    struct prompt_pool_calls calls;
    void *self; /* given to the calls */
};

enum status prompt_pool_open(const struct prompt_pool_options *options, struct prompt_pool **out);
void prompt_pool_close(struct prompt_pool *pool); /* NULL is fine; gives every block back */

/* Messages of a gateway. */
void prompt_pool_prefill(struct prompt_pool *pool, struct transport_peer *gateway,
                         const struct message_prefill *prefill, int64_t now_us);
void prompt_pool_cancel(struct prompt_pool *pool, const struct message_request *request,
                        int64_t now_us);

/* True while the pool may still write KV of this request. */
bool prompt_pool_has(const struct prompt_pool *pool, const struct message_request *request);
uint32_t prompt_pool_count(const struct prompt_pool *pool); /* requests it knows */
/* Of these, those that hold blocks which are not the token pool's. */
uint32_t prompt_pool_holders(const struct prompt_pool *pool);

/* The connection to a gateway has ended: its requests are cancelled. NULL: those of all gateways.
 */
void prompt_pool_gateway_gone(struct prompt_pool *pool, const struct transport_peer *gateway,
                              int64_t now_us);
/* The connection to a token machine has ended: transfers to it fail. */
void prompt_pool_target_down(struct prompt_pool *pool, const struct transport_peer *target,
                             const char *text, int64_t now_us);
/* The transport's event. */
void prompt_pool_flushed(struct prompt_pool *pool, uint64_t cookie, enum status status,
                         int64_t now_us);

/* Around sched_machine_batch_next of that path: before it, the prompts that may be in the next
 * batch, which has batch_tokens prompt tokens at most, look up what the prefix cache has of them,
 * and the scheduler is told what is left; after it, those that are not in the batch give it up
 * again: a prompt that waits holds no memory. */
void prompt_pool_prefixes_enter(struct prompt_pool *pool, uint32_t path, uint32_t batch_tokens);
void prompt_pool_prefixes_leave(struct prompt_pool *pool);

/* On a machine with stages: the KV that they push for a chunk, each its own layers: blocks [first,
 * first + count) of the prompt, to those of `blocks`. */
struct prompt_push {
    uint32_t count; /* 0: nothing */
    uint32_t first;
    uint32_t target;           /* of prompt_links */
    uint32_t path;             /* through the target's stages */
    const kv_block_id *blocks; /* [first + i] */
    uint64_t cookie;
    bool layerwise; /* each layer as soon as it is there, else all at the chunk's end */
    bool last;      /* the prompt's last: flushed without being asked */
};

/* One prompt item of a batch, as the engine needs it. Pointers are good until
 * prompt_pool_chunk_done. */
struct prompt_chunk {
    const uint32_t *ids; /* item->token_count of them */
    /* Where they stand in the prompt; the item counts from the end of what was cached. */
    uint32_t first_token;
    const kv_block_id *blocks;
    kv_owner_id owner; /* of this use of the slot */
    struct prompt_push push;
    const struct message_sampling *sampling;
    uint32_t output_limit; /* tokens that the answer has at most */
    bool sample;           /* the last row gives the answer's token 0 */
    uint32_t score_count;  /* rows, from the chunk's first, whose next prompt token is scored */
    bool layerwise;        /* call prompt_pool_layers_done while the batch runs */
};

/* The batch that has this item is about to run: takes its blocks if it starts. */
void prompt_pool_chunk_begin(struct prompt_pool *pool, const struct sched_batch_item *item,
                             int64_t now_us, struct prompt_chunk *out);
/* Layers [0, layers) of the running batch have their K and V: pushes those of layer-wise requests.
 */
void prompt_pool_layers_done(struct prompt_pool *pool, uint32_t layers, int64_t now_us);
/* The batch ran (after sched_machine_batch_done): first the scores of each chunk that has some, in
 * order, then the end of every chunk. `token` has id, finish and log-probabilities, the rest is
 * filled in here; NULL unless chunk->sample. */
void prompt_pool_scored(struct prompt_pool *pool, sched_slot slot, struct message_token *token);
void prompt_pool_scores_end(struct prompt_pool *pool, sched_slot slot);
void prompt_pool_chunk_done(struct prompt_pool *pool, const struct sched_batch_item *item,
                            struct message_token *token, int64_t now_us);
/* Sends first tokens and pushes what is left. Apart from chunk_done, so that the next batch starts
 * before. */
void prompt_pool_settle(struct prompt_pool *pool, int64_t now_us);

/* Adds this pool's counters. */
void prompt_pool_stats(const struct prompt_pool *pool, struct message_stats *stats);
/* Adds what gateways other than this one have here. */
void prompt_pool_others(const struct prompt_pool *pool, const struct transport_peer *gateway,
                        struct message_others *out);

#endif
