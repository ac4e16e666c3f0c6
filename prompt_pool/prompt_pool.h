/* prompt_pool: the prompt phase of requests on one machine. A struct prompt_pool owns its requests
 * and the blocks that it takes for them. machine/ calls the functions on the machine's event loop
 * thread. The pool describes chunks to machine/, which passes back the results. The pool does not
 * decide what a batch contains (sched_machine does), does not compute (the executor does), does not
 * log and does not wait.
 *
 * The message PREFILL admits a request. The prompt is computed in chunks, and its KV is written
 * into the token machine's blocks: layer by layer while the prompt is computed (layer-wise), or in
 * one piece at the end. The first token is sent to the gateway. When the KV has arrived, KV_READY
 * is sent to the token machine. A PREFILL with a copied_generation is a copy: nothing is computed,
 * and KV that this machine has is written to another machine. */
#ifndef PROMPT_POOL_PROMPT_POOL_H
#define PROMPT_POOL_PROMPT_POOL_H

#include "common/status.h"
#include "kvcache/kv_pool.h"
#include "kvcache/kv_prefix.h"
#include "kvcache/kv_transfer.h"
#include "model/grammar/answers.h"
#include "prompt_pool/prompt_links.h"
#include "scheduler/layerwise.h"
#include "scheduler/machine/machine.h"
#include "scheduler/paths.h"
#include "transport/message.h"
#include "transport/transport.h"

struct prompt_pool;
struct kv_push;

/* The blocks of a prompt whose answer is generated on the same machine. The token pool owns
 * them. */
struct prompt_local {
    uint32_t path; /* The request's path through this machine's stages. */
    /* Block tables of the request in the token pool. The first tables.cached_spans spans already
     * have their KV. Requires that these spans hold fewer tokens than the prompt. tables.ids NULL =
     * no blocks are reserved. */
    struct kv_tables tables;
    uint32_t span_count; /* Spans of the prompt; all have blocks. */
};

/* Functions that the pool needs from its machine. */
struct prompt_pool_calls {
    /* Queues a message for a peer. Does not call functions of the pool; a failure of the peer is
     * reported later. */
    void (*send)(void *self, struct transport_peer *peer, const struct message *message);
    /* Queues an encoded message TOKENS for a peer. */
    void (*send_tokens)(void *self, struct transport_peer *peer,
                        const struct message_buffer *tokens);
    /* For a prompt whose KV stays on this machine: stores the blocks that the token pool has
     * reserved for the request, or returns ST_NOT_FOUND. The blocks stay reserved until the pool
     * calls local_ready or local_aborted. */
    enum status (*local_blocks)(void *self, const struct message_request *request,
                                struct prompt_local *out);
    /* Reports that the KV of the prompt is complete in the blocks of local_blocks. */
    void (*local_ready)(void *self, const struct message_kv_ready *ready, int64_t now_us);
    /* Reports that the pool no longer uses the blocks of local_blocks, and that no answer will be
     * generated in them: the prompt was not admitted or was stopped, or no token is left to
     * generate. */
    void (*local_aborted)(void *self, const struct message_request *request);
    /* Hands the full blocks of an answer that this machine generates to the prefix cache. */
    void (*publish)(void *self, const struct message_request *request);
    /* Finds the blocks that an answer of this machine has for the spans [first, end) in layers with
     * a window, and stores the blocks in *out. out NULL = stores nothing. Returns false if the
     * answer no longer has these blocks. */
    bool (*windows_find)(void *self, const struct message_request *request, uint32_t first,
                         uint32_t end, struct kv_tables *out);
    /* Writes KV to another machine, as kv_targets_push does. Called only without
     * options.stages_push. */
    enum status (*push)(void *self, struct kv_push *push, uint32_t layer_end);
    /* Makes the stages write the KV of a copy, in all layers. Called only with options.stages_push.
     * own_path and cookie have the same values in the call of `flush` that follows. */
    enum status (*copy)(void *self, uint32_t own_path, const struct kv_push *push, uint64_t cookie);
    /* Requests a flush: when all bytes that were written for the request before this call have
     * arrived, the machine calls prompt_pool_flushed with `cookie`. own_path: the request's path
     * through this machine's stages. target: the token machine's number in prompt_links. path: the
     * request's path through the target's stages. stages_flush = true: the stages flush by
     * themselves, because a push had `is_last` (struct prompt_push). */
    void (*flush)(void *self, uint32_t own_path, uint32_t target, uint32_t path, uint64_t cookie,
                  bool stages_flush);
};

