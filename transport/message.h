/* message: the control messages between gateways and machines and between machines, and functions
 * that encode and decode the messages. Gateways, machines, stage processes and benchmarks call
 * these functions, on any thread. This part keeps no state and does no I/O (transport.h does). The
 * messages between the processes of one machine with stages are in stage_message.h.
 *
 *   gateway → machine   RESERVE, PREFILL, CANCEL, PEER, ROLE, SHUTDOWN, PROBE
 *   machine → gateway   RESERVED, TOKENS, EMBEDDING, PREFILLED, PREEMPTED, FAILED, ABOUT, STATS,
 *                       PREFIXES, OTHERS, LINK, LOADS, PROGRESS, PROBE, LEAVING
 *   prompt  → token     KV_READY, KV_ABORTED, PROGRESS
 *   token   → prompt    STAGES, CANCEL
 *
 * message_layout.h describes the bytes of a message. The decoder checks lengths, and the fields for
 * which the tables in message.c have a rule.
 *
 * Any change of a message needs a TRANSPORT_PROTOCOL_VERSION that no release has (protocol.h). New
 * fields are added at the end of the struct, before its first pointer. The value 0 of a new field
 * must mean what the message meant without the field. */
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
    /* To a prompt machine: compute the prompt, write its KV, and sample the first token. */
    MESSAGE_PREFILL,
    /* Tokens of answers, and scores of prompt tokens, perhaps of several requests. */
    MESSAGE_TOKENS,
    /* The prompt machine has done its part of the request. Contains measured times. */
    MESSAGE_PREFILLED,
    MESSAGE_KV_READY, /* All KV of the prompt is in the token machine's blocks. */
    /* The prompt machine no longer writes into the token machine's blocks: free these blocks. */
    MESSAGE_KV_ABORTED,
    MESSAGE_CANCEL, /* The request is no longer wanted. */
    MESSAGE_FAILED, /* The machine has given up the request. */
    MESSAGE_STATS,  /* Counters and gauges of the machine. */
    /* Connect to this machine to write KV; empty address = the gateway needs no connection. */
    MESSAGE_PEER,
    MESSAGE_LINK, /* The link to another machine: whether it is up, and its speed. */
    /* End the process. After LEAVING: this gateway no longer has a request on the machine. */
    MESSAGE_SHUTDOWN,
    MESSAGE_ROLE,   /* The home pool and the current pool of the machine. */
    MESSAGE_OTHERS, /* The load that other gateways put on this machine. */
    /* The machine has taken the request's blocks away. The gateway may resume the request. */
    MESSAGE_PREEMPTED,
    MESSAGE_PREFIXES, /* Prefixes whose KV the machine has begun or ceased to hold. */
    MESSAGE_LOADS,    /* Load of each process of a machine with stages. */
    /* Which process receives the KV of which layers and heads. A machine sends STAGES to each
     * process that connects to the machine to write KV. */
    MESSAGE_STAGES,
    MESSAGE_EMBEDDING, /* The embedding of a prompt; PREFILLED follows. */
    MESSAGE_ABOUT,     /* The machine's device, host and program. Sent to each new gateway. */
    MESSAGE_PROGRESS,  /* The KV of the first tokens of a prompt is complete. */
    MESSAGE_PROBE,     /* Asks whether the machine is alive. The machine sends the PROBE back. */
    /* The machine wants to end. The gateway then sends the machine no new requests, and sends
     * SHUTDOWN when none of its requests is left on the machine. */
    MESSAGE_LEAVING,
    MESSAGE_KIND_COUNT
};

/* Returns a name such as "RESERVE"; "unknown" for an unknown kind. */
const char *message_kind_name(enum message_kind kind);

/* The structs of messages have no hidden padding, because their bytes are sent. Members `padding`
 * and `padding2` are sent as 0. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"

/* Names one attempt to serve a request. */
struct message_request {
    uint64_t id;
    uint32_t generation;
    uint32_t padding;
};

/* Returns a number by which machines sort requests, about in the order of arrival: the request's id
 * with its halves exchanged. The upper half of an id is the number of the gateway, and the lower
 * half is the gateway's count of requests. */
static inline uint64_t message_request_number(const struct message_request *request)
{
    return request->id << 32 | request->id >> 32;
}

