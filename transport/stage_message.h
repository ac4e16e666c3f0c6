/* stage_message: the messages between the processes of one machine with stages, and functions that
 * encode and decode the messages. machine/executor/ calls these functions, in the head
 * (pipeline*.c) and in stage processes (stage*.c). This part keeps no state and does no I/O
 * (transport.h does): any thread may call the functions.
 *
 *   head  → stage   OPEN, GROUP, CONTEXT, JOB, TARGET, COPY, FLUSH, AWAIT, FETCH
 *   stage → head    GROUP, STATE, POOLED, DONE, TARGET_LINK, FLUSHED, WRITER, LOAD, AWAITED,
 *                   FETCHED
 *   stage → stage   ACTIVATIONS
 *
 * The head sends the JOB of a batch to all stages of a path at the same time. A stage writes its
 * activations into the batch slot of the next stage by one-sided writes, as for KV, and then
 * sends ACTIVATIONS. The next stage begins when this message has arrived. The last stage sends the
 * sampled tokens to the head. Jobs of one path run in the order in which they arrived.
 *
 * A stage may have several ranks that compute together, as a group (GROUP). All ranks get equal
 * JOBs and run the JOBs in the same order. A rank that sends the activations of a job to no other
 * process sends DONE: rank 0 of the last stage with the results, all other ranks without results.
 *
 * Structs and arrays are sent as in message.h. The receiver checks what depends on the receiver's
 * sizes, such as block ids.
 *
 * All processes of a machine speak the same version of the protocol: the head refuses a stage
 * process of another version. So a change of these structs raises TRANSPORT_PROTOCOL_VERSION, but
 * not TRANSPORT_PROTOCOL_LOWEST. */
#ifndef TRANSPORT_STAGE_MESSAGE_H
#define TRANSPORT_STAGE_MESSAGE_H

#include "transport/message.h"

enum stage_message_kind {
    /* The layers, sizes and rank that the head expects of the process, which answers STATE. */
    STAGE_OPEN = 64,
    STAGE_STATE,       /* The process is ready to work, or cannot work. */
    STAGE_JOB,         /* Compute this batch. */
    STAGE_ACTIVATIONS, /* The batch's activations are in the receiver's batch slot. */
    STAGE_DONE,        /* The batch is computed. From rank 0 of the last stage: with the results. */
    STAGE_TARGET,      /* Connect to the processes of this target, or disconnect from them. */
    STAGE_TARGET_LINK, /* All connections to the target are up, or one is down. */
    STAGE_FLUSH,       /* Send FLUSHED when all KV written for this request is at the target. */
    STAGE_FLUSHED, /* All KV written for this request is at the target, or a write has failed. */
    STAGE_WRITER,  /* Event of the connection of a process that writes KV into this process. */
    STAGE_LOAD,    /* Counters of the process (struct message_process). */
    /* The id by which the ranks of a stage find each other. Rank 0 sends the id to the head, and
     * the head sends the id to all ranks. */
    STAGE_GROUP,
    STAGE_AWAIT,   /* A request begins or ceases to wait for KV of another machine. */
    STAGE_AWAITED, /* Answer to AWAIT: writes of the request into its blocks are accepted now. */
    /* To the last stage, before a JOB: token rules and tokens of a request, for the sampler. */
    STAGE_CONTEXT,
    STAGE_POOLED,  /* The sum of the vectors of some rows, for an embedding; sent before DONE. */
    STAGE_COPY,    /* Write KV of these blocks to a target, without computing. */
    STAGE_FETCH,   /* Write KV of these blocks into the head's staging memory. */
    STAGE_FETCHED, /* Answer to FETCH: the KV is in the staging memory, or the FETCH has failed. */
    STAGE_KIND_END
};

/* Returns a name such as "JOB"; "unknown" for an unknown kind. */
const char *stage_message_name(enum stage_message_kind kind);

/* The bytes of these structs are sent, so they have no hidden padding. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"

/* OPEN. */
struct stage_open {
    /* Index of the process among the machine's processes (struct stage_plan). */
    uint32_t process_index;
    uint32_t first_layer; /* The process computes layers first_layer to end_layer - 1. */
    uint32_t end_layer;   /* See first_layer. */
    uint32_t block_count; /* Number of blocks of the machine. */
    uint32_t rows_max;    /* Largest number of tokens in a batch. */
    uint32_t slots;       /* Number of batch slots: batches in flight, over all paths. */
    /* Spans of the longest request (machine_shape_context_spans). */
    uint32_t context_spans;
    uint32_t rank;  /* Index of this rank, less than `ranks`. */
    uint32_t ranks; /* Number of ranks of the stage. */
    uint32_t next_count;
    /* [next_count]: the processes of the next stage to which this process sends activations. */
    const struct message_stage *next_stages;
};

