/* stage_message: the messages between the processes of one machine with stages: the head
 * (scheduler, pools, connections to gateways) and the stage processes (weights, KV, compute). As in
 * message.h, structs are sent as they are in memory, then their arrays, and tables in
 * stage_message.c hold the range of every field.
 *
 *   head  → stage   OPEN, GROUP, CONTEXT, JOB, TARGET, FLUSH, AWAIT
 *   stage → head    GROUP, STATE, DONE, TARGET_LINK, FLUSHED, WRITER, LOAD, AWAITED
 *   stage → stage   ACTIVATIONS
 *
 * All stages of a path get a batch's JOB at the same time. Each begins when the stage before it has
 * sent ACTIVATIONS, which says that the batch's activations are in its batch slot (one-sided
 * writes, as for KV). The last stage sends the sampled tokens to the head. Jobs of one path run in
 * the order in which they arrived.
 *
 * A stage may be several ranks that compute together. Rank 0 makes the group's id when it is opened
 * and sends it to the head. The head sends it to all ranks once all are open, and each rank joins
 * the group. All ranks get the same JOBs and run them in the same order. A rank whose activations
 * go to no other process sends DONE: rank 0 of the last stage with the results, the others
 * without.
 *
 * machine/executor/ encodes and decodes, in the head (pipeline*.c) and in stage processes
 * (stage*.c). This part does no I/O and keeps no state: any thread may call it. */
#ifndef TRANSPORT_STAGE_MESSAGE_H
#define TRANSPORT_STAGE_MESSAGE_H

#include "transport/message.h"

enum stage_message_kind {
    /* What the head expects the process to be; the process agrees or says why not. */
    STAGE_OPEN = 64,
    STAGE_STATE, /* The process is ready to work, or says why it never will be. */
    STAGE_JOB,
    STAGE_ACTIVATIONS,
    STAGE_DONE,
    STAGE_TARGET,      /* Keep connections to the processes of this token machine. */
    STAGE_TARGET_LINK, /* All connections to the target are up, or one is down. */
    STAGE_FLUSH,       /* Report when everything written for this request is at the target. */
    STAGE_FLUSHED,
    STAGE_WRITER, /* A machine that writes KV has connected to this process, or is gone. */
    STAGE_LOAD,   /* How busy the process has been. */
    /* The id by which the ranks of a stage find each other: from rank 0 to the head, then to all
     * ranks. */
    STAGE_GROUP,
    STAGE_AWAIT,   /* A request awaits KV in these blocks from now on, or no longer. */
    STAGE_AWAITED, /* Writes of the request into its blocks are wanted now. */
    /* To the last stage, before the JOB: words that the sampler reads of a request. */
    STAGE_CONTEXT,
    STAGE_KIND_END
};

const char *stage_message_name(enum stage_message_kind kind);

/* As in message.h: the bytes of these structs are sent. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"

struct stage_open {
    uint32_t stage; /* Index in the machine's list of stages. */
    uint32_t first_layer;
    uint32_t last_layer;
    uint32_t block_count;
    uint32_t rows_max; /* Largest number of tokens in a batch. */
    uint32_t slots;    /* Batches in flight, over all paths. */
    uint32_t context_blocks;
    uint32_t rank; /* Index of this rank, less than `ranks`. */
    uint32_t ranks;
    uint32_t next_count;
    const struct message_stage *next; /* Where activations go, per path. None for the last stage. */
};

#define STAGE_GROUP_ID_BYTES 128 /* Size of a device's group id (compute.h). */

struct stage_group {
    char device[16]; /* Kind of rank 0's device, such as "cpu". Ranks on other kinds cannot join. */
    uint8_t id[STAGE_GROUP_ID_BYTES];
};

struct stage_state {
    bool ready;
    uint8_t padding[7];
    char text[256]; /* How activations travel, or what is wrong. */
};

/* The tokens of one sequence in a batch. The process keeps the sequence's block table under the
 * number `table`. The table's first `known` ids stay; `block_count` new ids follow. */
struct stage_sequence {
    uint32_t table; /* Less than LIMIT_MACHINE_REQUESTS. */
    uint32_t row_count;
    uint32_t first_position;
    uint32_t known;
    uint32_t block_count;
};

/* KV of a sequence to be written to a target: blocks first to first + count - 1 of its table. */
struct stage_push {
    uint64_t cookie;     /* Names the request between head and stages. */
    uint64_t request;    /* Its id, which each write names. */
    uint32_t generation; /* Of the request. */
    uint32_t target;     /* Number of the target, from TARGET. */
    /* Serial of that TARGET; with a later serial the number means another machine. */
    uint32_t serial;
    uint32_t sequence;
    uint32_t first;
    uint32_t count;
    uint8_t path; /* Path through the target's stages. */
    /* 1 = write each layer when it is computed, 0 = write all layers at the end. */
    uint8_t layerwise;
    uint8_t last; /* 1 = last push of the request: flush without waiting for FLUSH. */
    uint8_t padding[5];
};

