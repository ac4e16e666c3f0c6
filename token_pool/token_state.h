/* token_state: struct token_pool with its table of requests, and the functions that the .c files of
 * token_pool/ share. All functions run on the machine's event loop thread. The functions do not
 * decide which request gets memory (scheduler/memory.h does), compute nothing, and own no
 * connections: they send through options.calls. */
#ifndef TOKEN_POOL_TOKEN_STATE_H
#define TOKEN_POOL_TOKEN_STATE_H

#include "kvcache/kv_tables.h"
#include "scheduler/drafts.h"
#include "scheduler/slots.h"
#include "token_pool/draft_finals.h"
#include "token_pool/draft_make.h"
#include "token_pool/draft_seats.h"
#include "token_pool/token_pool.h"

/* Length of a lease (kv_pool_lease_set) of a request in TOKEN_RESERVED, or of a quarantine whose
 * prompt machine has a link (struct token_writer). token_pool_leases_check may renew the lease. */
#define TOKEN_LEASE_US 60000000

/* States of a request. The legal transitions:
 *
 *   FREE -> WAITING -> RESERVED -> DECODING -> STOPPED_IN_BATCH
 *                          |
 *                          +--> QUARANTINED
 *
 * and from every state except FREE to FREE, when token_request_forget frees what the request holds.
 */
enum token_request_state {
    TOKEN_FREE,     /* No request uses the slot. */
    TOKEN_WAITING,  /* Waits for its first blocks. */
    TOKEN_RESERVED, /* Has its first blocks; awaits its KV. The blocks have a lease. */
    TOKEN_DECODING, /* The prompt's KV is complete. The request is in a batch or between two. */
    /* Cancelled while in a batch. token_pool_decode_done forgets the request. */
    TOKEN_STOPPED_IN_BATCH,
    TOKEN_QUARANTINED, /* Ended. The blocks stay until no process can write into them. */
    TOKEN_STATE_COUNT
};

struct token_request {
    struct message_request attempt; /* Id and generation. */
    kv_owner_id owner;
    enum token_request_state state;
    struct transport_peer *gateway;        /* NULL = its connection has ended. */
    char prompt_machine[LIMIT_NAME_BYTES]; /* The machine that writes the request's KV. */
    bool local;                            /* prompt_machine is this machine. */
    bool copy;         /* The complete KV goes to the prefix cache, and nothing is decoded. */
    bool copy_windows; /* The copy has the KV of layers with a window, too. */
    struct sampling sampling;
    struct grammar_answer *answer; /* Progress in the answer's constraint; NULL = no constraint. */
    uint32_t prompt_tokens;
    uint32_t output_limit; /* Most tokens of the answer. */
    uint32_t path;         /* Path through the machine's stages. */
    /* The request's blocks. tables.ids, `tokens` and `token_rules` are one allocation. */
    struct kv_tables tables;
    /* TOKEN_RESERVED: number of the prompt's first spans whose KV is complete (PROGRESS). */
    uint32_t arrived_spans;
    uint64_t prefix_salt;           /* Salt of the request's chains in the prefix cache. */
    struct kv_prefix_reader reader; /* What the request reads in the prefix cache. */
    /* The prompt, then the `generated` tokens of the answer; NULL = RESERVE had no prompt. */
    uint32_t *tokens;
    /* The request reads blocks of the prefix cache and adds its blocks. Requires `tokens`. */
    bool uses_prefix_cache;
    bool reads_tokens; /* Sampling depends on `tokens` (token_rules_depend_on_context). */
    uint32_t token_rule_words;
    uint32_t *token_rules;          /* Words of common/token_rules.h. */
    struct draft_index draft_index; /* Index of `tokens`; closed = no drafts. */
    /* Number of drafted tokens that the next step may check, in `tokens` after the known tokens. */
    uint32_t draft_count;
    /* The latest draft; it may have more tokens than draft_count. */
    struct sched_draft draft;
    struct sched_draft_trust draft_trust; /* How often the request's drafts were right. */
    draft_seat draft_seat; /* DRAFT_SEAT_NONE = the request has no drafts of the draft model. */
    /* Position in the context of the first token that the draft model computes. 0, unless a draft
     * layer has lost final vectors; then the first position from which on the layer has all final
     * vectors. */
    uint32_t draft_first;
    struct draft_finals draft_finals; /* For a draft layer; closed = no vectors are kept. */
    bool draft_decided;               /* draft_wanted_count is decided for the next step. */
    /* Number of tokens that the draft model generates for the next step. */
    uint32_t draft_wanted_count;
    /* Number of tokens that the draft model has generated for the next step, in `tokens` after the
     * known tokens. */
    uint32_t draft_generated_count;
    uint32_t generated;  /* Number of known tokens of the answer; token 0 arrives with KV_READY. */
    uint32_t last_token; /* Id of the latest known token, which the next decode step reads. */
    int64_t reserved_us; /* When the request got its first blocks. */
    /* TOKEN_QUARANTINED: number (links_begun) of the latest link over which a process of the prompt
     * machine may write into the blocks. */
    uint64_t quarantined_at_link;
    int64_t decoding_us; /* When the prompt's KV was complete. */
    int64_t began_us;    /* Start of the first decode step; -1 = not yet. */
};

