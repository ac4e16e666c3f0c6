/* child: starts `cleave machine` processes: the local machines of `cleave serve` (server/fleet/)
 * and the local stage processes of a machine (machine/executor/). The parent makes its calls on its
 * event loop thread, the child on its main thread. The functions keep no state. The child gets its
 * config in a memory file, and the cluster's keys through a pipe that can later carry new keys.
 * Through another pipe, the child sends one line: "ready ADDRESS" when it listens, or "failed
 * REASON" if it cannot start. This part does not watch, restart or stop the child: the parent
 * does. */
#ifndef HOST_CHILD_H
#define HOST_CHILD_H

#include "common/secret_keys.h"
#include "common/status.h"
#include "config/config.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define CHILD_ARGUMENTS_MAX 4 /* Size of child_spec.arguments. */

/* What to start. The pointers need to be valid only during child_start. */
struct child_spec {
    const char *program; /* Path of the executable; NULL = the executable of this process. */
    const char *machine; /* Name of the machine in the config. */
    const struct config *config;
    const struct secret_keys *keys;             /* The cluster's keys; NULL = none. */
    int turns_fd;                               /* Descriptor of turns_create; -1 = none. */
    int batches_fd;                             /* Descriptor of batch_record_create; -1 = none. */
    const char *log_level;                      /* NULL = the child's default. */
    const char *arguments[CHILD_ARGUMENTS_MAX]; /* Further arguments; unused entries are NULL. */
};

/* A process that was started. The caller closes the descriptors and waits for the end of the
 * process. */
struct child_process {
    pid_t pid;
    int pidfd;    /* Readable when the process has ended. */
    int ready_fd; /* For child_line_read. */
    int keys_fd;  /* For child_keys_send; -1 = the child has no keys. */
};

/* Exit status of a machine or stage process if its device has failed, and of a machine if one of
 * its local stage processes has crashed while the machine served. */
#define CHILD_EXIT_CRASHED 70
/* Exit status of a machine if one of its local stage processes was killed while the machine served:
 * from outside, or by the kernel because memory was short (child_memory_kills). */
#define CHILD_EXIT_KILLED 71

/* Returns true if the process ended by an error of its own: by a signal such as SIGSEGV or SIGABRT,
 * or with the exit status CHILD_EXIT_CRASHED. */
bool child_crashed(const siginfo_t *waitid_result);
/* Returns true if the process, or one of its stage processes, was killed: it ended by a signal that
 * is no error of its own, or with the exit status CHILD_EXIT_KILLED. */
bool child_killed(const siginfo_t *waitid_result);
/* Returns how many processes of this process's cgroup, and of the cgroups below it, the kernel has
 * killed because memory was short; 0 = none, or not known. Without a cgroup of version 2 that
 * counts them, the number is that of the host: it then also grows when the kernel kills a process
 * of another program. `proc` and `cgroups`: "/proc" and "/sys/fs/cgroup". */
uint64_t child_memory_kills(const char *proc, const char *cgroups);

/* Starts the process in a process group of its own. Returns ST_IO on failure; the error names the
 * machine and what failed. */
enum status child_start(const struct child_spec *spec, struct child_process *out,
                        struct error *error);

/* Called by the parent: sends new cluster keys to the child, without waiting. Returns ST_IO on
 * failure. */
enum status child_keys_send(int keys_fd, const struct secret_keys *keys);
/* Called by the child: reads keys that the parent has sent. wait: waits until keys arrive or a
 * signal interrupts the call. Returns ST_IN_PROGRESS if no keys have arrived, ST_UNREACHABLE if the
 * parent has closed the pipe, ST_IO if the pipe cannot be read or its bytes are not keys. */
enum status child_keys_receive(int keys_fd, bool wait, struct secret_keys *keys_out);

/* Called by the child: sends "failed REASON" to the parent. */
void child_failure_report(int ready_fd, const struct error *error);

/* The bytes of the child's line that have arrived. All zeros before the first child_line_read. */
struct child_line {
    char text[sizeof(struct error) + 16];
    size_t bytes;
};

/* Result of child_line_read. */
enum child_line_kind { CHILD_NOT_YET, CHILD_READY, CHILD_FAILED, CHILD_CLOSED, CHILD_UNKNOWN_LINE };

/* Called by the parent: reads what has arrived, without waiting.
 *   CHILD_NOT_YET   The line is not complete: call again with the same *line.
 *   CHILD_READY     *text_out is the address, in *line.
 *   CHILD_FAILED    *text_out is the reason, in *line.
 *   CHILD_CLOSED    The pipe has ended before a complete line, or cannot be read.
 *   CHILD_UNKNOWN_LINE  The child sent another line, or a line that is too long; see line->text.
 */
enum child_line_kind child_line_read(int ready_fd, struct child_line *line, const char **text_out);

#endif
