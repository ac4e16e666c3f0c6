/* message: the control messages between gateway and machines and between machines, and their
 * encoding. On the wire, a message is a header, the struct of its kind as it is in memory up to its
 * first pointer (little-endian, without hidden padding), then its arrays. The tables in message.c
 * hold the range of every field; one encoder and one decoder work from them (message_layout.h). The
 * decoder checks every length and range before it reads, and is fuzzed. machine/peers.c and
 * server/gateway/connections.c encode and decode; the two pools build TOKENS. It does no I/O
 * (transport.h) and keeps no state: any thread may call it.
 *
 * Any change of a struct here needs a new TRANSPORT_PROTOCOL_VERSION.
 *
 *   gateway → machine   RESERVE, PREFILL, CANCEL, PEER, ROLE, SHUTDOWN
 *   machine → gateway   RESERVED, TOKENS, PREFILLED, PREEMPTED, FAILED, STATS, PREFIXES, OTHERS,
 *                       LINK, LOADS
 *   prompt  → token     KV_READY, KV_ABORTED
 *   token   → prompt    STAGES, CANCEL
 *
 * To cancel a request, the gateway sends CANCEL to each machine that still has the request; the
 * token machine does not inform the prompt machine.
 *
 * The messages between the processes of one machine with stages are in stage_message.h.
 *
 * A request is named by its id and a generation. A resumed request has a higher generation;
 * messages for an older generation are dropped. */
#ifndef TRANSPORT_MESSAGE_H
#define TRANSPORT_MESSAGE_H

#include "common/counters.h"
#include "common/limits.h"
#include "common/pool.h"
#include "common/sampling.h"
#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum message_kind {
    /* Token machine: reserve blocks for the prompt and the answer, prepare to decode. */
    MESSAGE_RESERVE = 1,
    /* Answer to RESERVE, possibly after waiting for memory: the ids of the reserved blocks. */
    MESSAGE_RESERVED,
    /* Prompt machine: compute the prompt, write its KV to these blocks, sample the first token. */
    MESSAGE_PREFILL,
    /* The tokens that one batch sampled, for all requests of the receiving gateway. */
    MESSAGE_TOKENS,
    /* The prompt phase is over and the KV is at the token machine; carries the times. */
    MESSAGE_PREFILLED,
    MESSAGE_KV_READY, /* All KV of the prompt is in the token machine's blocks: decode. */
    /* The prompt machine has stopped writing into the token machine's blocks and will not write
     * again: free them. */
    MESSAGE_KV_ABORTED,
    MESSAGE_CANCEL,
    MESSAGE_FAILED, /* The machine cannot go on with the request. */
    MESSAGE_STATS,
    MESSAGE_PEER, /* Keep a connection to this machine; empty address = the machine was removed. */
    MESSAGE_LINK, /* The connection to another machine is up or down. */
    MESSAGE_SHUTDOWN,
    MESSAGE_ROLE,   /* The machine's pools, which decide how much memory it keeps for prompts. */
    MESSAGE_OTHERS, /* What other gateways have on this machine. */
    /* The request lost its memory on this machine. It is resumed there or elsewhere. */
    MESSAGE_PREEMPTED,
    MESSAGE_PREFIXES, /* Prefixes whose KV the machine has begun or ceased to hold. */
    MESSAGE_LOADS,    /* Load of each process of a machine with stages. */
    /* Which process receives the KV of which layers and heads. The first message that a machine
     * sends to a machine that may write KV to it. */
    MESSAGE_STAGES,
    MESSAGE_KIND_COUNT
};

const char *message_kind_name(enum message_kind kind);

/* The structs of messages have no hidden padding, because their bytes are sent. A member `padding`
 * is sent as 0. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"

struct message_request { /* Part of most messages. */
    uint64_t id;
    uint32_t generation;
    uint32_t padding;
};

/* Sorts requests the same way on every machine. The lower half of an id is the gateway's count of
 * requests, the upper half the gateway's number; the result compares first the count, then the
 * gateway. */
static inline uint64_t message_request_number(const struct message_request *request)
{
    return request->id << 32 | request->id >> 32;
}

