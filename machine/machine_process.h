/* machine_process: a process of `cleave machine`, once its command line is read: a machine, or a
 * stage of one; the loop around its turns until it is to end. */
#ifndef MACHINE_MACHINE_PROCESS_H
#define MACHINE_MACHINE_PROCESS_H

#include "common/config.h"
#include "common/status.h"
#include "common/turns.h"

struct machine_process {
    const struct config *config;
    const struct config_machine *entry;
    int stage;                         /* -1: the machine itself */
    char address[LIMIT_ADDRESS_BYTES]; /* where to listen */
    const uint8_t *key;                /* the cluster's; NULL: none */
    int ready_fd;                      /* where to say so; -1: nowhere, nobody has started us */
    int turns_fd;                      /* -1: none */
    struct turns *turns;               /* by machine_process_turns; NULL: none */
    int signals;                       /* signalfd of those that end us */
    const char *log_level;             /* for stages that a machine starts; NULL: theirs */
};

/* Opens process->turns, if this process takes turns. */
enum status machine_process_turns(struct machine_process *process, struct error *error);
/* Returns when the process is to end; an error is its last line. */
enum status machine_process_run_machine(const struct machine_process *process, struct error *error);
enum status machine_process_run_stage(const struct machine_process *process, struct error *error);

#endif
