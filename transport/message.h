/* message: the control messages between gateway and machines and between machines, and their
 * encoding. The bytes of a message are a header, then the struct of its kind as it is in memory up
 * to its first pointer (little-endian, without hidden padding), then its arrays. The tables in
 * message.c hold the ranges of the fields that are not free; one encoder and one decoder work from
 * these tables (message_layout.h). The decoder checks every length and range before it reads, and
 * is fuzzed. Machines, gateways and benchmarks encode and decode messages. This part does no I/O
 * (transport.h) and keeps no state: any thread may call it.
 *
 * Any change of a struct of this header needs a new TRANSPORT_PROTOCOL_VERSION (protocol.h). New
 * fields are added at the end of a message, where 0 means what the message meant without the field.
 *
 *   gateway → machine   RESERVE, PREFILL, CANCEL, PEER, ROLE, SHUTDOWN, PROBE
 *   machine → gateway   RESERVED, TOKENS, EMBEDDING, PREFILLED, PREEMPTED, FAILED, ABOUT, STATS,
 *                       PREFIXES, OTHERS, LINK, LOADS, PROGRESS, PROBE, LEAVING
 *   prompt  → token     KV_READY, KV_ABORTED, PROGRESS
 *   token   → prompt    STAGES, CANCEL
 *
 * To cancel a request, the gateway sends CANCEL to each machine that still has the request.
 *
 * The messages between the processes of one machine with stages are in stage_message.h.
 *
 * Messages name a request by its id and its generation. A resumed request has a higher generation;
 * messages for an older generation are dropped. */
#ifndef TRANSPORT_MESSAGE_H
#define TRANSPORT_MESSAGE_H

#include "common/counters.h"
#include "common/layer_groups.h"
#include "common/limits.h"
#include "common/pool.h"
#include "common/sampling.h"
#include "common/status.h"
#include "transport/protocol.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum message_kind {
    /* To a token machine: reserve blocks for the prompt and the answer, and prepare to decode. */
    MESSAGE_RESERVE = 1,
    /* Answer to RESERVE, as soon as memory is free: the ids of the reserved blocks. */
    MESSAGE_RESERVED,
    /* To a prompt machine: compute the prompt, write its KV to these blocks, and sample the first
     * token. */
    MESSAGE_PREFILL,
    /* The tokens that one batch sampled, for all requests of the receiving gateway. */
    MESSAGE_TOKENS,
    /* The prompt is computed, and its KV has arrived at the token machine; contains the times of
     * both. */
    MESSAGE_PREFILLED,
    MESSAGE_KV_READY, /* All KV of the prompt is in the token machine's blocks: begin to decode. */
    /* The prompt machine no longer writes into the token machine's blocks: free these blocks. */
    MESSAGE_KV_ABORTED,
    MESSAGE_CANCEL, /* The request is no longer wanted. */
    MESSAGE_FAILED, /* The machine has given up the request. */
    MESSAGE_STATS,  /* Counters and gauges of the machine. */
    /* Connect to this machine; empty address = the machine was removed from the cluster. */
    MESSAGE_PEER,
    MESSAGE_LINK, /* The connection to another machine: whether it is up, and its speed. */
    /* The machine ends its process (machine_stop). As the answer to LEAVING: this gateway has no
     * request on the machine any more. */
    MESSAGE_SHUTDOWN,
    /* The machine's pools; they decide how much memory the machine keeps for prompts. */
    MESSAGE_ROLE,
    MESSAGE_OTHERS, /* The load of other gateways on this machine. */
    /* The request has lost its memory on this machine. The gateway resumes it on any machine. */
    MESSAGE_PREEMPTED,
    MESSAGE_PREFIXES, /* Prefixes whose KV the machine has begun or ceased to hold. */
    MESSAGE_LOADS,    /* Load of each process of a machine with stages. */
    /* Which process receives the KV of which layers and heads. A machine sends it first to each
     * machine that connects to write KV. */
    MESSAGE_STAGES,
    MESSAGE_EMBEDDING, /* The sum of a prompt's vectors; PREFILLED follows. */
    MESSAGE_ABOUT,     /* Where and with what the machine computes. Sent to each new gateway. */
    MESSAGE_PROGRESS,  /* How much of a prompt's KV is complete before the whole prompt is. */
    MESSAGE_PROBE,     /* Asks whether the machine is alive. The machine sends the PROBE back. */
    /* The machine wants to end: the gateway sends it no new requests, hands its answers over, and
     * sends SHUTDOWN when no request of the gateway is left on it. */
    MESSAGE_LEAVING,
    MESSAGE_KIND_COUNT
};

