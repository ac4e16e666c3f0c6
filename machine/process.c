/* machine_process: see the header. */
#include "machine/process.h"

#include "common/log.h"
#include "host/batch_record.h"
#include "host/child.h"
#include "machine/executor/stage.h"
#include "machine/member.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static enum log_level start_level(const struct machine_process *process)
{
    enum log_level level = LOG_INFO;
    (void)log_level_parse(
        process->log_level != NULL ? process->log_level : process->config->log.level, &level);
    return level;
}

void machine_process_log_configure(const struct machine_process *process)
{
    log_level_set(start_level(process));
    log_format_set(strcmp(process->config->log.format, "json") == 0 ? LOG_JSON : LOG_TEXT);
}

static enum status say_ready(int *ready_fd, const char *address, struct error *error)
{
    const int fd = *ready_fd;
    if (fd < 0)
        return ST_OK;
    char line[LIMIT_ADDRESS_BYTES + 16];
    int length = snprintf(line, sizeof(line), "ready %s\n", address);
    ssize_t written = write(fd, line, (size_t)length);
    int failed = errno;
    close(fd);
    *ready_fd = -1;
    if (written == length)
        return ST_OK;
    return error_set(error, ST_IO, "--ready-fd %d: %s", fd, strerror(failed));
}

/* Tells the service manager that the machine or the stage process serves. */
static void serving_say(const struct machine_process *process, const char *address)
{
    char text[LIMIT_ADDRESS_BYTES + 32];
    snprintf(text, sizeof(text), "listens on %s", address);
    notify_ready(&process->notify, text);
}

/* A machine or a stage process, while it runs. */
struct runner {
    struct machine_process *process;
    struct machine *machine; /* NULL = a stage process. */
    struct stage *stage;
};

static void keys_change(const struct runner *runner, const struct secret_keys *next)
{
    struct error error;
    enum status status = runner->machine != NULL ? machine_keys_set(runner->machine, next, &error)
                                                 : stage_keys_set(runner->stage, next, &error);
    if (status == ST_OK)
        machine_keys_use(runner->process->keys, next);
    else
        log_error("cluster keys: nothing is changed: %s", error.text);
}

/* SIGUSR2: the gateway that started the machine sends the new level with the signal (sigqueue).
 * From `kill`, it changes between debug and the level of the start. */
static void level_change(const struct runner *runner, const struct signalfd_siginfo *info)
{
    const struct machine_process *process = runner->process;
    static const char *const names[] = {LOG_LEVEL_NAMES};
    enum log_level level = LOG_DEBUG;
    if (info->ssi_code == SI_QUEUE && info->ssi_int >= LOG_DEBUG && info->ssi_int <= LOG_ERROR)
        level = (enum log_level)info->ssi_int;
    else if (log_level_min() == LOG_DEBUG)
        level = start_level(process);
    log_level_set(level);
    if (runner->machine != NULL)
        machine_log_level_send(runner->machine, (int)level);
    log_audit("SIGUSR2: the log level is %s now", names[level]);
}

/* The first signal makes a machine leave: its gateways hand its answers over. A second one ends it
 * at once, and so does a signal of the gateway that has started the machine: this gateway has
 * drained the machine before, or has died. Returns true if the process ends at once. */
static bool end_signal(const struct runner *runner, const struct signalfd_siginfo *info)
{
    struct machine_process *process = runner->process;
    const char *name = strsignal((int)info->ssi_signo);
    const bool from_parent = process->parent != 0 && ((pid_t)info->ssi_pid == process->parent ||
                                                      getppid() != process->parent);
    if (runner->machine == NULL || process->is_leaving || !process->serves || from_parent) {
        log_info("%s, stops", name);
        notify_stopping(&process->notify, "stops");
        return true;
    }
    process->is_leaving = true;
    log_info("%s: drains, its answers go to other machines; a second one stops now", name);
    notify_stopping(&process->notify, "drains");
    machine_leave(runner->machine);
    return false;
}

/* Returns true if a signal that ends the process has arrived. */
static bool signal_take(const struct runner *runner)
{
    struct signalfd_siginfo info;
    struct secret_keys next;
    if (read(runner->process->signal_fd, &info, sizeof(info)) <= 0)
        return false;
    if (info.ssi_signo == SIGUSR2) {
        level_change(runner, &info);
        return false;
    }
    if (info.ssi_signo != SIGHUP)
        return end_signal(runner, &info);
    if (machine_keys_read_again(runner->process->keys, &next))
        keys_change(runner, &next);
    secret_wipe(&next, sizeof(next));
    return false;
}

/* Waits for up to two descriptors, signals and new cluster keys. Returns true when a signal asks
 * the process to end. */
