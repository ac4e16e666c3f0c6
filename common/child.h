/* child: starts `cleave machine` processes of this version: what `cleave serve` does with its local
 * machines, and a machine with its local stages. The child gets its config in a memory file and the
 * cluster's key in a pipe, and tells on another pipe where it listens ("ready ADDRESS"); it asks
 * the kernel for SIGTERM when we die. Watching it is the caller's part. */
#ifndef COMMON_CHILD_H
#define COMMON_CHILD_H

#include "common/config.h"
#include "common/status.h"

#include <sys/types.h>

#define CHILD_ARGUMENTS_MAX 4

struct child_spec {
    const char *program; /* NULL: this executable */
    const char *machine;
    const struct config *config;
    const uint8_t *key; /* NULL: none */
    size_t key_bytes;
    int turns_fd;                               /* -1: none */
    const char *log_level;                      /* NULL: the machine's */
    const char *arguments[CHILD_ARGUMENTS_MAX]; /* more of them; NULL ends */
};

struct child_process {
    pid_t pid;
    int pidfd;
    int ready_fd; /* reading end, non-blocking; all three are the caller's */
};

/* Errors name machine and what failed. */
enum status child_start(const struct child_spec *spec, struct child_process *out,
                        struct error *error);

/* "ready ADDRESS\n" as it comes, piece by piece. */
struct child_line {
    char text[LIMIT_ADDRESS_BYTES + 16];
    size_t bytes;
};

enum child_said { CHILD_NOT_YET, CHILD_READY, CHILD_CLOSED, CHILD_NONSENSE };

/* Reads what there is. CHILD_READY: *address_out points into the line. CHILD_CLOSED: the pipe has
 * ended without a word; the pidfd will say more. CHILD_NONSENSE: it said something else, which is
 * the line's text. */
enum child_said child_read(int ready_fd, struct child_line *line, const char **address_out);

#endif
