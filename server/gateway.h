/* gateway: the cluster side of every open request: drives the cluster-level scheduler with real
 * events, keeps the connections to the machines, sends RESERVE, PREFILL and CANCEL, and hands
 * tokens on, in order, once each. It knows token ids only; text and HTTP are api_*.c and http*.c.
 * One loop thread owns it: the same that runs HTTP. */
#ifndef SERVER_GATEWAY_H
#define SERVER_GATEWAY_H

#include "common/clock.h"
#include "common/config.h"
#include "common/status.h"
#include "server/event_log.h"
#include "server/text.h"
#include "transport/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gateway;
struct gateway_request; /* one open request */
struct metrics;         /* server/metrics.h */
struct transport_ops;   /* transport/transport.h */

struct gateway_options {
    const struct config *config; /* kept */
    const struct clock *clock;
    const struct transport_ops *transport; /* transport_ucx; tests give transport_loopback */
    uint64_t metadata_hash;  /* model_file_metadata_hash: the gateway reads no weights */
    uint32_t context_tokens; /* the model's; version 1 of what is served */
    struct metrics *metrics;
    const uint8_t *cluster_key; /* TRANSPORT_KEY_BYTES, copied; NULL: none */
};

enum status gateway_open(const struct gateway_options *options, struct gateway **out,
                         struct error *error);
void gateway_close(
    struct gateway *g); /* NULL is fine; open requests end with GATEWAY_FAILED first */

/* A machine's address has become known (a local one said it is ready) or has to be tried (a remote
 * one): connects, and connects again with back-off whenever the connection is lost. "": it has none
 * for now (its process died): the connection, if there is one, is dropped, and nothing is tried
 * until the next call. */
void gateway_machine_address(struct gateway *g, uint32_t machine, const char *address);

/* Asks a machine to end in good order (those that this gateway started, when it stops). */
void gateway_machine_shutdown(struct gateway *g, uint32_t machine);

/* --- what an operator changes while serving. The config has the new state already. --- */

/* A machine that drains gets no new requests and finishes those that it has. */
void gateway_machine_drain(struct gateway *g, uint32_t machine, bool drain);
bool gateway_machine_draining(const struct gateway *g, uint32_t machine);
/* No request has a part on it. */
bool gateway_machine_idle(const struct gateway *g, uint32_t machine);
/* It belongs to the pool that the config now says. */
void gateway_machine_home(struct gateway *g, uint32_t machine);
/* It is taken out: its connection ends, the others forget it, and its index is free for another
 * one. Call it before the config's entry is emptied. */
void gateway_machine_forget(struct gateway *g, uint32_t machine);
/* The scheduler's limits are those that the config now says. */
void gateway_configure(struct gateway *g);

/* --- versions: a second model beside the one that is served. A request belongs to the version that
 * it began with, and so does a machine as long as it is connected; a version's requests go to its
 * machines only, and what the others have or lack is nothing to it (gateway_versions.c). --- */

#define GATEWAY_VERSIONS 2
#define GATEWAY_CURRENT  0 /* as a version: the one that new requests get */

struct gateway_model {
    uint64_t metadata_hash;
    uint32_t context_tokens; /* the model's, or what the config allows of them */
    struct config_kv kv;     /* of its machines */
};

/* Machines of this model are welcome beside the others from now on; `version` is a new number.
 * ST_NO_RESOURCE: there are GATEWAY_VERSIONS. */
enum status gateway_version_open(struct gateway *g, uint32_t version,
                                 const struct gateway_model *model, struct error *error);
/* A pair of its machines could serve, none of them in another's place. */
bool gateway_version_paired(const struct gateway *g, uint32_t version);
/* New requests get this version. */
void gateway_version_use(struct gateway *g, uint32_t version);
/* Requests of it that are open; that it ever had. */
uint32_t gateway_version_requests(const struct gateway *g, uint32_t version);
uint64_t gateway_version_requests_total(const struct gateway *g, uint32_t version);
/* Its open requests end with GATEWAY_FAILED and this text (in the next turn). */
void gateway_version_stop(struct gateway *g, uint32_t version, const char *text);
/* No request has it (none will). Its machines that are still connected are dropped, and are
 * welcome again when they have another model. Not of the one that new requests get. */
