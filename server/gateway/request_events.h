/* gateway_request_events: reports the events of a request (struct gateway_event) to its client, if
 * the client wants them. requests.c and schedule.c call it when they change a request, on the
 * gateway's event loop thread. No state. It stores no events (the client may). */
#ifndef SERVER_GATEWAY_REQUEST_EVENTS_H
#define SERVER_GATEWAY_REQUEST_EVENTS_H

#include "server/gateway/table.h"

/* Calls the client's `event` with a copy of *event. In the copy it sets the fields that every kind
 * of event has: after_us, generation, delivered, prompt_machine and token_machine. */
void request_event_report(const struct gateway_request *r, int64_t now_us,
                          const struct gateway_event *event);

#endif
