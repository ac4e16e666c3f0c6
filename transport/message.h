/* message: the control messages between gateway and machines, and between machines: what each
 * means, and their encoding. Wire form: a fixed little-endian header struct per kind, then its
 * arrays. The decoder checks every length and range before it reads, and is fuzzed. No I/O here;
 * any thread.
 *
 *   gateway → machine   RESERVE, PREFILL, CANCEL, PEER, ROLE, SHUTDOWN
 *   machine → gateway   RESERVED, TOKENS, PREFILLED, PREEMPTED, FAILED, STATS, PREFIXES, OTHERS,
 *                       LINK, LOADS
 *   prompt  → token     KV_READY, KV_ABORTED
 *   token   → prompt    STAGES (a cancelled transfer is told to the prompt machine by the gateway)
 *
 * What the processes of one machine with stages say to each other is stage_message.h.
 *
 * A request is named by its id and a generation: a resumed request has a higher generation, and
 * whatever still arrives for an older one is dropped. */
#ifndef TRANSPORT_MESSAGE_H
#define TRANSPORT_MESSAGE_H

#include "common/limits.h"
#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum message_kind {
    MESSAGE_RESERVE =
        1, /* to the token machine: book blocks for prompt and answer, get ready to decode */
    MESSAGE_RESERVED,  /* the blocks are booked (perhaps after waiting for memory): here they are */
    MESSAGE_PREFILL,   /* to the prompt machine: compute the prompt, push its KV there, sample the
                          first token */
    MESSAGE_TOKENS,    /* tokens sampled by one batch step, of all requests of this gateway in it */
    MESSAGE_PREFILLED, /* the prompt phase is over, its KV has arrived at the token machine: figures
                        */
    MESSAGE_KV_READY,  /* all KV of the prompt is in your blocks: decode */
    MESSAGE_KV_ABORTED, /* I have stopped writing into your blocks and shall not write again: free
                           them */
    MESSAGE_CANCEL,
    MESSAGE_FAILED, /* this machine cannot go on with the request */
    MESSAGE_STATS,
    MESSAGE_PEER, /* keep a connection to this machine; without address: it is no machine any more
                   */
    MESSAGE_LINK, /* the connection to that machine is up or down */
    MESSAGE_SHUTDOWN,
    MESSAGE_ROLE,      /* what work will come: how much memory to keep for each kind */
    MESSAGE_OTHERS,    /* what other gateways have on this machine, and say of it */
    MESSAGE_PREEMPTED, /* its answer has lost its memory here: it goes on elsewhere, or here again
                        */
    MESSAGE_PREFIXES,  /* beginnings of prompts whose KV came to be held here, or is not any more */
    MESSAGE_LOADS,     /* how busy the stages of this machine are */
    MESSAGE_STAGES,    /* where to write KV of which layers and heads: the first message to who may
                          write */
    MESSAGE_KIND_COUNT
};

const char *message_kind_name(enum message_kind kind);

struct message_request { /* part of most messages */
    uint64_t id;
    uint32_t generation;
};

/* All requests in one order, the same on every machine: by the counts of their gateways, which are
 * the lower half of an id, then by the gateways'. */
static inline uint64_t message_request_number(const struct message_request *request)
{
    return request->id << 32 | request->id >> 32;
}

/* Sampling and ends, as machines need them (see model/sampler.h). */
struct message_sampling {
    float temperature;
    float top_p;
    float min_p;
    uint32_t top_k;
    uint64_t seed;
    int32_t logprobs;           /* -1: none */
    uint32_t output_tokens_max; /* ≥ 1; 0 only with PREFILL of a scored prompt */
    uint32_t output_tokens_min;
    bool ignore_end;
    uint32_t end_count; /* tokens that end generation */
    uint32_t ends[16];
};

/* How urgent a request is, and whose: orders those that wait on a machine, whichever gateway they
 * came from. */
struct message_rank {
    uint64_t key;         /* equal for all requests of one API key, at every gateway; 0: nobody's */
    uint32_t weight;      /* of that key against others; 0 counts as 1 */
    int32_t priority;     /* a lower one comes earlier */
    uint32_t waited_ms;   /* since the client's request came */
    uint32_t preemptions; /* times that it has lost its memory */
};

enum message_finish {
    FINISH_NONE,
    FINISH_STOP,
    FINISH_LENGTH
}; /* stop: an end token was drawn (it is sent too) */

struct message_token {
    uint64_t request;
    uint32_t generation;
    uint32_t index; /* 0 for the first token of the answer; the gateway takes only the next one */
    uint32_t id;
    uint8_t finish; /* enum message_finish */
    bool scored; /* a prompt position's score (echo with logprobs): index counts prompt tokens from
                    1 */
    /* Where the time of this request went on this machine, sent with the first token of a machine,
     * else 0. */
    uint32_t wait_us; /* prompt machine: arrival → its batch began; token machine: KV_READY → its
                         first batch began */
    /* prompt machine: batch began → token sampled; token machine: that first step */
    uint32_t run_us;
    uint32_t cached_tokens; /* prompt machine, first token: of the prompt, not computed but found */
    bool has_logprob;
    float logprob;
    uint8_t top_count;
    uint32_t top_ids[LIMIT_LOGPROBS];
    float top_logprobs[LIMIT_LOGPROBS];
};

