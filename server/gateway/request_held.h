/* gateway_request_held: finds which machine keeps most of a request's KV when a generation is lost
 * (struct gateway_held). requests.c calls it on the gateway's event loop thread. It keeps no state.
 * The result is an estimate: the machine's prefix cache decides which KV is really found. */
#ifndef SERVER_GATEWAY_REQUEST_HELD_H
#define SERVER_GATEWAY_REQUEST_HELD_H

#include "server/gateway/table.h"

/* Updates r->held with what the machines of a lost generation keep. Requires that the request still
 * has its machines. gone: a machine that cannot be reached, even if its connection is still up;
 * NULL = none. */
void request_held_update(struct gateway_request *r, const struct fleet_machine *gone);

#endif