/* Decides the order of the requests that wait on a machine, for requests of all gateways. */
struct message_rank {
    uint64_t key;       /* The same for all requests of an API key, at every gateway; 0 = no key. */
    uint32_t weight;    /* Weight of the key against other keys; 0 counts as 1. */
    int32_t priority;   /* A lower number is served earlier. */
    uint32_t waited_ms; /* Time since the client's request arrived. */
    uint32_t preemptions; /* How often the request was preempted. */
};

/* FINISH_STOP = an end token was sampled. The end token is sent too. FINISH_CONSTRAINT = the
 * request's constraint cannot be followed; the token has no meaning. */
enum message_finish { FINISH_NONE, FINISH_STOP, FINISH_LENGTH, FINISH_CONSTRAINT };

/* A token of an answer, or a score. The bytes sent are the fields before top_ids, then `top_count`
 * elements of each of the two arrays. */
struct message_token {
    uint64_t request;
    uint32_t generation;
    /* Position in the answer, from 0. The gateway delivers tokens in this order, each once. */
    uint32_t index;
    uint32_t id;
    /* wait_us, run_us and cached_tokens are sent with a machine's first token, else 0.
     * Prompt machine: from arrival to the start of its batch. Token machine: from KV_READY to the
     * start of its first batch. */
    uint32_t wait_us;
    /* Prompt machine: from the start of the batch to the sampled token. Token machine: the first
     * decode step. */
    uint32_t run_us;
    float logprob;
    uint8_t finish; /* enum message_finish. */
    /* The token is the score of a prompt position (echo with logprobs); then `index` is that
     * position, from 1. */
    bool scored;
    bool has_logprob;
    uint8_t top_count;
    /* Prompt machine, first token: prompt tokens found in the prefix cache. */
    uint32_t cached_tokens;
    uint32_t top_ids[LIMIT_LOGPROBS];
    float top_logprobs[LIMIT_LOGPROBS];
};

/* AUTO = layer-wise or in one piece, by the prompt's length (kv/layerwise_threshold_tokens). */
enum message_kv_path { KV_PATH_AUTO, KV_PATH_LAYERWISE, KV_PATH_ONE_PIECE };

struct message_reserve {
    struct message_request request;
    /* Machine that will write the KV. If that machine goes down first, the request fails. */
    char prompt_machine[LIMIT_NAME_BYTES];
    uint32_t prompt_tokens;
    /* prompt_tokens; 0 = the prompt is not sent, because neither the prefix cache nor the sampler
     * needs it. */
    uint32_t prompt_count;
    uint64_t prefix_salt; /* Salt of its chains in prefix caches; 0 = none. */
    struct message_rank rank;
    struct sampling sampling;
    uint32_t rule_count; /* Words of the request's token rules (common/token_rules.h). */
    bool prefix_cache;   /* The prompt, if it is sent, is looked up in the prefix cache. */
    uint8_t padding[3];
    uint32_t constraint_bytes; /* 0 = no constraint. */
    /* With a constraint: the last tokens of the prompt are the answer's first ones. */
    uint32_t answer_count;
    /* When decoded, the arrays of all messages point into the received bytes. */
    const uint32_t *prompt;
    const uint32_t *rules;
    const uint32_t *answer;
    const char *constraint; /* See model/grammar/grammar.h. */
};

struct message_reserved {
    struct message_request request;
    uint32_t held_count;  /* Number of the prompt's first blocks that the machine already has. */
    uint32_t block_count; /* Number of blocks in `blocks`, which follow the held ones. */
    uint32_t path;        /* Path of the request through the machine's stages (see STAGES). */
    uint32_t padding;
    const uint32_t *blocks;
};

struct message_prefill {
    struct message_request request;
    /* Empty = no token machine, because the answer has at most one token. The machine's own name =
     * the KV stays there (mixed machine). */
    char token_machine[LIMIT_NAME_BYTES];
    bool score_prompt; /* Send a scored token for each prompt position from 1 on. */
    uint8_t kv_path;   /* enum message_kv_path. */
    uint8_t path;      /* path, held_count and blocks are those of RESERVED. */
    uint8_t padding;
    uint32_t held_count;  /* Number of first blocks that are not written. */
    uint64_t prefix_salt; /* Salt of its chains in prefix caches; 0 = none. */
    struct message_rank rank;
    struct sampling sampling;
    uint32_t block_count; /* Number of blocks of the token machine that the rest is written to. */
    uint32_t prompt_count;
    uint32_t rule_count;       /* Words of the request's token rules (common/token_rules.h). */
    uint32_t constraint_bytes; /* As in RESERVE. */
    uint32_t answer_count;     /* As in RESERVE; they are in `prompt` only. */
    uint32_t rule_padding;
    const uint32_t *blocks;
    const uint32_t *prompt;
    const uint32_t *rules;
    const char *constraint;
};

