/* prompt_state: the prompt pool's table of requests, and the functions that the .c files of
 * prompt_pool/ share (except prompt_links.c and push_meter.c, which know no requests).
 *
 * A request ends in one of two ways:
 * - Delivered: its first token is sent and its KV is flushed. Then KV_READY is sent to the token
 *   machine (KV_ABORTED if the first token ended the answer), and PREFILLED to the gateway. Without
 *   a token machine, nothing is flushed and only PREFILLED is sent.
 * - Stopped, because it was cancelled or has failed: no further write is issued, the writes that
 *   were issued are flushed, and then KV_ABORTED is sent to the token machine. A request whose
 *   token machine's connection has ended sends neither KV_READY nor KV_ABORTED.
 *
 * In both cases the request's blocks are freed only when no write from them is in flight and no
 * batch uses them. If the KV stays on this machine, local_ready or local_aborted is called instead
 * of sending KV_READY or KV_ABORTED, and nothing is flushed.
 *
 * Only prompt_pool/ and its tests include this header. All functions run on the machine's event
 * loop thread. They compute nothing, and own no connection: they send through options.calls. */
#ifndef PROMPT_POOL_PROMPT_STATE_H
#define PROMPT_POOL_PROMPT_STATE_H

#include "common/pooling.h"
#include "kvcache/kv_tables.h"
#include "prompt_pool/prompt_pool.h"
#include "scheduler/slots.h"

/* States of a request. The legal transitions, which only prompt_request_state_set makes:
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
    PROMPT_QUEUED,    /* No chunk has begun. The request holds no block of this pool. */
    PROMPT_COMPUTING, /* A chunk is in a batch, or the request is between two chunks. */
    /* The last chunk is done. The request is in `computed` until prompt_pool_results_send. */
    PROMPT_COMPUTED,
    PROMPT_FLUSHING,         /* All writes of its KV are issued; a flush is pending. */
    PROMPT_STOPPED_IN_BATCH, /* Stopped, but a batch in flight contains a chunk. */
    PROMPT_STOPPED_FLUSHING, /* Stopped and in no batch; a flush is pending. */
    PROMPT_STATE_COUNT
};

struct prompt_request {
    struct message_request attempt; /* Id and generation. */
    struct message_request copied;  /* If `copy`: the request whose KV is copied. */
    kv_owner_id owner;
    enum prompt_request_state state;
    struct transport_peer *gateway; /* NULL = its connection has ended. */
    /* The token machine; NULL = none, this machine, or its connection has ended. */
    struct transport_peer *target;
    uint32_t target_index; /* Number of the target in prompt_links. */
    uint32_t target_path;  /* Path through the target's stages. */
    uint32_t path;         /* Path through this machine's stages. */
    struct sampling sampling;
    struct grammar_answer *answer; /* NULL = no constraint. */
    uint32_t output_limit;         /* Most tokens of the answer. */
    /* The prompt is computed in blocks that the token pool of this machine has reserved. Set to
     * false when local_ready or local_aborted has been called. */
    bool local;
    bool wants_scores; /* The gateway wants the scores of the prompt's tokens. */
    uint8_t pooling;   /* enum pooling; not POOLING_NONE = the gateway wants an embedding. */
    /* enum message_transfer_mode. TRANSFER_AUTO = measured speeds decide when the first chunk
     * begins; until then nothing is pushed. */
    uint8_t transfer_mode;
    bool copy; /* Nothing is computed: KV that this machine has is pushed. */
    /* The copy reads window blocks of the request `copied`, which may overwrite them. */
    bool reads_windows;
    bool answer_ended;   /* The first token ended the answer, so nothing is decoded. */
    bool writes_pending; /* A write or a flush was issued, and no flush has reported its end. */
    bool stages_flush;   /* The last push was passed to the stages, which flush after it. */
    enum status write_status; /* Status of the latest push; < 0 = no more pushes are made. */

