/* registration: a machine's own entry in etcd. The entry has a lease: etcd removes the entry if the
 * process does not renew the lease in time, for example because the process is dead. If a machine
 * with the same name is registered at another address, registration waits until that entry is gone.
 * An entry with this machine's address, or with a value that cannot be read, is overwritten.
 * machine/member.c calls the functions, on the machine's event loop thread. Registration repeats
 * failed calls without limit, except the removal of the entry, which is tried once. It does not
 * wait for the network, does not log, and does not read entries under other names (see watch.h). */
#ifndef MEMBERSHIP_REGISTRATION_H
#define MEMBERSHIP_REGISTRATION_H

#include "common/clock.h"
#include "membership/member.h"

#include <stdbool.h>

struct registration;

struct registration_options {
    const struct config *config; /* For etcd_open. Read during registration_open only. */
    const char *prefix;          /* See member_key. Read during registration_open only. */
    uint32_t lease_s;            /* Seconds without a renewal after which etcd removes the entry. */
    const struct clock *clock;   /* Must outlive the registration. */
    const struct member *member; /* Copied. */
    /* registered = true: the entry exists, and `text` names its key and the endpoint. registered =
     * false: `text` says why the entry does not exist, why the entry could not be checked, or why
     * its lease could not be renewed. registration_turn calls the function with the first result,
     * and when `registered` or `text` has changed. */
    void (*state_changed)(void *self, bool registered, const char *text);
    void *self; /* First argument of `state_changed`. */
};

/* Begins to register; registration_turn does the work. Errors: see etcd_open. */
enum status registration_open(const struct registration_options *options, struct registration **out,
                              struct error *error);
/* Frees the registration. An entry that was not removed (registration_remove) stays until its lease
 * ends. NULL is fine. */
void registration_close(struct registration *r);

/* Returns a descriptor for the caller's epoll set; the registration owns it. */
int registration_fd(const struct registration *r);
/* Moves the registration forward. Returns the number of milliseconds after which the caller must
 * call registration_turn again; -1 = no time limit. The caller also calls registration_turn after
 * registration_open, after registration_remove, and when the descriptor is readable. */
int registration_turn(struct registration *r);

/* Begins to remove the entry; the machine is not registered again. */
void registration_remove(struct registration *r);
/* Returns true after registration_remove, when the removal is done, has failed, or was not
 * needed. */
bool registration_removed(const struct registration *r);

#endif