/* The fields by which a machine orders the waiting requests of all gateways. */
struct message_rank {
    uint64_t key;         /* Number of the request's API key, equal at every gateway; 0 = no key. */
    uint32_t weight;      /* Weight of the key against other keys; 0 counts as 1. */
    int32_t priority;     /* A lower number is served earlier. */
    uint32_t waited_ms;   /* Time since the client's request arrived. */
    uint32_t preemptions; /* Number of times that the request was preempted. */
};

/* Why the answer ends with a token. FINISH_NONE = it does not end. FINISH_STOP = the token is an
 * end token. FINISH_LENGTH = the answer has its greatest length. FINISH_CONSTRAINT = no token fits
 * the request's constraint; the id of the token has no meaning. */
enum message_finish { FINISH_NONE, FINISH_STOP, FINISH_LENGTH, FINISH_CONSTRAINT };

/* A token of an answer, or the score of a prompt token. The message contains the fields before
 * top_ids, then `top_count` elements of top_ids and of top_logprobs. */
struct message_token {
    uint64_t request; /* Id of the request. */
    uint32_t generation;
    /* Number of the token among the answer's tokens of this generation, from 0. */
    uint32_t index;
    uint32_t id; /* Id of the token in the vocabulary. */
    /* Time that the request waited for its first batch. Token 0: since PREFILL reached the prompt
     * machine. Token 1: since the token machine had the prompt's KV. Other tokens: 0. */
    uint32_t wait_us;
    /* Token 0: from the start of the prompt's first batch to the sampled token. Token 1: time of
     * the first decode step. Other tokens: 0. */
    uint32_t run_us;
    float logprob;
    uint8_t finish; /* enum message_finish. */
    /* `logprob` is the score of the prompt token at position `index`, from 1 (echo). */
    bool scored;
    bool has_logprob;  /* `logprob` has a meaning. */
    uint8_t top_count; /* Number of the most likely tokens in top_ids and top_logprobs. */
    /* Token 0: number of prompt tokens found in the prefix cache of the prompt machine. */
    uint32_t cached_tokens;
    uint32_t top_ids[LIMIT_LOGPROBS];
    float top_logprobs[LIMIT_LOGPROBS];
};

/* Transfer mode of a prompt's KV. AUTO = the prompt machine decides, by its config (kv/transfer,
 * kv/layerwise_threshold_tokens) or by measured speeds. */
enum message_transfer_mode { TRANSFER_AUTO, TRANSFER_LAYERWISE, TRANSFER_ONE_PIECE };

/* RESERVE. The prompt of a resumed request ends with the tokens that the client already has. */
struct message_reserve {
    struct message_request request;
    /* Name of the machine that will write the KV. */
    char prompt_machine[LIMIT_NAME_BYTES];
    uint32_t prompt_tokens; /* Number of tokens of the prompt. */
    /* Number of tokens in `prompt`: prompt_tokens, or 0 if neither the prefix cache nor the sampler
     * needs the prompt. */
    uint32_t prompt_count;
    uint64_t prefix_salt; /* Salt of the hashes of the prompt's prefixes; 0 = none. */
    struct message_rank rank;
    struct sampling sampling;
    /* Number of words in `rules`: the request's token rules (common/token_rules.h). */
    uint32_t rule_count;
    bool prefix_cache; /* The request uses the prefix cache of the machine. */
    /* Only a copy of the prompt's KV will arrive, which the machine keeps in its prefix cache
     * (struct message_prefill, copied_generation). The prompt has full blocks only. The reservation
     * does not wait: it is refused with ST_NO_RESOURCE while memory is short. */
    bool copy;
    bool copy_windows; /* The copy has the KV of layers with a window, too. */
    uint8_t padding[1];
    uint32_t constraint_bytes; /* Bytes of `constraint`; 0 = no constraint. */
    /* Number of tokens in `answer`; 0 without a constraint. `answer` repeats the tokens of the
     * answer with which the prompt of a resumed request ends. */
    uint32_t answer_count;
    char client_id[LIMIT_CLIENT_ID_BYTES]; /* The client's id, for logs; empty = not known. */
    /* In every decoded message, the pointers to arrays point into the received bytes. */
    const uint32_t *prompt;
    const uint32_t *rules;
    const uint32_t *answer;
    const char *constraint; /* See model/grammar/grammar.h. */
};

