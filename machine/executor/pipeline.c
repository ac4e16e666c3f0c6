/* pipeline: the stage processes, from their start to READY, and the end of the machine when one of
 * them is gone. */
#include "machine/executor/pipeline_state.h"

#include "common/log.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#define RETRY_FIRST_US 100000
#define RETRY_MAX_US   2000000
#define CRASH_WAIT_MS  300 /* Only when the machine ends anyway. */

/* Takes the ends of stage processes of this host that have happened, and sets their polls[i].fd to
 * -1. Returns the number of processes that are left. */
static uint32_t ends_take(struct pipeline *p, struct pollfd polls[LIMIT_STAGE_PROCESSES])
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < p->plan->process_count; i++) {
        siginfo_t info = {0};
        if (polls[i].fd < 0)
            continue;
        if (waitid(P_PIDFD, (id_t)polls[i].fd, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
            info.si_pid == 0) {
            left++;
            continue;
        }
        p->crashed |= child_crashed(&info);
        p->killed |= child_killed(&info);
        polls[i].fd = -1;
    }
    return left;
}

/* Finds out whether a stage process of this host has crashed, or was killed: a process that ends
 * closes its connections a moment before its end can be seen, and other stage processes may end
 * earlier because of that. */
static void cause_find(struct pipeline *p)
{
    struct pollfd polls[LIMIT_STAGE_PROCESSES];
    uint32_t count = p->plan->process_count;
    for (uint32_t i = 0; i < count; i++) {
        const struct child_process *child = &p->processes[i].child;
        polls[i] = (struct pollfd){.fd = child->pid != 0 ? child->pidfd : -1, .events = POLLIN};
    }
    while (ends_take(p, polls) > 0 && !p->crashed && !p->killed)
        if (poll(polls, count, CRASH_WAIT_MS) <= 0)
            return;
}

void pipeline_fail(struct pipeline *p, const char *format, ...)
{
    va_list arguments;
    if (p->failed)
        return; /* only the first failure is reported */
    p->failed = true;
    va_start(arguments, format);
    vsnprintf(p->failure.text, sizeof(p->failure.text), format, arguments);
    va_end(arguments);
    cause_find(p);
}

void pipeline_send(struct pipeline *p, struct stage_process *process,
                   const struct stage_message *message)
{
    enum status status = stage_message_encode(message, &p->send_buffer);
    if (status == ST_OK && process->peer != NULL)
        status =
            transport_send(p->transport, process->peer, p->send_buffer.data, p->send_buffer.bytes);
    if (status == ST_NO_RESOURCE || status == ST_TOO_LARGE || status == ST_NO_MEMORY)
        pipeline_fail(p, "stage %s: %s cannot be sent: %s", process->name,
                      stage_message_name(message->kind), status_name(status));
}

static const struct pipeline *pipeline_of_const(const struct executor *e)
{
    return (const struct pipeline *)(const void *)e;
}

/* ---- starting ---- */

/* Stage processes of this host listen on the machine's own host address, on any port. */
static void listen_address(const struct config_machine *entry, char out[LIMIT_ADDRESS_BYTES])
{
    const char *colon = strrchr(entry->address, ':');
    if (colon == NULL)
        snprintf(out, LIMIT_ADDRESS_BYTES, "127.0.0.1:0");
    else
        snprintf(out, LIMIT_ADDRESS_BYTES, "%.*s:0", (int)(colon - entry->address), entry->address);
}

static enum status start_child(struct pipeline *p, struct stage_process *process,
                               struct error *error)
{
    const struct executor_options *options = &p->options;
    char index[16];
    char address[LIMIT_ADDRESS_BYTES];
    snprintf(index, sizeof(index), "%u", process->index);
    listen_address(options->config_entry, address);
    const struct child_spec spec = {
        .batches_fd = -1,
        .machine = options->config_entry->name,
        .config = options->config,
        .keys = p->keys.count > 0 ? &p->keys : NULL,
        .turns_fd = options->turns_fd,
        .log_level = options->log_level,
        .arguments = {"--stage", index, "--listen", address},
    };
    enum status status = child_start(&spec, &process->child, error);
    if (status != ST_OK)
        return status;
    struct epoll_event event = {.events = EPOLLIN};
    bool watched = epoll_ctl(p->epoll_fd, EPOLL_CTL_ADD, process->child.pidfd, &event) == 0 &&
                   epoll_ctl(p->epoll_fd, EPOLL_CTL_ADD, process->child.ready_fd, &event) == 0;
    return watched ? ST_OK : error_set(error, ST_IO, "epoll: %s", strerror(errno));
}

