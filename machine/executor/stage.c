/* stage: opening, closing, and one iteration of the event loop. */
#include "machine/executor/stage_state.h"

#include "common/log.h"
#include "common/memory.h"
#include "model/file/model_file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define LOAD_INTERVAL_US 100000
/* Most rounds of one iteration. Each round handles what the round before caused; the rest waits for
 * the next iteration. */
#define ROUNDS_MAX 8

/* The region holds the KV of this process's layers, then the activations of each batch in flight.
 */
static enum status open_transport(struct stage *s, const struct device_memory *device,
                                  struct error *error)
{
    struct transport_options options =
        machine_shape_transport_options(s->options.config, s->config_entry, &s->shape);
    s->slot_count = stage_plan_slot_count(&s->shape.plan);
    s->slot_bytes = (uint64_t)s->shape.rows_max * s->shape.hyper.hidden * sizeof(float);
    s->slot_bytes = (s->slot_bytes + 4095) / 4096 * 4096;
    options.events = stage_transport_events();
    options.self = s;
    /* The activations begin on a page. */
    uint64_t kv_bytes = kv_arena_bytes(&s->arena);
    options.region_bytes = (kv_bytes + 4095) / 4096 * 4096 + s->slot_count * s->slot_bytes;
    options.layer_stride_bytes = s->arena.layer_stride_bytes;
    options.device = device;
    options.keys = s->options.cluster_keys;
    memcpy(options.identity.name, s->name, sizeof(options.identity.name));
    return transport_open(s->options.transport, &options, &s->transport, error);
}

static enum status open_region(void *self, const struct device_memory *device, void **kv_out,
                               struct error *error)
{
    struct stage *s = self;
    enum status status = open_transport(s, device, error);
    if (status == ST_OK)
        *kv_out = transport_region(s->transport);
    return status;
}

/* All ranks of a stage are on one host and compute at the same time, so they share its cores. */
static uint32_t threads_of(const struct stage_plan_process *process)
{
    const uint32_t ranks = process->config.ranks;
    if (process->config.threads > 0 || ranks == 1)
        return process->config.threads;
    const uint32_t cores = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    return cores > ranks ? cores / ranks : 1;
}

static enum status open_device(struct stage *s, const struct model_file *file, struct error *error)
{
    char who[LIMIT_NAME_BYTES + 16];
    snprintf(who, sizeof(who), "stage %s", s->name);
    const struct device_options options = {
        .process_name = who,
        .machine = s->config_entry,
        .name = s->process->config.device,
        .ops = s->options.compute,
        .fallback = s->config_entry->cpu_fallback,
        .threads = threads_of(s->process),
        .shape = &s->shape,
        .arena = &s->arena,
        .rank = s->process->shard.rank,
        .ranks = s->process->shard.rank_count > 1 ? s->process->shard.rank_count : 0,
        .file = file,
        .kv_region_create = open_region,
        .self = s,
        .prefault = s->options.config->kv.prefault,
        .turns = s->options.turns,
    };
    return device_open(&options, &s->device, error);
}

static enum status open_loop(struct stage *s, struct error *error)
{
    struct epoll_event event = {.events = EPOLLIN};
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (s->epoll_fd < 0 ||
        epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, transport_fd(s->transport), &event) != 0 ||
        epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, engine_fd(s->device.engine), &event) != 0)
        return error_set(error, ST_IO, "epoll: %s", strerror(errno));
    return ST_OK;
}

static enum status open_all(struct stage *s, struct model_file **file, struct error *error)
{
    enum status status =
        machine_shape_read(s->options.config, s->config_entry, file, &s->shape, error);
    if (status != ST_OK)
        return status;
    if (s->options.process_index >= s->shape.plan.process_count)
        return error_set(error, ST_NOT_FOUND, "machine %s has %u stages, ranks counted: --stage %u",
                         s->config_entry->name, s->shape.plan.process_count,
                         s->options.process_index);
    s->process = &s->shape.plan.processes[s->options.process_index];
    s->arena = machine_shape_arena(&s->shape, s->process);
    s->staging = staging_arena(s->options.config, &s->shape);
    status = open_device(s, *file, error);
    if (status != ST_OK)
        return status;
    const struct kv_targets_options targets = {
        .transport = s->transport,
        .arena = s->arena,
        .context_spans = machine_shape_context_spans(&s->shape),
        .link_changed = stage_target_link,
        .flushed = stage_flushed,
        .self = s,
    };
    status = kv_targets_open(&targets, &s->targets);
    if (status == ST_OK)
        status = stage_jobs_open(s);
    if (status == ST_OK)
        status = stage_writers_open(s);
    if (status != ST_OK)
        return error_set(error, status, "stage %s: %s", s->name, status_name(status));
    return open_loop(s, error);
}

