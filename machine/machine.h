/* machine: one machine of a cluster. It owns the model, the engine thread (or the stage processes),
 * the connections, the KV memory with its bookkeeping, the machine's scheduler, and the two request
 * tables (prompt_pool, token_pool). It connects these parts: requests go from messages to a request
 * table, batches go from the scheduler through the engine back to the request tables. A machine
 * computes prompts and decodes in any pool; its current pool (message ROLE) changes how much memory
 * it keeps for prompts.
 *
 * Prompts and answers are token ids, not text, and a machine knows no HTTP. It does not choose
 * machines: the gateway does.
 *
 * machine/process.c and member.c (or a test) call the functions for a machine on one thread, which
 * becomes the event loop thread. Transport, compute and clock can be replaced, so a test can run
 * several machines in one thread. */
#ifndef MACHINE_MACHINE_H
#define MACHINE_MACHINE_H

#include "common/clock.h"
#include "common/digest.h"
#include "common/status.h"
#include "compute/compute.h"
#include "config/config.h"
#include "kvcache/kv_pool.h"
#include "transport/message.h"
#include "transport/transport.h"

#include <stdbool.h>

struct batch_record;
struct machine;
struct turns;

struct machine_options {
    const struct config *config; /* Not owned; must outlive the machine. */
    const char *name;            /* Name of an entry of the config. */
    const struct transport_ops *transport;
    const struct compute_ops *compute; /* Backend; NULL = as the entry's device says. */
    const struct clock *clock;
    const struct secret_keys *cluster_keys; /* Copied; NULL = none. */
    struct turns *turns;                    /* Turns on the host's cores. Not owned; NULL = none. */
    /* For the stage processes that the machine starts: the descriptor of the turns' shared memory;
     * -1 = none. */
    int turns_fd;
    struct batch_record *batch_record; /* Record of the running batches. Not owned; NULL = none. */
    const char *log_level; /* For the stage processes. Not owned; NULL = as the config says. */
};

/* Reads the model, allocates the KV memory and the tables, and starts the engine or the stage
 * processes. The text of an error says in one line what is wrong. */
enum status machine_open(const struct machine_options *options, struct machine **out,
                         struct error *error);
/* Ends all work without results, and frees everything. NULL is fine. Asserts that every KV block
 * has been returned. */
void machine_close(struct machine *m);

/* Listens for gateways and for machines that write KV. bound_out receives the address in use. */
enum status machine_listen(struct machine *m, const char *address,
                           char bound_out[LIMIT_ADDRESS_BYTES], struct error *error);

/* Descriptor that becomes readable when machine_turn has something to do. */
int machine_fd(const struct machine *m);
/* Runs one iteration of the event loop, without waiting. Returns the milliseconds after which the
 * caller runs the next iteration even if the descriptor is not readable; 0 = at once, -1 = no
 * limit. */
int machine_turn(struct machine *m);

/* Returns true when all stage processes are ready, and for a machine without stages. The caller
 * calls machine_turn until then. */
bool machine_ready(const struct machine *m);
/* Returns an error when a machine with stages cannot continue, for example because a stage process
 * is gone; executor_ops.failure (executor/executor.h) says what each status means. Returns ST_OK
 * for a machine without stages: if its device fails, the process ends at once. */
enum status machine_failure(const struct machine *m, struct error *error);

/* Replaces the cluster keys of the machine and of the stage processes that it has started; see
 * transport_keys_set. */
enum status machine_keys_set(struct machine *m, const struct secret_keys *keys,
                             struct error *error);

/* Sends the level of the log (enum log_level) to the stage processes that the machine has
 * started. */
void machine_log_level_send(struct machine *m, int level);

/* Asks each connected gateway, and each gateway that connects later, to hand the machine's answers
 * over and to send no more requests (LEAVING). When no gateway has a request here and no prompt is
 * left, or after server/drain_ms, the machine stops as by machine_stop. No effect if the machine is
 * leaving or stopping already. */
void machine_leave(struct machine *m);
/* Cancels the requests on the machine, and refuses new requests. */
void machine_stop(struct machine *m);
/* Returns true when the machine is stopping, no batch is in flight, and no KV of a prompt is still
 * being sent; 1 s after machine_stop, KV that is still being sent does not count. */
bool machine_stopped(const struct machine *m);

/* Checks the bookkeeping of the block pool and of the prefix cache. If the bookkeeping contradicts
 * itself, returns false and stores the contradiction in *error. */
bool machine_kv_check(const struct machine *m, struct error *error);
/* Returns the hash of the metadata of the model with its adapters (model_file_metadata_hash). */
uint64_t machine_metadata_hash(const struct machine *m);
/* Returns the digest of the model with its adapters (model_file_digest). */
const struct digest *machine_model_hash(const struct machine *m);

/* The subcommand `cleave machine`, which the program's main.c calls; `cleave machine --help` lists
 * its options. Returns the exit status. */
int machine_main(int argc, char **argv);

#endif
