/* stage: a process that computes some layers of a machine, or a slice of them (a rank, with others
 * that have the rest): their weights, their KV-cache, an engine. It takes batches (JOB) from the
 * machine's own process (the head, pipeline.h) and activations from the stage before, gives its
 * activations to the stage after or what was sampled to the head, and pushes the KV of its layers
 * to whoever decodes. It decides nothing: block ids, batches and their order are the head's.
 *
 * It listens, and works for the head that connects; when that one is gone it forgets all but its
 * weights, and waits for the next. A rank ends instead, for its group is made once. One event loop
 * thread makes every call. */
#ifndef MACHINE_STAGE_H
#define MACHINE_STAGE_H

#include "common/clock.h"
#include "common/config.h"
#include "common/turns.h"
#include "transport/transport.h"

struct stage;

struct stage_options {
    const struct config *config; /* kept */
    const char *machine;         /* an entry of the config, … */
    uint32_t place;              /* … and which of its stages, replicas and ranks counted */
    const struct transport_ops *transport;
    const struct compute_ops *compute; /* NULL: what its device says */
    const struct clock *clock;
    const uint8_t *cluster_key; /* copied; NULL: none */
    struct turns *turns;        /* kept; NULL: none */
    bool child;                 /* of the head: without it, it ends */
};

/* Loads its weights and takes all memory. An error names what is wrong in one line. */
enum status stage_open(const struct stage_options *options, struct stage **out,
                       struct error *error);
void stage_close(struct stage *s); /* NULL is fine */
enum status stage_listen(struct stage *s, const char *address, char bound_out[LIMIT_ADDRESS_BYTES],
                         struct error *error);

int stage_fd(const struct stage *s);
int stage_turn(struct stage *s); /* as machine_turn */
void stage_stop(struct stage *s);
bool stage_stopped(const struct stage *s);
/* It is a rank that has begun to join its group. To close its device, or to wait for its engine,
 * may take for ever, for others of the group may be gone: the process is to end without
 * stage_close. */
bool stage_in_group(const struct stage *s);

#endif
