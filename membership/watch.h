/* watch: reports to a gateway the machines that are registered in etcd: first all machines, then
 * changes. A watch owns a list of the entries in etcd. While etcd does not answer, no machine is
 * reported as gone. The gateway calls the functions, on its event loop thread. Watch repeats failed
 * calls without limit, and ignores entries beyond the first 4096. It does not wait for the network,
 * does not log, writes nothing to etcd (see registration.h), and does not connect to the
 * machines. */
#ifndef MEMBERSHIP_WATCH_H
#define MEMBERSHIP_WATCH_H

#include "common/clock.h"
#include "membership/member.h"

#include <stdbool.h>

struct watch;

/* Functions of the caller, which watch_turn calls. They must not call a function of this header.
 * Their pointer arguments are valid during the call. */
struct watch_events {
    /* A machine has registered, or its entry was written again. Also called for each usable entry
     * after watch_report_again. */
    void (*joined)(void *self, const struct member *member);
    /* The machine's entry is gone or can no longer be used. */
    void (*left)(void *self, const char *name);
    /* An entry cannot be used. Called when the entry was written, and after
     * watch_report_again. `text` contains key, value and the reason, each perhaps truncated. */
    void (*unusable)(void *self, const char *text);
    /* connected = true: etcd answers, and `text` names the endpoint. connected = false: `text` says
     * why etcd does not answer. Called first when the first call to etcd has ended, and then when
     * `connected` has changed, or the reason has changed while `connected` is false. */
    void (*connection_changed)(void *self, bool connected, const char *text);
};

struct watch_options {
    const struct config *config; /* For etcd_open. Read during watch_open only. */
    const char *prefix;          /* Beginning of the keys, see member_key. Copied. */
    const struct clock *clock;   /* Must outlive the watch. */
    struct watch_events events;
    void *self; /* First argument of all events. */
};

/* Begins to watch; watch_turn does the work. Errors: see etcd_open. */
enum status watch_open(const struct watch_options *options, struct watch **out,
                       struct error *error);
void watch_close(struct watch *w); /* NULL is fine. */

/* Makes a later watch_turn report all entries again, because a machine that the gateway refused
 * before may fit now. */
void watch_report_again(struct watch *w);

/* Returns a descriptor for the caller's epoll set; the watch owns it. */
int watch_fd(const struct watch *w);
/* Does the work that is due, and calls the events. Returns the number of milliseconds after which
 * the caller must call watch_turn again; -1 = no time limit. The caller also calls watch_turn after
 * watch_open, after watch_report_again, and when the descriptor is readable. */
int watch_turn(struct watch *w);

#endif