struct message_tokens {
    uint32_t count;
    uint32_t padding;
    /* Read the tokens with message_tokens_next. */
    const uint8_t *cursor;
    const uint8_t *end;
};

struct message_prefilled {
    struct message_request request;
    uint32_t queue_us; /* From arrival at the prompt machine to the start of the first batch. */
    /* From the start of the first batch to the sampled token, after the last layer. */
    uint32_t prefill_us;
    /* From the sampled token to the flush of all KV: the part of the transfer that computing did
     * not hide. */
    uint32_t exposed_us;
    uint32_t transfer_us; /* From the first write to the flush of all KV. */
    uint32_t layers;      /* Layers whose KV was written. */
    bool layerwise;
    uint8_t padding[3];
    uint64_t bytes;
};

struct message_kv_ready {
    struct message_request request;
    uint32_t prompt_tokens;
    /* Token 0 of the answer; the prompt machine has already sent it to the gateway. */
    uint32_t first_token;
};

/* The client is gone, or the gateway does not need the request. A token machine frees the blocks at
 * once, unless a prompt machine may write to them: then the blocks are quarantined until its
 * KV_ABORTED or KV_READY arrives or its connections have ended. A prompt machine stops; it sends
 * KV_ABORTED to the token machine unless it has sent KV_READY. A token machine that waits for one
 * of the two sends CANCEL itself, once a minute, in case the prompt machine never got PREFILL. */
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

/* A token machine was short of KV memory and chose this request to give up its blocks. The machine
 * has forgotten the request. `generated` 0 = its KV had not arrived; then the machine forgets the
 * request only when the prompt machine reports that it no longer writes. */
struct message_preempted {
    struct message_request request;
    uint32_t generated; /* Tokens of this generation. All of them were sent before this message. */
    uint32_t padding;
    char text[256]; /* Reason, for logs. */
};

/* How KV gets into and out of the memory of its region (transport_memory). `way` is an enum
 * transport_memory_way; with stages, it is the slowest way of all processes. */
struct message_staged {
    COPY_COUNTERS(COUNTER_FIELD_32)
    uint32_t padding;
    COPY_COUNTERS(COUNTER_FIELD_64)
};

/* State of a machine, pushed when it has changed, at most ten times a second. Counters start at 0
 * when the machine starts. */
struct message_stats {
    MACHINE_COUNTERS(COUNTER_FIELD_32)
    uint32_t padding;
    uint32_t kv_blocks[6]; /* Indexed by enum kv_state. */
    MACHINE_COUNTERS(COUNTER_FIELD_64)
    struct message_staged staged;
};

/* Adds the counters, not the gauges, of `from`. */
static inline void message_staged_add(struct message_staged *to, const struct message_staged *from)
{
    COPY_COUNTERS(COUNTER_ADD)
}

static inline void message_stats_add(struct message_stats *to, const struct message_stats *from)
{
    MACHINE_COUNTERS(COUNTER_ADD)
    message_staged_add(&to->staged, &from->staged);
}

/* Sent after STATS if prefixes have changed, and at once to a gateway that connects. */
struct message_prefixes {
    uint32_t count; /* At most LIMIT_PREFIXES. */
    bool all;       /* Forget everything reported before this message. */
    uint8_t padding[3];
    const uint64_t *hashes; /* Values of prefix_hash (common/prefix_hash.h). */
    /* 1 = the machine holds this prefix, 0 = it no longer does. Changes are in the order in which
     * they happened. */
    const uint32_t *held;
};

struct message_peer {
    char name[LIMIT_NAME_BYTES];
    char address[LIMIT_ADDRESS_BYTES];
};

