/* gateway_request_events: reports what happens to a request: to its summary, to the history of
 * requests, and to its client. It is called when a request changes, on the gateway's event loop
 * thread. No state. */
#ifndef SERVER_GATEWAY_REQUEST_EVENTS_H
#define SERVER_GATEWAY_REQUEST_EVENTS_H

#include "server/gateway/history.h"

/* Passes a copy of *event to the summary, the history and the client's `event`. In the copy it sets
 * the fields that every kind of event has: after_us, generation, delivered, prompt_machine and
 * token_machine. */
void request_event_report(struct history *history, struct gateway_request *r, int64_t now_us,
                          const struct gateway_event *event);

/* Reports the end of a request, whose state is still that before its end. */
void request_end_report(struct history *history, struct gateway_request *r, enum history_end end,
                        const char *text, int64_t now_us);

#endif
