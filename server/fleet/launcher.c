/* launcher: see the header. A machine is a child process (host/child.h), whose end is reported by
 * a pidfd. */
#include "server/fleet/launcher.h"

#include "host/batch_record.h"
#include "host/child.h"
#include "host/turns.h"

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
#define STOP_US          5000000 /* A process that was asked to end is killed after this time. */
/* A process that ran for this time is restarted after the shortest pause. */
#define LIVED_LONG_US 10000000
/* A process that the kernel has killed has ended after this time, also if it had much memory. */
#define KILLED_US      10000000
#define END_TEXT_BYTES 128 /* How a process ended, for logs. */

struct launcher {
    struct launcher_options options;
    int epoll;
    int turns_fd; /* Shared memory by which the machines share the cores. */
    bool stopping;
    uint32_t running;
    uint64_t kills_seen;                     /* child_memory_kills at the last look. */
    uint64_t kills_open;                     /* Those whose process was not reaped yet. */
    int64_t kills_us;                        /* When kills_open grew last. */
    uint64_t ids[BATCH_RECORD_REQUESTS_MAX]; /* Of the process that is being reaped. */
};

static uint64_t memory_kills(const struct launcher *l)
{
    const char *proc = l->options.proc, *cgroups = l->options.cgroups;
    return child_memory_kills(proc != NULL ? proc : "/proc",
                              cgroups != NULL ? cgroups : "/sys/fs/cgroup");
}

/* Updates kills_open. A kill after which no process was reaped was not that of a machine. */
static void memory_kills_look(struct launcher *l)
{
    uint64_t kills = memory_kills(l);
    int64_t now = clock_now_us(l->options.clock);
    if (now - l->kills_us > KILLED_US)
        l->kills_open = 0;
    if (kills > l->kills_seen) {
        l->kills_open += kills - l->kills_seen;
        l->kills_us = now;
    }
    l->kills_seen = kills;
}

/* ---- starting ---- */

static bool descriptor_watch(struct launcher *l, int fd, const struct fleet_machine *m,
                             bool is_pidfd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)m->index << 1 | is_pidfd};
    return epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* Watches a process that was just started. If that fails, kills the process. */
static enum status child_watch(struct launcher *l, const struct child_process *child,
                               const struct fleet_machine *m, struct error *error)
{
    if (descriptor_watch(l, child->pidfd, m, true) &&
        descriptor_watch(l, child->ready_fd, m, false))
        return ST_OK;
    (void)error_set(error, ST_IO, "start machine %s: epoll: %s", m->config.name, strerror(errno));
    kill(child->pid, SIGKILL);
    waitpid(child->pid, NULL, 0);
    close(child->pidfd); /* This also removes it from the epoll set. */
    close(child->ready_fd);
    if (child->keys_fd >= 0)
        close(child->keys_fd);
    return ST_IO;
}

static void batches_close(struct fleet_process *process)
{
    if (process->batches_fd >= 0)
        close(process->batches_fd);
    process->batches_fd = -1;
}