struct prompt_pool_options {
    const char *name; /* Name of this machine; must outlive the pool. */
    struct sched_machine *sched;
    struct kv_pool *kv;
    /* NULL = no prefix cache: each prompt is computed from its first token. */
    struct kv_prefix *prefix;
    struct kv_arena arena; /* Layout of this machine's KV memory. */
    uint32_t blocks_max;   /* Most blocks that this machine takes for one prompt. */
    uint32_t kept_spans;   /* Spans that layers with a window keep (layer_groups_spans_kept). */
    struct prompt_links *links;
    sched_slot first_slot;   /* The pool uses the slots [first_slot, first_slot + slot_count). */
    uint32_t slot_count;     /* Most requests in the pool. */
    uint32_t vocab;          /* Size of the vocabulary. */
    uint32_t adapter_count;  /* Low-rank adapters of the model. */
    uint32_t hidden;         /* Elements of a row. */
    uint32_t context_tokens; /* Most tokens of a request's context. */
    uint8_t transfer_mode;   /* enum message_transfer_mode of requests with TRANSFER_AUTO. */
    /* With TRANSFER_AUTO in the request and in `transfer_mode`, prompts of at least this length are
     * sent layer-wise. UINT32_MAX = the measured speeds decide (scheduler/layerwise.h). */
    uint32_t layerwise_threshold_tokens;
    struct grammar_cache *grammars; /* For constrained answers; NULL = these requests fail. */
    struct sched_paths *paths;      /* The paths through this machine's stages; NULL = one path. */
    /* true = the machine's stages push the KV of each chunk (struct prompt_push). false = the pool
     * pushes the KV with calls.push. */
    bool stages_push;
    struct prompt_pool_calls calls;
    void *self; /* First argument of the calls. */
};

/* Opens an empty pool; *options is copied, and what its pointers point to must outlive the pool.
 * Returns ST_NO_MEMORY on failure. */
enum status prompt_pool_open(const struct prompt_pool_options *options, struct prompt_pool **out);
/* Frees the requests and their blocks, without sending messages. NULL is fine. */
void prompt_pool_close(struct prompt_pool *pool);

/* Handles PREFILL of a gateway. PREFILL reached the machine at arrived_us, and the machine may have
 * held it back until now_us: the request has waited since arrived_us.
 *
 * If the request cannot be admitted, the gateway gets FAILED. Blocks that are reserved for the
 * request are then given up: the token machine gets KV_ABORTED if its link is up, or
 * calls.local_aborted is called. The pool does not give up blocks if it already has the request, or
 * if the token machine has withdrawn the request (prompt_pool_withdraw). */
void prompt_pool_prefill(struct prompt_pool *pool, struct transport_peer *gateway,
                         const struct message_prefill *prefill, int64_t arrived_us, int64_t now_us);
/* Handles CANCEL of a gateway. No effect if the request is not in the pool. */
void prompt_pool_cancel(struct prompt_pool *pool, const struct message_request *request);

/* Handles CANCEL of a token machine that has given up the request. If the pool has the request,
 * cancels the request and returns true; KV_ABORTED follows when the request's writes have ended.
 * Else returns false: the caller sends KV_ABORTED at once, and the pool refuses a PREFILL of the
 * request that arrives later (unless many other requests were withdrawn in between). */
bool prompt_pool_withdraw(struct prompt_pool *pool, const struct message_request *request);

