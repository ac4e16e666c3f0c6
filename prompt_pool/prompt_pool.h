/* prompt_pool: the prompt phase of requests on one machine. The message PREFILL admits a request.
 * The prompt is computed in chunks, and its KV is written into the token machine's blocks: layer by
 * layer while the prompt is computed, or in one piece at the end. The first token is sent to the
 * gateway. When the KV has arrived, KV_READY is sent to the token machine. A PREFILL that is a copy
 * (copied_generation) computes nothing: KV that this machine has is written to another machine.
 *
 * The pool owns its requests and the blocks that it takes for them. It does not decide what a batch
 * contains (sched_machine does) and does not compute (the executor does): it describes each chunk
 * to its caller, machine/, which passes back the results. machine/ makes every call on the
 * machine's event loop thread. The pool never logs and never waits. */
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

/* The blocks of a prompt whose answer is generated on the same machine. */
struct prompt_local {
    uint32_t path; /* Path of the reservation through this machine's stages. */
    /* Block tables of the request in the token pool. The first tables.cached_spans spans already
     * have their KV. These spans hold fewer tokens than the prompt, so at least one token is
     * computed. tables.ids = NULL: no blocks are reserved. */
    struct kv_tables tables;
    uint32_t span_count; /* Spans of the prompt; all have blocks. */
};

/* Functions that the pool needs from its machine. */
struct prompt_pool_calls {
    /* Queues a message for a peer. A peer's failure is reported after the call, never during it. */
    void (*send)(void *self, struct transport_peer *peer, const struct message *message);
    /* Queues an encoded message TOKENS for a peer. */
    void (*send_tokens)(void *self, struct transport_peer *peer,
                        const struct message_buffer *tokens);
    /* The next three functions are called for a prompt whose KV stays on this machine. local_blocks
     * returns the reserved blocks of the request, or ST_NOT_FOUND. The blocks stay reserved until
     * local_ready or local_aborted. */
    enum status (*local_blocks)(void *self, const struct message_request *request,
                                struct prompt_local *out);
    void (*local_ready)(void *self, const struct message_kv_ready *ready, int64_t now_us);
    void (*local_aborted)(void *self, const struct message_request *request);
    /* Hands the full blocks of an answer that this machine generates to the prefix cache. */
    void (*publish)(void *self, const struct message_request *request);
    /* Finds the window blocks of an answer that this machine generates
     * (token_pool_windows_find). */
    bool (*windows_find)(void *self, const struct message_request *request, uint32_t first,
                         uint32_t end, struct kv_tables *out);
    /* Writes KV to another machine, as kv_targets_push does. Never called with
     * options.stages_push. */
    enum status (*push)(void *self, struct kv_push *push, uint32_t layer_end);
    /* Has the stages write KV that no chunk computes, in all layers. Called only with
     * options.stages_push. own_path and cookie: those of the call of `flush` that follows. */
    enum status (*copy)(void *self, uint32_t own_path, const struct kv_push *push, uint64_t cookie);
    /* Asks for a call of prompt_pool_flushed with `cookie`, a number that stands for the request,
     * when everything written for the request has arrived. own_path: the request's path through
     * this machine's stages; target: the token machine's number in prompt_links; path: the
     * request's path through the target's stages. stages_flush = true: the stages flush without
     * being asked, because of a push with `is_last` set (struct prompt_push). */
    void (*flush)(void *self, uint32_t own_path, uint32_t target, uint32_t path, uint64_t cookie,
                  bool stages_flush);
};

struct prompt_pool_options {
    const char *name; /* Name of this machine; must outlive the pool. */
    struct sched_machine *sched;
    struct kv_pool *kv;
    /* NULL = no prefix cache: each prompt is computed from its first token. */
    struct kv_prefix *prefix;
    struct kv_arena arena; /* Layout of this machine's region. */
    uint32_t blocks_max;   /* Most blocks of one prompt. */
    uint32_t kept_spans;   /* Spans that layers with a window keep (layer_groups_keep). */
    struct prompt_links *links;
    sched_slot first_slot;   /* The pool uses the slots [first_slot, first_slot + slot_count). */
    uint32_t slot_count;     /* Most requests in the pool. */
    uint32_t vocab;          /* Size of the vocabulary. */
    uint32_t adapter_count;  /* Low-rank adapters of the model. */
    uint32_t hidden;         /* Elements of a token's vector. */
    uint32_t context_tokens; /* Most tokens of a request's context. */
    uint8_t transfer_mode;   /* enum message_transfer_mode: for requests with TRANSFER_AUTO. */
    /* Used if both the request and `transfer_mode` say TRANSFER_AUTO: prompts of at least this
     * length are sent layer-wise. UINT32_MAX = as the measured speeds say (scheduler/layerwise.h).
     */
    uint32_t layerwise_threshold_tokens;
    struct grammar_cache *grammars; /* For constrained answers; NULL = these requests fail. */
    struct sched_paths *paths;      /* The paths through this machine's stages; NULL = one path. */
    /* true: the machine's stages push KV, as the chunks of a batch say (struct prompt_push). false:
     * the pool pushes it with calls.push. */
    bool stages_push;
    struct prompt_pool_calls calls;
    void *self; /* First argument of the calls. */
};

