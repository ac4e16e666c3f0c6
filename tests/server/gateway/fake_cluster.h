/* fake_cluster: a gateway over the loopback transport, and machines that speak the control messages
 * but compute nothing, for the tests of server/gateway. All of them run in the test's one thread.
 * The next token of an answer is a hash of all tokens before it (fake_next), so an answer that is
 * resumed with a wrong prompt differs. Machines do only what the test's calls say. Their messages
 * wait in an outbox until the test releases them, so messages of different machines can overtake
 * each other. The machines check what a real machine relies on: the order of generations, the
 * blocks, and the writer flag of CANCEL. There is no HTTP: tests/server/http/fake_gateway.h is for
 * that side. */
#ifndef TESTS_SERVER_GATEWAY_FAKE_CLUSTER_H
#define TESTS_SERVER_GATEWAY_FAKE_CLUSTER_H

#include "tests/server/gateway/gateway_parts.h"
#include "transport/transport.h"

#define FAKE_MACHINES    8
#define FAKE_REQUESTS    256  /* Most requests that one machine knows at a time. */
#define FAKE_TOKENS      512  /* Most tokens of prompt and answer. */
#define FAKE_OUTBOX      1024 /* Most messages in a machine's outbox. */
#define FAKE_BLOCK_BYTES 4096
#define FAKE_END_TOKEN   7

/* States of a request. On its token machine: */
enum fake_state {
    FAKE_RESERVED, /* RESERVE has arrived. */
    FAKE_ANSWERED, /* RESERVED was sent. */
    FAKE_DECODING, /* The machine has the KV. */
    /* On its prompt machine: */
    FAKE_PROMPT,  /* PREFILL has arrived. */
    FAKE_SAMPLED, /* The first token was sent. */
    FAKE_HANDED   /* The KV is handed over; the machine no longer has the request. */
};

/* A request as one machine knows it: as its token machine or as its prompt machine. */
struct fake_request {
    uint64_t id; /* 0 = unused. */
    uint32_t generation;
    /* FAKE_RESERVED to FAKE_DECODING: the machine is the token machine. FAKE_PROMPT to FAKE_HANDED:
     * it is the prompt machine. */
    enum fake_state state;
    struct sampling sampling;
    bool score_prompt;
    uint8_t transfer_mode;
    uint32_t prompt_tokens;   /* From RESERVE. */
    struct message_rank rank; /* From RESERVE or PREFILL. */
    uint32_t block_count;
    uint32_t answer_count;          /* From RESERVE or PREFILL. */
    char partner[LIMIT_NAME_BYTES]; /* The machine of the other phase. */
    uint32_t tokens[FAKE_TOKENS];   /* [count]: prompt and answer. */
    uint32_t count;
    uint32_t index; /* Index in the answer of the next token to send. */
};

struct fake_outgoing {
    uint8_t *data;
    size_t bytes;
};

struct fake_machine {
    struct fake_cluster *cluster;
    uint32_t index;
    char name[LIMIT_NAME_BYTES]; /* Name of its latest process. */
    uint32_t starts;             /* Number of processes so far. */
    char address[LIMIT_ADDRESS_BYTES];
    struct transport *transport; /* NULL = dead. */
    struct transport_peer *gateway;
    struct fake_request requests[FAKE_REQUESTS];
    struct fake_outgoing outbox[FAKE_OUTBOX];
    uint32_t outbox_first;
    uint32_t outbox_count;
    uint64_t peers; /* Machines that PEER named, one bit each. */
    struct message_buffer buffer;
    uint32_t cancels;           /* CANCEL messages received. */
    bool cancel_writes_pending; /* message_cancel.writes_pending of the last CANCEL. */
    uint32_t reserves;
    uint32_t prefills;
    uint32_t copies_stored, copies_sent; /* RESERVE and PREFILL of a copy. */
    uint32_t shutdowns;
    uint8_t pool; /* Pools of the last ROLE message; also home and home_serial. */
    uint8_t home;
    uint64_t home_serial;
    bool has_other_weights;
    uint32_t block_tokens; /* block_tokens in its hand-shake. */
    uint64_t model;        /* 0 = FAKE_MODEL. */
};

struct fake_cluster {
    struct config config;
    struct fleet *fleet;
    int64_t now_us;
    struct clock clock;
    struct metrics *metrics;
    struct gateway *gateway;
    uint32_t kv_blocks;  /* KV blocks of each machine. */
    uint64_t model;      /* Model of new requests; 0 = FAKE_MODEL. */
    bool links_at_once;  /* A machine answers each PEER with LINK up. */
    bool copies_refused; /* A machine answers RESERVE of a copy with FAILED. */
    bool copies_fail;    /* A machine answers PREFILL of a copy with FAILED. */
    /* Constraint of new requests, which every message must have; NULL = none. */
    const char *constraint;
    struct fake_machine machines[FAKE_MACHINES];
};

