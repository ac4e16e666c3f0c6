/* prompt_state: the prompt pool's table of requests, and the functions that the .c files of
 * prompt_pool/ share (except prompt_links.c and push_meter.c, which know no requests).
 *
 * A request ends in one of two ways:
 * - Delivered: its results are sent to the gateway (first token, scores, embedding) and its KV is
 *   flushed. Then KV_READY is sent to the token machine (KV_ABORTED if no token is left to
 *   generate), and PREFILLED to the gateway. Without a token machine, nothing is flushed and only
 *   PREFILLED is sent.
 * - Stopped, because it was cancelled or has failed: the pool issues no further write, flushes the
 *   writes that were issued, and then sends KV_ABORTED to the token machine. If the connection to
 *   the token machine has ended, neither KV_READY nor KV_ABORTED is sent.
 *
 * The request's blocks are freed when no write from these blocks is in flight and no batch uses
 * them. If the KV stays on this machine, the pool calls local_ready or local_aborted instead of
 * sending KV_READY or KV_ABORTED, and flushes nothing.
 *
 * All functions run on the machine's event loop thread. They compute nothing, and own no
 * connection: they send through options.calls. */
#ifndef PROMPT_POOL_PROMPT_STATE_H
#define PROMPT_POOL_PROMPT_STATE_H

#include "common/pooling.h"
#include "kvcache/kv_tables.h"
#include "prompt_pool/prompt_pool.h"
#include "scheduler/slots.h"

/* States of a request. The legal transitions:
 *
 *   FREE -> QUEUED -> COMPUTING -> COMPUTED -> FLUSHING
 *                       |    |         |          |
 *                       |    +---------+----------+--> STOPPED_FLUSHING
 *                       |                                     ^
 *                       +--> STOPPED_IN_BATCH ----------------+
 *
 * and from each state to FREE, when the request has ended and holds nothing. */
enum prompt_request_state {
    PROMPT_FREE,      /* No request uses the slot. */
    PROMPT_QUEUED,    /* No chunk has begun. The request has taken no block. */
    PROMPT_COMPUTING, /* A chunk is in a batch, or the request is between two chunks. */
    /* The last chunk is done, or the request is a copy. prompt_pool_results_send continues the
     * request. */
    PROMPT_COMPUTED,
    PROMPT_FLUSHING,         /* All writes of its KV are issued; a flush is pending. */
    PROMPT_STOPPED_IN_BATCH, /* Stopped, but a chunk of the request is in a batch in flight. */
    PROMPT_STOPPED_FLUSHING, /* Stopped and in no batch; a flush is pending. */
    PROMPT_STATE_COUNT
};

struct prompt_request {
    struct message_request attempt; /* Id and generation. */
    struct message_request copied;  /* If `copy`: the request whose KV is copied. */
    kv_owner_id owner;              /* Owner id of its blocks; cookie of its last flush. */
    enum prompt_request_state state;
    struct transport_peer *gateway; /* NULL = its connection has ended. */
    /* The token machine; NULL = none, this machine, or its connection has ended. */
    struct transport_peer *target;
    uint32_t target_index; /* Number of the target in prompt_links. */
    uint32_t target_path;  /* Path through the target's stages. */
    uint32_t path;         /* Path through this machine's stages. */
    struct sampling sampling;
    struct grammar_answer *answer; /* State of the answer's constraint; NULL = no constraint. */
    uint32_t output_limit;         /* Most tokens of the answer. */
    /* true = the prompt is computed in blocks that the token pool of this machine has reserved. Set
     * to false when the prompt is computed, because the blocks then belong to the token pool
     * alone. */
    bool local;
    bool wants_scores; /* The gateway wants the scores of the prompt's tokens. */
    uint8_t pooling;   /* enum pooling; POOLING_NONE = the gateway wants no embedding. */
    /* enum message_transfer_mode. TRANSFER_AUTO = when the first chunk begins, measured speeds
     * choose the mode; until then nothing is pushed. */
    uint8_t transfer_mode;
    bool copy; /* Nothing is computed: KV that this machine has is pushed. */
    /* The copy reads blocks of layers with a window from the request `copied`, whose answer may
     * overwrite these blocks. */
    bool reads_windows;
    bool answer_ended; /* No token is left to generate, so nothing is decoded. */
    /* Writes to the token machine may be in flight. Set by a push and by prompt_push_flush; cleared
     * when a flush of prompt_push_flush ends, or when the target's connection ends. */
    bool writes_pending;
    bool stages_flush;        /* The last push was passed to the stages, which flush after it. */
    enum status write_status; /* Status of the latest push; < 0 = no more pushes are made. */

