/* gateway_machine: a fake machine for bench-gateway. The machine computes nothing. It speaks the
 * protocol of `cleave machine` over loopback: it sends STATS once when a gateway connects, handles
 * RESERVE, PREFILL and CANCEL, and sends tokens. It answers PREFILL at once with the request's
 * first token. gateway_machine_step sends the next token of every request, all in one message, as a
 * real machine does after a batch. gateway_machine_token computes the tokens, so that a client
 * (gateway_streams.c) can detect a wrong token. bench-gateway makes all calls on its only thread.
 * The machine has no model and no KV blocks, reads no clock, and connects to no other machine. */
#ifndef BENCH_GATEWAY_MACHINE_H
#define BENCH_GATEWAY_MACHINE_H

#include "common/limits.h"
#include "common/status.h"

#include <stdint.h>

struct gateway_machine_fake;

/* Opens a machine that listens on a free port of 127.0.0.1. metadata_hash must be the
 * model_file_metadata_hash of the gateway's model, because the gateway refuses other machines.
 * Returns ST_NO_MEMORY, or an error of the transport. */
enum status gateway_machine_open(const char *name, uint64_t metadata_hash,
                                 struct gateway_machine_fake **out, struct error *error);
void gateway_machine_close(struct gateway_machine_fake *m); /* NULL is fine */

/* Returns the address on which the machine listens, for the gateway's config. The text is valid
 * until the machine is closed. */
const char *gateway_machine_address(const struct gateway_machine_fake *m);
/* Returns the file descriptor that is readable when gateway_machine_turn has work. The machine owns
 * it. */
int gateway_machine_fd(const struct gateway_machine_fake *m);
/* Handles the messages that have arrived. Must be called when the file descriptor is readable, and
 * several times a second for the heartbeats. */
void gateway_machine_turn(struct gateway_machine_fake *m);
/* Sends the next token of each request that was prefilled and has not ended. Returns the number of
 * tokens; 0 = no request, or no gateway is connected. */
uint32_t gateway_machine_step(struct gateway_machine_fake *m);

/* Returns token `index` of the answer to a prompt whose first token is first_token. */
uint32_t gateway_machine_token(uint32_t first_token, uint32_t index);

#endif
