/* cluster: machines and a scripted gateway for the tests of machine/, over the loopback transport
 * or another one. The cluster owns all of them. They run in the test's one thread, when the test
 * calls cluster_turn or a function that calls it. The gateway does what the test's calls say, keeps
 * every token, and checks every message. It does not schedule: the test says which machines a
 * request uses. The header also declares a reference: forward pass and sampler in a plain loop, one
 * request at a time, without batches or shared blocks. Every failure ends the test. */
#ifndef TESTS_MACHINE_CLUSTER_H
#define TESTS_MACHINE_CLUSTER_H

#include "machine/executor/stage.h"
#include "machine/machine.h"

#include <stdbool.h>
#include <stdint.h>

#define CLUSTER_MACHINES_MAX 4
#define CLUSTER_REQUESTS_MAX 2048
#define CLUSTER_STAGES_MAX   4 /* Most stage processes of one machine. */
#define CLUSTER_NONE         UINT32_MAX

/* Generation of copies of KV, for which tests send RESERVE themselves; RESERVED is ignored. */
#define CLUSTER_COPY_GENERATION (1u << 31 | 1)

struct cluster_options {
    const struct transport_ops *transport;
    const char *model;                        /* File path. */
    uint32_t machine_count;                   /* The machines are named m0, m1, …. */
    uint32_t kv_tokens[CLUSTER_MACHINES_MAX]; /* KV memory of each machine, in tokens. */
    enum pool pools[CLUSTER_MACHINES_MAX];
    uint32_t prompt_batch_tokens;
    uint32_t threads; /* Threads of each machine's engine. */
    const char *tls;  /* UCX_TLS of the machines; NULL = UCX chooses. */
    /* Stages of each machine, as in a config, each with a "host": "127.0.0.1:PORT", because they
     * are in this thread too. Only over the loopback transport. NULL = none. */
    const char *stages[CLUSTER_MACHINES_MAX];
    /* Backend of machine m0, which has no stages; NULL = as CLEAVE_TEST_DEVICES says. */
    const struct compute_ops *compute;
};

/* A request, with everything that the machines have reported about it. */
struct cluster_request {
    struct message_request attempt; /* Id and generation. */
    uint32_t *prompt;
    uint32_t prompt_count;
    struct sampling sampling;
    uint32_t prompt_machine, token_machine; /* CLUSTER_NONE = no token machine. */
    uint8_t transfer_mode;
    bool score; /* True: the prompt's tokens are scored. */
    bool reserved, prefill_sent, prefilled, cancelled, failed, done;
    uint32_t held_count;     /* Blocks of the prompt that the token machine already had. */
    uint64_t reserved_order; /* Order of the RESERVED messages in the cluster, from 1. */
    char failed_text[256];
    struct message_prefilled figures; /* The PREFILLED message. */
    uint32_t token_count;
    struct message_token *tokens; /* [output_tokens_max]. */
    uint32_t score_count;
    struct message_token *scores; /* [prompt_count]; index i belongs to prompt token i + 1. */
};

/* The prefixes that a machine has reported. */
struct cluster_reported_prefixes {
    uint32_t whole_reports; /* Number of complete reports. */
    uint32_t removed_count; /* Number of prefixes that were reported as evicted. */
    uint32_t count;
    uint64_t hashes[1024];
};

struct cluster {
    struct cluster_options options;
    struct config config;
    struct clock clock;
    int64_t skipped_us; /* Time that the test has skipped. */
    /* The clock stands still at this time; 0 = it follows the system's clock. */
    int64_t clock_stopped_us;
    struct machine *machines[CLUSTER_MACHINES_MAX];
    struct stage *stages[CLUSTER_MACHINES_MAX * CLUSTER_STAGES_MAX];
    uint32_t stage_count;
    char addresses[CLUSTER_MACHINES_MAX][LIMIT_ADDRESS_BYTES];
    struct transport *gateway;
    struct transport_peer *peers[CLUSTER_MACHINES_MAX]; /* NULL = down. */
    bool up[CLUSTER_MACHINES_MAX]; /* True: the machine is connected to the gateway. */
    /* True: the machine has reported its link to the other machine as up. */
    bool links[CLUSTER_MACHINES_MAX][CLUSTER_MACHINES_MAX];
    char link_text[256];
    struct message_stats stats[CLUSTER_MACHINES_MAX];
    struct cluster_reported_prefixes reported_prefixes[CLUSTER_MACHINES_MAX];
    struct message_about about[CLUSTER_MACHINES_MAX];
    struct message_others others[CLUSTER_MACHINES_MAX];
    uint64_t stats_count;
    int64_t message_us; /* When the gateway got its last message. */
    struct message_buffer buffer;
    uint64_t reserved_count;
    uint32_t request_count;
    struct cluster_request requests[CLUSTER_REQUESTS_MAX];
};