    /* [options.hidden]: sum of the computed vectors that count for the embedding. NULL = the
     * gateway wants no embedding. */
    int64_t *embedding;
    /* [prompt_count]: the prompt's tokens. The allocation also holds targets.ids, `rules`,
     * `layer_us` and, unless the token pool has reserved the blocks, tables.ids. */
    uint32_t *prompt;
    uint32_t prompt_count;
    uint32_t rule_count; /* Number of words in `rules`. */
    /* Blocks of the token machine. Layers without a window have blocks for the spans ≥
     * target_held_spans, layers with a window for the spans ≥ window_first; the spans before have
     * KV_BLOCK_NONE. */
    struct kv_tables targets;
    /* Number of the prompt's first spans that are not pushed in layers without a window, because
     * the token machine already has the KV of these spans. */
    uint32_t target_held_spans;
    /* This machine's blocks. tables.cached_spans = spans that were found in a prefix cache: this
     * pool's, or the token pool's if `local`. */
    struct kv_tables tables;
    /* This request takes its own blocks: the blocks in `tables` that follow the cached spans.
     * false = the token pool has reserved the blocks, or the request is a copy. */
    bool owns_blocks;
    uint32_t *rules;     /* Words of common/token_rules.h. */
    uint32_t span_count; /* Spans of the prompt; the last span may not be full. */
    /* First span that layers with a window push. */
    uint32_t window_first;
    uint64_t prefix_salt;           /* Salt of the request's chains in the prefix cache. */
    struct kv_prefix_reader reader; /* What the request reads in this pool's prefix cache. */

    /* Number of the prompt's first tokens whose KV is cached or computed. 0 until the first chunk
     * is done, and again from PROMPT_COMPUTED on. */
    uint32_t computed_tokens;
    /* Number of the prompt's first spans that are known to have arrived at the token machine. */
    uint32_t arrived_spans;
    /* The value of arrived_spans after the flush that prompt_push_progress has begun; 0 = no such
     * flush is pending. */
    uint32_t flushing_spans;

    /* What the running chunk, or the copy, has to push in the layers from push_first_layer on: in
     * layers without a window spans [push_first_span, push_end_span), in layers with a window spans
     * [push_window_first, push_end_span). */
    uint32_t push_first_span;
    uint32_t push_window_first;
    uint32_t push_end_span;
    uint32_t push_first_layer;
    /* [arena.layer_count]: when each layer was pushed last, in microseconds since began_us; NULL =
     * this process pushes no KV of the request. */
    uint32_t *layer_us;

    struct message_token first_token; /* The token that follows the prompt. */
    int64_t arrived_us;               /* When PREFILL reached the machine. */
    int64_t began_us;                 /* When the first chunk began. */
    int64_t computed_us;              /* When the last chunk was done. */
    int64_t first_write_us;           /* When the first write was issued; -1 = not yet. */
    uint64_t pushed_bytes;            /* Bytes of KV that were written. */
};

/* Number of withdrawn requests that are remembered; one more replaces the oldest. */
#define PROMPT_WITHDRAWN_MAX 1024

