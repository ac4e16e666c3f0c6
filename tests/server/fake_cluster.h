/* fake_cluster: a gateway over the loopback transport, and machines that speak the control messages
 * and compute nothing: the "model" is a hash of all tokens so far (fake_next), so that an answer
 * that was resumed anywhere, with any other prompt than the right one, comes out different.
 * Machines do only what the test tells them, and what they say waits in an outbox until the test
 * lets it go (another machine's words may overtake it). They check what a machine may rely on: the
 * order of generations, blocks, the writer flag of CANCEL. */
#ifndef TESTS_SERVER_FAKE_CLUSTER_H
#define TESTS_SERVER_FAKE_CLUSTER_H

#include "server/gateway.h"
#include "server/metrics.h"
#include "transport/transport.h"

#define FAKE_MACHINES     8
#define FAKE_REQUESTS     256 /* that one machine knows at a time */
#define FAKE_TOKENS       512 /* prompt and answer */
#define FAKE_OUTBOX       1024
#define FAKE_BLOCK_TOKENS 16
#define FAKE_END_TOKEN    7
#define FAKE_MODEL        42 /* of the first version: its model_hash */
/* Two models each have the same metadata. */
#define FAKE_METADATA(model) ((model) & ~1ull)

enum fake_stage {
    FAKE_RESERVED,
    FAKE_ANSWERED,
    FAKE_DECODING,
    FAKE_PROMPT,
    FAKE_SAMPLED,
    FAKE_HANDED
};

struct fake_request { /* what one machine knows of a request, in one of its two roles */
    uint64_t id;      /* 0: unused */
    uint32_t generation;
    enum fake_stage
        stage; /* RESERVED…DECODING: its token machine; PROMPT…HANDED: its prompt machine */
    struct message_sampling sampling;
    bool score_prompt;
    uint8_t kv_path;
    uint32_t prompt_tokens;   /* as RESERVE said */
    struct message_rank rank; /* as RESERVE or PREFILL said */
    uint32_t block_count;
    char partner[LIMIT_NAME_BYTES];
    uint32_t tokens[FAKE_TOKENS];
    uint32_t count;
    uint32_t index; /* of the next token to send */
};

struct fake_outgoing {
    uint8_t *data;
    size_t bytes;
};

struct fake_machine {
    struct fake_cluster *cluster;
    uint32_t index;
    uint32_t starts;
    char address[LIMIT_ADDRESS_BYTES];
    struct transport *transport; /* NULL: dead */
    struct transport_peer *gateway;
    struct fake_request requests[FAKE_REQUESTS];
    struct fake_outgoing outbox[FAKE_OUTBOX];
    uint32_t outbox_first;
    uint32_t outbox_count;
    uint64_t peers; /* machines that PEER named, one bit each */
    struct message_buffer buffer;
    uint32_t cancels;   /* that it got */
    bool cancel_writer; /* of the last one */
    uint32_t reserves;
    uint32_t prefills;
    uint32_t shutdowns;
    uint8_t role; /* as ROLE said last, and these */
    uint8_t home;
    uint64_t home_serial;
    bool other_weights;
    uint64_t model; /* 0: FAKE_MODEL */
};

struct fake_cluster {
    struct config config;
    int64_t now_us;
    struct clock clock;
    struct metrics *metrics;
    struct gateway *gateway;
    uint32_t kv_blocks;
    uint64_t model;     /* of new requests; 0: FAKE_MODEL */
    bool links_at_once; /* a machine that hears of a peer answers with LINK up */
    struct fake_machine machines[FAKE_MACHINES];
};

/* Machines p0… t0… m0…; nothing is started. */
struct fake_cluster *fake_cluster_open(uint32_t prompt, uint32_t token, uint32_t mixed,
                                       uint32_t kv_blocks, uint32_t queue_requests_max);
void fake_cluster_close(struct fake_cluster *c);
struct fake_machine *fake_machine(struct fake_cluster *c, const char *name);

void fake_start(struct fake_machine *m);     /* a new process; tells the gateway its address */
void fake_start_all(struct fake_cluster *c); /* and lets everybody connect */
void fake_kill(struct fake_machine *m);

/* Everybody hears what was said, until nobody has anything to say. Outboxes stay as they are. */
void fake_settle(struct fake_cluster *c);
/* The same, and the outboxes are emptied. */
void fake_flush(struct fake_cluster *c);
void fake_send_one(struct fake_machine *m); /* the oldest message of its outbox, if any */

/* What the machine knows of the request, or NULL. */
struct fake_request *fake_token_side(struct fake_machine *m, uint64_t id);
struct fake_request *fake_prompt_side(struct fake_machine *m, uint64_t id);
uint32_t fake_known(const struct fake_machine *m);     /* requests that it knows of */
struct fake_request *fake_any(struct fake_machine *m); /* the first one, or NULL */

void fake_link(struct fake_machine *from, const char *to, bool up);
void fake_stats(struct fake_machine *m, const struct message_stats *stats);
void fake_others(struct fake_machine *m, const struct message_others *others);
const char *fake_gateway_name(const struct fake_machine *m); /* of the one that is connected */

/* A machine's steps. The fake's own record follows; what it says goes to the outbox. */
void fake_reserved(struct fake_machine *m, struct fake_request *r); /* RESERVED */
void fake_sample(struct fake_machine *m,
                 struct fake_request *r); /* scores, first token; maybe the end */
void fake_hand_over(struct fake_machine *m, struct fake_request *r); /* KV_READY, PREFILLED */
void fake_decode(struct fake_machine *m,
                 struct fake_request *r); /* the next token; maybe the end */
/* It decodes no more: its memory is wanted for others. */
void fake_preempt(struct fake_machine *m, struct fake_request *r);
void fake_fail(struct fake_machine *m, struct fake_request *r, enum status status);
/* Says a token, right or wrong; no record changes. */
void fake_say_token(struct fake_machine *m, uint64_t id, uint32_t generation, uint32_t index,
                    uint32_t token, uint8_t finish);

/* The token that follows tokens[0..count), of FAKE_MODEL; of any model. */
uint32_t fake_next(const uint32_t *tokens, uint32_t count);
uint32_t fake_next_of(uint64_t model, const uint32_t *tokens, uint32_t count);

/* A client that checks what it is told: each index once, in order, the right token. */
struct fake_client {
    struct fake_cluster *cluster;
    struct gateway_request *request; /* NULL: over */
    uint32_t tokens[FAKE_TOKENS];    /* prompt and answer */
    uint32_t prompt_count;
    uint32_t answered;
    uint32_t scored_next;
    uint32_t output_max;
    bool score;
    uint8_t finish;
    bool ended;
    enum gateway_end end;
    char text[256];
    uint32_t retry_after_s;
    uint64_t model;      /* of the version that it got */
    uint32_t release_at; /* releases itself (GATEWAY_STOPPED) from inside the callback of this
                            index; 0: never */
};

/* Submits a prompt of `prompt_count` tokens, all of them `key`. */
enum status fake_submit(struct fake_cluster *c, struct fake_client *client, uint32_t key,
                        uint32_t prompt_count, uint32_t output_max, bool score);

#endif
