/* watch: the machines that are registered in etcd, for a gateway: all of them at first, then each
 * change. What was known stays while etcd is silent: that it does not answer says nothing about
 * machines. One event loop thread owns it. It tries again by itself, for ever; it never logs. */
#ifndef MEMBERSHIP_WATCH_H
#define MEMBERSHIP_WATCH_H

#include "common/clock.h"
#include "membership/member.h"

#include <stdbool.h>

struct watch;

struct watch_events { /* called from watch_turn only */
    /* A machine has registered, or anew, perhaps with another address. */
    void (*joined)(void *self, const struct member *member);
    /* Its entry is gone: it left, or its lease has ended. */
    void (*left)(void *self, const char *name);
    /* An entry that cannot be used, said once: key and value are in the text. */
    void (*bad)(void *self, const char *text);
    /* etcd is heard (text: where), or not: why. When that has changed. */
    void (*state)(void *self, bool connected, const char *text);
};

struct watch_options {
    const char *endpoints;
    const char *prefix;
    const struct clock *clock;
    struct watch_events events;
    void *self;
};

enum status watch_open(const struct watch_options *options, struct watch **out,
                       struct error *error);
void watch_close(struct watch *w); /* NULL is fine */

/* All entries are told again, soon: what could not be used before may be of use now. */
void watch_again(struct watch *w);

int watch_fd(const struct watch *w);
int watch_turn(struct watch *w); /* as etcd_turn */

#endif
