/* token_pool: the token side of a request's life on one machine: RESERVE books its blocks, KV_READY
 * says that its KV is in them, then one token a step until it ends.
 *
 * Blocks for the prompt and the first growth_tokens of the answer are booked before the prompt
 * runs; the answer takes further ones as it grows. Memory full means waiting, in order, and some of
 * it is left to those that grow. If there is no block for one of them all the same, the scheduler's
 * victim is PREEMPTED: it gives all its blocks back, and its gateway lets it go on later
 * (token_memory.c).
 *
 * Full blocks of prompt and answer belong to the prefix cache from the moment their KV is whole,
 * and what it has of a prompt is neither taken nor sent again (token_blocks.c).
 *
 * It owns its requests and their blocks. A block whose request is given up while a prompt machine
 * may still write into it is quarantined until that machine says KV_ABORTED or KV_READY, or is
 * dead, or the lease ends. One event loop thread makes every call; it never logs, and never waits.
 */
#ifndef TOKEN_POOL_TOKEN_POOL_H
#define TOKEN_POOL_TOKEN_POOL_H

#include "common/status.h"
#include "kvcache/kv_pool.h"
#include "kvcache/kv_prefix.h"
#include "scheduler/machine.h"
#include "scheduler/paths.h"
#include "transport/message.h"
#include "transport/transport.h"

struct token_pool;

/* What a pool needs from the machine that it is part of. Peers are only names here: handed back as
 * they came. */
struct token_pool_calls {
    /* Queues a message for a peer. The peer may be found dead later, never inside the call. */
    void (*send)(void *self, struct transport_peer *peer, const struct message *message);
    void (*send_tokens)(void *self, struct transport_peer *peer,
                        const struct message_buffer *tokens);
    /* True while the prompt pool of this machine may write into the request's blocks, and will say
     * when it does not any more. Asked of requests whose prompt machine is this one. */
    bool (*local_writes)(void *self, const struct message_request *request);
};

struct token_pool_options {
    const char *name; /* of this machine; kept */
    struct sched_machine *sched;
    struct kv_pool *kv;
    struct kv_prefix *prefix; /* NULL: nothing is found, nothing is kept */
    uint32_t block_tokens;
    uint32_t blocks_max; /* that reservations may hold whose prompts run elsewhere: the rest is for
                            prompts that are decoded elsewhere (token_pool_blocks_max) */
    sched_slot first_slot;
    uint32_t slot_count;
    uint32_t vocab;
    uint32_t context_tokens;
    uint32_t growth_tokens;          /* of an answer, booked with its prompt */
    uint32_t growth_reserve_percent; /* of all blocks: left by new requests to those that grow */
    uint32_t preemptions_max;        /* of one request: then its whole answer is booked */
    struct sched_paths *paths;       /* through this machine's stages; NULL: there is one */
    struct token_pool_calls calls;
    void *self; /* given to the calls */
};

enum status token_pool_open(const struct token_pool_options *options, struct token_pool **out);
void token_pool_close(struct token_pool *pool); /* NULL is fine; gives every block back */
uint32_t
token_pool_count(const struct token_pool *pool); /* requests it knows, quarantined ones included */

/* Another blocks_max, from the next reservation on. */
void token_pool_blocks_max(struct token_pool *pool, uint32_t blocks_max);

/* Messages of a gateway. `writer`: the prompt machine may know the blocks (of this machine's own
 * prompt pool we know better). */
void token_pool_reserve(struct token_pool *pool, struct transport_peer *gateway,
                        const struct message_reserve *reserve, int64_t now_us);
void token_pool_cancel(struct token_pool *pool, const struct message_request *request, bool writer,
                       int64_t now_us);
/* Messages of a prompt machine, or of this machine's own prompt pool. */
void token_pool_kv_ready(struct token_pool *pool, const struct message_kv_ready *ready,
                         int64_t now_us);
void token_pool_kv_aborted(struct token_pool *pool, const struct message_request *request,
                           int64_t now_us);

/* The connection to a gateway has ended: its requests are cancelled. NULL: those of all gateways.
 */
void token_pool_gateway_gone(struct token_pool *pool, const struct transport_peer *gateway,
                             int64_t now_us);
/* A machine has connected to us, or that connection has ended: what it was to write will not come.
 * What its other connections bring may: its processes have several, and each counts. */
void token_pool_writer_up(struct token_pool *pool, const char *name);
void token_pool_writer_down(struct token_pool *pool, const char *name, const char *text,
                            int64_t now_us);

/* Gives each answer whose next token has no room another block, or those of a victim; one whose
 * victim is in a batch waits for it. Before each batch, and before token_pool_grant, which gives
 * away what is left. */
void token_pool_grow(struct token_pool *pool);
/* Gives memory to those that wait for it, in order. */
void token_pool_grant(struct token_pool *pool, int64_t now_us);
/* Gives up a reservation whose KV is awaited, if prompts here could wait for it in a circle
 * (sched_machine_yields). prompt_holders: prompts that hold blocks of this machine's. After the
 * batches that may begin. */
void token_pool_yield(struct token_pool *pool, uint32_t prompt_holders, int64_t now_us);
/* Handles leases that have ended. Returns when to call next, or INT64_MAX. */
int64_t token_pool_turn(struct token_pool *pool, int64_t now_us);

struct token_blocks {
    const kv_block_id *ids; /* count of them, for the prompt */
    uint32_t count;
    uint32_t held; /* the first ones have their KV, and are not to be written */
    uint32_t path; /* that the request takes through this machine's stages */
};

/* The blocks of a request that waits for its KV: for a prompt pool on this machine, which writes
 * into them. */
enum status token_pool_blocks(const struct token_pool *pool, const struct message_request *request,
                              struct token_blocks *out);

/* One decode step of one request, as the engine needs it: token `id` at `position` goes in, the
 * answer's token `index` comes out. Pointers are good until token_pool_row_done. */
struct token_row {
    uint32_t id;
    uint32_t position;
    const kv_block_id *blocks;
    kv_owner_id owner; /* of this use of the slot */
    const struct message_sampling *sampling;
    uint32_t output_limit; /* tokens that the answer has at most */
    uint32_t index;
};

void token_pool_row_begin(struct token_pool *pool, sched_slot slot, int64_t now_us,
                          struct token_row *out);
/* The batch ran (after sched_machine_batch_done). `token` has id, finish and log-probabilities, the
 * rest is filled in here. */
void token_pool_row_done(struct token_pool *pool, sched_slot slot, struct message_token *token,
                         int64_t now_us);
/* Sends the step's tokens, one message to each gateway. Apart from row_done, so that the next batch
 * starts before. */
void token_pool_settle(struct token_pool *pool);

/* Adds what gateways other than this one have here. */
void token_pool_others(const struct token_pool *pool, const struct transport_peer *gateway,
                       struct message_others *out);

/* Adds this pool's counters. */
void token_pool_stats(const struct token_pool *pool, struct message_stats *stats);

#endif
