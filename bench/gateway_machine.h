/* gateway_machine: a machine that computes nothing: it speaks to a gateway as `cleave machine`
 * does, and every `step` gives each of its requests the next token, in one message, as a batch
 * does. A token's id follows from the first token of the prompt and its place, so a client can tell
 * a wrong one. For benchmarks and tests of gateways; one thread makes every call. */
#ifndef BENCH_GATEWAY_MACHINE_H
#define BENCH_GATEWAY_MACHINE_H

#include "common/limits.h"
#include "common/status.h"

#include <stdint.h>

struct gateway_machine_fake;

enum status gateway_machine_open(const char *name, uint64_t metadata_hash,
                                 struct gateway_machine_fake **out, struct error *error);
void gateway_machine_close(struct gateway_machine_fake *m); /* NULL is fine */

const char *gateway_machine_where(const struct gateway_machine_fake *m); /* it listens there */
int gateway_machine_fd(const struct gateway_machine_fake *m);
void gateway_machine_turn(struct gateway_machine_fake *m);
/* A token for each request. Returns how many. */
uint32_t gateway_machine_step(struct gateway_machine_fake *m);

/* Token `index` of the answer to a prompt that begins with `first`. */
uint32_t gateway_machine_token(uint32_t first, uint32_t index);

#endif