    /* [options.hidden]: sum of the vectors of the tokens computed so far. NULL = no embedding is
     * wanted. */
    int64_t *embedding;
    /* [prompt_count]: the tokens. targets.ids, tables.ids (unless `local`), `rules` and `layer_us`
     * are in the same allocation. */
    uint32_t *prompt;
    uint32_t prompt_count;
    uint32_t rule_count;
    /* Blocks of the token machine; valid from target_held_spans on, in layers with a window from
     * window_first on; KV_BLOCK_NONE before. */
    struct kv_tables targets;
    /* Number of the prompt's first spans that are not pushed in layers without a window, because
     * the token machine already has their KV. */
    uint32_t target_held_spans;
    /* This machine's blocks. tables.cached_spans = spans that were found in a prefix cache: this
     * pool's, or the token pool's if `local`. */
    struct kv_tables tables;
    bool owns_blocks;    /* False: the token pool of this machine owns them. */
    uint32_t *rules;     /* Words of common/token_rules.h. */
    uint32_t span_count; /* Number of spans that the prompt fills. */
    /* First span of the prompt whose KV layers with a window push. */
    uint32_t window_first;
    uint64_t prefix_salt;           /* Salt of the request's chains in the prefix cache. */
    struct kv_prefix_reader reader; /* What the request reads in this pool's prefix cache. */

    /* Number of tokens whose KV is computed or cached; 0 from PROMPT_COMPUTED on. */
    uint32_t computed_tokens;
    /* Number of the prompt's first spans that have arrived at the token machine (PROGRESS). */
    uint32_t arrived_spans;
    /* Number of the prompt's first spans that will have arrived when the flush ends that
     * prompt_push_progress has begun; 0 = no such flush is pending. */
    uint32_t flushing_spans;

    /* What the running chunk has to push: spans [push_first_span, push_end_span) of the layers from
     * push_first_layer on; in layers with a window, spans [push_window_first, push_end_span). */
    uint32_t push_first_span;
    uint32_t push_window_first;
    uint32_t push_end_span;
    uint32_t push_first_layer;
    /* [arena.layer_count]: when each layer was pushed last, in microseconds since began_us; NULL =
     * this process pushes no KV of the request. */
    uint32_t *layer_us;

    struct message_token first_token; /* Token 0 of the answer. */
    int64_t queued_us;                /* When PREFILL arrived. */
    int64_t began_us;                 /* When the first chunk began. */
    int64_t computed_us;              /* When the last chunk was done. */
    int64_t first_write_us;           /* -1 = none yet. */
    uint64_t pushed_bytes;
};

/* Number of withdrawn requests that are remembered; one more replaces the oldest. As many as a
 * token machine remembers (TOKEN_UNCONFIRMED_MAX). */
#define PROMPT_WITHDRAWN_MAX 1024

