/* child: see the header. */
#include "host/child.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEPT 5 /* Descriptors that a child gets. */

extern char **environ;

/* Writes the config as JSON into a memory file. Returns its descriptor, positioned at the start; -1
 * on failure. */
static int config_fd_open(const struct config *config)
{
    int fd = memfd_create("config", MFD_CLOEXEC);
    if (fd < 0)
        return -1;
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    FILE *file = copy >= 0 ? fdopen(copy, "w") : NULL;
    bool good = file != NULL && config_write(config, file) == ST_OK;
    if (file != NULL)
        good = fclose(file) == 0 && good;
    else if (copy >= 0)
        close(copy);
    if (good && lseek(fd, 0, SEEK_SET) == 0)
        return fd;
    close(fd);
    return -1;
}

enum status child_keys_send(int keys_fd, const struct secret_keys *keys)
{
    /* Written at once, because it has fewer than PIPE_BUF bytes. */
    ssize_t written = write(keys_fd, keys, sizeof(*keys));
    return written == (ssize_t)sizeof(*keys) ? ST_OK : ST_IO;
}

enum status child_keys_receive(int keys_fd, bool wait, struct secret_keys *keys_out)
{
    struct secret_keys keys;
    int flags = fcntl(keys_fd, F_GETFL);
    if (flags < 0 || fcntl(keys_fd, F_SETFD, FD_CLOEXEC) != 0 ||
        fcntl(keys_fd, F_SETFL, wait ? flags & ~O_NONBLOCK : flags | O_NONBLOCK) != 0)
        return ST_IO;
    ssize_t got = read(keys_fd, &keys, sizeof(keys));
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return ST_IN_PROGRESS;
    if (got == 0)
        return ST_UNREACHABLE;
    if (got != (ssize_t)sizeof(keys) || keys.count == 0 || keys.count > SECRET_KEYS_MAX)
        return ST_IO;
    *keys_out = keys;
    secret_wipe(&keys, sizeof(keys));
    return ST_OK;
}

/* Makes the pipe of the keys, with the first ones in it. */
static bool keys_pipe_open(const struct secret_keys *keys, int pipes[2])
{
    if (pipe2(pipes, O_CLOEXEC) != 0)
        return false;
    return fcntl(pipes[1], F_SETFL, O_NONBLOCK) == 0 && child_keys_send(pipes[1], keys) == ST_OK;
}

bool child_crashed(const siginfo_t *waitid_result)
{
    static const int errors[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS, SIGTRAP};
    if (waitid_result->si_code == CLD_EXITED)
        return waitid_result->si_status == CHILD_EXIT_CRASHED;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
        if (waitid_result->si_status == errors[i])
            return true;
    return false;
}

bool child_killed(const siginfo_t *waitid_result)
{
    if (waitid_result->si_code == CLD_EXITED)
        return waitid_result->si_status == CHILD_EXIT_KILLED;
    return !child_crashed(waitid_result);
}

/* Reads the line "oom_kill N" of a file. Returns false if there is no such file or line. */
static bool kills_read(const char *path, uint64_t *kills_out)
{
    char line[128];
    bool found = false;
    FILE *file = fopen(path, "re");
    while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL)
        found = sscanf(line, "oom_kill %" SCNu64, kills_out) == 1;
    if (file != NULL)
        fclose(file);
    return found;
}

/* Writes the path of the file in which the kernel counts the events of this process's cgroup; an
 * empty path if there is no cgroup of version 2. */
static void cgroup_events_path(const char *proc, const char *cgroups, char *out, size_t capacity)
{
    char path[PATH_MAX], line[PATH_MAX];
    snprintf(path, sizeof(path), "%s/self/cgroup", proc);
    FILE *file = fopen(path, "re");
    out[0] = 0;
    while (file != NULL && out[0] == 0 && fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, "0::/", 4) == 0)
            snprintf(out, capacity, "%s/%s/memory.events", cgroups, line + 4);
    }
    if (file != NULL)
        fclose(file);
}

uint64_t child_memory_kills(const char *proc, const char *cgroups)
{
    char path[2 * PATH_MAX];
    uint64_t kills = 0;
    cgroup_events_path(proc, cgroups, path, sizeof(path));
    if (path[0] != 0 && kills_read(path, &kills))
        return kills;
    snprintf(path, sizeof(path), "%s/vmstat", proc);
    return kills_read(path, &kills) ? kills : 0;
}