/* Opens an empty pool; *options is copied. Returns ST_NO_MEMORY on failure. */
enum status prompt_pool_open(const struct prompt_pool_options *options, struct prompt_pool **out);
void prompt_pool_close(struct prompt_pool *pool); /* Frees every block. NULL is fine. */

/* Handle the messages PREFILL and CANCEL of a gateway. If a PREFILL cannot be admitted, the gateway
 * gets FAILED. The token machine then gets KV_ABORTED (if this machine has reserved blocks for the
 * answer: a call of local_aborted), except if it is not connected, if it has withdrawn the request,
 * or if the pool already has the request. */
void prompt_pool_prefill(struct prompt_pool *pool, struct transport_peer *gateway,
                         const struct message_prefill *prefill, int64_t now_us);
void prompt_pool_cancel(struct prompt_pool *pool, const struct message_request *request);

/* Handles CANCEL of a token machine that has given up the request. If the pool has the request,
 * cancels the request and returns true; KV_ABORTED follows when the request's writes have arrived.
 * Else returns false: a PREFILL of the request that arrives later will fail, so the caller sends
 * KV_ABORTED at once. */
bool prompt_pool_withdraw(struct prompt_pool *pool, const struct message_request *request);

/* Returns true while the request is in the pool and its KV stays on this machine: a call of
 * local_ready or local_aborted follows. */
bool prompt_pool_has_local(const struct prompt_pool *pool, const struct message_request *request);
uint32_t prompt_pool_count(const struct prompt_pool *pool); /* Number of requests in the pool. */
/* Returns the number of requests that hold blocks which this pool has taken. Requests whose KV
 * stays on this machine use blocks of the token pool and do not count. */
uint32_t prompt_pool_holder_count(const struct prompt_pool *pool);

/* Cancels the requests of a gateway whose connection has ended. NULL = of all gateways. */
void prompt_pool_gateway_gone(struct prompt_pool *pool, const struct transport_peer *gateway);
/* Call it when the connection to a token machine (target) has ended. Requests whose answer ended
 * with the first token are completed; all other requests of the target fail. */
void prompt_pool_target_down(struct prompt_pool *pool, const struct transport_peer *target,
                             const char *text, int64_t now_us);
/* Call it when a flush has ended (calls.flush): ST_OK = everything written for the request with
 * this cookie has arrived. */
void prompt_pool_flushed(struct prompt_pool *pool, uint64_t cookie, enum status status,
                         int64_t now_us);

/* Call them before and after sched_machine_batch_next of the path. batch_tokens: most prompt tokens
 * of the batch. prompt_pool_prefixes_enter looks up the prefixes of the prompts that may be in the
 * batch, and tells the scheduler how many tokens of each prompt are left to compute.
 * prompt_pool_prefixes_leave releases the prefixes of the prompts that are not in the batch, so
 * that a waiting prompt holds no blocks. */
void prompt_pool_prefixes_enter(struct prompt_pool *pool, uint32_t path, uint32_t batch_tokens);
void prompt_pool_prefixes_leave(struct prompt_pool *pool);

/* The KV that the stages of a machine push for one chunk. Each stage pushes the KV of its own
 * layers in the spans [first_span, first_span + span_count) of the prompt: in layers without a
 * window, the spans from full_first on; in layers with a window, the spans from window_first on. */
struct prompt_push {
    uint32_t span_count;   /* 0 = nothing to push. */
    uint32_t first_span;   /* First span of the prompt that is pushed. */
    uint32_t full_first;   /* First span that layers without a window push. */
    uint32_t window_first; /* First span that layers with a window push. */
    uint32_t target;       /* Number of the target in prompt_links. */
    uint32_t path;         /* Path through the target's stages. */
    /* The target's block for span i in layer group g is blocks[g * stride + i]. */
    const kv_block_id *blocks;
    uint32_t stride; /* Entries of `blocks` per layer group. */
    uint64_t cookie; /* To be passed to prompt_pool_flushed. */
    struct message_request request;
    /* true: each layer is pushed as soon as it is computed. false: all layers are pushed at the
     * chunk's end. */
    bool layerwise;
    bool is_last; /* The last push of the prompt: the stages flush after it. */
};