struct prompt_pool {
    struct prompt_pool_options options;
    struct sched_slots *slots;
    struct message_buffer tokens_message; /* Tokens of one request, until they are sent. */
    uint32_t token_count;                 /* Number of tokens in tokens_message. */
    uint64_t admitted_count;              /* Number of requests admitted so far. */
    uint32_t holder_count; /* Requests for which prompt_request_has_blocks is true. */
    uint32_t pinned_count; /* Prompts whose prefixes are pinned for the next batch. */
    sched_slot pinned[LIMIT_BATCH_SEQUENCES];
    uint32_t running_count; /* Prompts of the running batch; 0 with options.stages_push. */
    sched_slot running[LIMIT_BATCH_SEQUENCES];
    uint32_t computed_count; /* Requests in `computed`, until prompt_pool_results_send. */
    /* Requests in PROMPT_COMPUTED. SCHED_NO_SLOT = the request was stopped. */
    sched_slot computed[LIMIT_BATCH_SEQUENCES];
    struct message_stats stats;
    double token_us;       /* See prompt_pool_token_us_set. */
    bool stopped_in_batch; /* See prompt_pool_stops_take. */
    /* Number of calls of prompt_pool_withdraw so far for a request that was not in the pool.
     * `withdrawn` holds the latest of these requests: number n is at withdrawn[n %
     * PROMPT_WITHDRAWN_MAX]. */
    uint32_t withdrawn_count;
    struct message_request withdrawn[PROMPT_WITHDRAWN_MAX];
    struct prompt_request requests[]; /* Indexed by slot - first_slot. */
};

/* Returns the request in the slot, which must be one of the pool's slots. */
static inline struct prompt_request *prompt_request_of(struct prompt_pool *pool, sched_slot slot)
{
    return &pool->requests[slot - pool->options.first_slot];
}

/* Returns the slot of the request. */
static inline sched_slot prompt_slot_of(const struct prompt_pool *pool,
                                        const struct prompt_request *request)
{
    return pool->options.first_slot + (sched_slot)(request - pool->requests);
}

/* Returns true if the prompt does not read the prefix cache, because the gateway wants scores or an
 * embedding. */
static inline bool prompt_request_is_uncached(const struct prompt_request *request)
{
    return request->wants_scores || request->pooling != POOLING_NONE;
}

/* Returns true if the request has taken blocks from the block pool. */
static inline bool prompt_request_has_blocks(const struct prompt_request *request)
{
    return request->state > PROMPT_QUEUED && request->owns_blocks;
}

static inline bool prompt_request_is_stopped(const struct prompt_request *request)
{
    return request->state >= PROMPT_STOPPED_IN_BATCH;
}

/* ---- prompt_pool.c ---- */

/* Changes the state. Requires a legal transition (asserted). */
void prompt_request_state_set(struct prompt_request *request, enum prompt_request_state to);
/* Sends FAILED to the gateway, unless the request is already stopped or the gateway's connection
 * has ended, and calls prompt_request_stop. */
void prompt_request_fail(struct prompt_pool *pool, struct prompt_request *request,
                         enum status status, const char *text);
/* Stops the request. Call the function again when a batch or a flush of the request has ended.
 * - In a batch: sets PROMPT_STOPPED_IN_BATCH.
 * - In no batch, with writes_pending: sets PROMPT_STOPPED_FLUSHING, and calls prompt_push_flush
 *   unless the state was PROMPT_FLUSHING, which has begun this flush already.
 * - Otherwise: calls prompt_push_abort and frees the request's slot. */
void prompt_request_stop(struct prompt_pool *pool, struct prompt_request *request);
/* Ends the prompt phase: sends PREFILLED to the gateway, if it is connected, and frees the
 * request's slot. */
void prompt_request_complete(struct prompt_pool *pool, struct prompt_request *request,
                             int64_t now_us);

/* ---- prompt_prefix.c ---- */

/* Returns the number of blocks that a request with owns_blocks takes before its first chunk. */
static inline uint32_t prompt_request_blocks_left(const struct prompt_pool *pool,
                                                  const struct prompt_request *request)
{
    const struct kv_tables *tables = &request->tables;
    return layer_groups_blocks_to_take(&pool->options.arena.groups, request->span_count,
                                       tables->cached_spans, tables->window_cached_spans,
                                       tables->keep);
}

/* Returns the number of prompt tokens after the cached spans. */
uint32_t prompt_prefix_tokens_left(const struct prompt_pool *pool,
                                   const struct prompt_request *request);
/* Adds the prompt's length and its cached tokens to the counters of the prefix cache. No effect if
 * the prompt does not read the prefix cache. */
