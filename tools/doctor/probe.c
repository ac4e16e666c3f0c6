/* probe: see the header. */
#include "tools/doctor/probe.h"

#include "common/clock.h"
#include "common/parent.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct answer {
    enum status status;
    struct error error;
};

static bool write_all(int fd, const void *data, size_t bytes)
{
    const uint8_t *at = data;
    while (bytes > 0) {
        ssize_t written = write(fd, at, bytes);
        if (written <= 0)
            return false;
        at += written;
        bytes -= (size_t)written;
    }
    return true;
}

/* False: the other end wrote fewer bytes until `end_us`. */
static bool read_all(int fd, void *data, size_t bytes, int64_t end_us)
{
    uint8_t *at = data;
    while (bytes > 0) {
        int64_t left_us = end_us - clock_now_us(&clock_system);
        struct pollfd readable = {.fd = fd, .events = POLLIN};
        if (left_us <= 0 || poll(&readable, 1, (int)(left_us / 1000) + 1) <= 0)
            return false;
        ssize_t got = read(fd, at, bytes);
        if (got <= 0)
            return false;
        at += got;
        bytes -= (size_t)got;
    }
    return true;
}

static _Noreturn void child_run(enum status (*check)(const void *context, void *out,
                                                     struct error *error),
                                const void *context, int fd, void *out, size_t bytes)
{
    struct answer answer = {.error = {""}};
    setpgid(0, 0); /* So that its own children can be killed too. */
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere >= 0) {
        dup2(nowhere, STDOUT_FILENO);
        dup2(nowhere, STDERR_FILENO);
    }
    answer.status = check(context, out, &answer.error);
    bool good = write_all(fd, &answer, sizeof(answer)) && write_all(fd, out, bytes);
    _exit(good ? 0 : 1);
}

enum status probe_run(enum status (*check)(const void *context, void *out, struct error *error),
                      const void *context, int timeout_ms, void *out, size_t out_bytes,
                      struct error *error)
{
    int ends[2];
    struct answer answer;
    int64_t end_us = clock_now_us(&clock_system) + timeout_ms * 1000ll;
    fflush(stdout);
    if (pipe2(ends, O_CLOEXEC) != 0)
        return error_set(error, ST_IO, "no pipe: %s", strerror(errno));
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        parent_end_signal_set(SIGKILL, parent);
        child_run(check, context, ends[1], out, out_bytes);
    }
    close(ends[1]);
    void *said = malloc(out_bytes);
    bool good = pid > 0 && said != NULL && read_all(ends[0], &answer, sizeof(answer), end_us) &&
                read_all(ends[0], said, out_bytes, end_us);
    bool late = clock_now_us(&clock_system) >= end_us;
    close(ends[0]);
    if (good)
        memcpy(out, said, out_bytes);
    free(said);
    if (pid < 0)
        return error_set(error, ST_IO, "no process: %s", strerror(errno));
    int how = 0;
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL);
    while (waitpid(pid, &how, 0) < 0 && errno == EINTR)
        ;
    if (good) {
        *error = answer.error;
        return answer.status;
    }
    if (late)
        return error_set(error, ST_TIMED_OUT, "no answer within %d ms", timeout_ms);
    return error_set(error, ST_IO, "it has died: %s",
                     WIFSIGNALED(how) ? strsignal(WTERMSIG(how)) : "without a word");
}