const char *message_kind_name(enum message_kind kind); /* Returns a name such as "RESERVE". */

/* The structs of messages have no hidden padding, because their bytes are sent. A member `padding`
 * is sent as 0. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"

/* An attempt to serve a request; part of most messages. */
struct message_request {
    uint64_t id;
    uint32_t generation;
    uint32_t padding;
};

/* Returns a number by which every machine sorts requests in the same order. The lower half of an id
 * is the gateway's count of requests, the upper half the gateway's number; the result has the count
 * in its upper half. */
static inline uint64_t message_request_number(const struct message_request *request)
{
    return request->id << 32 | request->id >> 32;
}

/* A machine orders the waiting requests of all gateways by these fields. */
struct message_rank {
    uint64_t key;         /* Number of the request's API key, equal at every gateway; 0 = no key. */
    uint32_t weight;      /* Weight of the key against other keys; 0 counts as 1. */
    int32_t priority;     /* A lower number is served earlier. */
    uint32_t waited_ms;   /* Time since the client's request arrived. */
    uint32_t preemptions; /* Number of times that the request was preempted. */
};

/* Why an answer ends with a token. FINISH_STOP = this token is an end token. FINISH_CONSTRAINT = no
 * token fits the request's constraint; this token has no meaning. FINISH_LENGTH = the answer has
 * its greatest length. */
enum message_finish { FINISH_NONE, FINISH_STOP, FINISH_LENGTH, FINISH_CONSTRAINT };

/* A token of an answer, or the score of a prompt token. The message contains the fields before
 * top_ids, then `top_count` elements of top_ids and of top_logprobs. */
struct message_token {
    uint64_t request;
    uint32_t generation;
    /* Position in the answer, from 0. The gateway delivers each position once, in this order. */
    uint32_t index;
    uint32_t id;
    /* Time that the request waited for its first batch: on the prompt machine since it arrived, on
     * the token machine since KV_READY. Each machine sets wait_us, run_us and cached_tokens only in
     * its first token of a request; in other tokens they are 0. */
    uint32_t wait_us;
    /* Time of the computation: on the prompt machine from the start of the first batch to the
     * sampled token, on the token machine the time of the first decode step. */
    uint32_t run_us;
    float logprob;
    uint8_t finish; /* enum message_finish. */
    /* True: `logprob` is the score of the prompt token at position `index`, from 1 (echo with
     * logprobs). */
    bool scored;
    bool has_logprob;
    uint8_t top_count;
    /* Prompt machine: prompt tokens found in the prefix cache. */
    uint32_t cached_tokens;
    uint32_t top_ids[LIMIT_LOGPROBS];
    float top_logprobs[LIMIT_LOGPROBS];
};

/* Transfer mode of a prompt's KV. AUTO = the prompt machine decides by the prompt's length
 * (kv/layerwise_threshold_tokens). */
enum message_transfer_mode { TRANSFER_AUTO, TRANSFER_LAYERWISE, TRANSFER_ONE_PIECE };

struct message_reserve {
    struct message_request request;
    /* Machine that will write the KV. If this machine goes down before the KV is written, the
     * request fails. */
    char prompt_machine[LIMIT_NAME_BYTES];
    uint32_t prompt_tokens;
    /* Number of tokens in `prompt`: prompt_tokens, or 0 if neither the prefix cache nor the sampler
     * needs the prompt. */
    uint32_t prompt_count;
    uint64_t prefix_salt; /* Salt of the hashes of the prompt's prefixes; 0 = none. */
    struct message_rank rank;
    struct sampling sampling;
    uint32_t rule_count; /* Words in `rules`: the request's token rules (common/token_rules.h). */
    bool prefix_cache;   /* The machine looks the prompt up in its prefix cache. */
    /* Only a copy of the prompt's KV will arrive, which the machine keeps in its prefix cache
     * (struct message_prefill, copied_generation). The prompt has full blocks only. The reservation
     * does not wait: it is refused with ST_NO_RESOURCE while memory is short. */
    bool copy;
    bool copy_windows; /* The copy has the KV of layers with a window, too. */
    uint8_t padding[1];
    uint32_t constraint_bytes; /* Bytes of `constraint`; 0 = no constraint. */
    /* Number of tokens in `answer`. With a constraint, the prompt of a resumed request ends with
     * the tokens of the answer that were generated before; `answer` contains these tokens again.
     * Otherwise 0. */
    uint32_t answer_count;
    char client_id[LIMIT_CLIENT_ID_BYTES]; /* The client's id, for logs; empty = not known. */
    /* In every decoded message, the arrays point into the received bytes. */
    const uint32_t *prompt;
    const uint32_t *rules;
    const uint32_t *answer;
    const char *constraint; /* See model/grammar/grammar.h. */
};