static bool wait_for(const struct runner *runner, const int *fds, int count, int timeout_ms)
{
    const struct machine_process *process = runner->process;
    struct secret_keys next;
    struct pollfd polls[4] = {{.fd = process->signal_fd, .events = POLLIN},
                              {.fd = process->keys->pipe_fd, .events = POLLIN}};
    for (int i = 0; i < count; i++)
        polls[2 + i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    const int alive_ms = notify_turn(&runner->process->notify, clock_now_us(&clock_system));
    if (alive_ms >= 0 && (timeout_ms < 0 || alive_ms < timeout_ms))
        timeout_ms = alive_ms;
    if (poll(polls, (nfds_t)count + 2, timeout_ms) < 0) {
        if (errno != EINTR)
            log_error("poll: %s", strerror(errno));
        return false;
    }
    if (polls[1].revents != 0) {
        if (machine_keys_receive(process->keys, &next))
            keys_change(runner, &next);
        secret_wipe(&next, sizeof(next));
    }
    return (polls[0].revents & POLLIN) != 0 && signal_take(runner);
}

/* Runs the machine until its stage processes are ready. *ready_out = false: a signal asked the
 * process to end before. */
static enum status await_stages(const struct runner *runner, bool *ready_out, struct error *error)
{
    struct machine *m = runner->machine;
    const int fd = machine_fd(m);
    enum status status = ST_OK;
    bool ending = false;
    while (!ending) {
        int timeout_ms = machine_turn(m);
        status = machine_failure(m, error);
        if (status != ST_OK || machine_ready(m))
            break;
        ending = wait_for(runner, &fd, 1, timeout_ms);
    }
    *ready_out = status == ST_OK && !ending;
    return status;
}

static int exit_status_of(enum status status)
{
    if (status == ST_OK || status == ST_UNREACHABLE)
        return 0;
    return status == ST_CANCELLED ? CHILD_EXIT_KILLED : CHILD_EXIT_CRASHED;
}

static enum status serve(const struct runner *runner, struct machine_member *member,
                         struct error *error)
{
    struct machine *m = runner->machine;
    const int fds[2] = {machine_fd(m), machine_member_fd(member)};
    for (;;) {
        int timeout_ms = machine_member_turn(member, m, machine_turn(m));
        enum status status = machine_failure(m, error);
        runner->process->exit_status = exit_status_of(status);
        if (status != ST_OK || (machine_stopped(m) && machine_member_may_end(member)))
            return status;
        if (wait_for(runner, fds, 2, timeout_ms))
            machine_stop(m);
    }
}

static enum status serve_machine(struct machine_process *process, struct machine *m,
                                 struct error *error)
{
    const struct config *config = process->config;
    const struct runner runner = {.process = process, .machine = m};
    const char *name = process->config_entry->name;
    char address[LIMIT_ADDRESS_BYTES];
    struct machine_member *member = NULL;
    bool ready;
    enum status status = await_stages(&runner, &ready, error);
    if (!ready)
        return status;
    status = machine_listen(m, process->address, address, error);
    if (status == ST_OK && config_has_etcd(config))
        status = machine_member_open(config, m, name, address, &member, error);
    if (status == ST_OK)
        status = say_ready(process->ready_fd, address, error);
    if (status == ST_OK) {
        log_info("machine %s listens on %s", name, address);
        serving_say(process, address);
        process->serves = true;
        status = serve(&runner, member, error);
    }
    machine_member_close(member);
    struct error broken;
    if (!machine_kv_check(m, &broken))
        log_error("KV blocks: %s", broken.text);
    return status;
}

enum status machine_process_run_machine(struct machine_process *process, struct error *error)
{
    struct batch_record *batches = NULL;
    enum status opened =
        process->batches_fd < 0 ? ST_OK : batch_record_open(process->batches_fd, &batches, error);
    if (opened != ST_OK)
        return opened;
    const struct machine_options options = {
        .config = process->config,
        .name = process->config_entry->name,
        .transport = &transport_ucx,
        .clock = &clock_system,
        .cluster_keys = process->keys->keys.count > 0 ? &process->keys->keys : NULL,
        .turns = process->turns,
        .turns_fd = process->turns_fd,
        .batch_record = batches,
        .log_level = process->log_level,
    };
    struct machine *m;
    enum status status = machine_open(&options, &m, error);
    if (status == ST_OK) {
        status = serve_machine(process, m, error);
        machine_close(m);
    }
    batch_record_close(options.batch_record);
    return status;
}

enum status machine_process_run_stage(struct machine_process *process, struct error *error)
{
    const struct stage_options options = {
        .config = process->config,
        .machine_name = process->config_entry->name,
        .process_index = (uint32_t)process->stage,
        .transport = &transport_ucx,
        .clock = &clock_system,
        .cluster_keys = process->keys->keys.count > 0 ? &process->keys->keys : NULL,
        .turns = process->turns,
        .is_child = *process->ready_fd >= 0,
    };
    struct stage *s;
    char address[LIMIT_ADDRESS_BYTES];
    enum status status = stage_open(&options, &s, error);
    if (status != ST_OK)
        return status;
    status = stage_listen(s, process->address, address, error);
    if (status == ST_OK)
        status = say_ready(process->ready_fd, address, error);
    if (status == ST_OK) {
        log_info("stage %s/%d listens on %s", process->config_entry->name, process->stage, address);
        serving_say(process, address);
    }
    const struct runner runner = {.process = process, .stage = s};
    while (status == ST_OK && !stage_stopped(s)) {
        const int fd = stage_fd(s);
        if (wait_for(&runner, &fd, 1, stage_turn(s)))
            stage_stop(s);
    }
    if (stage_in_group(s))
        _exit(status == ST_OK ? EXIT_SUCCESS : EXIT_FAILURE);
    stage_close(s);
    return status;
}

/* A machine with stages computes nothing in its own process, so it takes no turns. Neither do
 * ranks: they compute at the same time, and a rank in its turn would wait for another one that
 * waits for its own turn. */
enum status machine_process_turns_open(struct machine_process *process, struct error *error)
{
    struct config_stages stages;
    const int stage = process->stage;
    config_stages(process->config_entry, &stages);
    if (process->turns_fd < 0 || process->config->scheduler.turn_ms == 0 ||
        (stage < 0 && stages.count > 0))
        return ST_OK;
    const struct config_stage *own =
        stage >= 0 && (uint32_t)stage < stages.count ? &stages.stages[stage] : NULL;
    if (own != NULL && own->ranks > 1)
        return ST_OK;
    return turns_open(process->turns_fd,
                      own != NULL ? own->threads : process->config_entry->threads, &process->turns,
                      error);
}
