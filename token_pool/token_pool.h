/* token_pool: the token phase of requests on one machine. The pool owns its requests and their
 * blocks. machine/ calls the functions on the machine's event loop thread. The pool does not log,
 * does not wait and does not compute.
 *
 * The message RESERVE reserves a request's blocks. The message KV_READY says that the prompt's KV
 * is in these blocks. After that, each decode step generates one token (with drafted tokens,
 * perhaps more), until the answer ends.
 *
 * Blocks for the prompt and the first tokens of the answer are reserved before the prompt is
 * computed. The answer takes more blocks as it grows. If memory is short, new requests wait, and
 * requests may be preempted. scheduler/memory.h makes these decisions, and the pool carries them
 * out.
 *
 * If a request may use the prefix cache, its full blocks enter the cache:
 * - blocks of the prompt: when the prompt's KV has arrived;
 * - blocks of the answer: when the request ends, or at token_pool_publish;
 * - blocks of layers with a window: only when the request ends.
 *
 * The blocks of a copy (token_pool_reserve) enter the cache when the copy has arrived.
 *
 * If the cache already has blocks of a prompt, the request reads these blocks, and no machine sends
 * their KV. Exception: if the model has layers with a window and memory is too short, the request
 * takes blocks of its own.
 *
 * If a request ends while a prompt machine may still write into its blocks, the blocks are
 * quarantined until no write can arrive. */
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
struct token_await;

/* Functions that the pool needs from its machine. */
struct token_pool_calls {
    /* Queues a message for a peer. A failure of the peer is reported only after the call. */
    void (*send)(void *self, struct transport_peer *peer, const struct message *message);
    /* Queues an encoded message TOKENS for a peer. */
    void (*send_tokens)(void *self, struct transport_peer *peer,
                        const struct message_buffer *tokens);
    /* Returns true while the prompt pool of this machine may write into the request's blocks. The
     * machine later calls token_pool_kv_ready or token_pool_kv_aborted. Called for requests whose
     * prompt machine is this machine. */
    bool (*local_writes)(void *self, const struct message_request *request);
    /* NULL = this machine has no stages. Stage processes check each write into their memory, so
     * they must know which requests await KV of another machine. has_ended = false: the request
     * begins to await KV; the machine reports this to the processes, and later calls
     * token_pool_await_known. has_ended = true: the request no longer awaits KV. */
    void (*await_changed)(void *self, const struct token_await *await, bool has_ended);
};

/* A request that awaits KV of another machine. */
struct token_await {
    struct message_request request;
    kv_owner_id owner;
    sched_slot slot;
    uint32_t path;      /* Path of the request through this machine's stages. */
    const char *writer; /* Name of the prompt machine. */
    /* The blocks that the prompt machine writes, layer group by layer group. */
    const kv_block_id *blocks;
    uint32_t block_count;
};

/* The draft model whose drafts token_drafts.h makes. All zeros = none. */
struct token_draft_model {
    uint32_t vocab;          /* Size of the draft model's vocabulary. */
    uint32_t context_tokens; /* Longest context of the draft model. */
    uint32_t block_count;    /* Blocks of the draft model's KV memory; 0 = no draft model. */
    uint32_t block_tokens;   /* Tokens of a block of this memory. */
    uint32_t rows_max;       /* Most rows of one job of the draft model. */
    uint32_t step_rows;      /* Most rows of the machine's decode steps. */
    /* Elements of a final vector (draft_finals.h), if the draft model is a draft layer of the
     * machine's model. 0 = the draft model reads tokens only. */
    uint32_t final_floats;
};

struct token_pool_options {
    const char *name; /* Name of this machine; must outlive the pool. */
    struct sched_machine *sched;
    struct kv_pool *kv;
    struct kv_prefix *prefix;           /* NULL = no prefix cache. */
    struct sched_memory_options memory; /* Also has the pool's slots and the longest context. */
    uint32_t vocab;                     /* Size of the vocabulary. */
    uint32_t adapter_count;             /* Low-rank adapters of the model. */
    struct grammar_cache *grammars;     /* For constrained answers; NULL = these requests fail. */
    /* Times of this machine's steps, by which the pool decides about drafts; not owned. */
    struct sched_drafts *drafts;
    struct token_draft_model draft_model;
    struct sched_paths *paths; /* The paths through this machine's stages; NULL = one path. */
    struct token_pool_calls calls;
    void *self; /* First argument of the calls. */
};

/* Opens an empty pool; *options is copied. Returns ST_NO_MEMORY, or ST_INVALID if
 * memory.slot_count is 0 or above LIMIT_MACHINE_REQUESTS. */
enum status token_pool_open(const struct token_pool_options *options, struct token_pool **out);
void token_pool_close(struct token_pool *pool); /* Frees every block. NULL is fine. */
/* Returns the number of requests in the pool, including quarantined ones. */
uint32_t token_pool_count(const struct token_pool *pool);

/* Sets whether the machine is in the mixed pool, where it keeps a share of its blocks for prompts
 * that are decoded elsewhere (sched_memory_prompt_share). False after opening. */
