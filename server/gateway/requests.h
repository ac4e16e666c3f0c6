/* gateway_requests: the open requests and their life cycle: arrival, RESERVE and PREFILL on the
 * machines that the router names, tokens to the client (each once, in order), resumption after a
 * loss, and the end. The router (internal.h) takes arrived requests out and gives them to the
 * scheduler. This part reports the progress of requests to the router through the functions given
 * at open (requests_events). It calls no scheduler, chooses no machines and opens no connections.
 * The router makes every call, on the gateway's event loop thread.
 *
 * Only requests_endings_report calls the function `ended` of clients. */
#ifndef SERVER_GATEWAY_REQUESTS_H
#define SERVER_GATEWAY_REQUESTS_H

#include "server/gateway/connections.h"
#include "server/gateway/history.h"
#include "server/gateway/table.h"
#include "server/metrics/metrics.h"

struct requests;

/* Functions of the router. Those with a request `r` are called only while the scheduler knows the
 * request. */
struct requests_events {
    /* The prompt is computed; some of its KV may not have been transferred yet. */
    void (*computed)(void *self, struct gateway_request *r);
    /* The prompt machine has finished with the request. */
    void (*prefilled)(void *self, const struct gateway_request *r);
    /* The request no longer needs its machines. */
    void (*machines_released)(void *self, struct gateway_request *r);
    /* A token machine reports that the connection of a prompt machine has ended. The prompt machine
     * may have died, or may connect again. */
    void (*link_lost)(void *self, struct fleet_machine *prompt_machine,
                      struct fleet_machine *token_machine);
};

/* All pointers are not owned and must outlive the requests. */
struct requests_options {
    const struct clock *clock;
    struct metrics *metrics;
    struct connections *connections;
    struct history *history; /* NULL = none. */
    uint32_t id_tag;         /* Upper 32 bits of all ids; different for each gateway. */
    struct requests_events events;
    void *self; /* First argument of the events. */
};

/* Opens an empty set of requests. Returns ST_NO_MEMORY on failure. */
enum status requests_open(const struct requests_options *options, struct requests **out);
/* Frees open requests without calling `ended`. NULL is fine. */
void requests_close(struct requests *q);

/* ---- calls for clients ---- */

/* Submits a request; see gateway_submit (gateway.h). version_index: index of its version in
 * gateway.versions. */
enum status requests_submit(struct requests *q, const struct gateway_submit *submit,
                            uint32_t version_index, struct gateway_request **out);
/* Releases a request; see gateway_release (gateway.h). */
void requests_release(struct requests *q, struct gateway_request *r, enum gateway_release reason);
/* Calls `ended` for the requests that have ended, and frees them. */
void requests_endings_report(struct requests *q);
/* Returns true if arrived or ended requests wait for the next iteration. */
bool requests_pending(const struct requests *q);

/* ---- calls by the router ---- */

/* Returns the request that arrived first, new or resumed; NULL = none. The caller must give the
 * request to the scheduler. */
struct gateway_request *requests_arrived_take(struct requests *q);
/* Sends RESERVE to the token machine; or PREFILL to the prompt machine if token_machine is NULL (no
 * token machine is needed). prefix: see request_reserve_message. */
void requests_route(struct requests *q, struct gateway_request *r,
                    struct fleet_machine *prompt_machine, struct fleet_machine *token_machine,
                    bool prefix);
/* As requests_route, but sends nothing to the two machines yet: the request is in
 * GATEWAY_REQUEST_PULLING until requests_pull_end. source: the machine that has the KV of the
 * prompt's first `tokens` tokens. */
void requests_pull_begin(struct requests *q, struct gateway_request *r,
                         struct fleet_machine *prompt_machine, struct fleet_machine *token_machine,
                         struct fleet_machine *source, uint32_t tokens);
/* Call it when the prompt machine has got the KV, or will not get the KV: sends the messages of
 * requests_route. */
void requests_pull_end(struct requests *q, struct gateway_request *r, bool prefix);
/* Returns the list of the open requests in this state. */
const struct request_list *requests_in_state(const struct requests *q,
                                             enum gateway_request_state state);
/* Ends a request that the scheduler has refused, or that has waited too long for KV memory. The end
 * is GATEWAY_REFUSED, or GATEWAY_FAILED if the client has results already. refusal: for the
 * metrics; text: for the client. */
void requests_refuse(struct requests *q, struct gateway_request *r, enum metrics_refusal refusal,
                     uint32_t retry_after_s, const char *text);
/* Ends a request that could not be routed in time (scheduler/wait_ms) with GATEWAY_FAILED. */
void requests_expire(struct requests *q, struct gateway_request *r, const char *text);
/* Handles the loss of a request's machines (SCHED_LOST): the request is resumed, or ended after too
 * many losses. dead: the machine whose process has ended; NULL = a link broke, or a machine fell
 * silent. */
void requests_lose(struct requests *q, struct gateway_request *r, const struct fleet_machine *dead);
/* Call it when a machine's connection has ended and its requests are lost (requests_lose): requests
 * that waited for this knowledge (GATEWAY_REQUEST_DOUBTED) arrive. */
void requests_machine_down(struct requests *q, const struct fleet_machine *m);
/* Handles a crash (blame.h) of a machine that has recorded the ids of the requests which it
 * computed. Ids of requests that were not sent to the machine in their present or previous
 * generation are ignored. Requires that the machine's connection has ended. crash_text: for the log
 * and the clients. crashes_max: see blame_crash_add. */
void requests_crash_handle(struct requests *q, const struct fleet_machine *m, const uint64_t *ids,
                           uint32_t id_count, uint32_t crashes_max, const char *crash_text);
/* Moves the request to another token machine; its present token machine computes the rest of the
 * prompt from the KV that it has. */
void requests_hand_over(struct requests *q, struct gateway_request *r);
/* Handles a machine's message about requests. Returns false for a message of another kind. */
bool requests_message_handle(struct requests *q, struct fleet_machine *m, struct message *message);
/* Ends the version's open requests with GATEWAY_FAILED and this text. */
void requests_version_stop(struct requests *q, uint32_t version_index, const char *text);
/* Ends all requests with GATEWAY_FAILED, also those that arrive later. */
void requests_stop(struct requests *q);

/* Returns the open request with this id; NULL = none. */
struct gateway_request *requests_find(struct requests *q, uint64_t id);
/* Returns the open request in a slot (its number in the schedulers). */
struct gateway_request *requests_at(struct requests *q, uint32_t slot);
/* Returns the open request after `r`, or the first one; NULL = no further request. */
struct gateway_request *requests_next(struct requests *q, const struct gateway_request *r);

/* ---- counts ---- */

struct requests_counts {
    uint32_t open;
    uint32_t prompts_sent; /* Open requests for which PREFILL of the present generation was sent. */
    uint64_t resumed;      /* Generations ever lost, without preemptions and hand-overs. */
};
struct requests_counts requests_counts(const struct requests *q);

struct requests_version {
    uint32_t open;
    uint64_t total; /* All requests that the version ever had. */
};
/* Returns the counts of a version, which the router may reset for a new version. */
struct requests_version *requests_version(struct requests *q, uint32_t version_index);

#endif
