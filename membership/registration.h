/* registration: a machine's own entry in etcd. The entry has a lease that is kept alive while the
 * process lives; when the process dies, the entry disappears with the lease. If another machine has
 * the name, it waits until that machine's entry is gone. machine/member.c calls it on the
 * machine's event loop thread. It repeats failed calls without limit, except the removal of the
 * entry, which it tries once. It never waits inside a call, never logs, and does not read the
 * entries of other machines (see watch.h). */
#ifndef MEMBERSHIP_REGISTRATION_H
#define MEMBERSHIP_REGISTRATION_H

#include "common/clock.h"
#include "membership/member.h"

#include <stdbool.h>

struct registration;

struct registration_options {
    const char *endpoints;
    const char *prefix;
    uint32_t lease_s;
    const struct clock *clock;
    const struct member *member; /* Copied. */
    /* True: the entry exists, and `text` says where. False: `text` says why it does not exist.
     * Called by registration_turn when `registered` or `text` has changed. */
    void (*state)(void *self, bool registered, const char *text);
    void *self;
};

enum status registration_open(const struct registration_options *options, struct registration **out,
                              struct error *error);
/* NULL is fine. Unless registration_leave has finished, the entry stays until its lease ends. */
void registration_close(struct registration *r);

int registration_fd(const struct registration *r);
/* Call it after registration_open and registration_leave, when the descriptor is readable, and
 * after the number of milliseconds that it returned; -1 = no time limit. */
int registration_turn(struct registration *r);

/* Begins to remove the entry; nothing is registered after that. */
void registration_leave(struct registration *r);
/* True if the removal is done, or etcd has not answered in time. */
bool registration_left(const struct registration *r);

#endif
