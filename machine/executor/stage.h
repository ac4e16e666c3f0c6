/* stage: a stage process. It computes some layers of a machine, or a slice of these layers (a
 * rank). It owns the weights and the KV cache of the layers, and an engine. It receives batches
 * from the machine's head (pipeline*.c) and activations from the stage before. It passes its
 * activations to the next stage, or the sampled tokens to the head, and writes the KV of its layers
 * to token machines. The head, not the stage process, decides what a batch contains and which
 * blocks the batch uses.
 *
 * The process listens, and works for the head that connects to it. When that connection ends, the
 * stage forgets everything except its weights and waits for the next head. Two kinds of stage stop
 * instead: a child process of the head, and a rank that is in a group. machine/process.c (or a
 * test) makes every call, on one thread, which becomes the event loop thread. */
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
    /* Index in the list of the machine's stage processes (stage_plan.h): one entry for each rank of
     * each replica of each stage. */
    uint32_t process_index;
    const struct transport_ops *transport;
    const struct compute_ops *compute; /* Backend; NULL = that of the device in the config. */
    const struct clock *clock;
    const struct secret_keys *cluster_keys; /* Copied; NULL = none. */
    struct turns *turns;                    /* Turns on the host's cores. Not owned; NULL = none. */
    bool is_child; /* The head has started this process: the stage stops when the head is gone. */
};

/* Loads the weights, and allocates the KV memory and the memory of batches. The text of an error
 * says in one line what is wrong. */
enum status stage_open(const struct stage_options *options, struct stage **out,
                       struct error *error);
void stage_close(struct stage *s); /* NULL is fine. Waits for the batch that is computed. */
/* Listens for the head, for the stage before, and for machines that write KV. bound_out receives
 * the address in use. */
enum status stage_listen(struct stage *s, const char *address, char bound_out[LIMIT_ADDRESS_BYTES],
                         struct error *error);

int stage_fd(const struct stage *s); /* See machine_fd. */
int stage_turn(struct stage *s);     /* See machine_turn. */
/* Replaces the cluster keys; see transport_keys_set. */
enum status stage_keys_set(struct stage *s, const struct secret_keys *keys, struct error *error);
/* Makes stage_stopped return true. The engine and the connections stay until stage_close. */
void stage_stop(struct stage *s);
/* Returns true if the process must end: after stage_stop, when the head of a child or of a rank in
 * a group is gone, or when the stage had no memory to record a machine that writes KV. */
bool stage_stopped(const struct stage *s);
/* Returns true for a rank that has made its group or begun to join it, also if that has failed.
 * Closing its device or waiting for its engine may then never end, because other ranks may be gone:
 * the process must end without stage_close. */
bool stage_in_group(const struct stage *s);

#endif