struct message_reserved {
    struct message_request request;
    /* Number of first spans of the prompt (common/layer_groups.h) whose KV the machine already has
     * in layers without a window. */
    uint32_t held_span_count;
    /* Number of ids in `blocks`: the blocks of the prompt after the first held_span_count spans,
     * layer group after layer group; in groups with a window, those of the spans from window_first
     * on. */
    uint32_t block_count;
    /* Path of the request through the machine's stages (struct message_stage.paths). */
    uint32_t path;
    /* First span whose KV the machine needs in layers with a window. */
    uint32_t window_first;
    const uint32_t *blocks;
};

struct message_prefill {
    struct message_request request;
    /* Empty = no token machine, because the answer has at most one token. The receiver's own name =
     * the KV stays on the receiver, which decodes too. */
    char token_machine[LIMIT_NAME_BYTES];
    bool score_prompt;     /* Send a scored token for each prompt position from 1 on. */
    uint8_t transfer_mode; /* enum message_transfer_mode. */
    uint8_t path;          /* Copied from RESERVED, like held_span_count, window_first, blocks. */
    uint8_t pooling;       /* enum pooling: not POOLING_NONE = send the prompt's embedding. */
    uint32_t held_span_count; /* Number of first spans whose KV is not written. */
    uint64_t prefix_salt;     /* Salt of the hashes of the prompt's prefixes; 0 = none. */
    struct message_rank rank;
    struct sampling sampling;
    uint32_t block_count; /* Number of ids in `blocks`. */
    uint32_t prompt_count;
    /* Words in `rules`: the request's token rules (common/token_rules.h). */
    uint32_t rule_count;
    uint32_t constraint_bytes; /* Bytes of `constraint`; 0 = no constraint. */
    /* As in struct message_reserve; these tokens are in `prompt` only. */
    uint32_t answer_count;
    /* 0 = compute the prompt. N > 0: compute nothing, but write the KV of `prompt`, which must be
     * in the machine's prefix cache, or in the blocks of the request's generation N - 1, which the
     * machine decodes. KV_READY and PREFILLED follow, but no token. */
    uint32_t copied_generation;
    uint32_t window_first; /* First span whose KV is written in layers with a window. */
    uint32_t padding;
    char client_id[LIMIT_CLIENT_ID_BYTES]; /* The client's id, for logs; empty = not known. */
    const uint32_t *blocks;
    const uint32_t *prompt;
    const uint32_t *rules;
    const char *constraint;
};

struct message_tokens {
    uint32_t count;
    /* Bytes of a token in front of its top_ids. A peer of another version may send more or fewer
     * fields of struct message_token; missing fields are 0. */
    uint32_t token_bytes;
    /* Encoded tokens from `cursor` to `end`, read by message_tokens_next. */
    const uint8_t *cursor;
    const uint8_t *end;
};

struct message_embedding {
    struct message_request request;
    uint32_t count; /* Elements of a vector. */
    uint32_t padding;
    const int64_t *values; /* Numbers of common/pooling.h. */
};