/* RESERVED. */
struct message_reserved {
    struct message_request request;
    /* Number of first spans of the prompt whose KV the machine has in layers without a window. */
    uint32_t held_span_count;
    /* Number of ids in `blocks`: the prompt's blocks, layer group after layer group. The first
     * block of a group without a window is for span held_span_count. The first block of a group
     * with a window is for span window_first. */
    uint32_t block_count;
    /* Path of the request through the machine's stages (struct message_stage.paths). */
    uint32_t path;
    /* First span whose KV the machine needs in layers with a window. */
    uint32_t window_first;
    const uint32_t *blocks;
};

/* PREFILL. */
struct message_prefill {
    struct message_request request;
    /* Empty = no token machine: only the results of the prompt machine are wanted. The receiver's
     * own name = the KV stays on the receiver, which decodes too. */
    char token_machine[LIMIT_NAME_BYTES];
    bool score_prompt;     /* Send a scored token for each prompt position from 1 on. */
    uint8_t transfer_mode; /* enum message_transfer_mode. */
    uint8_t path;          /* Path of the request, from RESERVED. */
    uint8_t pooling;       /* enum pooling: not POOLING_NONE = send the prompt's embedding. */
    /* Number of the prompt's first spans whose KV is not written in layers without a window,
     * because the token machine has this KV. */
    uint32_t held_span_count;
    uint64_t prefix_salt; /* Salt of the hashes of the prompt's prefixes; 0 = none. */
    struct message_rank rank;
    struct sampling sampling;
    uint32_t block_count;  /* Number of ids in `blocks`. */
    uint32_t prompt_count; /* Number of tokens in `prompt`. */
    /* Number of words in `rules`: the request's token rules (common/token_rules.h). */
    uint32_t rule_count;
    uint32_t constraint_bytes; /* Bytes of `constraint`; 0 = no constraint. */
    /* Number of tokens at the end of `prompt` that belong to the answer; 0 without a constraint. */
    uint32_t answer_count;
    /* 0 = compute the prompt. N > 0: compute nothing, but write the KV of `prompt` to the token
     * machine. This KV must be in the machine's prefix cache, or belong to the request's generation
     * N - 1, which the machine decodes. KV_READY and PREFILLED follow, but no token. */
    uint32_t copied_generation;
    uint32_t window_first; /* First span whose KV is written in layers with a window. */
    uint32_t padding;
    char client_id[LIMIT_CLIENT_ID_BYTES]; /* The client's id, for logs; empty = not known. */
    const uint32_t *blocks;
    const uint32_t *prompt;
    const uint32_t *rules;
    const char *constraint;
};

/* TOKENS, as message_decode stores it. message_tokens_add encodes TOKENS. */
struct message_tokens {
    uint32_t count; /* Number of tokens. */
    /* Bytes of a token in front of its top_ids. A peer of another version may send more or fewer
     * fields of struct message_token; missing fields are 0. */
    uint32_t token_bytes;
    /* The encoded tokens that message_tokens_next has not returned yet. */
    const uint8_t *cursor;
    const uint8_t *end;
};

/* EMBEDDING. */
struct message_embedding {
    struct message_request request;
    uint32_t count; /* Elements of a vector. */
    uint32_t padding;
    /* [count], in the unit of common/pooling.h: with POOLING_MEAN the sum of the vectors of all
     * tokens of the prompt, with POOLING_LAST the vector of the last token. */
    const int64_t *values;
};

/* PREFILLED. All times are microseconds. If no KV was written, exposed_us, transfer_us, layers and
 * `bytes` are 0. For a copy (copied_generation), which has no batch, the start of the copy counts
 * as the start and the end of a batch. */