/* A prompt item (chunk) of a batch, as the engine needs it. Pointers are valid until
 * prompt_pool_chunk_done. */
struct prompt_chunk {
    uint64_t request;          /* The request's id. */
    const uint32_t *token_ids; /* The chunk's item->token_count tokens. */
    /* Position of the first id in the prompt. (item->first_token is counted from the end of the
     * cached part.) */
    uint32_t first_token;
    const kv_block_id *blocks; /* kv_tables.ids of the request. */
    uint32_t group_stride;     /* kv_tables.stride of the request. */
    /* Identifies the request; distinguishes it from others that had the same slot. */
    kv_owner_id owner;
    struct prompt_push push;
    const struct sampling *sampling;
    struct sample_context context; /* Set if samples_token is true. */
    struct grammar_answer *answer; /* NULL = no constraint. */
    uint32_t output_limit;         /* Most tokens of the answer. */
    bool samples_token;            /* The last row gives token 0 of the answer. */
    /* Number of rows, from the chunk's first, whose next prompt token is scored. */
    uint32_t score_count;
    /* Rows whose vectors the engine adds to the request's embedding: rows [pooled_first,
     * pooled_first + pooled_count) of the chunk; pooled_sum: [hidden]. */
    uint32_t pooled_first;
    uint32_t pooled_count;
    int64_t *pooled_sum;
    /* Without options.stages_push: call prompt_pool_layers_done while the batch runs. */
    bool layerwise;
};

/* Sets the machine's time for a token of a prompt (struct sched_pace); 0 = not known. */
void prompt_pool_token_us_set(struct prompt_pool *pool, double token_us);
/* Returns the speeds by which prompts for the target are sent layer by layer. */
struct sched_layerwise prompt_pool_layerwise(const struct prompt_pool *pool, uint32_t target);

/* Prepares one prompt item of a batch that is about to run. At its first chunk, a prompt takes its
 * blocks, except if it uses the token pool's blocks. */
void prompt_pool_chunk_begin(struct prompt_pool *pool, const struct sched_batch_item *item,
                             int64_t now_us, struct prompt_chunk *out);
/* Pushes the layers before `layers` that are not pushed yet, for the layer-wise requests of the
 * running batch. Requires that these layers are computed. */
void prompt_pool_layers_done(struct prompt_pool *pool, uint32_t layers, int64_t now_us);
/* Take the results of a batch. The caller calls sched_machine_batch_done first. Then, for each
 * chunk with a score_count above 0, it calls prompt_pool_score_add for each score in order, and
 * prompt_pool_scores_end. After that it calls prompt_pool_chunk_done for every chunk of the batch.
 * `token` has index, id, finish and log-probabilities; the pool sets the other fields. For
 * prompt_pool_chunk_done, `token` is NULL unless the chunk's samples_token is true. */
void prompt_pool_score_add(struct prompt_pool *pool, sched_slot slot, struct message_token *token);
void prompt_pool_scores_end(struct prompt_pool *pool, sched_slot slot);
void prompt_pool_chunk_done(struct prompt_pool *pool, const struct sched_batch_item *item,
                            struct message_token *token, int64_t now_us);
/* Takes the place of prompt_pool_chunk_done if the batch has ended early (executor_ops.abandon):
 * the KV of the chunk is not complete. Requires that the request is stopped. */
void prompt_pool_chunk_abandoned(struct prompt_pool *pool, const struct sched_batch_item *item);
/* Handles the prompts whose last chunk is done: sends their first tokens and embeddings, pushes the
 * KV that is not pushed yet, and flushes. Separate from prompt_pool_chunk_done, so that the next
 * batch can start before this work. */
void prompt_pool_results_send(struct prompt_pool *pool, int64_t now_us);

/* Returns true if a request was stopped while a batch computed it, since the previous call. */
bool prompt_pool_stops_take(struct prompt_pool *pool);
/* Returns true if the request in the slot, which a batch contains, is stopped: the batch's results
 * for it are not wanted. */
bool prompt_pool_is_stopped(struct prompt_pool *pool, sched_slot slot);

/* Adds the pool's counters to `stats`. */
void prompt_pool_stats_add(const struct prompt_pool *pool, struct message_stats *stats);
/* Adds to `out` the numbers of prompts, prompt tokens and KV tokens of all gateways except
 * `gateway`. */
void prompt_pool_load_add(const struct prompt_pool *pool, const struct transport_peer *gateway,
                          struct message_others *out);

#endif