static enum status open_processes(struct pipeline *p, struct error *error)
{
    bool elsewhere = false;
    enum status status = ST_OK;
    for (uint32_t i = 0; i < p->plan->process_count; i++)
        elsewhere |= p->plan->processes[i].config.address[0] != 0 &&
                     !config_address_is_loopback(p->plan->processes[i].config.address);
    for (uint32_t i = 0; i < p->plan->process_count && status == ST_OK; i++) {
        const struct stage_plan_process *from = &p->plan->processes[i];
        struct stage_process *process = &p->processes[i];
        *process = (struct stage_process){
            .peer_user = {PEER_STAGE, process}, .index = i, .retry_pause_us = RETRY_FIRST_US};
        process->child.pidfd = process->child.ready_fd = process->child.keys_fd = -1;
        stage_name(p->options.config_entry->name, i, process->name);
        if (from->config.address[0] != 0) {
            process->state = PROCESS_DISCONNECTED;
            memcpy(process->address, from->config.address, sizeof(process->address));
        } else if (elsewhere && p->options.config_entry->address[0] == 0) {
            status = error_set(error, ST_INVALID,
                               "machine %s: stage %u is on this computer, others are not: set the "
                               "machine's address, so that they can reach it",
                               p->options.config_entry->name, i);
        } else {
            status = start_child(p, process, error);
        }
    }
    return status;
}

static void child_end(struct stage_process *process)
{
    if (process->child.pid == 0)
        return;
    kill(process->child.pid, SIGKILL); /* Its weights and KV are no longer needed. */
    waitpid(process->child.pid, NULL, 0);
    close(process->child.pidfd);
    if (process->child.ready_fd >= 0)
        close(process->child.ready_fd);
    if (process->child.keys_fd >= 0)
        close(process->child.keys_fd);
    process->child.pid = 0;
}

static void pipeline_stop(struct executor *e)
{
    (void)e; /* this process does not use the KV memory */
}

static void pipeline_disconnect(struct executor *e)
{
    struct pipeline *p = pipeline_of(e);
    for (uint32_t i = 0; i < p->plan->process_count; i++) {
        if (p->processes[i].peer != NULL)
            transport_disconnect(p->transport, p->processes[i].peer);
        child_end(&p->processes[i]);
    }
}

static void pipeline_close(struct executor *e)
{
    struct pipeline *p = pipeline_of(e);
    pipeline_jobs_close(p);
    pipeline_kv_close(p);
    message_buffer_done(&p->send_buffer);
    secret_wipe(&p->keys, sizeof(p->keys));
    if (p->epoll_fd >= 0)
        close(p->epoll_fd);
    free(p);
}

/* Stage processes on other hosts, and those started by hand, read their own key file. */
static void pipeline_keys_set(struct executor *e, const struct secret_keys *keys)
{
    struct pipeline *p = pipeline_of(e);
    p->keys = *keys;
    for (uint32_t i = 0; i < p->plan->process_count; i++) {
        const struct stage_process *process = &p->processes[i];
        if (process->child.pid != 0 && process->child.keys_fd >= 0 &&
            child_keys_send(process->child.keys_fd, keys) != ST_OK)
            log_warn("stage %s: cannot give it the new cluster keys: %s", process->name,
                     strerror(errno));
    }
}

static void pipeline_log_level_send(struct executor *e, int level)
{
    struct pipeline *p = pipeline_of(e);
    for (uint32_t i = 0; i < p->plan->process_count; i++) {
        const struct child_process *child = &p->processes[i].child;
        if (child->pid != 0 && child->ready_fd < 0) /* Before that, the signal could end it. */
            sigqueue(child->pid, SIGUSR2, (union sigval){.sival_int = level});
    }
}

static int pipeline_fd(const struct executor *e)
{
    return pipeline_of_const(e)->epoll_fd;
}

static bool pipeline_is_ready(const struct executor *e)
{
    const struct pipeline *p = pipeline_of_const(e);
    return !p->failed && p->ready_count == p->plan->process_count;
}

static enum status pipeline_failure(const struct executor *e, struct error *error)
{
    const struct pipeline *p = pipeline_of_const(e);
    enum status status = p->crashed ? ST_IO : p->killed ? ST_CANCELLED : ST_UNREACHABLE;
    return p->failed ? error_set(error, status, "%s", p->failure.text) : ST_OK;
}