struct message_prefilled {
    struct message_request request;
    /* From the arrival of PREFILL to the start of the first batch; wait_us of token 0. */
    uint32_t queue_us;
    /* From the start of the first batch to the end of the last batch of the prompt. */
    uint32_t prefill_us;
    /* From the end of the last batch to the flush of all KV. */
    uint32_t exposed_us;
    uint32_t transfer_us; /* From the first write to the flush of all KV. */
    uint32_t layers;      /* Layers whose KV was written. */
    bool layerwise;       /* The transfer mode was layer-wise, not one-piece. */
    uint8_t padding[3];
    uint64_t bytes; /* KV bytes that were written. */
    /* Number of elements in layer_us: `layers`, or 0 if the times are not known. */
    uint32_t layer_count;
    uint8_t padding2[4];
    /* [layer_count]: the time from the start of the first batch until the last write of the layer's
     * KV was given to the transport. */
    const uint32_t *layer_us;
};

/* KV_READY. */
struct message_kv_ready {
    struct message_request request;
    uint32_t prompt_tokens; /* Number of tokens of the prompt. */
    /* Token 0 of the answer, which the prompt machine sends to the gateway itself. No meaning for a
     * copy (struct message_reserve, copy). */
    uint32_t first_token;
};

/* PROGRESS: the KV of the prompt's first `tokens` tokens is complete, in all layers. If a prompt
 * machine sends PROGRESS to a gateway, the KV is on the prompt machine. If a prompt machine sends
 * PROGRESS to a token machine, the KV is on the token machine, which sends the message on to the
 * gateway. */
struct message_progress {
    struct message_request request;
    uint32_t tokens; /* A multiple of kv/block_tokens. */
    uint32_t padding;
};

/* PROBE. The machine sends the number back. */
struct message_probe {
    uint64_t number;
};

/* CANCEL: the receiver should give the request up.
 *
 * A token machine frees the blocks when no batch uses the blocks. If a prompt machine may still
 * write into the blocks, the token machine quarantines the blocks first.
 *
 * A prompt machine stops computing. Unless it has sent KV_READY, it sends KV_ABORTED to the token
 * machine when its writes have ended. If a token machine cancels a request that the prompt machine
 * does not know, the prompt machine sends KV_ABORTED and refuses a PREFILL of the request that
 * arrives later. */
struct message_cancel {
    struct message_request request;
    /* From a gateway to a token machine: PREFILL was sent to the prompt machine, which may be
     * writing. Ignored if the token machine is also the prompt machine, which knows this itself. */
    bool writes_pending;
    uint8_t padding[7];
};

/* FAILED. */
struct message_failed {
    struct message_request request;
    int32_t status; /* enum status: an error, less than 0. */
    uint32_t padding;
    char text[256]; /* Why the machine has given up the request. */
};

/* PREEMPTED. */
struct message_preempted {
    struct message_request request;
    /* Number of tokens generated in this generation; all were sent before this message. */
    uint32_t generated;
    uint32_t padding;
    char text[256]; /* Reason, for logs. */
};

/* Counters of copies of KV into and out of device memory (struct transport_memory). The field `way`
 * is not a counter but an enum transport_memory_way. For a machine with stages, `way` is the
 * slowest way of all its processes. */
struct message_copies {
    COPY_COUNTERS(COUNTER_FIELD_32)
    uint32_t padding;
    COPY_COUNTERS(COUNTER_FIELD_64)
};

/* STATS: the state of a machine. Counters start at 0 when the process of the machine starts. */
struct message_stats {
    MACHINE_COUNTERS(COUNTER_FIELD_32)
    uint32_t kv_kinds;     /* Kinds of layers of the model (layer_groups_kinds). */
    uint32_t kv_blocks[6]; /* Number of blocks in each state, by enum kv_state. */
    /* Gauges by kind of layer: KV bytes of the blocks that are not free. KV that several ranks hold
     * counts once. */
    uint64_t kv_bytes[LAYER_KIND_COUNT];
    /* Counters by kind of layer: KV bytes of computed prompts written to token machines, without
     * copies (copied_generation). KV that several ranks hold counts once. */
    uint64_t transfer_bytes[LAYER_KIND_COUNT];
    struct message_copies device_copies; /* Copies of KV into and out of device memory. */
    MACHINE_COUNTERS(COUNTER_FIELD_64)
};

static_assert(offsetof(struct message_stats, draft_accepted_15) ==
                  offsetof(struct message_stats, draft_accepted_0) +
                      (LIMIT_DRAFT_TOKENS - 1) * sizeof(uint64_t),
              "a counter per position, one after the other");
/* Returns the offset in struct message_stats of the counter draft_accepted_N, where N is
 * `position`. Requires that `position` is less than LIMIT_DRAFT_TOKENS. */