/* A generated token until token_pool_tokens_send sends it. */
struct token_outgoing {
    struct transport_peer *gateway; /* NULL = sent, or its connection has ended. */
    struct message_token token;
};

/* A connection over which a process of a prompt machine may write. The connection is open, or it
 * has ended but some of its writes may still arrive. One process may have several connections. */
struct token_writer {
    struct token_link link;
    char name[LIMIT_NAME_BYTES]; /* MACHINE, or MACHINE/NUMBER for a stage process. */
    struct transport_peer *peer; /* NULL = ended, or a stage process has the connection. */
    /* Number of the connection: token_pool.links_begun counts the connections from 1. */
    uint64_t link_number;
    bool ended; /* The connection has ended, but its writes may still arrive. */
};

/* A request whose blocks were freed without a report of its prompt machine, because the machine had
 * no connection. When the machine connects, it gets CANCEL for the request before it may write,
 * because the request's PREFILL may still reach the machine. */
struct token_unconfirmed {
    struct message_request request;
    char prompt_machine[LIMIT_NAME_BYTES]; /* Empty = unused. */
};
#define TOKEN_UNCONFIRMED_MAX 1024

struct token_pool {
    struct token_pool_options options;
    struct sched_slots *slots;
    struct sched_memory *memory;
    uint64_t admitted_count;                  /* Number of requests admitted so far. */
    uint32_t state_counts[TOKEN_STATE_COUNT]; /* Number of slots in each state. */
    uint32_t copy_count;                      /* Number of slots with a copy. */
    struct message_stats stats;               /* Only the counters are used. */
    struct draft_seats *draft_seats;          /* NULL = there is no draft model. */
    /* How often the draft model's drafts were right, over all answers. */
    struct sched_draft_trust draft_trust;
    struct message_buffer tokens_message; /* The TOKENS message that is being encoded. */
    uint32_t writer_count, writer_capacity;
    struct token_writer *writers;
    uint64_t links_begun; /* Number of links (token_pool_writer_up) that have begun. */
    /* A writer could not be recorded for lack of memory. After that, a quarantine ends only if the
     * request's prompt machine is this machine (`local`). */
    bool writers_unknown;
    /* Number of unconfirmed requests so far. Request n, from 0, is in unconfirmed[n %
     * TOKEN_UNCONFIRMED_MAX]. */
    uint32_t unconfirmed_count;
    struct token_unconfirmed unconfirmed[TOKEN_UNCONFIRMED_MAX];
    /* [layer groups × spans of the longest context] memory to which the field `blocks` of the
     * latest struct token_await points. */
    kv_block_id *awaited_blocks;
    uint32_t outgoing_count; /* Number of tokens that token_pool_tokens_send will send. */
    struct token_outgoing outgoing[LIMIT_BATCH_SEQUENCES];
    struct token_request requests[]; /* Indexed by slot - first_slot. */
};

static inline struct token_request *token_request_of(struct token_pool *pool, sched_slot slot)
{
    return &pool->requests[slot - pool->options.memory.first_slot];
}

static inline sched_slot token_slot_of(const struct token_pool *pool,
                                       const struct token_request *request)
{
    return pool->options.memory.first_slot + (sched_slot)(request - pool->requests);
}

/* Records the next token of the answer. */
static inline void token_request_token_add(struct token_request *request, uint32_t id)
{
    if (request->tokens != NULL)
        request->tokens[request->prompt_tokens + request->generated] = id;
    if (request->answer != NULL)
        grammar_answer_add(request->answer, id);
    if (request->answer != NULL && draft_index_is_open(&request->draft_index))
        draft_index_shape_set(&request->draft_index, request->prompt_tokens + request->generated,
                              grammar_answer_shape(request->answer));
    request->generated++;
    request->last_token = id;
}

/* ---- token_pool.c ---- */

/* Changes the state. Asserts that the transition is legal. */
void token_request_state_set(struct token_pool *pool, struct token_request *request,
                             enum token_request_state to);
/* Frees everything that the request holds, and its slot. Sends no message to the gateway or the
 * prompt machine. */
void token_request_forget(struct token_pool *pool, struct token_request *request);
/* Ends a request in TOKEN_RESERVED. Its blocks stay until no process can write into them. */
void token_request_quarantine(struct token_pool *pool, struct token_request *request,
                              int64_t now_us);

/* Returns how many blocks and spans the request has or, in TOKEN_WAITING, gets first. */
static inline const struct sched_memory_blocks *token_blocks_of(const struct token_pool *pool,
                                                                const struct token_request *request)
{
    return sched_memory_blocks(pool->memory, token_slot_of(pool, request));
}

/* ---- token_step.c ---- */