/* The pools of a machine. Any machine does any work that arrives; a machine that is in the mixed
 * pool now keeps a part of its memory for prompts that are decoded elsewhere
 * (token_pool_mixed_set). */
struct message_role {
    /* Number of the last change of the home pool that the gateway knows of; 0 = none, the config
     * file decides. */
    uint64_t serial;
    uint8_t role; /* enum pool: the current pool. */
    /* enum pool: the home pool. Used only if `serial` is higher than all earlier ones. */
    uint8_t home;
    uint8_t padding[6];
};

/* One process that holds KV of a machine. */
struct message_stage {
    uint64_t paths;       /* Bit p = the process holds KV of requests with path p. */
    uint32_t first_layer; /* Layers first_layer to last_layer - 1. */
    uint32_t last_layer;
    uint32_t first_head; /* KV heads first_head to last_head - 1 of each of these layers. */
    uint32_t last_head;
    /* Where the process listens; empty = the sender of the message. */
    char address[LIMIT_ADDRESS_BYTES];
};

/* Each KV head of each layer of each path is at exactly one of the processes. */
struct message_stages {
    uint32_t count; /* 1 to LIMIT_STAGES. */
    uint32_t padding;
    const struct message_stage *stages;
};

/* Load of one process of a machine with stages, since it was opened. */
struct message_process {
    PROCESS_COUNTERS(COUNTER_FIELD_64)
    struct message_staged staged;
};

struct message_load {
    uint32_t stage;
    uint32_t replica;
    uint32_t rank;
    uint32_t padding;
    struct message_process process;
};

struct message_loads { /* Sent after STATS by a machine with stages. */
    uint32_t count;    /* At most LIMIT_STAGES. */
    uint32_t padding;
    const struct message_load *loads;
};

/* What other gateways have on this machine. Sent after STATS when it differs from the last one sent
 * to the receiving gateway, and when that gateway has connected. The sums leave out the receiver's
 * own requests. */
struct message_others {
    char leader[LIMIT_NAME_BYTES]; /* The connected gateway with the lowest name. */
    uint32_t gateways;             /* Connected gateways, including the receiver. */
    uint32_t prompts;              /* Prompts that are not computed yet. */
    uint32_t decodes;              /* Answers that wait for memory, are reserved, or run. */
    bool mixed;                    /* Another gateway has this machine in its mixed pool. */
    uint8_t home;                  /* The home pool, from the ROLE with the highest serial. */
    uint8_t rank; /* The number of connected gateways with a lower name than the receiver. */
    uint8_t padding[1];
    uint64_t prompt_tokens; /* Tokens of `prompts` that are not found in the prefix cache. */
    uint64_t kv_tokens;     /* KV tokens of all requests, also those whose prompt is computed. */
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
    };
};

/* A growing buffer for one message. It is reused, so no allocation happens once it is large
 * enough. */
struct message_buffer {
    uint8_t *data;
    size_t bytes;
    size_t capacity;
};

/* Frees the buffer's memory. */
void message_buffer_done(struct message_buffer *buffer);

/* Replaces the buffer's content with any kind of message except MESSAGE_TOKENS. Returns ST_INVALID
 * if a field is out of range, ST_NO_MEMORY if the buffer cannot grow. */
enum status message_encode(const struct message *message, struct message_buffer *buffer);

/* MESSAGE_TOKENS is written token by token. message_tokens_add returns ST_TOO_LARGE when the
 * message is full: send it and begin another one. */
void message_tokens_begin(struct message_buffer *buffer);
enum status message_tokens_add(struct message_buffer *buffer, const struct message_token *token);

/* Decodes data[0..bytes). Requires 8-byte alignment, which transports guarantee. Arrays of `out`
 * point into `data`. Returns ST_INVALID with a text that names kind, field and value; then the
 * content of `out` is undefined. */
enum status message_decode(const uint8_t *data, size_t bytes, struct message *out,
                           struct error *error);
/* Copies the next token of a decoded MESSAGE_TOKENS; elements of top_ids and top_logprobs after
 * top_count are not set. Returns false at the end. The decoder has already checked all tokens. */
bool message_tokens_next(struct message_tokens *tokens, struct message_token *out);

#endif
