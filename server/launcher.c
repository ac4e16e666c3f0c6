/* launcher: see the header. A child tells its address on a pipe (`ready ADDRESS`), gets its config
 * on a memory file, and its end is seen on a pidfd. It asks the kernel for SIGTERM when we die
 * (machine_main). */
#include "server/launcher.h"

#include "common/turns.h"
#include "transport/transport.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define RESTART_FIRST_US 200000
#define RESTART_MAX_US   5000000
#define STOP_US          5000000  /* one that is asked to end, and does not, is killed */
#define LIVED_LONG_US    10000000 /* one that lived for so long is started again soon */

extern char **environ;

struct child {
    pid_t pid; /* 0: none */
    int pidfd;
    int ready_fd; /* the pipe's reading end; -1: it has said so, or has no process */
    char line[LIMIT_ADDRESS_BYTES + 16];
    size_t line_bytes;
    bool was_ready; /* ever */
    bool given_up;
    bool wanted; /* it is to run */
    int64_t started_us;
    int64_t kill_us;    /* not wanted, and still there: when to kill it */
    int64_t restart_us; /* without a process: when to start */
    int64_t backoff_us;
};

struct launcher {
    struct launcher_options options;
    int epoll;
    int turns_fd; /* of the machines: the memory by which they share the cores */
    bool stopping;
    uint32_t running;
    char program[LIMIT_PATH_BYTES];
    struct child children[LIMIT_MACHINES];
};

/* ---- starting ---- */

/* The config as JSON in a memory file, read from its begin. -1 on failure. */
static int config_fd_write(const struct config *config)
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

static int config_fd_open(const struct launcher *l, uint32_t machine)
{
    struct config *config = malloc(sizeof(*config));
    if (config == NULL)
        return -1;
    *config = *l->options.config;
    if (l->options.prepare != NULL)
        l->options.prepare(l->options.self, machine, config);
    int fd = config_fd_write(config);
    free(config);
    return fd;
}

/* The cluster's key in a pipe that holds no more. -1 on failure. */
static int key_fd_open(const uint8_t *key)
{
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC) != 0)
        return -1;
    ssize_t written = write(pipes[1], key, TRANSPORT_KEY_BYTES);
    close(pipes[1]);
    if (written == TRANSPORT_KEY_BYTES)
        return pipes[0];
    close(pipes[0]);
    return -1;
}

/* Runs argv with our signals unblocked, and with four descriptors that stay open (-1: none).
 * Returns an errno. It has a process group of its own: what a terminal sends to ours (Ctrl-C) we
 * take, and end it when its requests have ended. */
static int spawn(const char *program, char **argv, const int keep[4], pid_t *pid_out)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    for (int i = 0; i < 4; i++)
        if (keep[i] >= 0) /* clears close-on-exec */
            posix_spawn_file_actions_adddup2(&actions, keep[i], keep[i]);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&attributes, 0);
    int failed = posix_spawn(pid_out, program, &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

static void watch(struct launcher *l, int fd, uint32_t machine, bool is_pidfd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)machine << 1 | is_pidfd};
    int failed = epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &event);
    assert(failed == 0);
}

/* The path of this executable, so that its processes are called "cleave" in ps; the link itself
 * when the file was replaced or removed since: a machine that is started again is of our version.
 */
static void program_find(struct launcher *l)
{
    const char *self = "/proc/self/exe";
    ssize_t bytes = readlink(self, l->program, sizeof(l->program) - 1);
    if (bytes > 0)
        l->program[bytes] = 0;
    if (bytes <= 0 || access(l->program, X_OK) != 0)
        snprintf(l->program, sizeof(l->program), "%s", self);
}

