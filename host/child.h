/* child: starts `cleave machine` processes of the same release, for `cleave serve` (its local
 * machines, server/fleet/launcher.c) and for a machine (its local stage processes,
 * machine/executor/pipeline.c). Both call it on their event loop thread; there is no shared state.
 * The child gets its config in a memory file and the cluster's keys in a pipe, in which new keys
 * can follow. On another pipe it
 * reports the address where it listens ("ready ADDRESS"). The child itself asks the kernel for
 * SIGTERM when its parent ends (common/parent.h). This part does not watch, restart or stop the
 * process: its caller does, with the pidfd. */
#ifndef HOST_CHILD_H
#define HOST_CHILD_H

#include "common/secret_keys.h"
#include "common/status.h"
#include "config/config.h"

#include <sys/types.h>

#define CHILD_ARGUMENTS_MAX 4

/* What to start. Everything is read during child_start only. */
struct child_spec {
    const char *program; /* Path of cleave; NULL = this executable. */
    const char *machine; /* Name of the machine in the config. */
    const struct config *config;
    const struct secret_keys *keys;             /* The cluster's keys; NULL = none. */
    int turns_fd;                               /* Descriptor of turns_create; -1 = none. */
    const char *log_level;                      /* NULL = the child's default. */
    const char *arguments[CHILD_ARGUMENTS_MAX]; /* Further arguments, ended by NULL. */
};

/* A process that was started. The caller owns pid and the descriptors, closes the descriptors and
 * waits for the process. */
struct child_process {
    pid_t pid;
    int pidfd;
    int ready_fd; /* Non-blocking reading end of the pipe on which the child reports its address. */
    int keys_fd;  /* For child_keys_send; -1 = the child has no keys. */
};

/* Starts the process. Errors name the machine and what failed. */
enum status child_start(const struct child_spec *spec, struct child_process *out,
                        struct error *error);

/* Gives new cluster keys to the child, which takes them in its event loop. Does not wait. */
enum status child_keys_send(int keys_fd, const struct secret_keys *keys);
/* For the child: waits for its first keys (`wait`), or takes those that have arrived since.
 * ST_IN_PROGRESS = no keys have arrived, ST_UNREACHABLE = the parent has closed the pipe. */
enum status child_keys_receive(int keys_fd, bool wait, struct secret_keys *keys_out);

/* The part of the child's line "ready ADDRESS\n" that has been received so far. */
struct child_line {
    char text[LIMIT_ADDRESS_BYTES + 16];
    size_t bytes;
};

/* What the child has reported; child_read explains the values. */
enum child_said { CHILD_NOT_YET, CHILD_READY, CHILD_CLOSED, CHILD_NONSENSE };

/* Reads what has arrived, without waiting; CHILD_NOT_YET: the line is not complete. CHILD_READY:
 * *address_out points into the line. CHILD_CLOSED: the pipe has ended without a line; the pidfd
 * tells why. CHILD_NONSENSE: the child sent another line, which is in line->text. */
enum child_said child_read(int ready_fd, struct child_line *line, const char **address_out);

#endif
