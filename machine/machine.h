/* machine: one machine of a cluster. It owns the model, the engine thread (or the stage processes),
 * the connections, the KV memory with its bookkeeping, the machine's scheduler, and the two request
 * tables (prompt_pool, token_pool), and connects them: messages go to a request table, batches go
 * from the scheduler through the engine back to the request tables. It computes prompts and decodes
 * as the requests ask; a ROLE message changes only how much memory is kept for prompts.
 *
 * It knows token ids only, no text and no HTTP. It does not choose machines: the gateway does.
 *
 * One event loop thread makes every call: that of process.c, or of a test. An iteration
 * (machine_turn) does everything that can be done without waiting; between iterations only the
 * engine and the transport's helper threads run. Transport, compute and clock can be replaced, so a
 * test can run several machines in one thread. */
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

struct machine;
struct turns;

struct machine_options {
    const struct config *config; /* Not owned; must outlive the machine. */
    const char *name;            /* Name of an entry of the config. */
    const struct transport_ops *transport;
    const struct compute_ops *compute; /* NULL = as the entry's device says. */
    const struct clock *clock;
    const uint8_t *cluster_key; /* [TRANSPORT_KEY_BYTES], copied; NULL = none. */
    struct turns *turns;        /* Not owned; NULL = none. */
    /* For the stage processes that the machine starts: the descriptor of the turns' shared memory
     * (-1 = none), and their --log-level. */
    int turns_fd;
    const char *log_level; /* Not owned; NULL = the default. */
};

/* Reads the model, allocates all memory, and starts the engine or the stage processes. An error
 * names the mistake in one line. */
enum status machine_open(const struct machine_options *options, struct machine **out,
                         struct error *error);
/* NULL is fine. Asserts that every KV block has been returned. */
void machine_close(struct machine *m);

/* Listens for gateways and for machines that write KV. bound_out receives the address. */
enum status machine_listen(struct machine *m, const char *address,
                           char bound_out[LIMIT_ADDRESS_BYTES], struct error *error);

/* Descriptor that becomes readable when machine_turn has something to do. Call machine_turn then,
 * and when the time that it returned is over (milliseconds; -1 = no limit). */
int machine_fd(const struct machine *m);
int machine_turn(struct machine *m);

/* For a machine with stages: machine_ready is true when all stages work (call machine_turn
 * meanwhile), and machine_lost returns an error that names the stage process that is gone, without
 * which the machine cannot continue. A machine without stages is always ready and never lost. */
bool machine_ready(const struct machine *m);
enum status machine_lost(const struct machine *m, struct error *error);

/* Refuses new requests and cancels the present ones. machine_stopped becomes true when nothing is
 * running; transfers in progress are waited for at most 1 s. A SHUTDOWN message does the same. */
void machine_stop(struct machine *m);
bool machine_stopped(const struct machine *m);

/* process.c calls machine_kv_check at the end; member.c registers the two hashes. */

/* Returns false, with an error that says why, if the books of the block pool or of the prefix cache
 * contradict themselves. */
bool machine_kv_check(const struct machine *m, struct error *error);
uint64_t machine_metadata_hash(const struct machine *m);
const struct digest *machine_model_hash(const struct machine *m);

/* The subcommand `cleave machine`; `cleave machine --help` lists its options. Returns the exit
 * status. */
int machine_main(int argc, char **argv);

#endif
