/* gateway_request_held: computes which machine keeps most of a request's KV (struct gateway_held)
 * when the request's generation is lost. requests.c calls it on the gateway's event loop thread.
 * The part has no state and sends nothing. The result is an estimate, because a machine may have
 * evicted the KV. */
#ifndef SERVER_GATEWAY_REQUEST_HELD_H
#define SERVER_GATEWAY_REQUEST_HELD_H

#include "server/gateway/table.h"

/* Sets r->held to the machine that is up and has KV of the most tokens, among r->held, the machines
 * of the lost generation, and the machine of r->checkpoint. If there is no such machine,
 * r->held.tokens becomes 0. Call it before the machines of the generation are cleared from the
 * request. gone: a machine that is treated as if it were not up; NULL = none. */
void request_held_update(struct gateway_request *r, const struct fleet_machine *gone);

#endif
