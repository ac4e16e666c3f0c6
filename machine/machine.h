/* machine: one machine of a cluster: prompt, token or mixed, as the requests that come say; a ROLE
 * message changes only which share of the memory is kept for prompts. It owns
 * the model, the engine thread, the connections, the KV memory and its bookkeeping, the
 * machine-level scheduler and both pools, and joins them: messages go to a pool, batches from the
 * scheduler through the engine back to the pools.
 *
 * One event loop thread makes every call. A turn does all that can be done without waiting; nothing
 * runs between turns but the engine and the transport's helpers. Transport, compute and clock are
 * seams, so that a test runs several machines in one thread. */
#ifndef MACHINE_MACHINE_H
#define MACHINE_MACHINE_H

#include "common/clock.h"
#include "common/config.h"
#include "common/status.h"
#include "compute/compute.h"
#include "kvcache/kv_pool.h"
#include "transport/message.h"
#include "transport/transport.h"

#include <stdbool.h>

struct machine;
struct turns;

struct machine_options {
    const struct config *config; /* kept */
    const char *name;            /* an entry of the config */
    const struct transport_ops *transport;
    const struct compute_ops *compute; /* NULL: what its entry's device says */
    const struct clock *clock;
    const uint8_t *cluster_key; /* TRANSPORT_KEY_BYTES, copied; NULL: none */
    struct turns *turns;        /* kept; NULL: none */
    /* For the stages that it starts: the memory of the turns (-1: none), and their --log-level. */
    int turns_fd;
    const char *log_level; /* kept; NULL: theirs */
};

/* Reads the model, takes all memory and starts the engine. An error names what is wrong in one
 * line. */
enum status machine_open(const struct machine_options *options, struct machine **out,
                         struct error *error);
/* NULL is fine. Asserts that every KV block came back. */
void machine_close(struct machine *m);

/* Accepts gateways and prompt machines. bound_out says where. */
enum status machine_listen(struct machine *m, const char *address,
                           char bound_out[LIMIT_ADDRESS_BYTES], struct error *error);

/* Readable when there is something to do: call turn then, and when the time that the last turn
 * returned is over (milliseconds; -1: none). */
int machine_fd(const struct machine *m);
int machine_turn(struct machine *m);

/* A machine with stages: serves when they are ready (call turn meanwhile), and cannot go on when
 * one is gone: an error says which. Others are ready, and never lost. */
bool machine_ready(const struct machine *m);
enum status machine_lost(const struct machine *m, struct error *error);

/* Takes no new requests and cancels those that are there; machine_stopped says when nothing runs
 * any more. A SHUTDOWN message does the same. */
void machine_stop(struct machine *m);
bool machine_stopped(const struct machine *m);

/* For tests and the log. */
void machine_stats(struct machine *m, struct message_stats *out);
const struct kv_pool *machine_kv(const struct machine *m);
bool machine_kv_check(const struct machine *m, struct error *error); /* of pool and prefix cache */
struct transport *machine_transport(struct machine *m);
uint64_t machine_metadata_hash(const struct machine *m);
uint64_t machine_model_hash(const struct machine *m);

/* `cleave machine CONFIG NAME [--listen ADDR:PORT] [--ready-fd N] [--config-fd N] [--set
 * KEY=VALUE]…` */
int machine_main(int argc, char **argv);

#endif