/* Returns true if the request is in the pool and still uses blocks of this machine's token pool. */
bool prompt_pool_has_local(const struct prompt_pool *pool, const struct message_request *request);
uint32_t prompt_pool_count(const struct prompt_pool *pool); /* Number of requests in the pool. */
/* Returns the number of requests for which this pool has taken blocks. Requests whose KV stays on
 * this machine use blocks of the token pool and do not count. */
uint32_t prompt_pool_holder_count(const struct prompt_pool *pool);

/* Cancels the requests of a gateway whose connection has ended. NULL = of all gateways. */
void prompt_pool_gateway_gone(struct prompt_pool *pool, const struct transport_peer *gateway);
/* Call it when the connection to the token machine `target` has ended. `text`: why the connection
 * has ended. Requests without a token left to generate are completed; other requests of the target
 * fail. */
void prompt_pool_target_down(struct prompt_pool *pool, const struct transport_peer *target,
                             const char *text, int64_t now_us);
/* Call it when a flush (calls.flush) with this cookie has ended. status ST_OK = all bytes that were
 * written for the request before the flush have arrived; other = the transfer has failed. No effect
 * if the request is no longer in the pool. */
void prompt_pool_flushed(struct prompt_pool *pool, uint64_t cookie, enum status status,
                         int64_t now_us);

/* Call it before sched_machine_batch_next of the path: looks up the prefixes of the prompts that
 * may be in the batch, and reports to the scheduler how many tokens of these prompts are left to
 * compute. batch_tokens: most prompt tokens of the batch. */
void prompt_pool_prefixes_enter(struct prompt_pool *pool, uint32_t path, uint32_t batch_tokens);
/* Call it after sched_machine_batch_next: releases the prefixes of prompts that are not in the
 * batch. */
void prompt_pool_prefixes_leave(struct prompt_pool *pool);

/* The KV that the stages of a machine push for one chunk. Each stage pushes the KV of its own
 * layers in the spans [first_span, first_span + span_count) of the prompt. */
struct prompt_push {
    uint32_t span_count;   /* 0 = nothing to push. */
    uint32_t first_span;   /* First span of the prompt that is pushed. */
    uint32_t full_first;   /* Layers without a window push the spans from this span on. */
    uint32_t window_first; /* Layers with a window push the spans from this span on. */
    uint32_t target;       /* Number of the token machine in prompt_links. */
    uint32_t path;         /* Path through the token machine's stages. */
    /* The token machine's block for span i in layer group g is blocks[g * stride + i]. */
    const kv_block_id *blocks;
    uint32_t stride; /* Entries of `blocks` per layer group. */
    uint64_t cookie; /* The `cookie` of the flush after the prompt's last push (calls.flush). */
    struct message_request request;
    /* true = each layer is pushed as soon as it is computed. false = all layers are pushed at the
     * chunk's end. */
    bool layerwise;
    bool is_last; /* true = the last push of the prompt: the stages flush after it. */
};

/* A chunk of a batch, as the engine needs it. Pointers are valid until prompt_pool_chunk_done or
 * prompt_pool_chunk_abandoned. */
struct prompt_chunk {
    uint64_t request;          /* The request's id. */
    const uint32_t *token_ids; /* The tokens of the chunk; their number is in the batch item. */
    uint32_t first_token;      /* Position of the chunk's first token in the prompt. */
    const kv_block_id *blocks; /* kv_tables.ids of the request. */
    uint32_t group_stride;     /* kv_tables.stride of the request. */
    kv_owner_id owner;       /* The request as an owner of blocks; no other request has this id. */
    struct prompt_push push; /* What the stages push; span_count 0 = nothing. */
    const struct sampling *sampling;
    struct sample_context context; /* Set only if samples_token is true. */
    struct grammar_answer *answer; /* NULL = no constraint. */
    uint32_t output_limit;         /* Most tokens that may follow the prompt. */
    bool samples_token;            /* true = the last row gives the token after the prompt. */
    /* Number of rows, from the chunk's first, whose next prompt token is scored. */
    uint32_t score_count;
    /* The engine adds the vectors of the rows [pooled_first, pooled_first + pooled_count) of the
     * chunk to the request's embedding, pooled_sum[hidden]. */
    uint32_t pooled_first;
    uint32_t pooled_count;
    int64_t *pooled_sum;
    /* true = the KV is sent layer-wise. Without options.stages_push, the caller then calls
     * prompt_pool_layers_done while the batch runs. */
    bool layerwise;
};

