/* gateway_checkpoints: copies the KV of running answers to other machines while the answers grow
 * (config key kv/checkpoint), so that the death of a token machine costs few tokens.
 * server/gateway/ calls the functions on the gateway's event loop thread. This part chooses no
 * machines (the scheduler does), and keeps no KV.
 *
 *   gateway ── RESERVE (copy) ──► second machine ── RESERVED ──► gateway
 *           ── PREFILL (copied_generation) ──► token machine ── KV, KV_READY ──► second machine
 *                                                            ── PREFILLED ──► gateway
 *
 * A copy covers the full blocks of prompt and answer. If the second machine does not have many of
 * these blocks yet, a copy covers only the first of them, and later copies cover the rest. Blocks
 * that the second machine has are not sent again. scheduler/checkpoint.h says when a copy is due.
 * On the second machine the blocks are part of the prefix cache: a request that needs memory may
 * take them.
 *
 * A *pull* is a copy for a resumed request that waits in GATEWAY_REQUEST_PULLING: a machine that
 * still has KV of the request's prompt sends the KV to the request's prompt machine, which then
 * computes the rest. If the pull fails, the request goes on without this KV. */
#ifndef SERVER_GATEWAY_CHECKPOINTS_H
#define SERVER_GATEWAY_CHECKPOINTS_H

#include "server/gateway/connections.h"
#include "server/gateway/table.h"

/* The generation of a copy in messages is this bit and the number of the copy. */
#define CHECKPOINT_GENERATION (1u << 31)

struct gateway;

/* Starts the copies and pulls that are due. Returns the time of the next call; INT64_MAX = none. */
int64_t gateway_checkpoint_turn(struct gateway *g, int64_t now_us);
/* Handles a machine's message about a copy or a pull. Returns false for other messages. */
bool gateway_checkpoint_message(struct gateway *g, struct fleet_machine *m,
                                const struct message *message);
/* Call it when the connection to `m` has ended: pulls from `m` and copies to `m` end. */
void gateway_copies_machine_down(struct gateway *g, const struct fleet_machine *m);
/* Cancels the request's copy or pull, if one is under way. Forgets which copy exists and when the
 * next copy is due. */
void request_checkpoint_end(struct connections *connections, struct gateway_request *r);

#endif
