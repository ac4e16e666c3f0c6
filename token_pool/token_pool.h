/* token_pool: the token phase of requests on one machine. RESERVE reserves a request's blocks,
 * KV_READY says that its KV is in them, then each decode step generates one token until the answer
 * ends.
 *
 * Blocks for the prompt and the first growth_tokens of the answer are reserved before the prompt
 * runs; the answer takes more blocks as it grows. When memory is full, new requests wait in order,
 * and leave some memory to growing answers. If there is still no block for a growing answer, a
 * victim is preempted: it frees all its blocks, and its gateway resumes it later. The pool carries
 * out these decisions (token_memory.c); scheduler/memory.h makes them.
 *
 * Full blocks of prompt and answer are put into the prefix cache when their KV is complete. Blocks
 * of a prompt that the cache already has are neither taken nor transferred again (token_blocks.c).
 *
 * It owns its requests and their blocks. If a request ends while a prompt machine may still write
 * into its blocks, the blocks are quarantined until that machine sends KV_ABORTED or KV_READY, or
 * until one second after its last write over the connections that it had. A connection that has
 * ended counts until its writes have ended (transport_writes_await), however long that takes.
 * One event loop thread, that of machine/, makes every call. It never logs, never waits, and does
 * not compute. */
#ifndef TOKEN_POOL_TOKEN_POOL_H
#define TOKEN_POOL_TOKEN_POOL_H

#include "common/status.h"
#include "kvcache/kv_pool.h"
#include "kvcache/kv_prefix.h"
#include "model/grammar/answers.h"
#include "scheduler/machine/machine.h"
#include "scheduler/memory.h"
#include "scheduler/paths.h"
#include "transport/message.h"
#include "transport/transport.h"

struct token_pool;

/* Functions that the pool needs from its machine. The pool does not look into peers; it only passes
 * them back. */
struct token_await;

struct token_pool_calls {
    /* Queues a message for a peer. If the peer has failed, that is noticed later, never inside the
     * call. */
    void (*send)(void *self, struct transport_peer *peer, const struct message *message);
    void (*send_tokens)(void *self, struct transport_peer *peer,
                        const struct message_buffer *tokens);
    /* True while the prompt pool of this machine may write into the request's blocks; it will then
     * report when it has stopped. Called for requests whose prompt machine is this machine. */
    bool (*local_writes)(void *self, const struct message_request *request);
    /* For a machine with stages, whose processes check what is written into them; else NULL. The
     * request awaits KV of another machine from now on: token_pool_awaited is to be called when the
     * processes know. With `ends`, it awaits no KV any more. */
    void (*await)(void *self, const struct token_await *await, bool ends);
};

/* A request that awaits KV of another machine. */
struct token_await {
    struct message_request request;
    kv_owner_id owner;
    sched_slot slot;
    uint32_t path; /* Path of the request through this machine's stages. */
    const char *writer;
    const kv_block_id *blocks; /* The blocks that the machine writes, layer group by layer group. */
    uint32_t block_count;
};

struct token_pool_options {
    const char *name; /* Name of this machine; must outlive the pool. */
    struct sched_machine *sched;
    struct kv_pool *kv;
    struct kv_prefix *prefix;           /* NULL = no prefix cache. */
    struct sched_memory_options memory; /* Also the pool's slots, and the longest context. */
    uint32_t vocab;
    uint32_t adapter_count;         /* Low-rank adapters of the model. */
    struct grammar_cache *grammars; /* Of constrained answers; NULL = they fail. */
    struct sched_paths *paths;      /* The paths through this machine's stages; NULL = one path. */
    struct token_pool_calls calls;
    void *self; /* First argument of the calls. */
};

enum status token_pool_open(const struct token_pool_options *options, struct token_pool **out);
void token_pool_close(struct token_pool *pool); /* Frees every block. NULL is fine. */
/* Number of requests in the pool, including quarantined ones. */
uint32_t token_pool_count(const struct token_pool *pool);

/* Sets whether the machine is in the mixed pool, where it keeps a share of its blocks for prompts
 * that are decoded elsewhere (sched_memory_prompt_share). False after opening. */
void token_pool_mixed_set(struct token_pool *pool, bool mixed);

/* Handle messages of a gateway. writer: true if a prompt machine may be writing into the blocks,
 * which are then quarantined. If the prompt machine is this one, `writer` is ignored and
 * local_writes is called instead. */
void token_pool_reserve(struct token_pool *pool, struct transport_peer *gateway,
                        const struct message_reserve *reserve, int64_t now_us);
void token_pool_cancel(struct token_pool *pool, const struct message_request *request, bool writer,
                       int64_t now_us);
/* True if the request awaits KV of this process's machine in all blocks [first, first + count). */
bool token_pool_awaits(const struct token_pool *pool, const struct message_request *request,
                       const char *process, uint64_t first, uint64_t count);