struct message_prefilled {
    struct message_request request;
    uint32_t queue_us; /* From the arrival at the prompt machine to the start of the first batch. */
    /* From the start of the first batch to the sampled token, after the last layer. */
    uint32_t prefill_us;
    /* From the sampled token to the flush of all KV: the part of transfer_us after computing has
     * ended. */
    uint32_t exposed_us;
    uint32_t transfer_us; /* From the first write to the flush of all KV. */
    uint32_t layers;      /* Layers whose KV was written. */
    bool layerwise;
    uint8_t padding[3];
    uint64_t bytes;
    uint32_t layer_count; /* `layers`, or 0 if the times are not known (a machine with stages). */
    uint8_t padding2[4];
    /* [layer_count]: the time from the start of the first batch until the last write of the layer's
     * KV was given to the transport. */
    const uint32_t *layer_us;
};

struct message_kv_ready {
    struct message_request request;
    uint32_t prompt_tokens;
    /* Token 0 of the answer; the prompt machine has already sent it to the gateway. */
    uint32_t first_token;
};

/* The KV of the prompt's first `tokens` tokens is complete. If a prompt machine sends the message
 * to a gateway, the KV is complete on the prompt machine. If a prompt machine sends it to a token
 * machine, the KV is complete on the token machine, in all layers; the token machine then sends the
 * message to the gateway, too. If one of the two machines is lost, the KV on the other one need not
 * be computed again. */
struct message_progress {
    struct message_request request;
    uint32_t tokens; /* A multiple of the tokens of a block. */
    uint32_t padding;
};

/* The answer to a PROBE has the same number. So an answer shows that the machine was alive after
 * the gateway had sent this PROBE and those before. */
struct message_probe {
    uint64_t number;
};

/* The client is gone, or the gateway does not need the request. A token machine frees the blocks at
 * once, unless a prompt machine may still write to them. In that case the blocks are quarantined
 * until the KV_ABORTED or KV_READY of the prompt machine arrives, or until a second after its
 * connections and writes have ended. A prompt machine stops computing, and sends KV_ABORTED to the
 * token machine unless it has sent KV_READY. While blocks are quarantined, the token machine sends
 * CANCEL to the prompt machine once a minute, because the prompt machine may never have got
 * PREFILL. */
struct message_cancel {
    struct message_request request;
    bool writer; /* PREFILL was sent to the prompt machine, which may be writing. */
    uint8_t padding[7];
};

struct message_failed {
    struct message_request request;
    int32_t status; /* enum status. */
    uint32_t padding;
    char text[256];
};

/* A token machine was short of KV memory and chose this request to give up its blocks. If
 * `generated` is 0, the KV had not arrived, and the blocks are quarantined as after CANCEL.
 * Otherwise the machine has forgotten the request. */
struct message_preempted {
    struct message_request request;
    /* Tokens generated in this generation. All of them were sent before this message. */
    uint32_t generated;
    uint32_t padding;
    char text[256]; /* Reason, for logs. */
};

/* Counters of copies of KV into and out of device memory (struct transport_memory). `way` is an
 * enum transport_memory_way; with stages, the slowest way of all processes. */
struct message_copies {
    COPY_COUNTERS(COUNTER_FIELD_32)
    uint32_t padding;
    COPY_COUNTERS(COUNTER_FIELD_64)
};

/* State of a machine, sent when the state has changed, at most ten times a second; at once when a
 * gateway has connected or is gone. Counters start at 0 when the machine starts. */
struct message_stats {
    MACHINE_COUNTERS(COUNTER_FIELD_32)
    uint32_t kv_kinds;     /* Kinds of layers of the model (layer_groups_kinds). */
    uint32_t kv_blocks[6]; /* Number of blocks in each state, by enum kv_state. */
    /* KV memory of the blocks that are not free, and KV bytes written to token machines, by the
     * kind of their layers. Of KV that several ranks hold, one copy counts. */
    uint64_t kv_bytes[LAYER_KIND_COUNT];
    uint64_t transfer_bytes[LAYER_KIND_COUNT]; /* Counters. */
    struct message_copies staged;
    MACHINE_COUNTERS(COUNTER_FIELD_64)
};

static_assert(offsetof(struct message_stats, draft_accepted_15) ==
                  offsetof(struct message_stats, draft_accepted_0) +
                      (LIMIT_DRAFT_TOKENS - 1) * sizeof(uint64_t),
              "a counter per position, one after the other");
/* Returns the offset of the counter draft_accepted_POSITION. */
static inline size_t message_stats_draft_accepted(uint32_t position)
{
    return offsetof(struct message_stats, draft_accepted_0) + position * sizeof(uint64_t);
}

