/* gateway_request_events: reports the events and the end of a request to the request's summary
 * (struct gateway_summary), to the history (history.h; NULL = none), and to the request's client
 * (struct gateway_client). server/gateway/ calls it on the gateway's event loop thread. The part
 * keeps no state, does not change r->state, and does not call `ended`. */
#ifndef SERVER_GATEWAY_REQUEST_EVENTS_H
#define SERVER_GATEWAY_REQUEST_EVENTS_H

#include "server/gateway/history.h"

/* Reports an event. The caller fills in only `kind`, resume_reason, token and transfer; the
 * function reports a copy in which it sets the other fields from `r` and now_us. */
void request_event_report(struct history *history, struct gateway_request *r, int64_t now_us,
                          const struct gateway_event *event);

/* Reports the end of a request: completes the summary, ends the request in the history, and calls
 * `summarise`. Call it before r->state changes. reason: a text for operators; "" = none. */
void request_end_report(struct history *history, struct gateway_request *r, enum history_end end,
                        const char *reason, int64_t now_us);

#endif