#define STAGE_GROUP_ID_BYTES 128 /* COMPUTE_GROUP_ID_BYTES (compute/group.h). */

/* GROUP. */
struct stage_group {
    /* Kind of the device of rank 0, such as "cpu". Ranks on devices of other kinds cannot join. */
    char device[16];
    uint8_t id[STAGE_GROUP_ID_BYTES]; /* Id of the group (compute/group.h). */
};

/* STATE. */
struct stage_state {
    bool ready; /* The process can compute JOBs. */
    uint8_t padding[7];
    /* Device and how activations travel, or why the process is not ready. */
    char text[256];
};

/* The tokens of one sequence in a batch. The process has the block ids of the sequence in the table
 * with the number `table`, which has a part for each layer group (common/layer_groups.h). The
 * process keeps the ids of the first `known_spans` spans of each part. Then it takes the next
 * `block_count` ids of the job's `blocks`, group after group, and appends an equal number to each
 * part. */
struct stage_sequence {
    uint32_t table;          /* Number of the table, less than LIMIT_MACHINE_REQUESTS. */
    uint32_t row_count;      /* Number of the sequence's tokens in this batch. */
    uint32_t first_position; /* Position in the context of the first of these tokens. */
    uint32_t known_spans;    /* Spans that stay in each part of the table. */
    uint32_t block_count;    /* New block ids; a multiple of the number of layer groups. */
    uint32_t adapter;        /* As in struct compute_sequence. */
};

/* KV of a sequence that is written to a target: spans first_span to first_span + span_count - 1 of
 * the sequence's table. In layers without a window, spans before full_first are not written. In
 * layers with a window, spans before window_first are not written. */
struct stage_push {
    uint64_t cookie;     /* Number of the request, which FLUSHED repeats. */
    uint64_t request;    /* Id of the request, which each write names. */
    uint32_t generation; /* Generation of the request. */
    uint32_t target;     /* Number of the target (struct stage_target). */
    /* Serial of the last TARGET for this number. If a later TARGET has arrived, nothing is written,
     * because the number may mean another machine. */
    uint32_t target_serial;
    /* Index in the job's `sequences`. */
    uint32_t sequence;
    uint32_t first_span;   /* First span of the push. */
    uint32_t span_count;   /* Number of spans of the push. */
    uint32_t full_first;   /* First span that may be written in layers without a window. */
    uint32_t window_first; /* First span that may be written in layers with a window. */
    /* Number of the push's ids in the job's `targets`: `span_count` for each layer group. */
    uint32_t target_count;
    uint8_t path; /* Path of the request through the target's stages. */
    /* 1 = write each layer when it is computed, 0 = write all layers at the end. */
    uint8_t layerwise;
    uint8_t is_last; /* 1 = last push of the request: FLUSHED follows without a FLUSH. */
    uint8_t padding[1];
};

/* A row whose next token is sampled (struct engine_sample). struct sampling (common/sampling.h)
 * describes the fields down to `logprobs`, and the penalties. */
struct stage_sample {
    uint64_t seed;
    float temperature;
    float top_p;
    float min_p;
    uint32_t top_k;
    int32_t logprobs;
    uint32_t row;          /* Index of the row in the batch. */
    uint32_t position;     /* Position of the sampled token. */
    uint32_t masked_count; /* Number of ids in `masked`: tokens that must not be sampled. */
    uint32_t masked[SAMPLING_ENDS_MAX];
    float presence_penalty;
    float frequency_penalty;
    float repetition_penalty;
    /* Number of the request's table (struct stage_sequence, struct stage_context). */
    uint32_t table;
    uint32_t word_count; /* Words of the context; 0 = none. */
    /* Number of the context's first words that are token rules; the other words are tokens. */
    uint32_t rule_count;
    uint32_t prompt_count; /* Number of the context's first tokens that are the prompt. */
    bool has_mask;         /* The next mask of the job's `masks` is for this sample. */
    uint8_t padding[3];
};

/* Rows whose next tokens are known. The head wants the log-probabilities of these tokens. */
struct stage_score {
    uint32_t first_row; /* Rows first_row to first_row + row_count - 1 of the batch. */
    uint32_t row_count; /* See first_row. */
    int32_t logprobs;   /* As in struct sampling. */
};