void prompt_prefix_stats_add(struct prompt_pool *pool, const struct prompt_request *request);
/* Marks the request's own blocks as KV_LIVE (kv_pool.h), and adds the full blocks to the prefix
 * cache, if there is one. Requires own blocks (prompt_request_has_blocks) and that the whole prompt
 * is computed. */
void prompt_prefix_add(struct prompt_pool *pool, struct prompt_request *request);
/* Adds the full blocks that are computed to the prefix cache. No effect without a prefix cache,
 * without own blocks, or after PROMPT_COMPUTED. */
void prompt_prefix_keep(struct prompt_pool *pool, struct prompt_request *request);
/* Frees the request's own blocks, and ends its reading of the prefix cache. */
void prompt_prefix_free(struct prompt_pool *pool, struct prompt_request *request);

/* ---- prompt_copy.c ---- */

/* Begins a copy (copied_generation of PREFILL): the state changes from PROMPT_QUEUED to
 * PROMPT_COMPUTED, and prompt_pool_results_send pushes the KV. Returns ST_NOT_FOUND if this machine
 * does not have all the KV, or ST_INVALID without a prefix cache, without a token machine, or if
 * the last block is not full. After an error the caller frees the request's slot. */
enum status prompt_copy_begin(struct prompt_pool *pool, struct prompt_request *request,
                              const struct message_prefill *prefill, int64_t now_us,
                              struct error *error);
/* Call it when the copy is flushed. Returns true if the answer of the request `copied` has not
 * overwritten the blocks that the copy read. */
bool prompt_copy_is_intact(const struct prompt_pool *pool, const struct prompt_request *request);

/* ---- prompt_push.c ---- */

/* Returns true if each layer is to be pushed as soon as it is computed. */
static inline bool prompt_is_layerwise(const struct prompt_request *request)
{
    return request->transfer_mode == TRANSFER_LAYERWISE;
}

/* Sets `transfer_mode` by the measured speeds. Requires that the cached spans are known. */
void prompt_push_decide(const struct prompt_pool *pool, struct prompt_request *request);

/* Returns the bytes of the layers [first_layer, end_layer) in full_spans spans of each layer
 * without a window, and in window_spans spans of each layer with a window. Adds the bytes of each
 * enum layer_kind to kinds[LAYER_KIND_COUNT]; NULL = does not add them. */
uint64_t prompt_push_bytes(const struct kv_arena *arena, uint32_t first_layer, uint32_t end_layer,
                           uint32_t full_spans, uint32_t window_spans, uint64_t *kinds);
/* Writes the KV that the running chunk, or the copy, has to push, in the layers [push_first_layer,
 * layer_end). No effect if the machine's stages push the chunk's KV, if the request is stopped or
 * has no token machine, or after a failed push. Stores the result in write_status. */
void prompt_push_layers(struct prompt_pool *pool, struct prompt_request *request,
                        uint32_t layer_end, int64_t now_us);
/* Stores in *out what the machine's stages push for the chunk that begins, and counts these bytes
 * as pushed. `last` = the chunk is the prompt's last chunk. Stores span_count = 0 if the stages
 * push nothing, and without options.stages_push. */
void prompt_push_plan(struct prompt_pool *pool, struct prompt_request *request, bool last,
                      int64_t now_us, struct prompt_push *out);
/* Begins a flush of the request's writes. Requires a token machine. */
void prompt_push_flush(struct prompt_pool *pool, struct prompt_request *request);
/* Call it when a chunk that is not the prompt's last chunk is done. No effect without a prefix
 * cache, or if the KV stays on this machine. Sends PROGRESS to the gateway. If this process pushes
 * the request layer by layer, the function also begins a flush, unless one is pending; after the
 * flush, the token machine gets PROGRESS. */
void prompt_push_progress(struct prompt_pool *pool, struct prompt_request *request);
/* Sends KV_ABORTED to the token machine, or calls local_aborted. Requires that no more writes
 * follow. */
void prompt_push_abort(struct prompt_pool *pool, const struct prompt_request *request);

#endif
