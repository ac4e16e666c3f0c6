/* watch: the machines that are registered in etcd, for a gateway: first all of them, then each
 * change. While etcd does not answer, the known machines stay, because etcd's silence says nothing
 * about them. One event loop thread owns it. It repeats failed calls without limit, and never
 * logs. */
#ifndef MEMBERSHIP_WATCH_H
#define MEMBERSHIP_WATCH_H

#include "common/clock.h"
#include "membership/member.h"

#include <stdbool.h>

struct watch;

struct watch_events { /* Called by watch_turn only. */
    /* A machine has registered, or registered again, perhaps with another address. */
    void (*joined)(void *self, const struct member *member);
    /* The machine's entry is gone: it left, or its lease has ended. */
    void (*left)(void *self, const char *name);
    /* An entry cannot be used. Reported once per change, with key and value in the text. */
    void (*bad)(void *self, const char *text);
    /* connected: etcd answers, and `text` says where. Else `text` says why not. Called when this
     * has changed. */
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
void watch_close(struct watch *w); /* NULL is fine. */

/* Soon reports all entries again, because a machine that did not fit before may fit now. */
void watch_again(struct watch *w);

int watch_fd(const struct watch *w);
int watch_turn(struct watch *w); /* Like etcd_turn. */

#endif
