/* stage_message: what the processes of one machine with stages say to each other: the machine's own
 * process (the head: scheduler, pools, gateways) and its stages (weights, KV-cache, compute). As in
 * message.h: fixed little-endian structs, then arrays; the decoder checks every length and range.
 *
 *   head  → stage   OPEN, GROUP, JOB, TARGET, FLUSH
 *   stage → head    GROUP, STATE, DONE, TARGET_LINK, FLUSHED, WRITER, LOAD
 *   stage → stage   ACTIVATIONS
 *
 * All stages of a path get a batch's JOB at the same time; each begins when the stage before says
 * that the batch's ACTIVATIONS are in its slot (one-sided writes, like KV), and the last one tells
 * the head what was sampled. Jobs of one path are run in the order in which they came.
 *
 * A stage may be several processes (ranks) that compute together. Rank 0 makes the group's id when
 * it is opened and tells the head, which tells all ranks once they are open; each joins. They get
 * the same JOBs and run them in that order. Who gives its activations to nobody says DONE: rank 0
 * of the last stage with results, others with none. */
#ifndef TRANSPORT_STAGE_MESSAGE_H
#define TRANSPORT_STAGE_MESSAGE_H

#include "transport/message.h"

enum stage_message_kind {
    STAGE_OPEN = 64, /* what the head takes you for: you agree, or say why not */
    STAGE_STATE,     /* ready to work, or why it will never be */
    STAGE_JOB,
    STAGE_ACTIVATIONS,
    STAGE_DONE,
    STAGE_TARGET,      /* keep connections to this token machine's processes */
    STAGE_TARGET_LINK, /* they are all up, or one is down */
    STAGE_FLUSH,       /* say when all that you wrote of this request is there */
    STAGE_FLUSHED,
    STAGE_WRITER, /* a machine that writes KV has connected to this stage, or is gone */
    STAGE_LOAD,   /* how busy it has been */
    STAGE_GROUP,  /* by what the ranks of a stage find each other: from rank 0, then to all */
    STAGE_KIND_END
};

const char *stage_message_name(enum stage_message_kind kind);

struct stage_open {
    uint32_t stage; /* index in the machine's list */
    uint32_t first_layer;
    uint32_t last_layer;
    uint32_t block_count;
    uint32_t rows_max; /* of a batch */
    uint32_t slots;    /* batches in flight, over all paths */
    uint32_t context_blocks;
    uint32_t rank; /* of so many ranks that are this stage: */
    uint32_t ranks;
    struct message_stages next; /* where activations go, by path; empty at the end */
};

#define STAGE_GROUP_ID_BYTES 128 /* as a device has it (compute.h) */

struct stage_group {
    char device[16]; /* rank 0's kind, "cpu": ranks of others cannot join it */
    uint8_t id[STAGE_GROUP_ID_BYTES];
};

struct stage_state {
    bool ready;
    char text[256]; /* how activations travel, or what is wrong */
};

/* Rows of one sequence. Its block table is kept by the stage under the number `table`: the first
 * `known` ids of it stay, block_count new ones follow. */
struct stage_sequence {
    uint32_t table; /* < LIMIT_MACHINE_REQUESTS */
    uint32_t row_count;
    uint32_t first_position;
    uint32_t known;
    uint32_t block_count;
};

/* KV of a sequence that is to be written to a target: blocks [first, first + count) of its table.
 */
struct stage_push {
    uint64_t cookie; /* names the request */
    uint32_t target; /* as TARGET said, */
    uint32_t serial; /* with this serial: a later one is another machine */
    uint32_t sequence;
    uint32_t first;
    uint32_t count;
    uint8_t path;      /* through the target's stages */
    uint8_t layerwise; /* each layer as soon as it is there, else all at the end */
    uint8_t last;      /* the request's last: flush at once, unasked */
    uint8_t padding[1];
};

struct stage_sample { /* a row whose next token is wanted (engine.h) */
    uint64_t seed;
    float temperature;
    float top_p;
    float min_p;
    uint32_t top_k;
    int32_t logprobs;
    uint32_t row;
    uint32_t position;
    uint32_t masked_count;
    uint32_t masked[16];
};

struct stage_score {
    uint32_t first_row;
    uint32_t row_count;
    int32_t logprobs;
};

struct stage_job {
    uint64_t serial;
    uint32_t slot;
    uint32_t path;
    uint32_t row_count;
    uint32_t turn_us;
    uint32_t sequence_count;
    uint32_t push_count;
    uint32_t sample_count; /* samples and scores: for the last stage only */
    uint32_t score_count;
    uint32_t token_count;     /* row_count, or 0: the stage reads no token ids */
    uint32_t block_count;     /* new ids of all sequences, in their order */
    uint32_t target_count;    /* block ids at targets, of all pushes in their order */
    uint32_t score_row_count; /* of all scores */
    const struct stage_push *pushes;
    const struct stage_sample *samples;
    const struct stage_sequence *sequences;
    const struct stage_score *scores;
    const uint32_t *tokens;
    const uint32_t *blocks;
    const uint32_t *targets;
    const uint32_t *score_ids;
};

struct stage_activations {
    uint64_t serial;
    uint32_t slot;
};

struct stage_result { /* of a sample, or of a scored row */
    uint32_t id;
    float logprob;
    uint32_t top_count;
    uint32_t top_ids[LIMIT_LOGPROBS];
    float top_logprobs[LIMIT_LOGPROBS];
};

struct stage_done {
    uint64_t serial;
    uint32_t result_count; /* samples, then the rows of scores */
    const struct stage_result *results;
};

struct stage_target {
    uint32_t target; /* < LIMIT_MACHINES; a number that the head gave it */
    uint32_t serial; /* of this wish: what is said of an earlier one does not count */
    char name[LIMIT_NAME_BYTES];
    struct message_stages stages; /* with addresses; none: forget the target */
};

struct stage_target_link {
    uint32_t target;
    uint32_t serial;
    bool up;
    char text[256];
};

struct stage_flush {
    uint64_t cookie;
    uint32_t target;
    uint32_t path;
};

struct stage_flushed {
    uint64_t cookie;
    int32_t status; /* enum status */
};

struct stage_writer {
    char name[LIMIT_NAME_BYTES];
    bool up;
    char text[256];
};

struct stage_load { /* since it was opened */
    uint64_t jobs;
    uint64_t rows;
    uint64_t busy_us; /* of its engine */
    uint64_t resident_bytes;
    struct message_staged staged;
};

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
        struct stage_load load;
        struct stage_group group;
    };
};

/* Any kind. Replaces the buffer's content. */
enum status stage_message_encode(const struct stage_message *message,
                                 struct message_buffer *buffer);

/* As message_decode; arrays point into the data, which is 8-byte aligned. Sums over arrays are
 * checked: new block ids, pushes' blocks, score rows; sequences' rows; pushes' sequences. */
enum status stage_message_decode(const uint8_t *data, size_t bytes, struct stage_message *out,
                                 struct error *error);

/* True: these bytes are a stage message, whole or not. */
bool stage_message_is(const uint8_t *data, size_t bytes);

#endif
