/* gateway_checkpoint_due: for each token machine, the list of its running answers in the order of
 * the times at which their next copies are due (checkpoints.h). The links of the lists are in the
 * requests (struct gateway_copy_due) and in the machines (fleet_machine.copy_first and copy_last).
 * checkpoints.c makes every call, on the gateway's event loop thread, and decides about the times.
 * The lists start no copies. */
#ifndef SERVER_GATEWAY_CHECKPOINT_DUE_H
#define SERVER_GATEWAY_CHECKPOINT_DUE_H

#include "server/gateway/table.h"

/* Puts the answer into the machine's list at the time at_us, after answers with an equal time;
 * removes the answer from the list that it was in. The search for the place begins at the list's
 * end, so adding the latest time takes the same time in a list of any length. */
void checkpoint_due_set(struct gateway_request *r, struct fleet_machine *machine, int64_t at_us);
/* Removes the answer from its list. Does nothing if the answer is in no list. */
void checkpoint_due_remove(struct gateway_request *r);

#endif