enum message_kv_path {
    KV_PATH_AUTO,
    KV_PATH_LAYERWISE,
    KV_PATH_ONE_PIECE
}; /* AUTO: by the threshold */

struct message_reserve {
    struct message_request request;
    char prompt_machine[LIMIT_NAME_BYTES]; /* who will write; if it goes down first, the request
                                              fails */
    uint32_t prompt_tokens;
    struct message_rank rank;
    struct message_sampling sampling;
    uint32_t prompt_count; /* prompt_tokens, or 0: not told, and nothing of it is found or kept */
    const uint32_t *prompt;
};

struct message_reserved {
    struct message_request request;
    uint32_t path;        /* that the request takes through the machine's stages (STAGES) */
    uint32_t held_count;  /* of the prompt's blocks the first ones, which the machine has already */
    uint32_t block_count; /* those behind */
    const uint32_t
        *blocks; /* decoded: points into the message's bytes (aligned copy): see message_decode */
};

struct message_prefill {
    struct message_request request;
    char token_machine[LIMIT_NAME_BYTES]; /* empty: nowhere, the answer has one token at most;
                                           * our own name: the KV stays (a mixed machine) */
    bool score_prompt;                    /* send a scored token per prompt position from 1 on */
    uint8_t kv_path;                      /* enum message_kv_path */
    struct message_rank rank;
    struct message_sampling sampling;
    uint32_t path;        /* all three from RESERVED */
    uint32_t held_count;  /* the first blocks are not pushed, */
    uint32_t block_count; /* the others go to these of the token machine */
    const uint32_t *blocks;
    uint32_t prompt_count;
    const uint32_t *prompt;
};

struct message_tokens {
    uint32_t count;
    /* Iterate with message_tokens_next over the message. */
    const uint8_t *cursor;
    const uint8_t *end;
};

struct message_prefilled {
    struct message_request request;
    uint32_t queue_us;   /* arrival at the prompt machine → first batch began */
    uint32_t prefill_us; /* first batch began → last layer computed and token sampled */
    /* token sampled → all KV flushed: the transfer that compute did not hide */
    uint32_t exposed_us;
    uint32_t transfer_us; /* first write issued → all KV flushed */
    uint32_t layers;      /* pushed while computing (layer-wise), or all at the end */
    bool layerwise;
    uint64_t bytes;
};

struct message_kv_ready {
    struct message_request request;
    uint32_t prompt_tokens;
    uint32_t first_token; /* already delivered to the client by the prompt machine, index 0 */
};

/* The client is gone, or the gateway needs no more. A token machine frees the blocks at once,
 * unless a writer knows of them: then they are quarantined until its KV_ABORTED or KV_READY (or its
 * death, or the lease). A prompt machine stops, and sends KV_ABORTED to the token machine unless it
 * has sent KV_READY. */
struct message_cancel {
    struct message_request request;
    bool writer; /* PREFILL was sent to the prompt machine */
};

struct message_failed {
    struct message_request request;
    int32_t status; /* enum status */
    char text[256];
};

/* A token machine was short of KV memory, and this request was chosen to give its own back. The
 * machine has forgotten it; with `generated` 0, when its KV had not come yet, as soon as the prompt
 * machine says that it writes no more. */
struct message_preempted {
    struct message_request request;
    uint32_t generated; /* tokens of this generation, all of them sent before this message */
    char text[256];     /* why */
};

/* A machine's state, pushed when it has changed, at most ten times a second. Counters grow from its
 * start. */
/* How KV gets in and out of the memory that it is in (transport_memory). */
struct message_staged {
    uint32_t way;       /* enum transport_way; of stages the slowest */
    uint32_t padding;   /* 0 */
    uint64_t out_bytes; /* copied out of a device's memory, to be sent … */
    uint64_t out_us;    /* … and the time in which some were on their way */
    uint64_t in_bytes;  /* likewise of what came */
    uint64_t in_us;
    uint64_t peer_bytes; /* likewise of what was copied into other devices' memory */
    uint64_t peer_us;
};