/* Sets the microseconds that this machine needs for a token of a prompt
 * (sched_pace.prompt_token_us); 0 = not known. */
void prompt_pool_token_us_set(struct prompt_pool *pool, double token_us);
/* Returns the speeds that decide whether prompts for the target (its number in prompt_links) are
 * sent layer-wise. */
struct sched_layerwise prompt_pool_layerwise(const struct prompt_pool *pool, uint32_t target);

/* Prepares a prompt item (chunk) of a batch that is about to run, and describes the chunk in *out.
 * With its first chunk, a prompt takes its blocks, unless it uses blocks of the token pool.
 * Requires that the request is not stopped. */
void prompt_pool_chunk_begin(struct prompt_pool *pool, const struct sched_batch_item *item,
                             int64_t now_us, struct prompt_chunk *out);
/* Call it when the first `layers` layers of the running batch are computed. Pushes these layers for
 * the batch's layer-wise requests, except layers that are pushed already. No effect with
 * options.stages_push. */
void prompt_pool_layers_done(struct prompt_pool *pool, uint32_t layers, int64_t now_us);
/* The next three functions take the results of a batch. The caller calls, in this order:
 * - sched_machine_batch_done;
 * - for each chunk with scores, prompt_pool_score_add for each score in the order of the prompt,
 *   and then prompt_pool_scores_end;
 * - for every chunk of the batch, prompt_pool_chunk_done, with `token` NULL if the chunk's
 *   samples_token is false.
 * `token` has index, id, finish and log-probabilities; the pool sets the other fields. */
void prompt_pool_score_add(struct prompt_pool *pool, sched_slot slot, struct message_token *token);
void prompt_pool_scores_end(struct prompt_pool *pool, sched_slot slot);
void prompt_pool_chunk_done(struct prompt_pool *pool, const struct sched_batch_item *item,
                            struct message_token *token, int64_t now_us);
/* Call it instead of prompt_pool_chunk_done if the batch has ended early (executor_ops.abandon), so
 * that the KV of the chunk is not complete. Requires that the request is stopped. */
void prompt_pool_chunk_abandoned(struct prompt_pool *pool, const struct sched_batch_item *item);
/* Handles the prompts whose last chunk is done, and the copies: sends first tokens and embeddings,
 * pushes the KV that is not pushed yet, and flushes. The next batch can begin before this call. */
void prompt_pool_results_send(struct prompt_pool *pool, int64_t now_us);

/* Returns true if, since the previous call, a request was stopped (cancelled or failed) while a
 * batch computed it. */
bool prompt_pool_stops_take(struct prompt_pool *pool);
/* Returns true if the request in the slot is stopped: the results of its batch are not wanted.
 * Requires that a batch contains the request. */
bool prompt_pool_is_stopped(struct prompt_pool *pool, sched_slot slot);

/* Adds the pool's counters to `stats`. */
void prompt_pool_stats_add(const struct prompt_pool *pool, struct message_stats *stats);
/* Adds the load from all gateways except `gateway` to *out. prompts: the number of prompts that are
 * not computed yet. prompt_tokens: the tokens of these prompts after their cached spans. kv_tokens:
 * the KV memory, in tokens, of the requests that take blocks of their own. */
void prompt_pool_load_add(const struct prompt_pool *pool, const struct transport_peer *gateway,
                          struct message_others *out);

#endif