static enum status child_start(struct launcher *l, uint32_t machine, struct error *error)
{
    struct child *child = &l->children[machine];
    const char *name = l->options.config->machines[machine].name;
    const char *what = "pipe";
    int pipes[2];
    int failed = 0;
    if (pipe2(pipes, O_CLOEXEC) != 0)
        goto undo_nothing;
    what = "config";
    int config_fd = config_fd_open(l, machine);
    if (config_fd < 0)
        goto undo_pipes;
    what = "cluster key";
    int key_fd = l->options.cluster_key != NULL ? key_fd_open(l->options.cluster_key) : -1;
    if (key_fd < 0 && l->options.cluster_key != NULL)
        goto undo_config;
    char numbers[4][16];
    snprintf(numbers[0], sizeof(numbers[0]), "%d", config_fd);
    snprintf(numbers[1], sizeof(numbers[1]), "%d", pipes[1]);
    snprintf(numbers[2], sizeof(numbers[2]), "%d", key_fd);
    char *argv[14] = {"cleave",     "machine",  "--config-fd", numbers[0],
                      "--ready-fd", numbers[1], (char *)name};
    size_t count = 7;
    if (key_fd >= 0) {
        argv[count++] = "--cluster-key-fd";
        argv[count++] = numbers[2];
    }
    snprintf(numbers[3], sizeof(numbers[3]), "%d", l->turns_fd);
    argv[count++] = "--turns-fd";
    argv[count++] = numbers[3];
    if (l->options.log_level != NULL) {
        argv[count++] = "--log-level";
        argv[count++] = (char *)l->options.log_level;
    }
    if (l->options.program == NULL)
        program_find(l);
    what = l->program;
    const int keep[4] = {config_fd, pipes[1], key_fd, l->turns_fd};
    failed = spawn(l->program, argv, keep, &child->pid);
    if (failed != 0)
        goto undo_key;
    what = "pidfd";
    child->pidfd = pidfd_open(child->pid, 0);
    if (child->pidfd < 0)
        goto undo_child;
    close(config_fd);
    close(pipes[1]);
    if (key_fd >= 0)
        close(key_fd);
    fcntl(pipes[0], F_SETFL, O_NONBLOCK);
    child->ready_fd = pipes[0];
    child->line_bytes = 0;
    child->started_us = clock_now_us(l->options.clock);
    watch(l, child->pidfd, machine, true);
    watch(l, child->ready_fd, machine, false);
    l->running++;
    return ST_OK;

undo_child:
    failed = errno;
    kill(child->pid, SIGKILL);
    waitpid(child->pid, NULL, 0);
    child->pid = 0;
undo_key:
    failed = failed != 0 ? failed : errno;
    if (key_fd >= 0)
        close(key_fd);
undo_config:
    failed = failed != 0 ? failed : errno;
    close(config_fd);
undo_pipes:
    failed = failed != 0 ? failed : errno;
    close(pipes[0]);
    close(pipes[1]);
undo_nothing:
    return error_set(error, ST_IO, "start machine %s: %s: %s", name, what,
                     strerror(failed != 0 ? failed : errno));
}

enum status launcher_open(const struct launcher_options *options, struct launcher **out,
                          struct error *error)
{
    struct launcher *l = calloc(1, sizeof(*l));
    if (l == NULL)
        return error_set(error, ST_NO_MEMORY, "launcher: out of memory");
    l->options = *options;
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    l->turns_fd = -1;
    enum status status = turns_create(&l->turns_fd, error);
    if (status == ST_OK && l->epoll < 0)
        status = error_set(error, ST_IO, "launcher: epoll: %s", strerror(errno));
    if (options->program != NULL)
        snprintf(l->program, sizeof(l->program), "%s", options->program);
    for (uint32_t i = 0; i < LIMIT_MACHINES; i++) {
        l->children[i].pidfd = l->children[i].ready_fd = -1;
        l->children[i].backoff_us = RESTART_FIRST_US;
    }
    for (uint32_t i = 0; status == ST_OK && i < options->config->machine_count; i++) {
        l->children[i].wanted = options->config->machines[i].local;
        if (l->children[i].wanted)
            status = child_start(l, i, error);
    }
    if (status != ST_OK) {
        launcher_close(l);
        return status;
    }
    *out = l;
    return ST_OK;
}

/* ---- what children say, and their end ---- */

static void ready_close(struct child *child)
{
    if (child->ready_fd >= 0)
        close(child->ready_fd); /* leaves the epoll by itself */
    child->ready_fd = -1;
}

static void ready_read(struct launcher *l, uint32_t machine)
{
    struct child *child = &l->children[machine];
    size_t room = sizeof(child->line) - 1 - child->line_bytes;
    ssize_t got = read(child->ready_fd, child->line + child->line_bytes, room);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) { /* closed without a word: its pidfd will say more */
        ready_close(child);
        return;
    }
    child->line_bytes += (size_t)got;
    child->line[child->line_bytes] = 0;
    char *end = strchr(child->line, '\n');
    if (end == NULL && child->line_bytes < sizeof(child->line) - 1)
        return;
    ready_close(child);
    const char *name = l->options.config->machines[machine].name;
    if (end == NULL || strncmp(child->line, "ready ", 6) != 0) {
        log_error("machine %s said \"%.*s\", want \"ready ADDRESS\"", name,
                  (int)strcspn(child->line, "\n"), child->line);
        kill(child->pid, SIGKILL);
        return;
    }
    *end = 0;
    child->was_ready = true;
    if (!l->stopping)
        l->options.events.ready(l->options.self, machine, child->line + 6);
}

static void end_text(const siginfo_t *info, char *out, size_t capacity)
{
    if (info->si_code == CLD_EXITED)
        snprintf(out, capacity, "exit status %d", info->si_status);
    else
        snprintf(out, capacity, "signal %d, %s", info->si_status, strsignal(info->si_status));
}

