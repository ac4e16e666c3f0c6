/* launcher: starts the fleet's local machines as child processes, learns their addresses, starts
 * them again when they die, and stops them. It knows processes only; connections belong to the
 * gateway, and remote machines have no process here. The files server/serve*.c make every call, on
 * the gateway's loop thread.
 *
 * A machine that dies before it was ever ready indicates a mistake (a model that does not fit, a
 * port in use). It is not started again, so that its own message stays the last one on the screen.
 * A machine that served is started again with back-off, without limit: the cause (lack of memory, a
 * kill by an operator) may end, and a cluster without machines would need an operator. */
#ifndef SERVER_FLEET_LAUNCHER_H
#define SERVER_FLEET_LAUNCHER_H

#include "common/clock.h"
#include "common/log.h"
#include "common/secret_keys.h"
#include "common/status.h"
#include "config/config.h"
#include "server/fleet/fleet.h"

#include <stdbool.h>
#include <stdint.h>

struct launcher;

struct launcher_events { /* Called from launcher_turn only. */
    void (*ready)(void *self, struct fleet_machine *machine, const char *address);
    /* Its process crashed (child_crashed) while it computed the requests with these ids. `ended` or
     * `given_up` follows. */
    void (*crashed)(void *self, struct fleet_machine *machine, const char *how, const uint64_t *ids,
                    uint32_t count);
    /* Its process has ended: after it was ready (it will be started again), or because
     * launcher_machine_stop asked it to end. */
    void (*ended)(void *self, struct fleet_machine *machine);
    /* It ended before it was ever ready, and will not be started again. */
    void (*given_up)(void *self, struct fleet_machine *machine, const char *why);
};

struct launcher_options {
    /* Not owned; its model is a path that is valid in any directory. Its machines are unused. */
    const struct config *config;
    struct fleet *fleet; /* Not owned; must outlive the launcher. */
    const struct clock *clock;
    const char *program;   /* NULL = this executable. */
    const char *log_level; /* --log-level of the machines; NULL = their default. */
    /* Not owned; given to each machine, as they are when it starts; NULL = none. */
    const struct secret_keys *cluster_keys;
    struct launcher_events events;
    /* Changes a copy of `config` into the config that the machine gets; NULL = it gets the copy as
     * it is. */
    void (*prepare)(void *self, const struct fleet_machine *machine, struct config *config);
    void *self;
};

/* Starts all local machines (there may be none). */
enum status launcher_open(const struct launcher_options *options, struct launcher **out,
                          struct error *error);
/* Kills the machines that still run. NULL is fine. */
void launcher_close(struct launcher *l);

/* Call launcher_turn when the descriptor is readable, and after the time that it returned (ms;
 * -1 = none). */
int launcher_fd(const struct launcher *l);
int launcher_turn(struct launcher *l);

/* Starts a machine that was added to the fleet, in the next launcher_turn. */
void launcher_machine_start(struct launcher *l, struct fleet_machine *machine);
/* Asks a machine to end (SIGTERM), kills it after 5 s, and does not start it again. `ended` is
 * called when it has ended. */
void launcher_machine_stop(struct launcher *l, struct fleet_machine *machine);

/* Gives the cluster keys, which the owner has changed, to the machines that run. */
void launcher_keys_send(struct launcher *l);

/* Asks all machines to end (SIGTERM); no machine is started after that. */
void launcher_stop(struct launcher *l);
/* Kills all machines that still run (SIGKILL); no machine is started after that. */
void launcher_kill(struct launcher *l);
uint32_t launcher_running(const struct launcher *l); /* Running processes. */

#endif
