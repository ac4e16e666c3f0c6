/* gateway_request_summary: what became of a request and how long its phases took (struct
 * gateway_summary). request_events.c calls it on the gateway's event loop thread when something
 * happens to the request. No state of its own: the figures are in the request. Logs and histograms
 * are written elsewhere. */
#ifndef SERVER_GATEWAY_REQUEST_SUMMARY_H
#define SERVER_GATEWAY_REQUEST_SUMMARY_H

#include "server/gateway/table.h"

/* Updates r->summary with an event. Requires that a FIRST_TOKEN event precedes its token. */
void request_summary_event(struct gateway_request *r, const struct gateway_event *event,
                           int64_t now_us);

/* Completes r->summary. Requires that r->state is still that before its end. */
void request_summary_end(struct gateway_request *r, int64_t now_us);

#endif
