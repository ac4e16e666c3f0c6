/* launcher: see the header. A machine is a child process (host/child.h), whose end is reported by
 * a pidfd. */
#include "server/fleet/launcher.h"

#include "host/child.h"
#include "host/turns.h"
#include "transport/transport.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#define RESTART_FIRST_US 200000
#define RESTART_MAX_US   5000000
#define STOP_US          5000000 /* a process that was asked to end is killed after this */
/* a process that lived this long is restarted without longer back-off */
#define LIVED_LONG_US 10000000

struct child {
    pid_t pid; /* 0 = no process. */
    int pidfd;
    /* Reading end of the pipe for the ready line; -1 = the line was read, or there is no process.
     */
    int ready_fd;
    struct child_line line;
    bool was_ready; /* It was ready at some time. */
    bool given_up;
    bool wanted; /* It should run. */
    int64_t started_us;
    int64_t kill_us;    /* Not wanted, but still running: when to kill it. */
    int64_t restart_us; /* No process: when to start one. */
    int64_t backoff_us;
};

struct launcher {
    struct launcher_options options;
    int epoll;
    int turns_fd; /* Shared memory by which the machines share the cores. */
    bool stopping;
    uint32_t running;
    struct child children[LIMIT_MACHINES];
};

/* ---- starting ---- */

static void watch(struct launcher *l, int fd, uint32_t machine, bool is_pidfd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)machine << 1 | is_pidfd};
    int failed = epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &event);
    assert(failed == 0);
}

static enum status machine_start(struct launcher *l, uint32_t machine, struct error *error)
{
    struct child *child = &l->children[machine];
    struct config *config = malloc(sizeof(*config));
    if (config == NULL)
        return error_set(error, ST_NO_MEMORY, "launcher: out of memory");
    *config = *l->options.config;
    if (l->options.prepare != NULL)
        l->options.prepare(l->options.self, machine, config);
    const struct child_spec spec = {
        .program = l->options.program,
        .machine = l->options.config->machines[machine].name,
        .config = config,
        .key = l->options.cluster_key,
        .key_bytes = TRANSPORT_KEY_BYTES,
        .turns_fd = l->turns_fd,
        .log_level = l->options.log_level,
    };
    struct child_process process;
    enum status status = child_start(&spec, &process, error);
    free(config);
    if (status != ST_OK)
        return status;
    child->pid = process.pid;
    child->pidfd = process.pidfd;
    child->ready_fd = process.ready_fd;
    child->line = (struct child_line){.bytes = 0};
    child->started_us = clock_now_us(l->options.clock);
    watch(l, child->pidfd, machine, true);
    watch(l, child->ready_fd, machine, false);
    l->running++;
    return ST_OK;
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
    for (uint32_t i = 0; i < LIMIT_MACHINES; i++) {
        l->children[i].pidfd = l->children[i].ready_fd = -1;
        l->children[i].backoff_us = RESTART_FIRST_US;
    }
    for (uint32_t i = 0; status == ST_OK && i < options->config->machine_count; i++) {
        l->children[i].wanted = options->config->machines[i].local;
        if (l->children[i].wanted)
            status = machine_start(l, i, error);
    }
    if (status != ST_OK) {
        launcher_close(l);
        return status;
    }
    *out = l;
    return ST_OK;
}

/* ---- ready lines and ends of children ---- */

static void ready_close(struct child *child)
{
    if (child->ready_fd >= 0)
        close(child->ready_fd); /* this also removes it from the epoll set */
    child->ready_fd = -1;
}

static void ready_read(struct launcher *l, uint32_t machine)
{
    struct child *child = &l->children[machine];
    const char *address;
    enum child_said said = child_read(child->ready_fd, &child->line, &address);
    if (said == CHILD_NOT_YET)
        return;
    ready_close(child);
    if (said == CHILD_CLOSED)
        return;
    if (said == CHILD_NONSENSE) {
        log_error("machine %s said \"%s\", want \"ready ADDRESS\"",
                  l->options.config->machines[machine].name, child->line.text);
        kill(child->pid, SIGKILL);
        return;
    }
    child->was_ready = true;
    if (!l->stopping)
        l->options.events.ready(l->options.self, machine, address);
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
    if (waitid(P_PIDFD, (id_t)child->pidfd, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0)
        return;
    if (child->ready_fd >= 0)
        ready_read(l, machine); /* it may have been ready and then died; its pid is still valid */
    ready_close(child);
    waitid(P_PIDFD, (id_t)child->pidfd, &info, WEXITED);
    close(child->pidfd);
    child->pidfd = -1;
    child->pid = 0;
    l->running--;
    child_ended(l, machine, &info);
}

/* ---- the iteration ---- */

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
            if (machine_start(l, i, &error) == ST_OK)
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