void gateway_version_close(struct gateway *g, uint32_t version);
/* As gateway_health_text. */
void gateway_version_text(const struct gateway *g, uint32_t version, char *out, size_t capacity);
/* The machine is of this version, whatever it says: before its first address. Others are of the
 * version whose model they have. */
void gateway_machine_version_set(struct gateway *g, uint32_t machine, uint32_t version);
/* The version that it is of, or was when it was connected. */
uint32_t gateway_machine_version(const struct gateway *g, uint32_t machine);

/* Where what the scheduler is told and says is written (kept; NULL: nowhere). whole: nothing has
 * happened yet. */
void gateway_events_set(struct gateway *g, struct event_log *log, bool whole);
/* Members of a JSON object: machines, links, requests; without the braces around them. */
void gateway_state_write(const struct gateway *g, struct text *out);

/* Put fd into the loop (level-triggered); call turn when it is readable, once a loop turn after
 * calls of submit and release (they only queue what they send), and at least every timeout_ms
 * (which turn returns; -1: only when readable). */
int gateway_fd(struct gateway *g);
int gateway_turn(struct gateway *g);
/* Something waits for the next turn: do not sleep before it. */
bool gateway_pending(const struct gateway *g);

/* Ends all requests, those that still come as well, with GATEWAY_FAILED (in the next turn). */
void gateway_stop(struct gateway *g);

bool gateway_machine_up(const struct gateway *g, uint32_t machine);
bool gateway_ready(const struct gateway *g); /* both phases can be served now */
/* Said at the end of that line from now on; "": nothing more. */
void gateway_note_set(struct gateway *g, const char *text);
/* The same about a model update. */
void gateway_update_note_set(struct gateway *g, const char *text);
/* One line for /health: which machine is missing and why. */
void gateway_health_text(const struct gateway *g, char *out, size_t capacity);
/* The context that a request may fill: the least of the model's, the config's and the token
 * machines' KV. */
uint32_t gateway_context_tokens(const struct gateway *g, uint32_t version);

enum gateway_end {
    GATEWAY_DONE,    /* an end token or the length limit was reached, or all scores are there */
    GATEWAY_FAILED,  /* could not be completed: text says why; the client gets a 503 or an error
                        event */
    GATEWAY_REFUSED, /* the queue is full (retry_after_s > 0: 429) or it can never fit (0: 400);
                        nothing ran */
};

struct gateway_client {
    /* The next token of the answer (index 0, 1, …), or a scored prompt position (token->scored). */
    void (*token)(void *self, const struct message_token *token);
    /* The last call for this request, whose handle is invalid from then on. Never called from
     * inside gateway_submit, and not after gateway_release. */
    void (*ended)(void *self, enum gateway_end end, const char *text, uint32_t retry_after_s);
    void *self;
};

struct gateway_submit {
    uint32_t version;                 /* whose tokens the prompt is of; GATEWAY_CURRENT */
    const uint32_t *prompt;           /* copied */
    uint32_t prompt_count;            /* ≥ 1 */
    struct message_sampling sampling; /* output_tokens_max 0: score the prompt only */
    bool score_prompt;
    uint8_t kv_path;    /* enum message_kv_path */
    uint32_t key;       /* whose it is: requests of one key share its weight */
    uint64_t key_hash;  /* the same key's, at every gateway; 0: nobody's */
    uint32_t weight;    /* against other keys; 0 counts as 1 */
    int32_t priority;   /* a lower one comes earlier */
    int64_t arrived_us; /* when the client's bytes were there (TTFT counts from it); 0: now */
    struct gateway_client client;
};

/* ST_NO_RESOURCE: LIMIT_CLUSTER_REQUESTS are open. Otherwise *out lives until `ended` or release.
 */
enum status gateway_submit(struct gateway *g, const struct gateway_submit *submit,
                           struct gateway_request **out);

enum gateway_release {
    GATEWAY_STOPPED /* a stop string was found: it is done */,
    GATEWAY_CLIENT_GONE
};

/* The caller needs no more of it: cancels it on its machines at once; `ended` is not called. */
void gateway_release(struct gateway *g, struct gateway_request *request, enum gateway_release why);

#endif