static void close_open(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* Runs argv with no blocked signals, and with the descriptors `keep` open (-1 = none). Returns an
 * errno. The child has a process group of its own: a signal of the terminal (Ctrl-C) reaches only
 * this process, which ends the child when its requests have ended. */
static int spawn(const char *program, char **argv, const int keep[KEPT], pid_t *pid_out)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    int failed = 0;
    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    /* Clears close-on-exec. */
    for (int i = 0; i < KEPT && failed == 0; i++)
        if (keep[i] >= 0)
            failed = posix_spawn_file_actions_adddup2(&actions, keep[i], keep[i]);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&attributes, 0);
    if (failed == 0)
        failed = posix_spawn(pid_out, program, &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

/* Finds the path of this executable, so that ps shows its processes as "cleave". If the file was
 * replaced or removed since the start, uses /proc/self/exe, so that a restarted machine has the
 * same release. */
static void program_find(char out[LIMIT_PATH_BYTES])
{
    const char *self = "/proc/self/exe";
    ssize_t bytes = readlink(self, out, LIMIT_PATH_BYTES - 1);
    if (bytes > 0)
        out[bytes] = 0;
    if (bytes <= 0 || access(out, X_OK) != 0)
        snprintf(out, LIMIT_PATH_BYTES, "%s", self);
}

/* Runs `cleave machine` with these descriptors: config, ready pipe, and, each or -1, key, turns,
 * record of batches. Returns an errno. */
static int run(const struct child_spec *spec, const char *program, const int fds[KEPT],
               pid_t *pid_out)
{
    static const char *const options[KEPT] = {"--config-fd", "--ready-fd", "--cluster-keys-fd",
                                              "--turns-fd", "--batches-fd"};
    char numbers[KEPT][16];
    char *argv[3 + 2 * KEPT + 2 + CHILD_ARGUMENTS_MAX + 1];
    size_t count = 0;
    argv[count++] = "cleave";
    argv[count++] = "machine";
    argv[count++] = (char *)spec->machine;
    for (int i = 0; i < KEPT; i++) {
        if (fds[i] < 0)
            continue;
        snprintf(numbers[i], sizeof(numbers[i]), "%d", fds[i]);
        argv[count++] = (char *)options[i];
        argv[count++] = numbers[i];
    }
    if (spec->log_level != NULL) {
        argv[count++] = "--log-level";
        argv[count++] = (char *)spec->log_level;
    }
    for (int i = 0; i < CHILD_ARGUMENTS_MAX && spec->arguments[i] != NULL; i++)
        argv[count++] = (char *)spec->arguments[i];
    argv[count] = NULL;
    return spawn(program, argv, fds, pid_out);
}

enum status child_start(const struct child_spec *spec, struct child_process *out,
                        struct error *error)
{
    char program[LIMIT_PATH_BYTES];
    const char *what = "pipe";
    int failed = 0;
    int pipes[2];
    *out = (struct child_process){.pidfd = -1, .ready_fd = -1, .keys_fd = -1};
    if (pipe2(pipes, O_CLOEXEC) != 0)
        return error_set(error, ST_IO, "start machine %s: %s: %s", spec->machine, what,
                         strerror(errno));
    what = "config";
    int config_fd = config_fd_open(spec->config);
    int keys[2] = {-1, -1};
    if (config_fd < 0)
        goto undo;
    what = "cluster key";
    if (spec->keys != NULL && !keys_pipe_open(spec->keys, keys))
        goto undo;
    program_find(program);
    what = spec->program != NULL ? spec->program : program;
    const int fds[KEPT] = {config_fd, pipes[1], keys[0], spec->turns_fd, spec->batches_fd};
    failed = run(spec, what, fds, &out->pid);
    if (failed != 0)
        goto undo;
    what = "pidfd";
    out->pidfd = pidfd_open(out->pid, 0);
    if (out->pidfd < 0) {
        failed = errno;
        kill(out->pid, SIGKILL);
        waitpid(out->pid, NULL, 0);
        goto undo;
    }
    close(config_fd);
    close(pipes[1]);
    close_open(keys[0]);
    out->keys_fd = keys[1];
    fcntl(pipes[0], F_SETFL, O_NONBLOCK);
    out->ready_fd = pipes[0];
    return ST_OK;

undo:
    failed = failed != 0 ? failed : errno;
    error_set(error, ST_IO, "start machine %s: %s: %s", spec->machine, what, strerror(failed));
    close_open(keys[0]);
    close_open(keys[1]);
    close_open(config_fd);
    close(pipes[0]);
    close(pipes[1]);
    out->pid = 0;
    return ST_IO;
}

void child_failure_report(int ready_fd, const struct error *error)
{
    char line[sizeof(((struct child_line *)0)->text)];
    int bytes = snprintf(line, sizeof(line), "failed %s", error->text);
    for (int i = 0; i < bytes; i++)
        line[i] = line[i] == '\n' ? ' ' : line[i];
    line[bytes++] = '\n';
    ssize_t written = write(ready_fd, line, (size_t)bytes); /* At once: less than PIPE_BUF. */
    (void)written;
}

/* Whether the line begins with `word`; then *rest_out is what follows. */
static bool line_begins(const struct child_line *line, const char *word, const char **rest_out)
{
    size_t bytes = strlen(word);
    if (strncmp(line->text, word, bytes) != 0)
        return false;
    *rest_out = line->text + bytes;
    return true;
}

enum child_line_kind child_line_read(int ready_fd, struct child_line *line, const char **text_out)
{
    size_t room = sizeof(line->text) - 1 - line->bytes;
    ssize_t got = read(ready_fd, line->text + line->bytes, room);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return CHILD_NOT_YET;
    if (got <= 0)
        return CHILD_CLOSED;
    line->bytes += (size_t)got;
    line->text[line->bytes] = 0;
    char *end = strchr(line->text, '\n');
    if (end == NULL && line->bytes < sizeof(line->text) - 1)
        return CHILD_NOT_YET;
    line->text[strcspn(line->text, "\n")] = 0;
    if (end != NULL && line_begins(line, "ready ", text_out))
        return CHILD_READY;
    if (end != NULL && line_begins(line, "failed ", text_out))
        return CHILD_FAILED;
    return CHILD_UNKNOWN_LINE;
}
