/* registration: a machine's own entry in etcd, under a lease that is kept alive while the process
 * lives: when it dies, the entry goes with the lease. One event loop thread owns it. It tries again
 * by itself, for ever; it never logs. */
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
    const struct member *member; /* copied */
    /* Registered (text: where), or not any more, or not yet: why. Called when that has changed,
     * from registration_turn. */
    void (*state)(void *self, bool registered, const char *text);
    void *self;
};

enum status registration_open(const struct registration_options *options, struct registration **out,
                              struct error *error);
void registration_close(struct registration *r); /* NULL is fine. The entry stays until its lease
                                                    ends, unless it was left */

int registration_fd(const struct registration *r);
int registration_turn(struct registration *r); /* as etcd_turn */

/* Takes the entry back: nothing is registered from now on. */
void registration_leave(struct registration *r);
/* That is done, or etcd has not answered in time. */
bool registration_left(const struct registration *r);

#endif
