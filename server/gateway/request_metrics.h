/* gateway_request_metrics: adds the times and sizes of requests to the metrics. requests.c calls it
 * on the gateway's event loop thread. It keeps no state. Single events, such as a refusal or a
 * loss, are counted where they happen. */
#ifndef SERVER_GATEWAY_REQUEST_METRICS_H
#define SERVER_GATEWAY_REQUEST_METRICS_H

#include "server/gateway/table.h"
#include "server/metrics/metrics.h"

/* Reports a request that has ended; not called for refused requests. */
void request_ended_report(struct metrics *metrics, const struct gateway_request *r, int64_t now_us,
                          enum metrics_reason reason);
/* Reports the next token of an answer, before it is delivered. */
void request_token_report(struct metrics *metrics, const struct gateway_request *r,
                          const struct message_token *token, int64_t now_us);

#endif
