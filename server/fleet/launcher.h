/* launcher: starts the fleet's local machines as child processes, reports their addresses, starts
 * them again when they die, and stops them. It does not connect to machines (server/gateway/ does)
 * and does nothing for remote machines. The files server/serve*.c make every call, on the gateway's
 * event loop thread.
 *
 * A machine that dies before it was ever ready has a permanent fault, such as a model that does not
 * fit or a port in use. It is not started again, so that its own error message stays the last line
 * on the screen. A machine that was ready once is started again each time it dies, because the
 * cause (lack of memory, a kill by an operator) may be temporary. If it was killed from outside and
 * had run for 0.2 s, it is started at once; otherwise after a pause. The pauses double from 0.2 s
 * up to 5 s, and begin again at 0.2 s after a run of 10 s. */
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

/* Functions of the caller. Only launcher_turn calls them. After launcher_stop or launcher_kill none
 * is called. */
struct launcher_events {
    /* The machine listens at this address. */
    void (*ready)(void *self, struct fleet_machine *machine, const char *address);
    /* The machine's process crashed (child_crashed), or the kernel killed it because memory was
     * short, while it computed the requests with these ids; count 0 = it computed none. `ended` or
     * `given_up` follows. */
    void (*crashed)(void *self, struct fleet_machine *machine, const char *how, const uint64_t *ids,
                    uint32_t count);
    /* The machine's process has ended: after it was ready (it will be started again), or because
     * launcher_machine_stop asked it to end. */
    void (*ended)(void *self, struct fleet_machine *machine);
    /* The machine's process ended before it was ever ready, and will not be started again. */
    void (*given_up)(void *self, struct fleet_machine *machine, const char *why);
};

struct launcher_options {
    /* Not owned. Requires that its model is a path that is valid in any directory. The machines
     * come from `fleet`, not from this config. */
    const struct config *config;
    struct fleet *fleet; /* Not owned; must outlive the launcher. */
    const struct clock *clock;
    const char *program;   /* NULL = this executable. */
    const char *log_level; /* --log-level of the machines; NULL = their default. */
    /* Not owned. Each machine gets the keys that are here when it is started; NULL = none. */
    const struct secret_keys *cluster_keys;
    struct launcher_events events;
    /* Changes a copy of `config` into the config that the machine gets; NULL = the copy is not
     * changed. */
    void (*config_prepare)(void *self, const struct fleet_machine *machine, struct config *config);
    void *self; /* First argument of the events and of `config_prepare`. */
};

/* Starts all local machines of the fleet. An error says what failed. */
enum status launcher_open(const struct launcher_options *options, struct launcher **out,
                          struct error *error);
/* Kills the machines that still run. NULL is fine. */
void launcher_close(struct launcher *l);

/* Returns the descriptor that is readable when launcher_turn has work; the launcher owns it. */
int launcher_fd(const struct launcher *l);
/* Reads the ready lines of the machines, and handles processes that have ended. Returns the
 * milliseconds until the next call is due; -1 = none is due. Call it then, and when the descriptor
 * is readable. */
int launcher_turn(struct launcher *l);

/* Starts a machine that was added to the fleet, in the next launcher_turn. */
void launcher_machine_start(struct launcher *l, struct fleet_machine *machine);
/* Asks a machine to end (SIGTERM), kills it after 5 s, and does not start it again. `ended` is
 * called when its process has ended; it is not called if the machine has no process. */
void launcher_machine_stop(struct launcher *l, struct fleet_machine *machine);

/* Sends the cluster keys to the machines that run. Call it when options.cluster_keys has
 * changed. */
void launcher_keys_send(struct launcher *l);

/* Tells the machines that run, and are ready, the level of their log (enum log_level). Machines that
 * start later have that of their config. */
void launcher_log_level_send(struct launcher *l, int level);

/* Asks all machines to end (SIGTERM); no machine is started after that. */
void launcher_stop(struct launcher *l);
/* Kills all machines that still run (SIGKILL); no machine is started after that. */
void launcher_kill(struct launcher *l);
/* Returns the number of processes that run. */
uint32_t launcher_running_count(const struct launcher *l);

#endif
