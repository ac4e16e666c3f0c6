/* gateway_machine: a machine that computes nothing, for benchmarks and tests of gateways. It speaks
 * the protocol of `cleave machine`. Each step gives the next token to all its requests in one
 * message, as a batch does. A token's id follows from the prompt's first token and the token's
 * index, so a client can detect a wrong one. One thread makes all calls. */
#ifndef BENCH_GATEWAY_MACHINE_H
#define BENCH_GATEWAY_MACHINE_H

#include "common/limits.h"
#include "common/status.h"

#include <stdint.h>

struct gateway_machine_fake;

enum status gateway_machine_open(const char *name, uint64_t metadata_hash,
                                 struct gateway_machine_fake **out, struct error *error);
void gateway_machine_close(struct gateway_machine_fake *m); /* NULL is fine */

/* Returns the address it listens on. */
const char *gateway_machine_where(const struct gateway_machine_fake *m);
int gateway_machine_fd(const struct gateway_machine_fake *m);
void gateway_machine_turn(struct gateway_machine_fake *m);
/* Gives each request a token. Returns the number of tokens. */
uint32_t gateway_machine_step(struct gateway_machine_fake *m);

/* Returns token `index` of the answer to a prompt that begins with `first`. */
uint32_t gateway_machine_token(uint32_t first, uint32_t index);

#endif
