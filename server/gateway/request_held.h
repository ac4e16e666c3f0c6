/* gateway_request_held: which machine keeps most of a request's KV when a generation is lost
 * (struct gateway_held). It runs on the gateway's event loop thread. No state. The machines' prefix
 * caches decide what is really found. */
#ifndef SERVER_GATEWAY_REQUEST_HELD_H
#define SERVER_GATEWAY_REQUEST_HELD_H

#include "server/gateway/table.h"

/* Updates r->held with what the machines of a lost generation keep. Requires that the request still
 * has its machines. gone: this machine cannot be reached, which the gateway may not have noticed;
 * NULL = none. */
void request_held_update(struct gateway_request *r, const struct fleet_machine *gone);

#endif
