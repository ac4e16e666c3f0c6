/* stage: a stage process. It computes some layers of a machine, or a slice of these layers (a
 * rank). It owns the weights and the KV cache of the layers, and an engine. It receives batches
 * from the machine's head (pipeline*.c) and activations from the stage before. It passes its
 * activations to the next stage, or the sampled tokens to the head, and writes the KV of its layers
 * to other machines. It does not decide what a batch contains and which blocks the batch uses: the
 * head does.
 *
 * The process listens, and works for the head that connects to it. When this connection ends, the
 * stage forgets the head's requests and waits for the next head. A child process of the head stops
 * instead, and so does a rank in a group. machine/process.c calls the functions on one thread,
 * which becomes the event loop thread. */
#ifndef MACHINE_EXECUTOR_STAGE_H
#define MACHINE_EXECUTOR_STAGE_H

#include "common/clock.h"
#include "config/config.h"
#include "host/turns.h"
#include "transport/transport.h"

struct stage;

struct stage_options {
    const struct config *config; /* Not owned; must outlive the stage. */
    const char *machine_name;    /* Name of an entry of the config. */
    uint32_t process_index;      /* Index in stage_plan.processes. */
    const struct transport_ops *transport;
    const struct compute_ops *compute; /* Backend; NULL = selected by the device in the config. */
    const struct clock *clock;
    const struct secret_keys *cluster_keys; /* Copied; NULL = none. */
    struct turns *turns;                    /* Turns on the host's cores. Not owned; NULL = none. */
    bool is_child; /* The head has started this process: the stage stops when the head is gone. */
};

/* Loads the weights, and allocates the KV memory and the memory of batches. The error says what is
 * wrong. */
enum status stage_open(const struct stage_options *options, struct stage **out,
                       struct error *error);
void stage_close(struct stage *s); /* NULL is fine. Waits for the batch that is computed. */
/* Listens at an address for the head, the stage before, and machines that write KV. bound_out
 * receives the address in use, also if the port in `address` is 0. */
enum status stage_listen(struct stage *s, const char *address, char bound_out[LIMIT_ADDRESS_BYTES],
                         struct error *error);

int stage_fd(const struct stage *s); /* See machine_fd. */
int stage_turn(struct stage *s);     /* See machine_turn. */
/* Replaces the cluster keys; see transport_keys_set. */
enum status stage_keys_set(struct stage *s, const struct secret_keys *keys, struct error *error);
/* Makes stage_stopped return true. The engine and the connections stay until stage_close. */
void stage_stop(struct stage *s);
/* Returns true if the process must end: after stage_stop, or because the stage cannot go on. */
bool stage_stopped(const struct stage *s);
/* Returns true for a rank that has made or received its group, also after a failure. The process
 * must then end without stage_close, which may wait forever for ranks that are gone. */
bool stage_in_group(const struct stage *s);

#endif
