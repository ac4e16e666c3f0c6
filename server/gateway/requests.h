/* gateway_requests: the open requests and their life cycle: arrival, RESERVE and PREFILL on the
 * machines that the router names, tokens to the client in order and each once, resumption after a
 * loss, and the end. The router takes the arrived requests and gives them to the scheduler; it is
 * informed of their progress by the calls given at open (requests_events). This part calls no
 * scheduler, chooses no machines and opens no connections. The router makes every call, on the
 * gateway's loop thread.
 *
 * A client's `ended` is never called from inside these functions except requests_endings_report. */
#ifndef SERVER_GATEWAY_REQUESTS_H
#define SERVER_GATEWAY_REQUESTS_H

#include "server/gateway/connections.h"
#include "server/gateway/table.h"
#include "server/metrics/metrics.h"

struct requests;

struct requests_events { /* All concern a request that the scheduler knows. */
    /* Its prompt is computed; some of its KV may not have moved yet. */
    void (*computed)(void *self, const struct gateway_request *r);
    /* Its prompt machine has finished with the request. */
    void (*prefilled)(void *self, const struct gateway_request *r);
    /* It no longer needs its machines. */
    void (*left)(void *self, const struct gateway_request *r);
};

struct requests_options {
    const struct clock *clock; /* Not owned; also metrics and connections. */
    struct metrics *metrics;
    struct connections *connections;
    uint32_t id_tag; /* Upper 32 bits of all ids; no other gateway has the same. */
    struct requests_events events;
    void *self;
};

enum status requests_open(const struct requests_options *options, struct requests **out);
void requests_close(struct requests *q); /* NULL is fine. Frees open requests without a call. */

/* ---- calls for clients ---- */

/* See gateway_submit (gateway.h). The router knows the version by this index. */
enum status requests_submit(struct requests *q, const struct gateway_submit *submit,
                            uint32_t version_index, struct gateway_request **out);
void requests_release(struct requests *q, struct gateway_request *r, enum gateway_release why);
/* Calls `ended` of the requests that have ended. */
void requests_endings_report(struct requests *q);
/* True when arrived or ended requests wait for the iteration. */
bool requests_pending(const struct requests *q);

/* ---- calls by the router ---- */

/* Takes the request that arrived first, new or resumed; NULL = none. The scheduler then knows it.
 */
struct gateway_request *requests_arrived_take(struct requests *q);
/* Sends RESERVE, or PREFILL if no token machine is needed (NULL). prefix: RESERVE carries the
 * prompt, of which the token machine may have a prefix. */
void requests_route(struct requests *q, struct gateway_request *r,
                    struct fleet_machine *prompt_machine, struct fleet_machine *token_machine,
                    bool prefix);
/* The scheduler has refused the request, or could not route it in time. The request ends. */
void requests_refuse(struct requests *q, struct gateway_request *r, uint32_t retry_after_s,
                     const char *text);
void requests_expire(struct requests *q, struct gateway_request *r, const char *text);
/* The scheduler has lost the request's machines; it resumes, or ends after too many losses. dead: the
 * machine whose process has ended; NULL = a link broke, or a machine fell silent. */
void requests_lose(struct requests *q, struct gateway_request *r, const struct fleet_machine *dead);
/* A machine crashed (blame.h) while it computed these requests. Ids that belong to no open request
 * are ignored. `how`: text for the log and the clients. crashes_max: see blame_crashed. */
void requests_crashed(struct requests *q, const uint64_t *ids, uint32_t count, uint32_t crashes_max,
                      const char *how);
/* Moves the request to another token machine; its present token machine computes the rest of the
 * prompt from the KV that it has. */
void requests_hand_over(struct requests *q, struct gateway_request *r);
/* Handles a machine's message about requests. Returns false for other kinds of messages. */
bool requests_message(struct requests *q, struct fleet_machine *m, struct message *message);
/* Ends the version's open requests with GATEWAY_FAILED and this text. */
void requests_version_stop(struct requests *q, uint32_t version_index, const char *text);
/* Ends all requests with GATEWAY_FAILED, also those that arrive later. */
void requests_stop(struct requests *q);

/* Returns the open request in a slot (its number in the schedulers). */
struct gateway_request *requests_at(struct requests *q, uint32_t slot);
/* Returns the open request after `r`, or the first one; NULL = no further request. */
struct gateway_request *requests_next(struct requests *q, const struct gateway_request *r);

/* ---- counts ---- */

struct requests_counts {
    uint32_t open;
    uint32_t begun;   /* Open requests for which PREFILL was sent. */
    uint64_t resumed; /* Resumptions ever. */
};
struct requests_counts requests_counts(const struct requests *q);

struct requests_version {
    uint32_t open;
    uint64_t total; /* All requests that the version ever had. */
};
/* Returns the counts of a version, which the router may reset for a new version. */
struct requests_version *requests_version(struct requests *q, uint32_t version_index);

#endif
