/* gateway_checkpoints: copies the KV of running answers to other machines while the answers grow
 * (config key kv/checkpoint), so that the death of a token machine costs few tokens. Only files of
 * server/gateway/ call it, on the gateway's event loop thread. It chooses no machines (the
 * scheduler does), and keeps no KV.
 *
 *   gateway ── RESERVE (copy) ──► second machine ── RESERVED ──► gateway
 *           ── PREFILL (copied_generation) ──► token machine ── KV, KV_READY ──► second machine
 *                                                            ── PREFILLED ──► gateway
 *
 * A copy covers all full blocks of prompt and answer, or their first part if the second machine
 * lacks many blocks; the next copies then add further parts. Blocks that the second machine has are
 * not sent again. scheduler/checkpoint.h says when a copy is due; checkpoint_due.h finds the
 * answers whose copies are due. On the second machine the blocks are part of the prefix cache: a
 * request that needs memory may take them.
 *
 * A *pull* is a copy for a resumed request, before the request is sent to its machines
 * (GATEWAY_REQUEST_PULLING): a machine that still has KV of the request's prompt sends the KV to
 * the request's prompt machine, which then computes the rest. If the pull fails, the prompt machine
 * computes the whole prompt. */
#ifndef SERVER_GATEWAY_CHECKPOINTS_H
#define SERVER_GATEWAY_CHECKPOINTS_H

#include "server/gateway/connections.h"
#include "server/gateway/table.h"

/* In messages a copy has a generation of its own: this bit, and the number of the copy. */
#define CHECKPOINT_GENERATION (1u << 31)

struct gateway;

/* Starts the copies and pulls that are due. Returns the time of the next call; INT64_MAX = only
 * messages of machines need a call. */
int64_t gateway_checkpoint_turn(struct gateway *g, int64_t now_us);
/* Handles a machine's message about a copy or a pull. Returns false if the message is about
 * neither. */
bool gateway_checkpoint_message(struct gateway *g, struct fleet_machine *m,
                                const struct message *message);
/* Call it when a machine's connection has ended: pulls from the machine and copies to the machine
 * end. */
void gateway_copies_machine_down(struct gateway *g, const struct fleet_machine *m);
/* Cancels the request's copy or pull, if one is under way, and forgets which copy exists and when
 * the next copy is due. Call it when the request ends, loses its machines, or loses the
 * machine from which it pulls. */
void request_checkpoint_end(struct connections *connections, struct gateway_request *r);

#endif