static void child_ended(struct launcher *l, uint32_t machine, const siginfo_t *info)
{
    struct child *child = &l->children[machine];
    const char *name = l->options.config->machines[machine].name;
    char how[64];
    char why[128];
    end_text(info, how, sizeof(how));
    if (l->stopping) {
        log_debug("machine %s has ended: %s", name, how);
        return;
    }
    if (!child->wanted) {
        log_info("machine %s has ended: %s", name, how);
        l->options.events.ended(l->options.self, machine);
        return;
    }
    if (!child->was_ready) {
        child->given_up = true;
        snprintf(why, sizeof(why), "it ended before it was ready (%s)", how);
        l->options.events.given_up(l->options.self, machine, why);
        return;
    }
    int64_t now = clock_now_us(l->options.clock);
    if (now - child->started_us >= LIVED_LONG_US)
        child->backoff_us = RESTART_FIRST_US;
    l->options.events.ended(l->options.self, machine);
    log_warn("machine %s died (%s), starts again in %d ms", name, how,
             (int)(child->backoff_us / 1000));
    child->restart_us = now + child->backoff_us;
    child->backoff_us =
        child->backoff_us * 2 < RESTART_MAX_US ? child->backoff_us * 2 : RESTART_MAX_US;
}

static void child_reap(struct launcher *l, uint32_t machine)
{
    struct child *child = &l->children[machine];
    siginfo_t info = {0};
    if (waitid(P_PIDFD, (id_t)child->pidfd, &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0)
        return;
    if (child->ready_fd >= 0)
        ready_read(l, machine); /* it may have said so and died */
    ready_close(child);
    close(child->pidfd);
    child->pidfd = -1;
    child->pid = 0;
    l->running--;
    child_ended(l, machine, &info);
}

/* ---- the turn ---- */

static int64_t restarts_turn(struct launcher *l)
{
    int64_t due = INT64_MAX;
    int64_t now = clock_now_us(l->options.clock);
    for (uint32_t i = 0; !l->stopping && i < l->options.config->machine_count; i++) {
        struct child *child = &l->children[i];
        if (!child->wanted && child->pid != 0) {
            if (child->kill_us <= now)
                kill(child->pid, SIGKILL);
            if (child->kill_us > now && child->kill_us < due)
                due = child->kill_us;
        }
        if (child->pid != 0 || child->given_up || !child->wanted)
            continue;
        if (child->restart_us <= now) {
            struct error error;
            if (child_start(l, i, &error) == ST_OK)
                continue;
            log_error("%s", error.text);
            child->restart_us = now + RESTART_MAX_US;
        }
        if (child->restart_us < due)
            due = child->restart_us;
    }
    return due == INT64_MAX ? -1 : due - now;
}

int launcher_turn(struct launcher *l)
{
    struct epoll_event events[16];
    int count = epoll_wait(l->epoll, events, 16, 0);
    for (int i = 0; i < count; i++) {
        uint32_t machine = (uint32_t)(events[i].data.u64 >> 1);
        if ((events[i].data.u64 & 1) != 0 && l->children[machine].pidfd >= 0)
            child_reap(l, machine);
        else if ((events[i].data.u64 & 1) == 0 && l->children[machine].ready_fd >= 0)
            ready_read(l, machine);
    }
    int64_t wait_us = restarts_turn(l);
    return wait_us < 0 ? -1 : (int)((wait_us + 999) / 1000);
}

int launcher_fd(const struct launcher *l)
{
    return l->epoll;
}

void launcher_machine_start(struct launcher *l, uint32_t machine)
{
    struct child *child = &l->children[machine];
    assert(child->pid == 0);
    *child =
        (struct child){.pidfd = -1, .ready_fd = -1, .backoff_us = RESTART_FIRST_US, .wanted = true};
}

void launcher_machine_stop(struct launcher *l, uint32_t machine)
{
    struct child *child = &l->children[machine];
    child->wanted = false;
    child->kill_us = clock_now_us(l->options.clock) + STOP_US;
    if (child->pid != 0)
        kill(child->pid, SIGTERM);
}

bool launcher_machine_running(const struct launcher *l, uint32_t machine)
{
    return l->children[machine].pid != 0;
}

pid_t launcher_machine_pid(const struct launcher *l, uint32_t machine)
{
    return l->children[machine].pid;
}

static void signal_all(struct launcher *l, int number)
{
    for (uint32_t i = 0; i < LIMIT_MACHINES; i++)
        if (l->children[i].pid != 0)
            kill(l->children[i].pid, number);
}

void launcher_stop(struct launcher *l)
{
    l->stopping = true;
    signal_all(l, SIGTERM);
}

void launcher_kill(struct launcher *l)
{
    l->stopping = true;
    signal_all(l, SIGKILL);
}

uint32_t launcher_running(const struct launcher *l)
{
    return l->running;
}

void launcher_close(struct launcher *l)
{
    if (l == NULL)
        return;
    launcher_kill(l);
    for (uint32_t i = 0; i < LIMIT_MACHINES; i++) {
        struct child *child = &l->children[i];
        if (child->pid != 0)
            waitpid(child->pid, NULL, 0);
        ready_close(child);
        if (child->pidfd >= 0)
            close(child->pidfd);
    }
    if (l->epoll >= 0)
        close(l->epoll);
    if (l->turns_fd >= 0)
        close(l->turns_fd);
    free(l);
}