/* False if the request awaits, or has in quarantine, KV of another machine than that of `process`
 * (see token_pool_writer_up). True if the pool does not know the request. */
bool token_pool_written_by(const struct token_pool *pool, const struct message_request *request,
                           const char *process);
/* The processes that hold the KV know of the request that `await` named. */
void token_pool_awaited(struct token_pool *pool, kv_owner_id owner);
/* Handle messages of a prompt machine, or calls of this machine's own prompt pool. */
void token_pool_kv_ready(struct token_pool *pool, const struct message_kv_ready *ready,
                         int64_t now_us);
void token_pool_kv_aborted(struct token_pool *pool, const struct message_request *request,
                           int64_t now_us);

/* Cancels the requests of a gateway whose connection has ended. NULL = of all gateways. */
void token_pool_gateway_gone(struct token_pool *pool, const struct transport_peer *gateway,
                             int64_t now_us);
/* A connection over which a prompt machine writes. */
struct token_link {
    uint32_t process; /* Process of this machine: 0 = the head, 1 + n = stage process n. */
    uint64_t number;  /* transport_peer_number in that process. */
};

/* The connection has begun. name: MACHINE, or MACHINE/NUMBER for a stage process; peer: the
 * connection, NULL = another process has it. The machine is sent CANCEL for requests that have ended
 * since it was connected: send it nothing that lets it write before this call. */
void token_pool_writer_up(struct token_pool *pool, struct token_link link, const char *name,
                          struct transport_peer *peer);
/* The connection has ended: reservations that await KV of that machine fail and are quarantined.
 * writes_on: its writes have not ended (transport_writes_await). */
void token_pool_writer_down(struct token_pool *pool, struct token_link link, bool writes_on,
                            const char *text, int64_t now_us);
/* The writes of a connection that has ended have ended too. */
void token_pool_writes_ended(struct token_pool *pool, struct token_link link, int64_t now_us);

/* Gives each answer whose next token has no room another block. If none is available, a victim is
 * preempted; if the victim is in a batch, its answer waits. Call it before each batch and before
 * token_pool_grant, which gives away the remaining blocks. */
void token_pool_grow(struct token_pool *pool);
/* Gives memory to the waiting requests, in order. */
void token_pool_grant(struct token_pool *pool, int64_t now_us);
/* Gives up one reservation whose KV is awaited, if machines could wait for each other in a circle
 * (sched_memory_deadlock_victim). prompt_holders = number of prompts that hold blocks of this
 * machine. Call it after all batches that can begin have begun. */
void token_pool_deadlock_break(struct token_pool *pool, uint32_t prompt_holders, int64_t now_us);
/* Handles leases that have ended. Returns the time of the next call; INT64_MAX = none. */
int64_t token_pool_leases_check(struct token_pool *pool, int64_t now_us);

struct token_blocks {
    const kv_block_id *ids; /* struct kv_tables; so is `stride`. */
    uint32_t stride;
    uint32_t count; /* Spans of the prompt. */
    /* Number of the first spans that already have their KV and must not be written. */
    uint32_t cached_count;
    uint32_t path; /* Path of the request through this machine's stages. */
};

/* Returns the blocks of a request that awaits its KV, for the prompt pool of this machine, which
 * writes into them. Returns ST_NOT_FOUND if there is no such request. */
enum status token_pool_blocks(const struct token_pool *pool, const struct message_request *request,
                              struct token_blocks *out);

/* One decode step of one request, as the engine needs it: the input is token `id` at `position`,
 * the output is token `index` of the answer. Pointers are valid until token_pool_decode_done. */
struct token_decode {
    uint64_t request; /* The request's id. */
    uint32_t id;
    uint32_t position;
    const kv_block_id *blocks; /* struct kv_tables; so is group_stride. */
    uint32_t group_stride;
    kv_owner_id owner; /* Identifies this use of the slot. */
    const struct sampling *sampling;
    struct sample_context context;
    struct grammar_answer *answer; /* NULL = no constraint. */
    uint32_t output_limit;         /* Most tokens of the answer. */
    uint32_t index;
};

void token_pool_decode_begin(struct token_pool *pool, sched_slot slot, int64_t now_us,
                             struct token_decode *out);
/* Takes the result of a decode step. Call it after sched_machine_batch_done. `token` has id, finish
 * and log-probabilities; the pool sets the other fields. */
void token_pool_decode_done(struct token_pool *pool, sched_slot slot, struct message_token *token,
                            int64_t now_us);
/* Sends the tokens of the decode step, one message to each gateway. It is not part of
 * token_pool_decode_done, so that the next batch can start before the tokens are sent. */
void token_pool_tokens_send(struct token_pool *pool);

/* Adds to `out` the requests of all gateways except `gateway`. */
void token_pool_others(const struct token_pool *pool, const struct transport_peer *gateway,
                       struct message_others *out);

/* Adds the pool's counters to `stats`. */
void token_pool_stats(const struct token_pool *pool, struct message_stats *stats);

#endif