static inline size_t message_stats_draft_accepted(uint32_t position)
{
    return offsetof(struct message_stats, draft_accepted_0) + position * sizeof(uint64_t);
}

/* Adds the counters of `from` to the counters of `to`. The field `way` of `to` stays. */
static inline void message_copies_add(struct message_copies *to, const struct message_copies *from)
{
    COPY_COUNTERS(COUNTER_ADD)
}

/* Adds the counters of `from` to the counters of `to`. The gauges of `to` stay. */
static inline void message_stats_add(struct message_stats *to, const struct message_stats *from)
{
    MACHINE_COUNTERS(COUNTER_ADD)
    for (int kind = 0; kind < LAYER_KIND_COUNT; kind++)
        to->transfer_bytes[kind] += from->transfer_bytes[kind];
    message_copies_add(&to->device_copies, &from->device_copies);
}

/* Returns the sum of transfer_bytes over all kinds of layers. */
static inline uint64_t message_stats_transferred(const struct message_stats *stats)
{
    uint64_t bytes = 0;
    for (int kind = 0; kind < LAYER_KIND_COUNT; kind++)
        bytes += stats->transfer_bytes[kind];
    return bytes;
}

/* PREFIXES: prefixes in the prefix cache of a machine. A gateway gets all prefixes when it has
 * connected. Later messages have changes, or again all prefixes. */
struct message_prefixes {
    uint32_t count;    /* At most LIMIT_PREFIXES. */
    bool replaces_all; /* Forget all prefixes reported before this message. */
    uint8_t padding[3];
    const uint64_t *hashes; /* [count]: values of prefix_hash (common/prefix_hash.h). */
    /* [count], in the order of the changes: 1 = the machine has this prefix's KV, 0 = no longer. */
    const uint32_t *held;
};

/* PEER. */
struct message_peer {
    char name[LIMIT_NAME_BYTES];       /* Name of the other machine. */
    char address[LIMIT_ADDRESS_BYTES]; /* "host:port"; empty: see MESSAGE_PEER. */
};

/* ROLE: the pools of a machine. A machine does all work that arrives, in any pool. In the mixed
 * pool, it keeps a part of its memory for prompts whose answers other machines generate
 * (token_pool_mixed_set). */
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

/* ABOUT: the device, host and program of a machine. The texts end in a NUL; empty = unknown. */
struct message_about {
    char device[96]; /* The machine's device, such as "cpu, 4 threads". */
    char host[64];   /* Name of the machine's host. */
    char build[64];  /* Release and commit of the machine's program. */
    /* The machine computes on the CPU, because the GPU that its config names cannot be used. */
    bool fell_back;
    uint8_t padding[7];
};

/* A process that holds KV of a machine. */
struct message_stage {
    uint64_t paths;       /* Bit p = the process holds KV of requests with path p. */
    uint32_t first_layer; /* Layers first_layer to end_layer - 1. */
    uint32_t end_layer;
    uint32_t first_head; /* KV heads first_head to end_head - 1 of each of these layers. */
    uint32_t end_head;
    /* Address where the process listens; empty = the process is the sender of the message. */
    char address[LIMIT_ADDRESS_BYTES];
};

/* STAGES: the processes that hold KV of a machine. On each path, each KV head of a layer is in one
 * process, or several ranks of a stage hold copies of this head. */
struct message_stages {
    uint32_t count; /* 1 to LIMIT_STAGE_PROCESSES. */
    uint32_t padding;
    const struct message_stage *stages;
};

/* Load of one stage process. Counters start at 0 when the process starts. */
struct message_process {
    PROCESS_COUNTERS(COUNTER_FIELD_64)
    struct message_copies device_copies; /* Copies of KV into and out of device memory. */
};

/* The indices of a stage process in its machine, and its load. */
struct message_load {
    uint32_t stage;
    uint32_t replica;
    uint32_t rank;
    uint32_t padding;
    struct message_process process;
};

/* LOADS. A machine with stages sends this message. */
struct message_loads {
    uint32_t count; /* At most LIMIT_STAGE_PROCESSES. */
    uint32_t padding;
    const struct message_load *loads;
};

