/* machine_process: runs a process of `cleave machine` after its command line has been read. The
 * process is a machine, or a stage process of a machine. machine/main.c calls the functions on the
 * main thread, which becomes the event loop thread. The process opens the machine or the stage,
 * listens, registers a machine in etcd (member.h), and reports the address to the parent process
 * (the ready line). Then it runs the event loop until the machine or the stage has stopped or
 * fails. This part parses no options, and starts no stage processes (the head's executor does).
 *
 * SIGTERM and SIGINT stop the machine or the stage. Exception: the first of these signals makes a
 * machine that serves leave (machine_leave), unless the signal comes from the parent process, or
 * the parent process has ended. SIGHUP makes the process read the key file again; SIGUSR2 changes
 * the log level. */
#ifndef MACHINE_PROCESS_H
#define MACHINE_PROCESS_H

#include "common/status.h"
#include "config/config.h"
#include "host/notify.h"
#include "host/turns.h"
#include "machine/keys.h"

#include <sys/types.h>

struct machine_process {
    const struct config *config;
    const struct config_machine *config_entry;
    int stage;                         /* Index of the stage process; -1 = the machine itself. */
    char address[LIMIT_ADDRESS_BYTES]; /* Address to listen on. */
    struct machine_keys *keys;         /* Not owned. */
    /* Descriptor for the ready line, which is closed and set to -1 when the line is written; -1
     * from the start = no parent process waits for the line. The pointer is not owned. */
    int *ready_fd;
    int turns_fd;        /* Shared memory of the turns; -1 = none. */
    struct turns *turns; /* Opened by machine_process_turns_open; NULL = none. */
    int batches_fd;      /* Record of the running batches; -1 = none. */
    /* CHILD_EXIT_CRASHED or CHILD_EXIT_KILLED (host/child.h) if a stage process crashed or was
     * killed while the machine served; 0 = neither. Set by machine_process_run_machine. */
    int exit_status;
    struct notify notify; /* The service manager. */
    int signal_fd;        /* signalfd: SIGHUP, SIGUSR2, and the signals that end the process. */
    /* --log-level, also for stage processes that the machine starts; NULL = as the config says. */
    const char *log_level;
    /* The parent process, which waits for the ready line: a gateway, or the head of a stage
     * process; 0 = none. */
    pid_t parent;
    bool serves;     /* The machine listens. */
    bool is_leaving; /* A signal has asked the machine to end (machine_leave). */
};

/* Sets level and format of the log, as the config and the command line say. */
void machine_process_log_configure(const struct machine_process *process);
/* Opens process->turns if this process takes turns on the cores: it has the shared memory, the
 * config allows turns, and the process computes and is no rank. The caller closes the turns. */
enum status machine_process_turns_open(struct machine_process *process, struct error *error);
/* Runs the machine, and returns when the process must end: ST_OK, or an error that main.c
 * prints. */
enum status machine_process_run_machine(struct machine_process *process, struct error *error);
/* Runs the stage process, and returns as machine_process_run_machine does. But if stage_in_group is
 * true at the end, exits the process instead of returning. */
enum status machine_process_run_stage(struct machine_process *process, struct error *error);

#endif