/* Opens a cluster with machines p0…, t0…, m0…, none of which is started. */
struct fake_cluster *fake_cluster_open(uint32_t prompt, uint32_t token, uint32_t mixed,
                                       uint32_t kv_blocks, uint32_t queue_requests_max);
void fake_cluster_close(struct fake_cluster *c);
struct fake_machine *fake_machine(struct fake_cluster *c, const char *name);
/* Returns the gateway's record of the machine. */
struct fleet_machine *fake_record(const struct fake_machine *m);

/* Starts a new process, and gives the gateway its address. */
void fake_start(struct fake_machine *m);
void fake_start_all(struct fake_cluster *c); /* Starts all machines and lets them connect. */
void fake_kill(struct fake_machine *m);

/* Delivers the messages that are under way and those that they cause: eight rounds of the gateway
 * and all machines. Outboxes stay as they are. */
void fake_settle(struct fake_cluster *c);
/* Does what fake_settle does, and sends the messages of all outboxes. */
void fake_flush(struct fake_cluster *c);
void fake_send_one(struct fake_machine *m); /* Sends the oldest message of the outbox, if any. */

/* Return what the machine knows of the request on its token or prompt side; NULL = nothing. */
struct fake_request *fake_token_side(struct fake_machine *m, uint64_t id);
struct fake_request *fake_prompt_side(struct fake_machine *m, uint64_t id);
/* Returns the number of requests that the machine knows. */
uint32_t fake_request_count(const struct fake_machine *m);
struct fake_request *
fake_first_request(struct fake_machine *m); /* Returns the first request; NULL = none. */

void fake_link(struct fake_machine *from, const char *to, bool up);
/* Reports the measured speed of a link that is up, with an error of 7 %. */
void fake_link_speed(struct fake_machine *from, const char *to, uint32_t latency_us,
                     uint32_t tokens_per_s);
void fake_stats(struct fake_machine *m, const struct message_stats *stats);
void fake_others(struct fake_machine *m, const struct message_others *others);
/* Returns the name of the connected gateway. */
const char *fake_gateway_name(const struct fake_machine *m);

/* Steps of a machine. They update the machine's record, and put messages into the outbox. */
void fake_reserved(struct fake_machine *m, struct fake_request *r); /* RESERVED. */
void fake_sample(struct fake_machine *m,
                 struct fake_request *r); /* Scores and the first token; maybe the end. */
/* Gives the KV to the token machine (no KV_READY is sent), and PREFILLED. */
void fake_hand_over(struct fake_machine *m, struct fake_request *r);
void fake_decode(struct fake_machine *m,
                 struct fake_request *r); /* The next token; maybe the end. */
/* Stops the decode, because its memory is needed. */
/* Does the machine's next work for the request, as its state says; nothing, if it waits. */
void fake_work(struct fake_machine *m, struct fake_request *r);
void fake_preempt(struct fake_machine *m, struct fake_request *r);
void fake_fail(struct fake_machine *m, struct fake_request *r, enum status status);
/* PROGRESS: it has the KV of the prompt's first `tokens` tokens. */
void fake_progress(struct fake_machine *m, const struct fake_request *r, uint32_t tokens);
/* Sends any token, right or wrong, without changing the machine's record of the request. */
void fake_token_send(struct fake_machine *m, uint64_t id, uint32_t generation, uint32_t index,
                     uint32_t token, uint8_t finish);

/* Return the token that follows tokens[0..count), for FAKE_MODEL or for any model. */
uint32_t fake_next(const uint32_t *tokens, uint32_t count);
uint32_t fake_next_of(uint64_t model, const uint32_t *tokens, uint32_t count);

/* A client that checks its tokens: each index once, in order, with the right token. */
struct fake_client {
    struct fake_cluster *cluster;
    struct gateway_request *request; /* NULL = over. */
    uint32_t tokens[FAKE_TOKENS];    /* Prompt and answer. */
    uint32_t prompt_count;
    uint32_t answered; /* Tokens of the answer so far. */
    uint32_t scored_next;
    uint32_t output_max;
    bool score;
    uint8_t finish;
    bool ended;
    enum gateway_end end;
    char text[256];
    uint32_t retry_after_s;
    uint64_t model; /* Model of the version that serves it. */
    /* Index at which the client releases the request (GATEWAY_STOPPED) from inside the callback; 0
     * = never. */
    uint32_t release_at;
    /* One letter for each event: Queued, Routed, Prefilling, First token, Transferred, and for
     * resumptions Lost, preempted (M) and Handed over; the oldest 63. */
    char events[64];
    uint32_t generation; /* generation of the latest event. */
    uint32_t after_us;   /* after_us of the latest event. */
    int64_t submitted_us;
    uint32_t overs; /* Number of summaries so far: one, before or with the end. */
    struct gateway_summary summary;
};

/* Submits a prompt of `prompt_count` tokens that are all `key`. */
enum status fake_submit(struct fake_cluster *c, struct fake_client *client, uint32_t key,
                        uint32_t prompt_count, uint32_t output_max, bool score);

#endif