/* Add the counters of `from`, but not the gauges, to `to`. */
static inline void message_copies_add(struct message_copies *to, const struct message_copies *from)
{
    COPY_COUNTERS(COUNTER_ADD)
}

static inline void message_stats_add(struct message_stats *to, const struct message_stats *from)
{
    MACHINE_COUNTERS(COUNTER_ADD)
    for (int kind = 0; kind < LAYER_KIND_COUNT; kind++)
        to->transfer_bytes[kind] += from->transfer_bytes[kind];
    message_copies_add(&to->staged, &from->staged);
}

/* Returns the KV bytes of layers of all kinds that the machine has written to token machines. */
static inline uint64_t message_stats_transferred(const struct message_stats *stats)
{
    uint64_t bytes = 0;
    for (int kind = 0; kind < LAYER_KIND_COUNT; kind++)
        bytes += stats->transfer_bytes[kind];
    return bytes;
}

/* Prefixes in the prefix cache of a machine. Sent after STATS if they have changed, and at once to
 * a gateway that connects. */
struct message_prefixes {
    uint32_t count;    /* At most LIMIT_PREFIXES. */
    bool replaces_all; /* Forget all prefixes reported before this message. */
    uint8_t padding[3];
    const uint64_t *hashes; /* Values of prefix_hash (common/prefix_hash.h). */
    /* [count]: 1 = the machine has the KV of this prefix, 0 = no longer. The elements are in the
     * order of the changes. */
    const uint32_t *held;
};

struct message_peer {
    char name[LIMIT_NAME_BYTES];
    char address[LIMIT_ADDRESS_BYTES];
};

/* The pools of a machine. A machine of any pool does all work that arrives; but a machine whose
 * current pool is the mixed pool keeps a part of its memory for prompts that are decoded on other
 * machines (token_pool_mixed_set). */
struct message_role {
    /* Number of the latest change of the home pool that the gateway knows; 0 = no change: the pool
     * in the config file is the home pool. */
    uint64_t serial;
    uint8_t pool; /* enum pool: the current pool. */
    /* enum pool: the home pool. Used only if `serial` is higher than every serial received
     * before. */
    uint8_t home;
    uint8_t padding[6];
};

/* Where and with what a machine computes. The texts end in a NUL; empty = unknown. */
struct message_about {
    char device[96]; /* What it computes on, such as "cpu, 4 threads". */
    char host[64];   /* Name of its host. */
    char build[64];  /* Release and commit of its program. */
    /* The machine computes on the CPU, because the GPU that its config names cannot be used. */
    bool fell_back;
    uint8_t padding[7];
};

/* One process that holds KV of a machine. */
struct message_stage {
    uint64_t paths;       /* Bit p = the process holds KV of requests with path p. */
    uint32_t first_layer; /* Layers first_layer to last_layer - 1. */
    uint32_t last_layer;
    uint32_t first_head; /* KV heads first_head to last_head - 1 of each of these layers. */
    uint32_t last_head;
    /* Address where the process listens; empty = the process is the sender of the message. */
    char address[LIMIT_ADDRESS_BYTES];
};

/* The processes that hold KV of a machine. For each path, exactly one process holds a KV head of a
 * layer. */
struct message_stages {
    uint32_t count; /* 1 to LIMIT_STAGE_PROCESSES. */
    uint32_t padding;
    const struct message_stage *stages;
};

/* Load of one stage process, since it was opened. */
struct message_process {
    PROCESS_COUNTERS(COUNTER_FIELD_64)
    struct message_copies staged;
};

struct message_load {
    uint32_t stage;
    uint32_t replica;
    uint32_t rank;
    uint32_t padding;
    struct message_process process;
};

/* Sent after STATS by a machine with stages. */
struct message_loads {
    uint32_t count; /* At most LIMIT_STAGE_PROCESSES. */
    uint32_t padding;
    const struct message_load *loads;
};

/* The load of other gateways on this machine. Sent to a gateway when it has connected, and after
 * STATS when the values for this gateway have changed. The sums do not contain the receiver's own
 * requests. */
