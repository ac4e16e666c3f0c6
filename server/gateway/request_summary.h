/* gateway_request_summary: computes struct gateway_summary: what became of a request and how long
 * its parts took. request_events.c calls it on the gateway's event loop thread. The part keeps its
 * figures in the request, and writes no logs and no metrics. */
#ifndef SERVER_GATEWAY_REQUEST_SUMMARY_H
#define SERVER_GATEWAY_REQUEST_SUMMARY_H

#include "server/gateway/table.h"

/* Updates r->summary with an event. Call it for GATEWAY_EVENT_FIRST_TOKEN before r->first_us is
 * set. */
void request_summary_event(struct gateway_request *r, const struct gateway_event *event,
                           int64_t now_us);

/* Completes r->summary when the request ends. Call it before r->state changes. */
void request_summary_end(struct gateway_request *r, int64_t now_us);

#endif
