/* gateway_request_metrics: adds the times, counts of tokens and SLO results of requests to the
 * metrics (server/metrics/). requests.c calls it on the gateway's event loop thread. The part has
 * no state, and does not count refusals, losses and transfers. */
#ifndef SERVER_GATEWAY_REQUEST_METRICS_H
#define SERVER_GATEWAY_REQUEST_METRICS_H

#include "server/gateway/table.h"
#include "server/metrics/metrics.h"

/* Reports a request that has ended. Not for refused requests. */
void request_ended_report(struct metrics *metrics, const struct gateway_request *r, int64_t now_us,
                          enum metrics_reason reason);
/* Reports the next token of an answer. Call it before r->delivered, r->first_us and r->last_us
 * change. */
void request_token_report(struct metrics *metrics, const struct gateway_request *r,
                          const struct message_token *token, int64_t now_us);

#endif
