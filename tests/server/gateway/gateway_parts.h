/* gateway_parts: the config, the fleet, the metrics and the gateway of a test, over the loopback
 * transport. fake_cluster.c and fuzz_gateway.c call the functions, on the test's only thread. The
 * part has no machines. */
#ifndef TESTS_SERVER_GATEWAY_GATEWAY_PARTS_H
#define TESTS_SERVER_GATEWAY_GATEWAY_PARTS_H

#include "server/gateway/gateway.h"
#include "server/metrics/metrics.h"

#define FAKE_BLOCK_TOKENS 16
#define FAKE_MODEL        42 /* model_hash of the first version. */
/* Metadata hash; two models each share one. */
#define FAKE_METADATA(model) ((model) & ~1ull)

/* Makes a config with local machines: p0, p1, ... of the prompt pool, t0, ... of the token pool,
 * and m0, ... of the mixed pool. Requires that *out is zeros. */
void gateway_parts_config(uint32_t prompt, uint32_t token, uint32_t mixed,
                          uint32_t queue_requests_max, struct config *out);
/* Opens fleet, metrics and gateway, which the caller closes in the opposite order. Config and clock
 * must live as long. Aborts on failure. */
void gateway_parts_open(struct config *config, struct clock *clock, struct fleet **fleet_out,
                        struct metrics **metrics_out, struct gateway **gateway_out);

#endif
