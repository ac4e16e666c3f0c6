/* gateway_request_summary: records what became of a request and how long its phases took (struct
 * gateway_summary). request_events.c calls it on the gateway's event loop thread when something
 * happens to the request. It keeps no state of its own: the figures are in the request. It writes
 * no logs and no metrics. */
#ifndef SERVER_GATEWAY_REQUEST_SUMMARY_H
#define SERVER_GATEWAY_REQUEST_SUMMARY_H

#include "server/gateway/table.h"

/* Updates r->summary with an event. Requires that a FIRST_TOKEN event is reported before its token
 * counts in r->delivered. */
void request_summary_event(struct gateway_request *r, const struct gateway_event *event,
                           int64_t now_us);

/* Completes r->summary. Requires that r->state is still the state before the end. */
void request_summary_end(struct gateway_request *r, int64_t now_us);

#endif
