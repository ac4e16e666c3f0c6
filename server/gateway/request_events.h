/* gateway_request_events: reports what happens to a request: to its summary, to the history of
 * requests, and to its client. requests.c and schedule.c call it when a request changes, on the
 * gateway's event loop thread. It keeps no state, and changes no states of requests. */
#ifndef SERVER_GATEWAY_REQUEST_EVENTS_H
#define SERVER_GATEWAY_REQUEST_EVENTS_H

#include "server/gateway/history.h"

/* Passes a copy of *event to the summary, the history and the client's `event`. In the copy it sets
 * the fields that every kind of event has: after_us, generation, delivered, prompt_machine and
 * token_machine. */
void request_event_report(struct history *history, struct gateway_request *r, int64_t now_us,
                          const struct gateway_event *event);

/* Reports the end of a request to summary, history and client. Requires that r->state is still the
 * state before the end. text: the reason; "" = none. */
void request_end_report(struct history *history, struct gateway_request *r, enum history_end end,
                        const char *text, int64_t now_us);

#endif