/* OTHERS: the load that gateways other than the receiver put on this machine. */
struct message_others {
    char leader[LIMIT_NAME_BYTES]; /* The lowest of the names of the connected gateways. */
    uint32_t gateways;             /* Connected gateways, including the receiver. */
    uint32_t prompts;              /* Prompts that are not computed yet. */
    uint32_t decodes;              /* Answers that wait for memory, have a reservation, or run. */
    bool is_in_mixed_pool;         /* Another gateway has this machine in its mixed pool. */
    uint8_t home_pool;             /* The home pool, from the ROLE with the highest serial. */
    uint8_t rank; /* Number of connected gateways with a lower name than the receiver. */
    uint8_t padding[1];
    uint64_t prompt_tokens; /* Tokens of `prompts`, without tokens of the prefix cache. */
    /* KV memory, in tokens (sched_memory_tokens_of), of prompts that have or will take blocks of
     * their own, and of the longest contexts of answers, copies and quarantined requests. */
    uint64_t kv_tokens;
    /* Serial of the ROLE that set `home_pool`; 0 = none, the config file decides. */
    uint64_t home_serial;
    /* Prompt tokens of all PREFILLs since the machine started, without PREFILLs of the receiver's
     * present connection and PREFILLs that only copy KV (copied_generation). */
    uint64_t prompt_tokens_taken;
    /* Number of RESERVEs since the machine started, without RESERVEs of the receiver's present
     * connection and RESERVEs for a copy (struct message_reserve, copy). */
    uint64_t answers_taken;
};

/* LINK: the state of the link from the sender to the machine `name`. */
struct message_link {
    char name[LIMIT_NAME_BYTES];
    bool up;
    uint8_t padding[7];
    char text[256]; /* How writes travel ("ucx put over posix"), or why the link is down. */
    /* The measured speed: KV of n bytes takes latency_us + 1000000 × n / bytes_per_s
     * microseconds. */
    uint64_t bytes_per_s; /* 0 = not measured. */
    uint32_t latency_us;
    uint32_t error_percent; /* See struct link_estimate (scheduler/link_speed.h). */
};

#pragma GCC diagnostic pop

/* A message: its kind, and the member of the union for this kind, if there is one. */
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

/* A growing buffer for one message; all zeros = empty. A buffer can be used again. */
struct message_buffer {
    uint8_t *data;
    size_t bytes;
    size_t capacity;
};

/* Frees the buffer's memory. */
void message_buffer_done(struct message_buffer *buffer);

/* Replaces the buffer's content with the encoded message. `version`: the version of the protocol on
 * the connection to the receiver (transport_peer_version). Fields and arrays that this version does
 * not have are left out. Returns ST_INVALID if the kind is unknown, if the kind is MESSAGE_TOKENS
 * (message_tokens_add) or if a field is out of range; ST_TOO_LARGE if the message would exceed
 * LIMIT_MESSAGE_BYTES; ST_NO_MEMORY if the buffer cannot grow. */
enum status message_encode(const struct message *message, uint32_t version,
                           struct message_buffer *buffer);

/* Empties the buffer, for a new message TOKENS. */
void message_tokens_begin(struct message_buffer *buffer);
/* Adds a token to the message TOKENS in the buffer. Returns ST_TOO_LARGE if the message is full
 * (send the message and begin another one), ST_INVALID if a field is out of range, ST_NO_MEMORY if
 * the buffer cannot grow. On an error the token is not added. */
enum status message_tokens_add(struct message_buffer *buffer, const struct message_token *token);

/* Decodes and checks the message of `bytes` bytes at `data`. Requires that `data` is aligned to 8
 * bytes, as in the event `message` of a transport. Fields that the sender's version does not have
 * become 0. Fields and arrays that only the sender's version has are ignored. Pointers of `out`
 * point into `data`. Returns ST_OK, or ST_INVALID with a text that says what is wrong; the content
 * of `out` is then undefined. */
enum status message_decode(const uint8_t *data, size_t bytes, struct message *out,
                           struct error *error);
/* Copies the next token of a decoded message TOKENS, and moves `cursor` behind it. Elements of
 * top_ids and top_logprobs from top_count on are not set. Returns false if no token is left. */
bool message_tokens_next(struct message_tokens *tokens, struct message_token *out);

#endif