static const char *pipeline_describe(const struct executor *e)
{
    return pipeline_of_const(e)->description;
}

/* Batches wait at the stages; the scheduler knows how many may be in flight. */
static bool pipeline_can_start(const struct executor *e)
{
    (void)e;
    return true;
}

/* ---- children ---- */

static void child_ready(struct pipeline *p, struct stage_process *process)
{
    const char *text;
    enum child_line_kind outcome = child_line_read(process->child.ready_fd, &process->line, &text);
    if (outcome == CHILD_NOT_YET)
        return;
    close(process->child.ready_fd); /* this also removes it from the epoll set */
    process->child.ready_fd = -1;
    if (outcome == CHILD_FAILED)
        pipeline_fail(p, "stage %s: %s", process->name, text);
    if (outcome == CHILD_UNKNOWN_LINE)
        pipeline_fail(p, "stage %s said \"%s\", want \"ready ADDRESS\"", process->name,
                      process->line.text);
    if (outcome != CHILD_READY)
        return;
    snprintf(process->address, sizeof(process->address), "%.*s", LIMIT_ADDRESS_BYTES - 1, text);
    process->state = PROCESS_DISCONNECTED;
}

static void child_check(struct pipeline *p, struct stage_process *process)
{
    siginfo_t info = {0};
    if (process->child.pid == 0)
        return;
    if (process->child.ready_fd >= 0)
        child_ready(p, process);
    if (waitid(P_PID, (id_t)process->child.pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0)
        return;
    if (info.si_code == CLD_EXITED)
        pipeline_fail(p, "stage %s has ended: exit status %d", process->name, info.si_status);
    else
        pipeline_fail(p, "stage %s was killed by signal %d, %s", process->name, info.si_status,
                      strsignal(info.si_status));
}

/* ---- connections ---- */

static void retry_later(struct stage_process *process, int64_t now_us, const char *text)
{
    process->state = PROCESS_DISCONNECTED;
    process->peer = NULL;
    process->retry_at_us = now_us + process->retry_pause_us;
    process->retry_pause_us =
        2 * process->retry_pause_us < RETRY_MAX_US ? 2 * process->retry_pause_us : RETRY_MAX_US;
    if (strncmp(process->retry_reason, text, sizeof(process->retry_reason) - 1) != 0)
        log_warn("stage %s: %s; tries again", process->name, text);
    snprintf(process->retry_reason, sizeof(process->retry_reason), "%.255s", text);
}

static void connect_process(struct pipeline *p, struct stage_process *process, int64_t now_us)
{
    struct error error;
    process->state = PROCESS_CONNECTING;
    if (transport_connect(p->transport, process->address, &process->peer_user, &process->peer,
                          &error) < 0)
        retry_later(process, now_us, error.text);
}

static void heads_of(const struct stage_plan_process *process, struct message_stage *out)
{
    out->first_head = process->shard.kv_head_first;
    out->end_head = process->shard.kv_head_first + process->shard.kv_head_count;
}

/* Lists the processes of the next stage that this one sends activations to, with the paths that
 * each of them shares. Returns false if one is not connected yet: a stage process that cannot reach
 * the next one would give up. */
static bool next_of(const struct pipeline *p, const struct stage_process *process,
                    struct message_stage next[LIMIT_STAGE_PROCESSES], uint32_t *count_out)
{
    const struct stage_plan_process *from = &p->plan->processes[process->index];
    *count_out = 0;
    for (uint32_t i = 0; i < p->plan->process_count; i++) {
        const struct stage_plan_process *to = &p->plan->processes[i];
        if (!stage_plan_sends(p->plan, process->index, i))
            continue;
        if (p->processes[i].state < PROCESS_CONNECTED)
            return false;
        struct message_stage *entry = &next[(*count_out)++];
        *entry = (struct message_stage){.paths = to->paths & from->paths,
                                        .first_layer = to->first_layer,
                                        .end_layer = to->end_layer};
        heads_of(to, entry);
        memcpy(entry->address, p->processes[i].address, sizeof(entry->address));
    }
    return true;
}

static void open_stage(struct pipeline *p, struct stage_process *process)
{
    const struct machine_shape *shape = p->options.shape;
    const struct stage_plan_process *from = &p->plan->processes[process->index];
    struct message_stage next[LIMIT_STAGE_PROCESSES];
    struct stage_message message = {
        .kind = STAGE_OPEN,
        .open = {.process_index = process->index,
                 .first_layer = from->first_layer,
                 .end_layer = from->end_layer,
                 .block_count = shape->arena.block_count,
                 .rows_max = shape->rows_max,
                 .slots = stage_plan_slot_count(p->plan),
                 .context_spans = machine_shape_context_spans(shape),
                 .rank = from->shard.rank,
                 .ranks = from->shard.rank_count,
                 .next_stages = next},
    };
    if (!next_of(p, process, next, &message.open.next_count))
        return;
    process->state = PROCESS_OPENING;
    pipeline_send(p, process, &message);
}

static int64_t pipeline_progress(struct executor *e, int64_t now_us)
{
    struct pipeline *p = pipeline_of(e);
    int64_t next_us = INT64_MAX;
    for (uint32_t i = 0; i < p->plan->process_count && !p->failed; i++) {
        struct stage_process *process = &p->processes[i];
        child_check(p, process);
        if (process->state == PROCESS_DISCONNECTED && process->retry_at_us <= now_us)
            connect_process(p, process, now_us);
        if (process->state == PROCESS_CONNECTED)
            open_stage(p, process);
        if (process->state == PROCESS_DISCONNECTED && process->retry_at_us < next_us)
            next_us = process->retry_at_us;
    }
    pipeline_groups_send(p);
    pipeline_kv_report(p);
    pipeline_copies_report(p);
    return next_us;
}

static void pipeline_peer_up(struct executor *e, struct transport_peer *peer)
{
    struct pipeline *p = pipeline_of(e);
    struct stage_process *process = peer_object_of(peer);
    const char *name = transport_peer_identity(peer)->name;
    if (strcmp(name, process->name) != 0) {
        pipeline_fail(p, "%.100s is \"%s\", want stage %s", process->address, name, process->name);
        return;
    }
    if (!transport_peer_versions_equal(peer)) {
        pipeline_fail(p,
                      "stage %s speaks another version of the protocol than its machine: want "
                      "one release for all processes of a machine",
                      name);
        return;
    }
    process->state = PROCESS_CONNECTED;
    process->retry_pause_us = RETRY_FIRST_US;
    process->retry_reason[0] = 0;
}

static void pipeline_peer_down(struct executor *e, struct transport_peer *peer, const char *text,
                               int64_t now_us)
{
    struct pipeline *p = pipeline_of(e);
    struct stage_process *process = peer_object_of(peer);
    if (process->state == PROCESS_CONNECTING) {
        retry_later(process, now_us, text);
        return;
    }
    process->peer = NULL;
    pipeline_fail(p, "stage %s is gone: %.300s", process->name, text);
}

static void on_state(struct pipeline *p, struct stage_process *process,
                     const struct stage_state *state)
{
    if (!state->ready) {
        pipeline_fail(p, "stage %s: %s", process->name, state->text);
        return;
    }
    if (process->state != PROCESS_OPENING)
        return;
    char what[STAGE_PLAN_PROCESS_TEXT_BYTES];
    stage_plan_process_text(&p->plan->processes[process->index], what);
    process->state = PROCESS_READY;
    p->ready_count++;
    log_info("stage %s computes %s on %s", process->name, what, state->text);
    if (p->ready_count < p->plan->process_count)
        return;
    for (uint32_t i = 0; i < p->plan->process_count; i++) {
        const struct stage_plan_process *at = &p->plan->processes[i];
        p->layout[i] = (struct message_stage){
            .paths = at->paths, .first_layer = at->first_layer, .end_layer = at->end_layer};
        heads_of(at, &p->layout[i]);
        memcpy(p->layout[i].address, p->processes[i].address, sizeof(p->layout[i].address));
    }
}

static uint32_t pipeline_loads(const struct executor *e,
                               struct message_load out[LIMIT_STAGE_PROCESSES])
{
    const struct pipeline *p = pipeline_of_const(e);
    for (uint32_t i = 0; i < p->plan->process_count; i++) {
        out[i] = (struct message_load){.stage = p->plan->processes[i].stage,
                                       .replica = p->plan->processes[i].replica,
                                       .rank = p->plan->processes[i].shard.rank,
                                       .process = p->processes[i].load};
    }
    return p->plan->process_count;
}

static void pipeline_layout(const struct executor *e, struct message_stages *out)
{
    const struct pipeline *p = pipeline_of_const(e);
    *out = (struct message_stages){.count = p->plan->process_count, .stages = p->layout};
}

static void pipeline_peer_message(struct executor *e, struct transport_peer *peer,
                                  const uint8_t *data, size_t bytes)
{
    struct pipeline *p = pipeline_of(e);
    struct stage_process *process = peer_object_of(peer);
    struct stage_message message;
    struct error error;
    if (stage_message_decode(data, bytes, &message, &error) != ST_OK) {
        pipeline_fail(p, "stage %s: %s", process->name, error.text);
        return;
    }
    switch (message.kind) {
    case STAGE_STATE:
        on_state(p, process, &message.state);
        return;
    case STAGE_GROUP:
        pipeline_group_take(p, process, &message.group);
        return;
    case STAGE_POOLED:
        pipeline_pooled_take(p, process, &message.pooled);
        return;
    case STAGE_DONE:
        pipeline_done_take(p, process, &message.done);
        return;
    case STAGE_TARGET_LINK:
        pipeline_target_link_take(p, process, &message.target_link);
        return;
    case STAGE_FLUSHED:
        pipeline_flushed_take(p, &message.flushed);
        return;
    case STAGE_WRITER:
        p->options.calls.writer_changed(p->options.self, process->index, &message.writer);
        return;
    case STAGE_AWAITED:
        pipeline_awaited_take(p, &message.awaited);
        return;
    case STAGE_FETCHED:
        pipeline_fetched_take(p, process, &message.fetched);
        return;
    case STAGE_LOAD:
        process->load = message.load;
        return;
    default:
        pipeline_fail(p, "stage %s: %s is no message of a stage", process->name,
                      stage_message_name(message.kind));
    }
}

static const struct executor_ops pipeline_ops = {
    .stop = pipeline_stop,
    .disconnect = pipeline_disconnect,
    .close = pipeline_close,
    .fd = pipeline_fd,
    .progress = pipeline_progress,
    .is_ready = pipeline_is_ready,
    .failure = pipeline_failure,
    .describe = pipeline_describe,
    .can_start = pipeline_can_start,
    .start = pipeline_batch_start,
    .process_loads = pipeline_loads,
    .layout = pipeline_layout,
    .target_set = pipeline_target_set,
    .target_drop = pipeline_target_drop,
    .target_copy = pipeline_target_copy,
    .target_flush = pipeline_target_flush,
    .kv_await = pipeline_await,
    .kv_fetch = pipeline_kv_fetch,
    .kv_deliver = pipeline_kv_deliver,
    .keys_set = pipeline_keys_set,
    .log_level_send = pipeline_log_level_send,
    .peer_up = pipeline_peer_up,
    .peer_down = pipeline_peer_down,
    .peer_message = pipeline_peer_message,
    .peer_flushed = pipeline_peer_flushed,
};

enum status executor_pipeline_open(const struct executor_options *options, struct executor **out,
                                   struct error *error)
{
    enum status status;
    struct pipeline *p = calloc(1, sizeof(*p));
    if (p == NULL)
        return error_set(error, ST_NO_MEMORY, "pipeline: out of memory");
    p->executor = (struct executor){.ops = &pipeline_ops,
                                    .pushes_kv = true,
                                    .queues_messages = true,
                                    .staging = staging_arena(options->config, options->shape)};
    p->options = *options;
    p->plan = &options->shape->plan;
    if (options->cluster_keys != NULL)
        p->keys = *options->cluster_keys;
    p->options.cluster_keys = NULL; /* the caller's keys may be gone */
    snprintf(p->description, sizeof(p->description), "%u stages in %u processes",
             p->plan->stage_count, p->plan->process_count);
    p->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    *out = &p->executor;
    if (p->epoll_fd < 0)
        return error_set(error, ST_IO, "pipeline: epoll: %s", strerror(errno));
    /* without tiers no region: the stage processes have the KV */
    status = options->calls.transport_open(options->self, kv_arena_bytes(&p->executor.staging),
                                           NULL, &p->transport, error);
    if (status != ST_OK)
        return status;
    p->executor.staging_memory = transport_region(p->transport);
    status = pipeline_jobs_open(p);
    if (status == ST_OK)
        status = pipeline_kv_open(p);
    if (status != ST_OK)
        return error_set(error, status, "pipeline: %s", status_name(status));
    return open_processes(p, error);
}
