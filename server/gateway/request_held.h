/* gateway_request_held: finds the machine that keeps most of a request's KV (struct gateway_held)
 * when the request's generation is lost. requests.c calls it on the gateway's event loop thread.
 * The part has no state and sends nothing. The result is an estimate, because a machine may have
 * evicted the KV. */
#ifndef SERVER_GATEWAY_REQUEST_HELD_H
#define SERVER_GATEWAY_REQUEST_HELD_H

#include "server/gateway/table.h"

/* Sets r->held to the machine that has KV of the most tokens, among r->held, the request's prompt
 * machine and token machine, and the machine of r->checkpoint; all zeros = none of them. Machines
 * that are not up do not count. gone: a machine that does not count either; NULL = none. */
void request_held_update(struct gateway_request *r, const struct fleet_machine *gone);

#endif
