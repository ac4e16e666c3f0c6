/* gateway_machine: a machine that computes nothing, for bench-gateway. It speaks the protocol of
 * `cleave machine` over loopback: it handles RESERVE, PREFILL and CANCEL, and sends tokens. Each
 * step gives the next token to all its requests in one message, as a batch does. A token's id
 * follows from the prompt's first token and the token's index, so a client (gateway_streams.c) can
 * detect a wrong token. bench-gateway (gateway.c) makes all calls on its one thread. The machine
 * has no model and no KV blocks, keeps no time, and connects to no other machine. */
#ifndef BENCH_GATEWAY_MACHINE_H
#define BENCH_GATEWAY_MACHINE_H

#include "common/limits.h"
#include "common/status.h"

#include <stdint.h>

struct gateway_machine_fake;

/* Opens a machine that listens on a free port of 127.0.0.1. metadata_hash: that of the gateway's
 * model (model_file_metadata_hash), or the gateway refuses the machine. Errors: ST_NO_MEMORY, and
 * those of the transport. */
enum status gateway_machine_open(const char *name, uint64_t metadata_hash,
                                 struct gateway_machine_fake **out, struct error *error);
void gateway_machine_close(struct gateway_machine_fake *m); /* NULL is fine */

/* Returns the address on which the machine listens, for the gateway's config. The text is valid
 * until the machine is closed. */
const char *gateway_machine_where(const struct gateway_machine_fake *m);
/* Returns the file descriptor that is readable when gateway_machine_turn has work. The machine owns
 * it. */
int gateway_machine_fd(const struct gateway_machine_fake *m);
/* Handles the messages that have arrived. Call it when the file descriptor is readable, and some
 * times per second for the heartbeats. */
void gateway_machine_turn(struct gateway_machine_fake *m);
/* Gives the next token to each request that has had its prefill and is not ended. Returns the
 * number of tokens; 0 = no request, or no gateway is connected. */
uint32_t gateway_machine_step(struct gateway_machine_fake *m);

/* Returns token `index` of the answer to a prompt that begins with `first`. */
uint32_t gateway_machine_token(uint32_t first, uint32_t index);

#endif