struct message_stats {
    uint32_t prompts_waiting;
    uint32_t prompts_running;
    uint64_t prompt_tokens_pending;
    uint32_t reservations_waiting; /* requests waiting for KV memory */
    uint32_t transfers_awaited;    /* reserved, KV not there yet */
    uint32_t decodes_running;
    uint64_t decode_tokens_pending; /* tokens that running decodes may still generate */
    uint32_t kv_blocks[6];          /* by enum kv_state */
    uint64_t prompt_tokens_done;    /* computed */
    uint64_t prefix_query_tokens;   /* of prompts that were looked up in the prefix cache … */
    uint64_t prefix_hit_tokens;     /* … and of these, found there */
    uint64_t generated_tokens_done;
    uint64_t preemptions; /* requests that gave up their memory for others */
    uint64_t prompt_batches;
    uint64_t token_batches;
    uint64_t transfer_bytes;
    uint64_t transfer_layers;
    uint64_t transfers_layerwise;
    uint64_t transfers_one_piece;
    uint64_t transfers_failed;
    uint64_t transfer_us;         /* sum over requests, first write → flushed */
    uint64_t transfer_exposed_us; /* the part that no compute hid */
    uint64_t transfer_held_bytes; /* not pushed: the token machine had them */
    uint64_t resident_bytes;
    /* How fast it is: rows and time of batches that had prompts, and of those that had none. */
    uint64_t prompt_batch_rows;
    uint64_t prompt_batch_us;
    uint64_t token_batch_rows;
    uint64_t token_batch_us;
    struct message_staged staged;
};

/* Sent as often as STATS, and to a new gateway at once. */
struct message_prefixes {
    bool all;               /* what was said before does not count any more */
    uint32_t count;         /* ≤ LIMIT_PREFIXES */
    const uint64_t *hashes; /* prefix_hash (common/prefix_hash.h) */
    const uint32_t *held;   /* 1: it is, 0: it is not any more; in the order in which that was so */
};

struct message_peer {
    char name[LIMIT_NAME_BYTES];
    char address[LIMIT_ADDRESS_BYTES];
};

/* Any machine does any work that comes. A mixed one keeps a share of its memory for prompts that
 * are decoded elsewhere (machine.h). */
enum message_role_kind { ROLE_PROMPT, ROLE_TOKEN, ROLE_MIXED };

struct message_role {
    uint8_t role;    /* enum message_role_kind */
    uint8_t home;    /* the pool that it belongs to; counts if `serial` is more than any before */
    uint64_t serial; /* one more than the last that the gateway knows of (0: as the config says) */
};

/* One process that has KV of a machine. On the wire as it is here. */
struct message_stage {
    uint64_t paths;       /* bit p: of requests that take path p */
    uint32_t first_layer; /* layers [first, last) */
    uint32_t last_layer;
    uint32_t first_head; /* KV heads [first, last) of each of them */
    uint32_t last_head;
    char address[LIMIT_ADDRESS_BYTES]; /* where it listens; empty: it is who says this */
};

/* Each KV head of each layer of each path is at exactly one of them. */
struct message_stages {
    uint32_t count; /* 1 to LIMIT_STAGES */
    const struct message_stage *stages;
};

/* Of one process of a machine with stages, since it was opened. On the wire as it is here. */
struct message_load {
    uint32_t stage;
    uint32_t replica;
    uint32_t rank;
    uint32_t padding;
    uint64_t batches;
    uint64_t rows;
    uint64_t busy_us; /* of its engine */
    uint64_t resident_bytes;
    struct message_staged staged;
};

struct message_loads { /* after STATS, of a machine with stages */
    uint32_t count;    /* ≤ LIMIT_STAGES */
    const struct message_load *loads;
};

/* After STATS, when it differs from what this gateway was told last; and when it has connected.
 * What the gateway itself has there is in none of the sums. */
struct message_others {
    uint32_t gateways;             /* connected, this one included */
    char leader[LIMIT_NAME_BYTES]; /* of those, the one with the least name */
    uint32_t prompts;              /* not computed */
    uint32_t decodes;              /* reserved or running */
    uint64_t prompt_tokens;        /* of those prompts */
    uint64_t kv_tokens;            /* of all of them */
    bool mixed;                    /* another gateway has it in the mixed pool */
    uint8_t home;                  /* as ROLE said with the highest serial; that is: */
    uint64_t home_serial;          /* 0: as this machine's config says */
    uint64_t prompt_tokens_taken;  /* of all PREFILLs of others, ever */
    uint64_t answers_taken;        /* their RESERVEs */
};

struct message_link {
    char name[LIMIT_NAME_BYTES];
    bool up;
    char text[256]; /* how writes travel ("ucx put over posix"), or why it is down */
};

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

/* A growing buffer for one message; reused between messages, no allocation once it is large enough.
 */
struct message_buffer {
    uint8_t *data;
    size_t bytes;
    size_t capacity;
};

void message_buffer_done(struct message_buffer *buffer);

/* Encodes any kind but MESSAGE_TOKENS. Replaces the buffer's content. */
enum status message_encode(const struct message *message, struct message_buffer *buffer);

/* MESSAGE_TOKENS is written token by token. */
void message_tokens_begin(struct message_buffer *buffer);
enum status message_tokens_add(struct message_buffer *buffer, const struct message_token *token);

/* Decodes data[0..bytes), which must be 8-byte aligned (transports deliver it so); arrays point
 * into it. ST_INVALID names kind, field and value. */
enum status message_decode(const uint8_t *data, size_t bytes, struct message *out,
                           struct error *error);
/* The next token of a decoded MESSAGE_TOKENS; false at the end. The decoder has checked all of
 * them. */
bool message_tokens_next(struct message_tokens *tokens, struct message_token *out);

#endif
