/* launcher: starts the config's local machines as child processes, learns their addresses, starts
 * them again when they die, and stops them. It knows processes only; connections are the gateway's.
 * One loop thread owns it.
 *
 * A machine that dies before it was ever ready is a mistake of the operator or of ours (a model
 * that does not fit, a port in use): it is not tried again, so that its own message stays the last
 * thing on the screen. One that served is started again with back-off, for ever: whatever kills it
 * (a lack of memory, a colleague) may end, and a cluster that gave its last machine up would need
 * its operator. */
#ifndef SERVER_LAUNCHER_H
#define SERVER_LAUNCHER_H

#include "common/clock.h"
#include "common/config.h"
#include "common/log.h"
#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct launcher;

struct launcher_events { /* called from launcher_turn only */
    void (*ready)(void *self, uint32_t machine, const char *address);
    /* Its process has ended, after it was ready; it will be started again. */
    void (*ended)(void *self, uint32_t machine);
    /* It never was ready, and will not be started again. */
    void (*given_up)(void *self, uint32_t machine, const char *why);
};

struct launcher_options {
    const struct config *config; /* kept; its model is a path that is right in any directory */
    const struct clock *clock;
    const char *program;        /* NULL: this executable */
    const char *log_level;      /* for the machines' --log-level; NULL: theirs */
    const uint8_t *cluster_key; /* TRANSPORT_KEY_BYTES, kept; given to each machine; NULL: none */
    struct launcher_events events;
    /* Makes the machine's config of a copy of ours; NULL: it is as ours. */
    void (*prepare)(void *self, uint32_t machine, struct config *config);
    void *self;
};

/* Starts all local machines (none is fine). */
enum status launcher_open(const struct launcher_options *options, struct launcher **out,
                          struct error *error);
/* Kills what still runs. NULL is fine. */
void launcher_close(struct launcher *l);

/* As with the gateway: call turn when fd is readable, and after the time that turn returned (ms;
 * -1: none). */
int launcher_fd(const struct launcher *l);
int launcher_turn(struct launcher *l);

/* A machine that the config has since it was changed: started in the next turn. */
void launcher_machine_start(struct launcher *l, uint32_t machine);
/* Asks one to end (SIGTERM), kills it if it has not soon, and does not start it again. `ended` is
 * called when it has. */
void launcher_machine_stop(struct launcher *l, uint32_t machine);
bool launcher_machine_running(const struct launcher *l, uint32_t machine);
pid_t launcher_machine_pid(const struct launcher *l, uint32_t machine); /* 0: none */

/* Asks all machines to end (SIGTERM); none is started from now on. */
void launcher_stop(struct launcher *l);
void launcher_kill(struct launcher *l);
uint32_t launcher_running(const struct launcher *l); /* processes */

#endif