enum status stage_open(const struct stage_options *options, struct stage **out, struct error *error)
{
    int entry = config_machine_find(options->config, options->machine_name);
    if (entry < 0)
        return error_set(error, ST_NOT_FOUND, "%s: machines: \"%s\" is not one of them",
                         options->config->source, options->machine_name);
    struct stage *s = calloc(1, sizeof(*s));
    struct model_file *file = NULL;
    char what[STAGE_PLAN_PROCESS_TEXT_BYTES];
    if (s == NULL)
        return error_set(error, ST_NO_MEMORY, "stage %u: out of memory", options->process_index);
    s->options = *options;
    s->config_entry = &options->config->machines[entry];
    s->epoll_fd = -1;
    s->now_us = clock_now_us(options->clock);
    stage_name(options->machine_name, options->process_index, s->name);
    enum status status = open_all(s, &file, error);
    model_file_close(file);         /* the weights are repacked */
    s->options.cluster_keys = NULL; /* the caller's keys may be gone */
    if (status != ST_OK) {
        stage_close(s);
        return status;
    }
    stage_plan_process_text(s->process, what);
    log_info("stage %s has %s of %s on %s: %u KV blocks of %u tokens", s->name, what,
             s->shape.hyper.name, device_describe(&s->device), s->arena.block_count,
             s->arena.block_tokens);
    *out = s;
    return ST_OK;
}

/* Also closes a half-open stage. The engine stops first, because it reads and writes memory of the
 * other parts. */
void stage_close(struct stage *s)
{
    if (s == NULL)
        return;
    device_stop(&s->device);
    stage_jobs_close(s);
    stage_writers_close(s);
    kv_targets_close(s->targets);
    transport_close(s->transport); /* its region may be in device memory */
    device_close(&s->device);
    message_buffer_done(&s->send_buffer);
    if (s->epoll_fd >= 0)
        close(s->epoll_fd);
    free(s);
}

enum status stage_listen(struct stage *s, const char *address, char bound_out[LIMIT_ADDRESS_BYTES],
                         struct error *error)
{
    return transport_listen(s->transport, address, bound_out, error);
}

int stage_fd(const struct stage *s)
{
    return s->epoll_fd;
}

/* Copies of KV may end after the last job: they change the load, too. */
static void load_send(struct stage *s)
{
    const struct message_copies copies = machine_copy_counts(s->transport);
    s->load_changed |= memcmp(&copies, &s->load.device_copies, sizeof(copies)) != 0;
    if (!s->load_changed || s->now_us < s->load_due_us || !s->opened)
        return;
    s->load_changed = false;
    s->load_due_us = s->now_us + LOAD_INTERVAL_US;
    s->load.resident_bytes = memory_resident();
    s->load.device_copies = copies;
    const struct stage_message message = {.kind = STAGE_LOAD, .load = s->load};
    stage_send(s, s->head, &message);
}

static void engine_check(struct stage *s)
{
    const struct engine_progress progress = engine_poll(s->device.engine);
    if (s->group_state == GROUP_JOINING && progress.done)
        stage_group_progress(s);
    else
        stage_jobs_progress(s, progress);
}

/* Returns true when the round caused something that the next round has to handle. */
static bool turn_round(struct stage *s)
{
    s->event_count = 0;
    s->sends_queued = false;
    s->now_us = clock_now_us(s->options.clock);
    transport_progress(s->transport);
    engine_check(s);
    stage_jobs_start(s);
    stage_ready_report(s);
    stage_peers_drop(s);
    return s->event_count > 0 || s->sends_queued;
}

int stage_turn(struct stage *s)
{
    uint32_t rounds = 0;
    bool more = true;
    while (more && rounds++ < ROUNDS_MAX)
        more = turn_round(s);
    load_send(s);
    /* sends what is queued; messages that arrive meanwhile need another iteration */
    if (s->sends_queued) {
        s->event_count = 0;
        transport_progress(s->transport);
        more |= s->event_count > 0;
    }
    if (more)
        return 0;
    if (!s->load_changed || !s->opened)
        return -1;
    int64_t left_ms = (s->load_due_us - s->now_us + 999) / 1000;
    return left_ms < 0 ? 0 : left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}

enum status stage_keys_set(struct stage *s, const struct secret_keys *keys, struct error *error)
{
    return transport_keys_set(s->transport, keys, error);
}

void stage_stop(struct stage *s)
{
    s->stopping = true;
}

bool stage_stopped(const struct stage *s)
{
    return s->stopping;
}