/* Rows whose final vectors are added up, for an embedding. */
struct stage_rows {
    uint32_t first_row; /* Rows first_row to first_row + row_count - 1 of the batch. */
    uint32_t row_count; /* See first_row. */
};

/* CONTEXT: what the sampler must know of a request, as 32-bit words: the request's token rules,
 * then its tokens (machine/executor/stage_contexts.h). The process keeps the first `known_words`
 * words that it has, and appends the `new_words` words of this message. */
struct stage_context {
    uint32_t table;       /* Table of the request (struct stage_sequence). */
    uint32_t known_words; /* 0 = no word stays. */
    uint32_t new_words;   /* Number of `words`. */
    uint32_t padding;
    const uint32_t *words;
};

/* JOB: compute this batch. */
struct stage_job {
    uint64_t serial;    /* Number of the job, which ACTIVATIONS, POOLED and DONE repeat. */
    uint32_t slot;      /* Batch slot. */
    uint32_t path;      /* Path of the batch through the stages. */
    uint32_t row_count; /* Tokens of the batch. */
    uint32_t turn_us;   /* See struct engine_job (machine/executor/engine.h). */
    uint32_t sequence_count;
    uint32_t push_count;
    uint32_t sample_count; /* 0 for every stage except the last. */
    uint32_t score_count;  /* 0 for every stage except the last. */
    /* Number of `tokens`: row_count, or 0 if the stage reads no token ids. */
    uint32_t token_count;
    /* Number of `blocks`: new block ids of all sequences, in the order of the sequences. */
    uint32_t block_count;
    /* Number of `targets`: block ids at the targets of all pushes, in the order of the pushes. */
    uint32_t target_count;
    /* Number of `score_ids`: the sum of the scores' row_count. */
    uint32_t score_row_count;
    uint32_t mask_words;   /* Number of words in `masks`. */
    uint32_t pooled_count; /* 0 for every stage except the last. */
    const struct stage_push *pushes;
    const struct stage_sample *samples;
    const struct stage_sequence *sequences;
    const struct stage_score *scores;
    const struct stage_rows *pooled;
    const uint32_t *tokens;
    const uint32_t *blocks;
    const uint32_t *targets;
    const uint32_t *score_ids;
    /* One mask for each sample with has_mask, in the order of the samples. In a mask, bit id % 32
     * of word id / 32 allows token `id`. */
    const uint32_t *masks;
};

/* POOLED: the sum of the final vectors of one element of a job's `pooled`. */
struct stage_pooled {
    uint64_t serial;       /* Serial of the job. */
    uint32_t index;        /* Index in the job's `pooled`. */
    uint32_t count;        /* Elements of a vector. */
    const int64_t *values; /* [count]: the sum, in the unit of common/pooling.h. */
};

/* ACTIVATIONS. */
struct stage_activations {
    uint64_t serial; /* Serial of the job. */
    uint32_t slot;   /* Batch slot of the job. */
    uint32_t padding;
};

/* DONE. */
struct stage_done {
    uint64_t serial;       /* Serial of the job. */
    uint32_t result_count; /* Number of `results`; 0 except from rank 0 of the last stage. */
    uint32_t padding;
    /* Results of the samples, then results of the rows of the scores. */
    const struct sampled *results;
};

/* TARGET. */
struct stage_target {
    uint32_t target; /* Number that the head has given the target, less than LIMIT_MACHINES. */
    /* Number of TARGETs with this value of `target`, including this TARGET. A TARGET_LINK with a
     * lower serial is ignored. */
    uint32_t serial;
    char name[LIMIT_NAME_BYTES]; /* Name of the token machine; empty if stages.count is 0. */
    /* Processes of the target with their addresses; stages.count 0 = disconnect from the target. */
    struct message_stages stages;
};

/* TARGET_LINK. */
struct stage_target_link {
    uint32_t target; /* As in struct stage_target. */
    uint32_t serial; /* As in struct stage_target. */
    bool up;         /* True: all connections to the target are up. False: the target has failed. */
    uint8_t padding[7];
    char text[256]; /* How writes travel, or why the target has failed. */
};

/* COPY: write KV that is complete to a target. `sources` are blocks of this machine, and `targets`
 * are blocks of the target. Each of the two arrays has `span_count` ids for each layer group. The
 * KV of block sources[i] is written to block targets[i]. */