struct stage_sample { /* A row whose next token is sampled (engine.h). */
    uint64_t seed;
    float temperature;
    float top_p;
    float min_p;
    uint32_t top_k;
    int32_t logprobs;
    uint32_t row;
    uint32_t position;
    uint32_t masked_count;
    uint32_t masked[SAMPLING_ENDS_MAX];
    float presence_penalty;
    float frequency_penalty;
    float repetition_penalty;
    uint32_t table;        /* As in struct stage_sequence: its context, from CONTEXT. */
    uint32_t word_count;   /* Words of its context; 0 = none. */
    uint32_t rule_count;   /* How many of them are the token rules; the others are tokens. */
    uint32_t prompt_count; /* How many of the tokens are the prompt. */
    bool has_mask;         /* The next mask of the job's masks is its own. */
    uint8_t padding[3];
};

struct stage_score {
    uint32_t first_row;
    uint32_t row_count;
    int32_t logprobs;
};

/* Words of a request's context (machine/executor/stage_contexts.h): the first `known` ones stay,
 * `count` words follow them. */
struct stage_context {
    uint32_t table; /* As in struct stage_sequence. */
    uint32_t known; /* 0 = the context of a new request begins. */
    uint32_t count;
    uint32_t padding;
    const uint32_t *words;
};

struct stage_job {
    uint64_t serial;
    uint32_t slot;
    uint32_t path;
    uint32_t row_count;
    uint32_t turn_us;
    uint32_t sequence_count;
    uint32_t push_count;
    uint32_t sample_count; /* Samples and scores are set for the last stage only. */
    uint32_t score_count;
    uint32_t token_count;     /* row_count, or 0 if the stage reads no token ids. */
    uint32_t block_count;     /* New block ids of all sequences, in the order of the sequences. */
    uint32_t target_count;    /* Block ids at the targets, of all pushes in their order. */
    uint32_t score_row_count; /* Sum of the scores' row_count. */
    uint32_t mask_words;      /* Words of all masks. */
    uint32_t padding;
    const struct stage_push *pushes;
    const struct stage_sample *samples;
    const struct stage_sequence *sequences;
    const struct stage_score *scores;
    const uint32_t *tokens;
    const uint32_t *blocks;
    const uint32_t *targets;
    const uint32_t *score_ids;
    /* For each sample with a mask, in their order: bit id % 32 of word id / 32 allows token
     * `id`. */
    const uint32_t *masks;
};

struct stage_activations {
    uint64_t serial;
    uint32_t slot;
    uint32_t padding;
};

struct stage_done {
    uint64_t serial;
    uint32_t result_count; /* The samples, then the rows of the scores. */
    uint32_t padding;
    const struct sampled *results;
};

struct stage_target {
    uint32_t target; /* Number that the head gave the target, less than LIMIT_MACHINES. */
    /* Number of this request to connect. Reports with an older serial are ignored. */
    uint32_t serial;
    char name[LIMIT_NAME_BYTES];
    /* The target's processes with their addresses; count 0 = forget the target. */
    struct message_stages stages;
};

struct stage_target_link {
    uint32_t target;
    uint32_t serial;
    bool up;
    uint8_t padding[7];
    char text[256];
};

struct stage_flush {
    uint64_t cookie;
    uint32_t target;
    uint32_t path;
};

struct stage_flushed {
    uint64_t cookie;
    int32_t status; /* enum status. */
    uint32_t padding;
};

enum stage_writer_event {
    STAGE_WRITER_UP,
    STAGE_WRITER_DOWN,
    STAGE_WRITER_LINGERS, /* The connection has ended, its writes have not. */
    STAGE_WRITER_ENDED,   /* The writes of such a connection have ended. */
    STAGE_WRITER_EVENTS
};

struct stage_writer {
    uint64_t number; /* Of the connection, in this process (transport_peer_number). */
    char name[LIMIT_NAME_BYTES];
    uint32_t event; /* enum stage_writer_event. */
    uint32_t padding;
    char text[256];
};

/* A request that awaits KV of another machine. The process answers AWAITED, after which `writer`
 * may be told the blocks. */
struct stage_await {
    uint64_t cookie;
    uint64_t request;
    uint32_t generation;
    uint32_t table; /* As in struct stage_sequence. */
    char writer[LIMIT_NAME_BYTES];
    uint32_t ends; /* 1 = no write into these blocks is wanted any more; not answered. */
    uint32_t block_count;
    const uint32_t *blocks;
};

struct stage_awaited {
    uint64_t cookie;
};

#pragma GCC diagnostic pop

struct stage_message {
    enum stage_message_kind kind;
    union {
        struct stage_open open;
        struct stage_state state;
        struct stage_job job;
        struct stage_activations activations;
        struct stage_done done;
        struct stage_target target;
        struct stage_target_link target_link;
        struct stage_flush flush;
        struct stage_flushed flushed;
        struct stage_writer writer;
        struct message_process load;
        struct stage_group group;
        struct stage_await await;
        struct stage_awaited awaited;
        struct stage_context context;
    };
};

/* Replaces the buffer's content with a message of any kind. Checks only the size: the receiver
 * checks the fields. Returns ST_TOO_LARGE if the message would exceed LIMIT_MESSAGE_BYTES,
 * ST_NO_MEMORY if the buffer cannot grow, ST_INVALID for an unknown kind. */
enum status stage_message_encode(const struct stage_message *message,
                                 struct message_buffer *buffer);

/* As message_decode. Sums over the arrays of a JOB are checked too: rows and new block ids of the
 * sequences, blocks of the pushes, rows of the scores, and each push's index of a sequence. */
enum status stage_message_decode(const uint8_t *data, size_t bytes, struct stage_message *out,
                                 struct error *error);

#endif