static enum status machine_start(struct launcher *l, struct fleet_machine *m, struct error *error)
{
    struct fleet_process *process = &m->process;
    struct config *config = malloc(sizeof(*config));
    if (config == NULL)
        return error_set(error, ST_NO_MEMORY, "launcher: out of memory");
    if (batch_record_create(&process->batches_fd, error) != ST_OK) {
        free(config);
        return ST_IO;
    }
    *config = *l->options.config;
    fleet_config_write(l->options.fleet, config);
    if (l->options.config_prepare != NULL)
        l->options.config_prepare(l->options.self, m, config);
    const struct child_spec spec = {
        .program = l->options.program,
        .machine = m->config.name,
        .config = config,
        .keys = l->options.cluster_keys,
        .turns_fd = l->turns_fd,
        .batches_fd = process->batches_fd,
        .log_level = l->options.log_level,
    };
    struct child_process child;
    enum status status = child_start(&spec, &child, error);
    free(config);
    if (status == ST_OK)
        status = child_watch(l, &child, m, error);
    if (status != ST_OK) {
        batches_close(process);
        return status;
    }
    memory_kills_look(l);
    process->state = PROCESS_RUNNING;
    process->pid = child.pid;
    process->pidfd = child.pidfd;
    process->ready_fd = child.ready_fd;
    process->keys_fd = child.keys_fd;
    process->ready_line = (struct child_line){.bytes = 0};
    process->failure = NULL;
    process->starts++;
    process->started_us = clock_now_us(l->options.clock);
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
    l->kills_seen = memory_kills(l);
    enum status status = turns_create(&l->turns_fd, error);
    if (status == ST_OK && l->epoll < 0)
        status = error_set(error, ST_IO, "launcher: epoll: %s", strerror(errno));
    for (struct fleet_machine *m = fleet_next(options->fleet, NULL); m != NULL && status == ST_OK;
         m = fleet_next(options->fleet, m)) {
        m->process.backoff_us = RESTART_FIRST_US;
        if (m->config.local)
            status = machine_start(l, m, error);
    }
    if (status != ST_OK) {
        launcher_close(l);
        return status;
    }
    *out = l;
    return ST_OK;
}

/* ---- ready lines and ends of children ---- */

static void ready_close(struct fleet_process *process)
{
    if (process->ready_fd >= 0)
        close(process->ready_fd); /* this also removes it from the epoll set */
    process->ready_fd = -1;
}

static void keys_close(struct fleet_process *process)
{
    if (process->keys_fd >= 0)
        close(process->keys_fd);
    process->keys_fd = -1;
}

static void ready_read(struct launcher *l, struct fleet_machine *m)
{
    struct fleet_process *process = &m->process;
    const char *text;
    enum child_line_kind said = child_line_read(process->ready_fd, &process->ready_line, &text);
    if (said == CHILD_NOT_YET)
        return;
    ready_close(process);
    if (said == CHILD_CLOSED)
        return;
    if (said == CHILD_FAILED) { /* The process ends next. */
        process->failure = text;
        return;
    }
    if (said == CHILD_UNKNOWN_LINE) {
        log_error("machine %s said \"%s\", want \"ready ADDRESS\"", m->config.name,
                  process->ready_line.text);
        kill(process->pid, SIGKILL);
        return;
    }
    process->was_ready = true;
    if (!l->stopping)
        l->options.events.ready(l->options.self, m, text);
}

static void end_text(const siginfo_t *info, char out[END_TEXT_BYTES])
{
    if (info->si_code == CLD_EXITED)
        snprintf(out, END_TEXT_BYTES, "exit status %d", info->si_status);
    else
        snprintf(out, END_TEXT_BYTES, "signal %d, %s", info->si_status, strsignal(info->si_status));
}

/* Plans the restart of a machine that died, or was asked to end (asked): at once if it served a
 * while and did not fail by itself. */
static void restart_plan(struct launcher *l, struct fleet_machine *m, const char *how, bool killed,
                         bool asked)
{
    struct fleet_process *process = &m->process;
    int64_t now = clock_now_us(l->options.clock);
    int64_t lived_us = now - process->started_us;
    if ((killed || asked) && lived_us >= RESTART_FIRST_US)
        process->backoff_us = 0;
    else if (lived_us >= LIVED_LONG_US)
        process->backoff_us = RESTART_FIRST_US;
    if (asked)
        log_info("machine %s has ended, starts again in %d ms", m->config.name,
                 (int)(process->backoff_us / 1000));
    else
        log_warn("machine %s died (%s), starts again in %d ms", m->config.name, how,
                 (int)(process->backoff_us / 1000));
    process->state = PROCESS_DUE;
    process->restart_us = now + process->backoff_us;
    int64_t next_us = 2 * (process->backoff_us > 0 ? process->backoff_us : RESTART_FIRST_US / 2);
    process->backoff_us = next_us < RESTART_MAX_US ? next_us : RESTART_MAX_US;
}