/* Opens a cluster and waits until all machines are up and linked to each other. With "01" in the
 * environment's CLEAVE_TEST_DEVICES the second machine (or its stages) computes on a fake device,
 * which also holds its KV (tests/device). */
struct cluster *cluster_open(const struct cluster_options *options);
/* Checks that every block of every machine is free, and closes everything. */
void cluster_close(struct cluster *c);

struct cluster_request *cluster_submit(struct cluster *c, const uint32_t *prompt,
                                       uint32_t prompt_count, const struct sampling *sampling,
                                       uint32_t prompt_machine, uint32_t token_machine,
                                       uint8_t transfer_mode, bool score);
/* Sends CANCEL to the request's machines, unless the request is over. */
void cluster_cancel(struct cluster *c, struct cluster_request *request);
/* Connects again to a machine that has disconnected the gateway. */
void cluster_reconnect(struct cluster *c, uint32_t machine);
/* Sends any message to a machine. */
void cluster_send(struct cluster *c, uint32_t machine, const struct message *message);

/* Runs one iteration of the gateway and of all machines; waits up to wait_ms if there is nothing to
 * do. */
void cluster_turn(struct cluster *c, int wait_ms);
bool cluster_request_over(const struct cluster_request *request);
/* Runs iterations until every request is over. Fails after 30 s without a message. */
void cluster_finish(struct cluster *c);
/* Runs iterations until all blocks of all machines are free; lets up to seconds_max seconds of the
 * machines' clock pass. */
void cluster_wait_free(struct cluster *c, uint32_t seconds_max);
/* Sets the machines' clock forward by `us` microseconds. */
void cluster_clock_skip(struct cluster *c, int64_t us);
/* stopped = true: stops the machines' clock, so that time passes only by cluster_clock_skip, at any
 * speed of the computer. false: the clock runs again. */
void cluster_clock_stop(struct cluster *c, bool stopped);

/* Adds a PREFIXES message to the prefixes that a machine has reported. */
void cluster_prefixes_take(struct cluster_reported_prefixes *reported,
                           const struct message_prefixes *prefixes);
/* Returns true if the reported prefixes are those that the machine holds. */
bool cluster_prefixes_match(const struct cluster *c, uint32_t machine,
                            const struct cluster_reported_prefixes *reported);

/* Returns the stages of machine 0 or 1 for the synthetic model, as in a config. which = "stages":
 * the two machines are split differently; "replicas": one of them has two replicas of its first
 * stage. Returns NULL for any other word, and for other machines. */
const char *cluster_stages(const char *which, uint32_t machine);
/* Returns the file of a synthetic model, which is made once and removed at exit. */
const char *cluster_synthetic_model(void);
/* Returns greedy sampling without end tokens and logprobs. */
struct sampling cluster_sampling(uint32_t output_tokens);

struct reference;
/* Opens the model file for the reference. */
struct reference *reference_open(const char *model);
void reference_close(struct reference *r);
uint32_t reference_vocab(const struct reference *r);
/* Computes the answer to a prompt (tokens, ends, logprobs) and its scores, as messages contain
 * them. The caller frees both. */
uint32_t reference_answer(struct reference *r, const struct cluster_request *request,
                          struct message_token **tokens_out, struct message_token **scores_out);
/* Fails the test unless the request's tokens and scores equal those of the reference, bit for bit.
 */
void reference_check(struct reference *r, const struct cluster_request *request);

#endif