struct stage_copy {
    uint64_t cookie;        /* As in struct stage_push. */
    uint64_t request;       /* As in struct stage_push. */
    uint32_t generation;    /* As in struct stage_push. */
    uint32_t target;        /* As in struct stage_push. */
    uint32_t target_serial; /* As in struct stage_push. */
    uint32_t path;          /* Path of the request through the target's stages. */
    uint32_t span_count;    /* Number of spans. */
    /* First span that is written in layers without a window; span_count = none is written. */
    uint32_t full_first;
    /* First span that is written in layers with a window; span_count = none is written. */
    uint32_t window_first;
    uint32_t block_count; /* Number of ids in each of the two arrays. */
    const uint32_t *sources;
    const uint32_t *targets;
};

/* FETCH: KV that the head's tiers store. The process writes its layers and KV heads of these blocks
 * into a slot of the head's staging memory (machine/executor/staging.h). The head sends the next
 * FETCH for a slot after FETCHED. */
struct stage_fetch {
    uint32_t slot;          /* Slot of the staging memory. */
    uint32_t span_count;    /* Number of spans. */
    uint32_t window_first;  /* First span that is written in layers with a window. */
    uint32_t block_count;   /* Number of `blocks`: span_count for each layer group. */
    const uint32_t *blocks; /* Ids, layer group after layer group. */
};

/* FETCHED. */
struct stage_fetched {
    uint32_t slot;  /* Slot of the staging memory. */
    int32_t status; /* enum status: ST_OK, or why the KV is not in the slot. */
};

/* FLUSH. */
struct stage_flush {
    uint64_t cookie; /* As in struct stage_push. */
    uint32_t target; /* As in struct stage_push. */
    uint32_t path;   /* As in struct stage_push. */
};

/* FLUSHED. */
struct stage_flushed {
    uint64_t cookie; /* As in struct stage_push. */
    int32_t status;  /* enum status: ST_OK, or why KV is not at the target. */
    uint32_t padding;
};

enum stage_writer_event {
    STAGE_WRITER_UP,      /* The connection has begun, perhaps before OPEN. */
    STAGE_WRITER_DOWN,    /* The connection and its writes have ended. */
    STAGE_WRITER_LINGERS, /* The connection has ended, but its writes may still arrive. */
    STAGE_WRITER_ENDED,   /* The writes of a connection that lingered have ended. */
    STAGE_WRITER_EVENTS   /* Number of events. */
};

/* WRITER. */
struct stage_writer {
    uint64_t number;             /* Number of the connection (transport_peer_number). */
    char name[LIMIT_NAME_BYTES]; /* Name of the process that writes: MACHINE or MACHINE/NUMBER. */
    uint32_t event;              /* enum stage_writer_event. */
    uint32_t padding;
    char text[256]; /* Reason, for logs; may be empty. */
};

/* AWAIT: a request begins or ceases to wait for KV of the machine `writer`. */
struct stage_await {
    uint64_t cookie;               /* Number that AWAITED repeats. */
    uint64_t request;              /* Id of the request. */
    uint32_t generation;           /* Generation of the request. */
    uint32_t table;                /* Table of the request (struct stage_sequence). */
    char writer[LIMIT_NAME_BYTES]; /* Name of the machine that writes the KV. */
    /* 0 = the wait begins: the process accepts writes into `blocks`, and answers AWAITED. 1 = the
     * wait ends: the process no longer accepts these writes, and does not answer. */
    uint32_t ends;
    uint32_t block_count; /* Number of `blocks`. */
    const uint32_t *blocks;
};

/* AWAITED. */
struct stage_awaited {
    uint64_t cookie; /* As in struct stage_await. */
};

#pragma GCC diagnostic pop

/* A message: its kind, and the member of the union for this kind. */
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
        struct stage_copy copy;
        struct stage_fetch fetch;
        struct stage_fetched fetched;
        struct stage_flush flush;
        struct stage_flushed flushed;
        struct stage_writer writer;
        struct message_process load;
        struct stage_group group;
        struct stage_await await;
        struct stage_awaited awaited;
        struct stage_context context;
        struct stage_pooled pooled;
    };
};

/* Replaces the buffer's content with the encoded message. Does not check the fields; the receiver
 * does. Returns ST_TOO_LARGE if the message would exceed LIMIT_MESSAGE_BYTES, ST_NO_MEMORY if the
 * buffer cannot grow, ST_INVALID for an unknown kind. */
enum status stage_message_encode(const struct stage_message *message,
                                 struct message_buffer *buffer);

/* Decodes and checks a message; see message_decode for the requirements and errors. For a JOB, also
 * checks the counts of the arrays, the indices of sequences and rows, and that the rows of the
 * samples ascend. */
enum status stage_message_decode(const uint8_t *data, size_t bytes, struct stage_message *out,
                                 struct error *error);

#endif