/* Reports a crash with the requests of the running batches. Returns false if it was none. A SIGKILL
 * of the machine or of one of its stage processes counts as a crash if the kernel has killed a
 * process because memory was short: that process was probably this one. The kernel may kill several
 * machines at once, so each takes one kill. Writes to how_out how the process ended. */
static bool crash_report(struct launcher *l, struct fleet_machine *m, const siginfo_t *info,
                         char how_out[END_TEXT_BYTES])
{
    memory_kills_look(l);
    bool stage = info->si_code == CLD_EXITED && info->si_status == CHILD_EXIT_KILLED;
    bool sigkill = info->si_code != CLD_EXITED && info->si_status == SIGKILL;
    bool memory = (stage || sigkill) && l->kills_open > 0;
    l->kills_open -= memory;
    end_text(info, how_out);
    if (memory)
        snprintf(how_out, END_TEXT_BYTES,
                 "%sprobably killed by the kernel, because memory was short",
                 stage ? "one of its stage processes was " : "");
    if (l->stopping || (!memory && !child_crashed(info)))
        return false;
    uint32_t count = batch_record_read(m->process.batches_fd, l->ids);
    l->options.events.crashed(l->options.self, m, how_out, l->ids, count);
    return true;
}

static void process_ended(struct launcher *l, struct fleet_machine *m, const siginfo_t *info)
{
    enum process_state state = m->process.state;
    char status[END_TEXT_BYTES], why[sizeof(struct error) + 64];
    bool crashed = crash_report(l, m, info, status);
    const char *how = m->process.failure != NULL ? m->process.failure : status;
    snprintf(why, sizeof(why), "its process has ended: %s", how);
    m->process.state = PROCESS_NONE;
    if (l->stopping) {
        log_debug("machine %s has ended: %s", m->config.name, how);
    } else if (state == PROCESS_ENDING) {
        log_info("machine %s has ended: %s", m->config.name, how);
        l->options.events.ended(l->options.self, m, why);
    } else if (!m->process.was_ready) {
        m->process.state = PROCESS_GIVEN_UP;
        snprintf(why, sizeof(why), "it ended before it was ready: %s", how);
        l->options.events.given_up(l->options.self, m, why);
    } else {
        l->options.events.ended(l->options.self, m, why);
        restart_plan(l, m, how, child_killed(info) && !crashed,
                     info->si_code == CLD_EXITED && info->si_status == 0);
    }
}

