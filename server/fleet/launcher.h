/* launcher: starts the fleet's local machines as child processes, reports their addresses, starts
 * them again when they have ended, and stops them. It owns these processes. server/serve*.c call it
 * on the gateway's event loop thread. The part does not connect to machines (server/gateway/ does),
 * and does nothing for remote machines.
 *
 * A machine that ends before it was ever ready is not started again. A machine that was ready once
 * is started again after a pause. The pauses double from 0.2 s up to 5 s, and begin again at 0.2 s
 * after a run of 10 s. There is no pause after a run of at least 0.2 s if the process ended with
 * status 0, or the process or one of its stage processes was killed from outside. A kill by the
 * kernel for lack of memory is not a kill from outside. */
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

/* Functions of the caller. launcher_turn calls them, until launcher_stop or launcher_kill. */
struct launcher_events {
    /* The machine is ready: it listens at this address. */
    void (*ready)(void *self, struct fleet_machine *machine, const char *address);
    /* The machine's process crashed (child_crashed, host/child.h), or the kernel killed the process
     * or one of its stage processes because memory was short. crash_text: for the log, such as
     * "signal 11, Segmentation fault". ids: the requests that the machine was computing; id_count
     * 0 = none. `ended` or `given_up` is called next. */
    void (*crashed)(void *self, struct fleet_machine *machine, const char *crash_text,
                    const uint64_t *ids, uint32_t id_count);
    /* The machine's process has ended, or none could be started. Unless launcher_machine_stop was
     * called, another process is started. reason: for operators, such as "its process has ended:
     * signal 9, Killed". */
    void (*ended)(void *self, struct fleet_machine *machine, const char *reason);
    /* The machine's first process ended before it was ready. No other process is started. */
    void (*given_up)(void *self, struct fleet_machine *machine, const char *reason);
};

struct launcher_options {
    /* Not owned; must outlive the launcher. `model` must be absolute; `machines` is not used. */
    const struct config *config;
    struct fleet *fleet; /* Not owned; must outlive the launcher. */
    const struct clock *clock;
    const char *program; /* NULL = this executable. */
    /* Where the kernel counts processes that it has killed because memory was short
     * (child_memory_kills, host/child.h). NULL = "/proc" and "/sys/fs/cgroup". */
    const char *proc;
    const char *cgroups;
    /* --log-level of machines that are started; NULL = the level of their config. */
    const char *log_level;
    /* Keys for machines that start. Not owned; must outlive the launcher. NULL = none. */
    const struct secret_keys *cluster_keys;
    struct launcher_events events;
    /* Changes *config, a copy that the machine gets as its config. NULL = no change. */
    void (*config_prepare)(void *self, const struct fleet_machine *machine, struct config *config);
    void *self; /* First argument of the events and of `config_prepare`. */
};

/* Starts all local machines of the fleet. On failure returns a negative status, *error says what
 * failed, and no machine is left running. */
enum status launcher_open(const struct launcher_options *options, struct launcher **out,
                          struct error *error);
/* Kills the machines that still run. NULL is fine. */
void launcher_close(struct launcher *l);

/* Returns the launcher's descriptor, readable when a machine has written a line or ended. */
int launcher_fd(const struct launcher *l);
/* Reads the ready lines of the machines, handles processes that have ended, and starts and kills
 * processes that are due. Call it when the descriptor is readable, and after the returned number of
 * milliseconds; -1 = only when the descriptor is readable. */
int launcher_turn(struct launcher *l);

/* Lets the next launcher_turn start a machine that was added to the fleet. */
void launcher_machine_start(struct launcher *l, struct fleet_machine *machine);
/* Asks a machine to end (SIGTERM), and does not start it again. If the machine has a process,
 * launcher_turn kills the process unless it ends within 5 s, and calls `ended` at its end. */
void launcher_machine_stop(struct launcher *l, struct fleet_machine *machine);

/* Sends the changed options.cluster_keys to the machines that run. */
void launcher_keys_send(struct launcher *l);

/* Sends a new log level (enum log_level) to the machines that are ready. A process that becomes
 * ready later keeps the level with which it was started. */
void launcher_log_level_send(struct launcher *l, int level);

/* Asks all machines to end (SIGTERM); no machine is started after that. */
void launcher_stop(struct launcher *l);
/* Kills all machines that still run (SIGKILL); no machine is started after that. */
void launcher_kill(struct launcher *l);
/* Returns the number of processes that have not ended. */
uint32_t launcher_running_count(const struct launcher *l);

#endif