void token_pool_mixed_set(struct token_pool *pool, bool mixed);

/* Handles RESERVE of a gateway. If the pool cannot take the request, the gateway gets FAILED now.
 * Otherwise, the gateway gets RESERVED when the request has its blocks (token_pool_waiting_grant)
 * and all stage processes know of the request (token_pool_await_known).
 *
 * reserve->copy: the request stores a copy of another machine's KV in the prefix cache. The copy
 * does not wait for memory: it gets its blocks now, or fails. If the cache already has all blocks
 * of the copy, the pool sends RESERVED now and forgets the request. */
void token_pool_reserve(struct token_pool *pool, struct transport_peer *gateway,
                        const struct message_reserve *reserve, int64_t now_us);
/* Handles CANCEL of a gateway. writes_pending: the prompt machine may be writing into the blocks,
 * which are then quarantined. If the prompt machine is this machine, calls.local_writes decides
 * instead. If a batch is computing the request, the blocks are freed when the batch ends. */
void token_pool_cancel(struct token_pool *pool, const struct message_request *request,
                       bool writes_pending, int64_t now_us);
/* Returns true if the request awaits KV in all blocks with the ids [first, first + count), from the
 * machine to which `process` belongs. process: MACHINE, or MACHINE/NUMBER for a stage process. */
bool token_pool_request_awaits(const struct token_pool *pool, const struct message_request *request,
                               const char *process, uint64_t first, uint64_t count);
/* Returns true while a copy of the request's KV is on its way to the prefix cache (a RESERVE with
 * `copy`): until it has arrived, is cancelled, or cannot arrive because the link has ended. */
bool token_pool_copy_arrives(const struct token_pool *pool, uint64_t request_id);
/* Returns false if the RESERVE of the request named another prompt machine than the machine to
 * which `process` belongs. Returns true if the pool does not have the request. */
bool token_pool_writer_matches(const struct token_pool *pool, const struct message_request *request,
                               const char *process);
/* Call it when all stage processes know that the request with this owner id awaits KV
 * (calls.await_changed): sends RESERVED. No effect if the request has ended. */
void token_pool_await_known(struct token_pool *pool, kv_owner_id owner);
/* Handles PROGRESS of a prompt machine: the KV of the prompt's first tokens is complete. If the
 * rest does not arrive, the prefix cache keeps this KV. Passes PROGRESS on to the gateway. Ignores
 * PROGRESS that reports more tokens than the prompt has, or no more complete blocks than an earlier
 * PROGRESS. Ignores PROGRESS for a request that does not await KV of another machine or does not
 * use the prefix cache. */
void token_pool_progress(struct token_pool *pool, const struct message_progress *progress);
/* Adds the full blocks of a running answer to the prefix cache, except blocks of layers with a
 * window. The prompt pool of this machine can then copy the blocks. No effect if the pool does not
 * decode the request. */
void token_pool_publish(struct token_pool *pool, const struct message_request *request);
/* For layers with a window: returns true if the pool decodes the request and the request's blocks
 * still have the KV of the spans [first, end). Stores the ids of these blocks in *out; out NULL =
 * stores nothing. Later tokens of the answer overwrite the blocks, and the function then returns
 * false. So a reader must call the function again after it has read the blocks. */
bool token_pool_windows_find(const struct token_pool *pool, const struct message_request *request,
                             uint32_t first, uint32_t end, struct kv_tables *out);
/* Handles KV_READY of a prompt machine, or of this machine's own prompt pool: the request begins to
 * decode; a copy enters the prefix cache and ends. A quarantine ends, if the prompt machine knows
 * of all its writes. If a number in KV_READY does not fit the request's RESERVE, the gateway gets
 * FAILED. */
void token_pool_kv_ready(struct token_pool *pool, const struct message_kv_ready *ready,
                         int64_t now_us);
/* Handles KV_ABORTED of a prompt machine, or of this machine's own prompt pool: a request that
 * awaits its KV ends, and a quarantine ends. If the prompt machine may not know of all its writes,
 * the blocks are quarantined, or stay so. Sends no message to the gateway. */
void token_pool_kv_aborted(struct token_pool *pool, const struct message_request *request,
                           int64_t now_us);

/* Cancels the requests of a gateway whose connection has ended. gateway: NULL = all gateways. */
void token_pool_gateway_gone(struct token_pool *pool, const struct transport_peer *gateway,
                             int64_t now_us);
/* A connection over which a process of a prompt machine writes. */
struct token_link {
    uint32_t process; /* Process of this machine: 0 = the head, 1 + n = stage process n. */
    uint64_t number;  /* transport_peer_number in that process. */
};

/* Call it when a connection has begun. name: the process at its other end: MACHINE, or
 * MACHINE/NUMBER for a stage process. peer: the connection; NULL = a stage process of this machine
 * has the connection. If the head of a prompt machine has connected, the pool sends CANCEL to the
 * head for requests that have ended and whose KV the machine may still write. Before this call, the
 * caller must send the machine no message that lets it write. */
void token_pool_writer_up(struct token_pool *pool, struct token_link link, const char *name,
                          struct transport_peer *peer);
