/* gateway_requests: owns the open requests. It sends RESERVE, PREFILL, CANCEL and PROBE to the
 * requests' machines, which the router (internal.h) names. It delivers the tokens to the clients
 * (each token once, in order), resumes requests after a loss, and ends them. The router calls the
 * functions on the gateway's event loop thread. This part calls no scheduler, chooses no machines
 * and opens no connections. */
#ifndef SERVER_GATEWAY_REQUESTS_H
#define SERVER_GATEWAY_REQUESTS_H

#include "server/gateway/connections.h"
#include "server/gateway/history.h"
#include "server/gateway/table.h"
#include "server/metrics/metrics.h"

struct requests;

/* Functions of the router. The scheduler knows the request `r` during the call. */
struct requests_events {
    /* The first token of the request's generation has arrived. Some of the prompt's KV may not have
     * been transferred yet. Not called for a request without an answer. */
    void (*computed)(void *self, struct gateway_request *r);
    /* The prompt machine has finished with the request. */
    void (*prefilled)(void *self, const struct gateway_request *r);
    /* The scheduler must forget the request, which has ended or will arrive again. */
    void (*unscheduled)(void *self, struct gateway_request *r);
    /* The token machine reports that it has lost its connection with the prompt machine. */
    void (*link_lost)(void *self, struct fleet_machine *prompt_machine,
                      struct fleet_machine *token_machine);
};

/* The pointers are not owned, and must outlive the requests. */
struct requests_options {
    const struct clock *clock;
    struct metrics *metrics;
    struct connections *connections;
    struct history *history; /* NULL = none. */
    uint32_t id_tag;         /* Upper 32 bits of the ids; random, to differ between gateways. */
    struct requests_events events;
    void *self; /* First argument of the events. */
};

/* Opens an empty set of requests. Returns ST_NO_MEMORY on failure. */
enum status requests_open(const struct requests_options *options, struct requests **out);
/* Frees open requests without calling `ended`. NULL is fine. */
void requests_close(struct requests *q);

/* ---- arrivals and ends ---- */

/* Submits a request; see gateway_submit (gateway.h). version_index: index of its version in
 * gateway.versions. */
enum status requests_submit(struct requests *q, const struct gateway_submit *submit,
                            uint32_t version_index, struct gateway_request **out);
/* Releases a request; see gateway_release (gateway.h). */
void requests_release(struct requests *q, struct gateway_request *r, enum gateway_release reason);
/* Frees the requests that have ended, and calls `ended` of their clients. */
void requests_endings_report(struct requests *q);
/* Returns true if requests_arrived_take or requests_endings_report has work to do. */
bool requests_pending(const struct requests *q);

/* ---- the course of a request ---- */

/* Returns the next request, new or resumed, that the caller must give to the scheduler; NULL =
 * none. See request_table_arrived_take. */
struct gateway_request *requests_arrived_take(struct requests *q);
/* Sends RESERVE to the token machine. token_machine NULL = none is needed: sends PREFILL to the
 * prompt machine. prefix_cache: see request_reserve_message. */
void requests_route(struct requests *q, struct gateway_request *r,
                    struct fleet_machine *prompt_machine, struct fleet_machine *token_machine,
                    bool prefix_cache);
/* Begins a pull: the copy of KV to the prompt machine of a resumed request (checkpoints.h, which
 * makes the copy). Sets the request's machines, and moves the request to GATEWAY_REQUEST_PULLING
 * until requests_pull_end. Sends nothing. source: has the KV of the prompt's first `tokens`
 * tokens. */
void requests_pull_begin(struct requests *q, struct gateway_request *r,
                         struct fleet_machine *prompt_machine, struct fleet_machine *token_machine,
                         struct fleet_machine *source, uint32_t tokens);
/* Sends the message of requests_route. Call it when the pull has ended or failed. */
void requests_pull_end(struct requests *q, struct gateway_request *r, bool prefix_cache);
/* Returns the list of the requests in this state. */
const struct request_list *requests_in_state(const struct requests *q,
                                             enum gateway_request_state state);
/* Ends a request that the scheduler has refused (SCHED_REFUSE) with GATEWAY_REFUSED or, if the
 * client has results already, with GATEWAY_FAILED. refusal: for the metrics, if the end is
 * GATEWAY_REFUSED. reason: for the client. */
void requests_refuse(struct requests *q, struct gateway_request *r, enum metrics_refusal refusal,
                     uint32_t retry_after_s, const char *reason);
/* Ends a request that could not be routed in time (SCHED_EXPIRED) with GATEWAY_FAILED. */
void requests_expire(struct requests *q, struct gateway_request *r, const char *reason);
/* Handles the loss of a request's machines (SCHED_LOST): the request is resumed, or ended after too
 * many losses. dead: the machine whose connection has ended; NULL = a link broke, or a machine fell
 * silent. */
void requests_lose(struct requests *q, struct gateway_request *r, const struct fleet_machine *dead);
/* Ends the wait in GATEWAY_REQUEST_DOUBTED for this machine. Call it when the machine's connection
 * has ended, after the calls of requests_lose. */
void requests_machine_down(struct requests *q, const struct fleet_machine *m);
/* Handles a crash (blame.h) of a machine whose connection has ended. The requests `ids`, which the
 * machine computed when it crashed, become suspects or end with GATEWAY_BLAMED. The scheduler has
 * at most one suspect at a time. If it has another suspect, the new suspect is cancelled on its
 * machines and waits in GATEWAY_REQUEST_SUSPECTED. crashes_max: see blame_crash_add. crash_text:
 * for the log and the clients. */
void requests_crash_handle(struct requests *q, const struct fleet_machine *m, const uint64_t *ids,
                           uint32_t id_count, uint32_t crashes_max, const char *crash_text);
/* Begins a hand-over: cancels the request on its machines, and resumes the request. */
void requests_hand_over(struct requests *q, struct gateway_request *r);
/* Handles a message about requests, or the answer to PROBE. Returns false for other messages. */
bool requests_message_handle(struct requests *q, struct fleet_machine *m, struct message *message);
/* Ends the version's requests with GATEWAY_FAILED. reason: for the clients. */
void requests_version_stop(struct requests *q, uint32_t version_index, const char *reason);
/* Ends all requests with GATEWAY_FAILED, also requests that are submitted later. */
void requests_stop(struct requests *q);

/* Returns the open request with this id; NULL = none. */
struct gateway_request *requests_find(struct requests *q, uint64_t id);
/* Returns the open request in a slot (request_slot), which must not be free. */
struct gateway_request *requests_at(struct requests *q, uint32_t slot);
/* See request_table_next. */
struct gateway_request *requests_next(struct requests *q, const struct gateway_request *r);

/* ---- counts ---- */

struct requests_counts {
    uint32_t open;         /* Open requests (table.h). */
    uint32_t prompts_sent; /* Requests for which request_prompt_is_sent is true. */
    /* Number of resumptions so far that were caused by a loss (GATEWAY_RESUME_FAILED), not by a
     * preemption or a hand-over. */
    uint64_t resumed;
};
struct requests_counts requests_counts(const struct requests *q);

struct requests_version {
    uint32_t open;  /* Open requests of the version. */
    uint64_t total; /* Requests of the version so far. */
};
/* Returns the counts of a version. The router resets them when the index gets a new version. */
struct requests_version *requests_version(struct requests *q, uint32_t version_index);

#endif
