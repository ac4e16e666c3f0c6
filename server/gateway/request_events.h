/* gateway_request_events: tells the client of a request what happens to it, if the client wants that
 * (struct gateway_event). The functions of requests.c and schedule.c that change the request call
 * it, on the gateway's loop thread. It keeps nothing: the client decides how much it stores. */
#ifndef SERVER_GATEWAY_REQUEST_EVENTS_H
#define SERVER_GATEWAY_REQUEST_EVENTS_H

#include "server/gateway/table.h"

/* Calls the client's `event` with a copy of *event, whose fields that every kind has (after_us to
 * token_machine) are filled here. */
void request_event_report(const struct gateway_request *r, int64_t now_us,
                          const struct gateway_event *event);

#endif
