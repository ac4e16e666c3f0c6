/* gateway_request_events: reports the events and the end of a request to three places: the
 * request's summary (struct gateway_summary), the history (history.h; NULL = none), and the
 * request's client (struct gateway_client). server/gateway/ makes every call on the gateway's event
 * loop thread. The part keeps no state, does not change r->state, and does not call `ended`. */
#ifndef SERVER_GATEWAY_REQUEST_EVENTS_H
#define SERVER_GATEWAY_REQUEST_EVENTS_H

#include "server/gateway/history.h"

/* Reports an event. The caller sets `kind` and the fields that only this kind has; the function
 * fills the other fields from the request. */
void request_event_report(struct history *history, struct gateway_request *r, int64_t now_us,
                          const struct gateway_event *event);

/* Reports the end of a request: completes the summary, ends the request in the history, and calls
 * `summarise` of the client.
 * Requires that r->state is still the state before the end. reason: a text for operators; "" =
 * none. */
void request_end_report(struct history *history, struct gateway_request *r, enum history_end end,
                        const char *reason, int64_t now_us);

#endif
