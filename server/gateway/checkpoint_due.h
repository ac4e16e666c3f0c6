/* gateway_checkpoint_due: for each token machine, the list of its running answers in the order of
 * the times at which their next copies are due (kv/checkpoint_ms). So a check looks only at answers
 * whose time has come. The links of the lists are in the requests (struct gateway_copy_due) and in
 * the machines (fleet_machine.copy_first and copy_last). checkpoints.c makes every call, on the
 * gateway's event loop thread, and decides about the times. */
#ifndef SERVER_GATEWAY_CHECKPOINT_DUE_H
#define SERVER_GATEWAY_CHECKPOINT_DUE_H

#include "server/gateway/table.h"

/* Puts the answer into the machine's list, or moves it there. Answers with equal times stay in the
 * order of the calls. The search begins at the list's end, so a new latest time costs the same in a
 * list of any length. */
void checkpoint_due_set(struct gateway_request *r, struct fleet_machine *machine, int64_t at_us);
/* Takes the answer out of its list. Does nothing if the answer is in no list. */
void checkpoint_due_remove(struct gateway_request *r);

#endif