/* Returns where the drafted tokens of the request are: after its known tokens. */
static inline uint32_t *token_request_drafts(const struct token_request *request)
{
    return request->tokens + request->prompt_tokens + request->generated;
}

/* Returns what the sampler reads, besides `sampling`, to draw the token after the first
 * `drafted_count` drafted tokens. */
struct sample_context token_request_context(const struct token_request *request,
                                            uint32_t drafted_count);
/* Returns true if the answer's constraint allows the first `count` drafted tokens. */
bool token_request_draft_allowed(struct token_request *request, uint32_t count);
/* Returns the most tokens that a draft may have. */
uint32_t token_request_draft_most(const struct token_pool *pool,
                                  const struct token_request *request);
/* Drafts tokens for the request's next step, and reports to the scheduler how many of these tokens
 * the step may check. Without an open draft_index the request gets no drafted tokens. Requires
 * TOKEN_DECODING. */
void token_request_draft(struct token_pool *pool, struct token_request *request);

/* ---- token_drafts.c ---- */

/* Opens draft_seats, if the options have a draft model. */
enum status token_drafts_open(struct token_pool *pool);
/* Takes a seat for the request, if there is a draft model, its KV memory has a free block, and
 * request->draft_index is open. */
void token_request_seat_take(struct token_pool *pool, struct token_request *request);
/* Frees the request's seat, if it has one. */
void token_request_seat_leave(struct token_pool *pool, struct token_request *request);
/* Gives the draft model, if it is a draft layer, the final vectors of `count` new tokens. The first
 * of these tokens is at `position` in the context. */
void token_request_finals_add(struct token_pool *pool, struct token_request *request,
                              uint32_t position, const float *finals, uint32_t count);
/* Forgets the tokens that the draft model has generated for the request. Call it when the answer
 * has a new token. */
void token_request_drafted_drop(struct token_pool *pool, struct token_request *request);

/* ---- token_memory.c ---- */

/* Gives a copy its blocks, or returns false if memory is short. RESERVED is sent now or, with stage
 * processes, when these know of the copy. If the prefix cache already has all blocks, this call
 * sends RESERVED and ends the request. */
bool token_copy_grant(struct token_pool *pool, struct token_request *request, int64_t now_us);

/* Reports to the stage processes (calls.await_changed) that the request no longer awaits KV. Call
 * it before the request leaves TOKEN_RESERVED. No effect in other states, without stage processes,
 * and if the prompt machine is this machine. */
void token_await_end(struct token_pool *pool, const struct token_request *request);

/* ---- token_blocks.c ---- */

/* Looks the prompt up in the prefix cache. Pins the blocks that it finds, until
 * token_blocks_prefix_unpin or token_blocks_leave. Returns how many blocks the request must take
 * from the block pool before its KV arrives. */
uint32_t token_blocks_prefix_pin(struct token_pool *pool, struct token_request *request);
/* For layers with a window: returns the prompt's first span that is read after the prompt is
 * computed, by the answer's tokens or by a machine that takes the answer over. */
uint32_t token_blocks_window_first(const struct token_pool *pool,
                                   const struct token_request *request);
/* Undoes token_blocks_prefix_pin: the pinned blocks may be evicted again. */
void token_blocks_prefix_unpin(struct token_pool *pool, struct token_request *request);
/* Takes the blocks of the request's first spans that the prefix cache does not have. Requires that
 * these blocks are available. */
void token_blocks_take(struct token_pool *pool, struct token_request *request);
/* Call it after SCHED_GROWTH_SPAN, with which sched_memory has added a span to the request: takes
 * the span's blocks and marks these blocks as live. Requires that the blocks are available. */
void token_blocks_grow(struct token_pool *pool, struct token_request *request);
/* Hands the prompt's blocks whose KV is complete (arrived_spans), except blocks of layers with a
 * window, to the prefix cache, because the request leaves TOKEN_RESERVED without a decode. */
void token_blocks_keep(struct token_pool *pool, struct token_request *request);
/* Quarantines the request's blocks that the prefix cache does not have, because a writer that has
 * not stopped may write into them. */
void token_blocks_quarantine(struct token_pool *pool, const struct token_request *request);
/* Call it when the prompt's KV is complete: marks the blocks as live, and adds the full blocks of
 * the prompt to the prefix cache, where the request reads them. In layers with a window, only the
 * blocks of a copy with `copy_windows` are added. */
void token_blocks_prompt_done(struct token_pool *pool, struct token_request *request);
/* See token_pool_windows_find. */
bool token_blocks_windows_find(const struct token_pool *pool, const struct token_request *request,
                               uint32_t first, uint32_t end, struct kv_tables *out);
/* Hands the full blocks of a decoding request to the prefix cache, where the request reads them.
 * Blocks of layers with a window stay with the request. */
void token_blocks_publish(struct token_pool *pool, struct token_request *request);
/* Takes all blocks away from a request that ends. Full blocks whose KV is complete go to the prefix
 * cache if the request uses it; all other blocks are freed. */
void token_blocks_leave(struct token_pool *pool, struct token_request *request);

#endif