struct message_others {
    char leader[LIMIT_NAME_BYTES]; /* Name of the connected gateway with the lowest name. */
    uint32_t gateways;             /* Connected gateways, including the receiver. */
    uint32_t prompts;              /* Prompts that are not computed yet. */
    uint32_t decodes;              /* Answers that wait for memory, are reserved, or run. */
    bool mixed;                    /* Another gateway has this machine in its mixed pool. */
    uint8_t home;                  /* The home pool, from the ROLE with the highest serial. */
    uint8_t rank; /* The number of connected gateways with a lower name than the receiver. */
    uint8_t padding[1];
    uint64_t prompt_tokens; /* Tokens of `prompts` that are not found in the prefix cache. */
    /* KV memory, in tokens, of all requests, including computed prompts
     * (sched_memory_tokens_of). */
    uint64_t kv_tokens;
    /* Serial of the ROLE that set `home`; 0 = none, the config file decides. */
    uint64_t home_serial;
    uint64_t prompt_tokens_taken; /* Prompt tokens of all PREFILLs of other gateways. */
    uint64_t answers_taken;       /* Number of all RESERVEs of other gateways. */
};

struct message_link {
    char name[LIMIT_NAME_BYTES];
    bool up;
    uint8_t padding[7];
    char text[256]; /* How writes travel ("ucx put over posix"), or why the connection is down. */
    /* The measured speed: KV of n bytes takes latency_us + 1000000 × n / bytes_per_s
     * microseconds. */
    uint64_t bytes_per_s; /* 0 = not measured. */
    uint32_t latency_us;
    uint32_t error_percent; /* See struct link_estimate (scheduler/link_speed.h). */
};

#pragma GCC diagnostic pop

struct message {
    enum message_kind kind;
    union {
        struct message_reserve reserve;
        struct message_reserved reserved;
        struct message_prefill prefill;
        struct message_tokens tokens;
        struct message_prefilled prefilled;
        struct message_kv_ready kv_ready;
        struct message_request kv_aborted;
        struct message_cancel cancel;
        struct message_failed failed;
        struct message_stats stats;
        struct message_peer peer;
        struct message_link link;
        struct message_role role;
        struct message_others others;
        struct message_preempted preempted;
        struct message_prefixes prefixes;
        struct message_stages stages;
        struct message_loads loads;
        struct message_embedding embedding;
        struct message_about about;
        struct message_progress progress;
        struct message_probe probe;
    };
};

/* A growing buffer for one message; all zeros = empty. Reuse it: once the buffer is large enough,
 * encoding allocates nothing. */
struct message_buffer {
    uint8_t *data;
    size_t bytes;
    size_t capacity;
};

/* Frees the buffer's memory. */
void message_buffer_done(struct message_buffer *buffer);

/* Replaces the buffer's content with the encoded message. Messages of the kind MESSAGE_TOKENS are
 * made with message_tokens_begin. `version`: the version of the protocol that the receiver speaks
 * with us (transport_peer_version); fields that this version does not have are left out. Returns
 * ST_INVALID if the kind is unknown or MESSAGE_TOKENS or a field is out of range, ST_TOO_LARGE if
 * the message would exceed LIMIT_MESSAGE_BYTES, ST_NO_MEMORY if the buffer cannot grow. */
enum status message_encode(const struct message *message, uint32_t version,
                           struct message_buffer *buffer);

/* Begin a MESSAGE_TOKENS, and add one token. message_tokens_add returns ST_TOO_LARGE if the message
 * is full: send the message and begin another one. ST_INVALID = a field is out of range;
 * ST_NO_MEMORY = the buffer cannot grow. */
void message_tokens_begin(struct message_buffer *buffer);
enum status message_tokens_add(struct message_buffer *buffer, const struct message_token *token);

/* Decodes data[0..bytes). Requires that `data` is aligned to 8 bytes, which transports guarantee.
 * Fields that the sender's version does not have become 0; fields and arrays that only the sender's
 * version has are ignored. Arrays of `out` point into `data`. Returns ST_INVALID with a text that
 * names kind, field and value; the content of `out` is then undefined. */
enum status message_decode(const uint8_t *data, size_t bytes, struct message *out,
                           struct error *error);
/* Copies the next token of a decoded MESSAGE_TOKENS; elements of top_ids and top_logprobs after
 * top_count are not set. Returns false at the end. The decoder has already checked all tokens. */
bool message_tokens_next(struct message_tokens *tokens, struct message_token *out);

#endif