/* Call it when a connection has ended: requests that await KV of the machine fail and are
 * quarantined. writes_pending = true: writes over the connection may still arrive
 * (transport_writes_await). When no more writes can arrive, the caller calls
 * token_pool_writes_ended. reason: why the connection has ended, for the gateways. */
void token_pool_writer_down(struct token_pool *pool, struct token_link link, bool writes_pending,
                            const char *reason, int64_t now_us);
/* Call it when no more writes can arrive over a connection that ended with writes_pending = true.
 */
void token_pool_writes_ended(struct token_pool *pool, struct token_link link, int64_t now_us);

/* Gives each answer without room for its next token the blocks of one more span. If too few blocks
 * are available, a request is preempted. If the request to preempt is in a batch, the answer waits.
 * If blocks are left, also gives spans to answers that lack room for drafted tokens. Call it before
 * each batch, and before token_pool_waiting_grant, which gives away the remaining blocks. */
void token_pool_answers_grow(struct token_pool *pool);
/* Gives the waiting requests their first blocks, in order, until one does not fit. */
void token_pool_waiting_grant(struct token_pool *pool, int64_t now_us);
/* Gives up one request that awaits its KV, if machines may be waiting for each other in a circle
 * (sched_memory_deadlock_victim). prompt_holders: number of prompts that hold blocks of this
 * machine and whose answers are generated elsewhere, plus 1 if loads from tiers hold blocks. Call
 * the function after all batches that can begin have begun. */
void token_pool_deadlock_break(struct token_pool *pool, uint32_t prompt_holders, int64_t now_us);
/* Handles leases (kv_pool_lease_set) that have ended. Returns the time at which to call the
 * function again; INT64_MAX = there is no lease. */
int64_t token_pool_leases_check(struct token_pool *pool, int64_t now_us);

/* The blocks that a prompt of this machine is computed in. */
struct token_blocks {
    /* The request's tables. The first tables.cached_spans spans already have their KV and must not
     * be written. The ids belong to the pool. */
    struct kv_tables tables;
    uint32_t span_count; /* Spans of the prompt. */
    uint32_t path;       /* Path of the request through this machine's stages. */
};

/* Stores the blocks into which this machine's own prompt pool computes the request's prompt.
 * Returns ST_NOT_FOUND if no such request awaits KV of this machine. */
enum status token_pool_request_blocks(const struct token_pool *pool,
                                      const struct message_request *request,
                                      struct token_blocks *out);

/* One decode step of one request, as the engine needs it: the input is token input_id at
 * `position`, the output is token answer_index of the answer. Pointers are valid until
 * token_pool_decode_done. */
struct token_decode {
    uint64_t request;          /* The request's id. */
    uint32_t input_id;         /* The input token. */
    uint32_t position;         /* Position of the input token in the context. */
    const kv_block_id *blocks; /* kv_tables.ids of the request. */
    uint32_t group_stride;     /* kv_tables.stride of the request. */
    /* The request as an owner of blocks; no later request has this id. */
    kv_owner_id owner;
    const struct sampling *sampling;
    struct sample_context context; /* Also input of the sampler: tokens and token rules. */
    struct grammar_answer *answer; /* NULL = no constraint. */
    uint32_t output_limit;         /* Most tokens of the answer. */
    uint32_t answer_index;         /* Index of the output token in the answer. */
    /* Drafted tokens after the input token: at least one for each further row of the batch item.
     * NULL = none. */
    const uint32_t *draft;
};

/* Stores the input of the request's next decode step. Requires that the request is decoding. */
void token_pool_decode_begin(struct token_pool *pool, sched_slot slot, int64_t now_us,
                             struct token_decode *out);
/* Takes the result of a request's decode step. The row_count rows are the input token and the first
 * row_count - 1 drafted tokens. Call it after sched_machine_batch_done. tokens[i] was drawn
 * from row i and has id, finish and log-probabilities; the pool sets the other fields of the tokens
 * that it accepts. finals: [row_count × token_draft_model.final_floats], the final vectors of the
 * rows. The pool accepts the tokens up to and including the first token that differs from its
 * drafted token or ends the answer. Returns the number of accepted tokens; 1 if the request was
 * cancelled. */
uint32_t token_pool_decode_done(struct token_pool *pool, sched_slot slot,
                                struct message_token *tokens, const float *finals,
                                uint32_t row_count, int64_t now_us);
/* Sends the accepted tokens, one message to each gateway. Call it after token_pool_decode_done of
 * all requests of the batch; the next batch can begin before this call. */
void token_pool_tokens_send(struct token_pool *pool);

/* Adds the load from all gateways except `gateway` to *out. decodes: the number of requests, except
 * copies and quarantined requests. kv_tokens: the KV memory, in tokens, that all requests can fill
 * (sched_memory_tokens_of). */
void token_pool_load_add(const struct token_pool *pool, const struct transport_peer *gateway,
                         struct message_others *out);

/* Adds the pool's counters, and the number of requests that await KV, to `stats`. */
void token_pool_stats_add(const struct token_pool *pool, struct message_stats *stats);

#endif