struct prompt_pool {
    struct prompt_pool_options options;
    struct sched_slots *slots;
    struct message_buffer tokens_message; /* Tokens of one request, until they are sent. */
    uint32_t token_count;                 /* Number of tokens in tokens_message. */
    uint64_t admitted_count;              /* Number of requests admitted so far. */
    uint32_t holder_count;                /* Requests that have taken blocks. */
    uint32_t pinned_count; /* Prompts whose prefixes are pinned for the next batch. */
    sched_slot pinned[LIMIT_BATCH_SEQUENCES];
    uint32_t running_count; /* Prompts of the running batch; 0 with options.stages_push. */
    sched_slot running[LIMIT_BATCH_SEQUENCES];
    uint32_t computed_count; /* Prompts whose last chunk is done, until prompt_pool_results_send. */
    sched_slot computed[LIMIT_BATCH_SEQUENCES]; /* SCHED_NO_SLOT = the request was stopped. */
    struct message_stats stats;
    double token_us;       /* See prompt_pool_token_us_set. */
    bool stopped_in_batch; /* See prompt_pool_stops_take. */
    /* Number of requests so far that were withdrawn before their PREFILL arrived. Request n of them
     * is withdrawn[n % PROMPT_WITHDRAWN_MAX]. */
    uint32_t withdrawn_count;
    struct message_request withdrawn[PROMPT_WITHDRAWN_MAX];
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

/* Returns true if scores or an embedding are wanted: the prompt is then computed from its first
 * token, without reading the prefix cache. */
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

/* Changes the state. Asserts that the transition is legal: every caller has checked the state, so
 * no message of a peer can cause an illegal transition. */
void prompt_request_state_set(struct prompt_request *request, enum prompt_request_state to);
/* Sends FAILED to the gateway, unless the request is already stopped, and calls
 * prompt_request_stop. */
void prompt_request_fail(struct prompt_pool *pool, struct prompt_request *request,
                         enum status status, const char *text);
/* Stops the request. If no batch and no transfer uses the request, sends KV_ABORTED or calls
 * local_aborted, and frees the request's slot. Else the caller must call prompt_request_stop again
 * after each batch and flush of the request. */
void prompt_request_stop(struct prompt_pool *pool, struct prompt_request *request);
/* Ends the prompt phase: sends PREFILLED to the gateway and frees the request's slot. */
void prompt_request_complete(struct prompt_pool *pool, struct prompt_request *request,
                             int64_t now_us);

/* ---- prompt_prefix.c ---- */

/* Returns the number of blocks that the request takes before its first chunk. */
static inline uint32_t prompt_request_blocks_left(const struct prompt_pool *pool,
                                                  const struct prompt_request *request)
{
    const struct kv_tables *tables = &request->tables;
    return layer_groups_taken(&pool->options.arena.groups, request->span_count,
                              tables->cached_spans, tables->window_cached_spans, tables->keep);
}

/* Returns the number of prompt tokens after the cached spans. */
uint32_t prompt_prefix_tokens_left(const struct prompt_pool *pool,
                                   const struct prompt_request *request);
/* Adds the prompt's length and its cached tokens to the counters, if the prefix cache was read.
 * Called when the prompt's first chunk starts. */
void prompt_prefix_stats_add(struct prompt_pool *pool, const struct prompt_request *request);
/* Marks the request's own blocks as live and adds the full ones to the prefix cache, if there is
 * one. Requires own blocks and that the whole prompt is computed. */
void prompt_prefix_add(struct prompt_pool *pool, struct prompt_request *request);
/* Adds the full blocks of a prompt that ends before it is computed to the prefix cache, if there is
 * one, so that they are not computed again when the request returns. */
void prompt_prefix_keep(struct prompt_pool *pool, struct prompt_request *request);
/* Frees the request's own blocks, and ends its reading of the prefix cache. */
void prompt_prefix_free(struct prompt_pool *pool, struct prompt_request *request);

/* ---- prompt_copy.c ---- */

/* Begins a copy (copied_generation of PREFILL): the request goes from PROMPT_QUEUED to
 * PROMPT_COMPUTED, and prompt_pool_results_send pushes the KV. Returns ST_INVALID if this machine
 * makes no such copies, ST_NOT_FOUND if it does not have all of the KV; the caller then frees the
 * request's slot. */
enum status prompt_copy_begin(struct prompt_pool *pool, struct prompt_request *request,
                              const struct message_prefill *prefill, int64_t now_us,
                              struct error *error);
/* Call it when the copy is flushed. Returns true if the right KV was pushed: the request `copied`
 * has not overwritten the window blocks that the copy read. */
bool prompt_copy_is_intact(const struct prompt_pool *pool, const struct prompt_request *request);

/* ---- prompt_push.c ---- */

/* Returns true if each layer is pushed as soon as it is computed. */
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
 * layer_end). No effect if the machine's stages push the chunk's KV, or if the request is stopped
 * or has no token machine. Stores the result in write_status. */
void prompt_push_layers(struct prompt_pool *pool, struct prompt_request *request,
                        uint32_t layer_end, int64_t now_us);
/* Stores in *out what the machine's stages push for the chunk that begins, and counts these bytes
 * as pushed. Stores span_count = 0 if the stages push nothing, and without options.stages_push. */
void prompt_push_plan(struct prompt_pool *pool, struct prompt_request *request, bool last,
                      int64_t now_us, struct prompt_push *out);
/* Begins a flush of the request's writes. */
void prompt_push_flush(struct prompt_pool *pool, struct prompt_request *request);
/* Call it when a chunk that is not the last one is computed and pushed. With a prefix cache, sends
 * PROGRESS to the gateway. If this process pushes layer by layer, it also begins a flush, after
 * which the token machine gets PROGRESS. No effect if the KV stays on this machine. */
void prompt_push_progress(struct prompt_pool *pool, struct prompt_request *request);
/* Sends KV_ABORTED to the token machine, or calls local_aborted. Requires that no more writes
 * follow. */
void prompt_push_abort(struct prompt_pool *pool, const struct prompt_request *request);

#endif