static void process_reap(struct launcher *l, struct fleet_machine *m)
{
    struct fleet_process *process = &m->process;
    siginfo_t info = {0};
    if (waitid(P_PIDFD, (id_t)process->pidfd, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0)
        return;
    if (process->ready_fd >= 0)
        ready_read(l, m); /* it may have been ready and then died; its pid is still valid */
    ready_close(process);
    keys_close(process);
    waitid(P_PIDFD, (id_t)process->pidfd, &info, WEXITED);
    close(process->pidfd);
    process->pidfd = -1;
    process->pid = 0;
    l->running--;
    process_ended(l, m, &info);
    batches_close(process);
}

/* ---- the iteration ---- */

/* Starts the process if it is due. Returns when it is due next; INT64_MAX = it runs. */
static int64_t restart_turn(struct launcher *l, struct fleet_machine *m, int64_t now_us)
{
    struct error error;
    if (m->process.restart_us > now_us)
        return m->process.restart_us;
    if (machine_start(l, m, &error) == ST_OK)
        return INT64_MAX;
    log_error("%s", error.text);
    l->options.events.ended(l->options.self, m, error.text);
    m->process.restart_us = now_us + RESTART_MAX_US;
    return m->process.restart_us;
}

/* Kills the process if it had its time. Returns when it is to be killed; INT64_MAX = it was. */
static int64_t ending_turn(const struct fleet_machine *m, int64_t now_us)
{
    if (m->process.kill_us > now_us)
        return m->process.kill_us;
    kill(m->process.pid, SIGKILL);
    return INT64_MAX;
}

static int64_t processes_turn(struct launcher *l)
{
    int64_t due = INT64_MAX;
    int64_t now = clock_now_us(l->options.clock);
    for (struct fleet_machine *m = fleet_next(l->options.fleet, NULL); m != NULL && !l->stopping;
         m = fleet_next(l->options.fleet, m)) {
        int64_t next = m->process.state == PROCESS_DUE      ? restart_turn(l, m, now)
                       : m->process.state == PROCESS_ENDING ? ending_turn(m, now)
                                                            : INT64_MAX;
        due = next < due ? next : due;
    }
    return due == INT64_MAX ? -1 : due - now;
}

int launcher_turn(struct launcher *l)
{
    struct epoll_event events[16];
    int count = epoll_wait(l->epoll, events, 16, 0);
    for (int i = 0; i < count; i++) {
        struct fleet_machine *m = &l->options.fleet->machines[events[i].data.u64 >> 1];
        if ((events[i].data.u64 & 1) != 0 && m->process.pidfd >= 0)
            process_reap(l, m);
        else if ((events[i].data.u64 & 1) == 0 && m->process.ready_fd >= 0)
            ready_read(l, m);
    }
    int64_t wait_us = processes_turn(l);
    return wait_us < 0 ? -1 : (int)((wait_us + 999) / 1000);
}

int launcher_fd(const struct launcher *l)
{
    return l->epoll;
}

void launcher_machine_start(struct launcher *l, struct fleet_machine *m)
{
    (void)l; /* the next launcher_turn starts the process */
    assert(m->process.pid == 0);
    m->process = (struct fleet_process){.state = PROCESS_DUE,
                                        .pidfd = -1,
                                        .ready_fd = -1,
                                        .keys_fd = -1,
                                        .batches_fd = -1,
                                        .backoff_us = RESTART_FIRST_US};
}

void launcher_machine_stop(struct launcher *l, struct fleet_machine *m)
{
    m->process.state = m->process.pid != 0 ? PROCESS_ENDING : PROCESS_NONE;
    m->process.kill_us = clock_now_us(l->options.clock) + STOP_US;
    if (m->process.pid != 0)
        kill(m->process.pid, SIGTERM);
}

static void signal_all(struct launcher *l, int number)
{
    for (const struct fleet_machine *m = fleet_next(l->options.fleet, NULL); m != NULL;
         m = fleet_next(l->options.fleet, m))
        if (m->process.pid != 0)
            kill(m->process.pid, number);
}

void launcher_keys_send(struct launcher *l)
{
    for (const struct fleet_machine *m = fleet_next(l->options.fleet, NULL); m != NULL;
         m = fleet_next(l->options.fleet, m))
        if (m->process.keys_fd >= 0 &&
            child_keys_send(m->process.keys_fd, l->options.cluster_keys) != ST_OK)
            log_warn("machine %s: cannot give it the new cluster keys: %s", m->config.name,
                     strerror(errno));
}

void launcher_log_level_send(struct launcher *l, int level)
{
    for (const struct fleet_machine *m = fleet_next(l->options.fleet, NULL); m != NULL;
         m = fleet_next(l->options.fleet, m))
        /* Before the process was ready, the signal could end it. */
        if (m->process.pid != 0 && m->process.ready_fd < 0)
            sigqueue(m->process.pid, SIGUSR2, (union sigval){.sival_int = level});
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

uint32_t launcher_running_count(const struct launcher *l)
{
    return l->running;
}

void launcher_close(struct launcher *l)
{
    if (l == NULL)
        return;
    launcher_kill(l);
    for (struct fleet_machine *m = fleet_next(l->options.fleet, NULL); m != NULL;
         m = fleet_next(l->options.fleet, m)) {
        if (m->process.pid != 0)
            waitpid(m->process.pid, NULL, 0);
        ready_close(&m->process);
        keys_close(&m->process);
        batches_close(&m->process);
        if (m->process.pidfd >= 0)
            close(m->process.pidfd);
        m->process =
            (struct fleet_process){.pidfd = -1, .ready_fd = -1, .keys_fd = -1, .batches_fd = -1};
    }
    if (l->epoll >= 0)
        close(l->epoll);
    if (l->turns_fd >= 0)
        close(l->turns_fd);
    free(l);
}
