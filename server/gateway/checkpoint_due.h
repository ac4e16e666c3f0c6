/* gateway_checkpoint_due: for each token machine, a list of running answers whose KV will be copied
 * (checkpoints.h), ordered by the time of the next copy (gateway_copy_due.at_us). The list of a
 * machine is fleet_machine.copy_first to copy_last. checkpoints.c calls the functions on the
 * gateway's event loop thread. The lists decide no times and start no copies. */
#ifndef SERVER_GATEWAY_CHECKPOINT_DUE_H
#define SERVER_GATEWAY_CHECKPOINT_DUE_H

#include "server/gateway/table.h"

/* Moves the answer to the machine's list with the time at_us, after answers with an equal time. */
void checkpoint_due_set(struct gateway_request *r, struct fleet_machine *machine, int64_t at_us);
/* Removes the answer from its list. Does nothing if the answer is in no list. */
void checkpoint_due_remove(struct gateway_request *r);

#endif
