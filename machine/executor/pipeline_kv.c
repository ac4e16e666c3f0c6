/* pipeline_kv: connections of the stage processes to other machines, and the KV on its way there.
 */
#include "machine/executor/pipeline_state.h"

#include "kvcache/kv_targets.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum status pipeline_kv_open(struct pipeline *p)
{
    p->flights = calloc(LIMIT_MACHINE_REQUESTS, sizeof(p->flights[0]));
    p->landed_flights = calloc(LIMIT_MACHINE_REQUESTS, sizeof(p->landed_flights[0]));
    p->awaiting = calloc(LIMIT_MACHINE_REQUESTS, sizeof(p->awaiting[0]));
    return p->flights != NULL && p->landed_flights != NULL && p->awaiting != NULL ? ST_OK
                                                                                  : ST_NO_MEMORY;
}

void pipeline_kv_close(struct pipeline *p)
{
    free(p->flights);
    free(p->landed_flights);
    free(p->awaiting);
}

static void send_all(struct pipeline *p, const struct stage_message *message)
{
    for (uint32_t i = 0; i < p->plan->process_count; i++)
        if (p->processes[i].state == PROCESS_READY)
            pipeline_send(p, &p->processes[i], message);
}

void pipeline_target_set(struct executor *e, uint32_t target, const struct message_peer *machine,
                         struct transport_peer *peer, const struct message_stages *stages)
{
    struct pipeline *p = pipeline_of(e);
    (void)peer; /* the stage processes make connections of their own */
    struct message_stage copies[LIMIT_STAGE_PROCESSES];
    struct pipeline_target *entry = &p->targets[target];
    for (uint32_t i = 0; i < stages->count; i++) {
        copies[i] = stages->stages[i];
        /* the machine's own process: stages connect to it directly */
        if (copies[i].address[0] == 0)
            memcpy(copies[i].address, machine->address, sizeof(copies[i].address));
    }
    entry->serial++;
    entry->unconnected = p->plan->process_count;
    struct stage_message message = {
        .kind = STAGE_TARGET,
        .target = {.target = target,
                   .serial = entry->serial,
                   .stages = {.count = stages->count, .stages = copies}}};
    memcpy(message.target.name, machine->name, sizeof(message.target.name));
    send_all(p, &message);
}

void pipeline_target_drop(struct executor *e, uint32_t target)
{
    struct pipeline *p = pipeline_of(e);
    struct pipeline_target *entry = &p->targets[target];
    entry->serial++;
    entry->unconnected = UINT32_MAX;
    const struct stage_message message = {.kind = STAGE_TARGET,
                                          .target = {.target = target, .serial = entry->serial}};
    send_all(p, &message);
}

void pipeline_target_link_take(struct pipeline *p, const struct stage_process *process,
                               const struct stage_target_link *link)
{
    struct pipeline_target *entry = &p->targets[link->target];
    char text[256];
    if (link->serial != entry->serial || entry->unconnected == UINT32_MAX)
        return;
    if (!link->up) {
        entry->unconnected = UINT32_MAX;
        snprintf(text, sizeof(text), "stage %s: %.200s", process->name, link->text);
        p->options.calls.target_changed(p->options.self, link->target, false, text);
        return;
    }
    if (entry->unconnected > 0 && --entry->unconnected == 0)
        p->options.calls.target_changed(p->options.self, link->target, true, link->text);
}

/* Returns the request's flight, which begins with the first call; NULL = a later request uses its
 * entry. */
static struct pipeline_flight *flight_of(struct pipeline *p, uint64_t cookie)
{
    struct pipeline_flight *flight = &p->flights[cookie % LIMIT_MACHINE_REQUESTS];
    if (cookie < flight->cookie)
        return NULL;
    if (cookie > flight->cookie)
        *flight = (struct pipeline_flight){.cookie = cookie};
    return flight;
}

/* Marks the flight as landed when every stage process of the path has reported, which each does
 * once per request. */
static void flight_check(struct pipeline *p, const struct pipeline_flight *flight)
{
    if (flight->reports_wanted > 0 && flight->flushed == flight->reports_wanted) {
        assert(p->landed_count < LIMIT_MACHINE_REQUESTS);
        p->landed_flights[p->landed_count++] = *flight;
    }
}

/* The ids of `count` entries of each layer group, group after group. */
static void entries_list(const kv_block_id *ids, uint32_t stride, uint32_t groups, uint32_t first,
                         uint32_t count, uint32_t *out)
{
    for (uint32_t group = 0; group < groups; group++)
        memcpy(out + (size_t)group * count, ids + (size_t)group * stride + first,
               count * sizeof(uint32_t));
}

static uint32_t entries_before(uint32_t first, uint32_t from)
{
    return first > from ? first - from : 0;
}

enum status pipeline_target_copy(struct executor *e, uint32_t own_path, const struct kv_push *push,
                                 uint64_t cookie)
{
    struct pipeline *p = pipeline_of(e);
    const uint32_t groups = layer_groups_count(&p->options.shape->arena.groups);
    const uint32_t count = groups * push->count;
    if (count > LIMIT_CONTEXT_TOKENS)
        return ST_TOO_LARGE;
    uint32_t *ids = malloc(2 * (size_t)count * sizeof(*ids));
    if (ids == NULL)
        return ST_NO_MEMORY;
    entries_list(push->source_blocks, push->source_stride, groups, push->first, push->count, ids);
    entries_list(push->target_blocks, push->target_stride, groups, push->first, push->count,
                 ids + count);
    const struct stage_message message = {
        .kind = STAGE_COPY,
        .copy = {.cookie = cookie,
                 .request = push->request.id,
                 .generation = push->request.generation,
                 .target = push->target,
                 .target_serial = p->targets[push->target].serial,
                 .path = push->path,
                 .span_count = push->count,
                 .full_first = entries_before(push->full_first, push->first),
                 .window_first = entries_before(push->window_first, push->first),
                 .block_count = count,
                 .sources = ids,
                 .targets = ids + count}};
    for (uint32_t i = 0; i < p->plan->process_count; i++)
        if ((p->path_processes[own_path] >> i & 1) != 0)
            pipeline_send(p, &p->processes[i], &message);
    free(ids);
    return ST_OK;
}

void pipeline_target_flush(struct executor *e, uint32_t own_path, uint32_t target, uint32_t path,
                           uint64_t cookie, bool requested)
{
    struct pipeline *p = pipeline_of(e);
    struct pipeline_flight *flight = flight_of(p, cookie);
    const uint64_t processes = p->path_processes[own_path];
    assert(flight != NULL && flight->reports_wanted == 0);
    flight->reports_wanted = (uint32_t)__builtin_popcountll(processes);
    const struct stage_message message = {
        .kind = STAGE_FLUSH, .flush = {.cookie = cookie, .target = target, .path = path}};
    for (uint32_t i = 0; i < p->plan->process_count && !requested; i++)
        if ((processes >> i & 1) != 0)
            pipeline_send(p, &p->processes[i], &message);
    flight_check(p, flight);
}

void pipeline_flushed_take(struct pipeline *p, const struct stage_flushed *flushed)
{
    struct pipeline_flight *flight = flight_of(p, flushed->cookie);
    if (flight == NULL)
        return;
    flight->flushed++;
    if (flushed->status != ST_OK)
        flight->status = (enum status)flushed->status;
    flight_check(p, flight);
}

void pipeline_await(struct executor *e, uint32_t path, const struct stage_await *await)
{
    struct pipeline *p = pipeline_of(e);
    const uint64_t processes = p->path_processes[path];
    const struct stage_message message = {.kind = STAGE_AWAIT, .await = *await};
    if (await->ends == 0)
        p->awaiting[await->cookie % LIMIT_MACHINE_REQUESTS] = (struct pipeline_await){
            .cookie = await->cookie, .unanswered = (uint32_t)__builtin_popcountll(processes)};
    for (uint32_t i = 0; i < p->plan->process_count; i++)
        if ((processes >> i & 1) != 0)
            pipeline_send(p, &p->processes[i], &message);
}

void pipeline_awaited_take(struct pipeline *p, const struct stage_awaited *awaited)
{
    struct pipeline_await *awaiting = &p->awaiting[awaited->cookie % LIMIT_MACHINE_REQUESTS];
    if (awaiting->cookie == awaited->cookie && awaiting->unanswered > 0 &&
        --awaiting->unanswered == 0)
        p->options.calls.kv_await_known(p->options.self, awaited->cookie);
}

void pipeline_kv_report(struct pipeline *p)
{
    while (p->landed_count > 0) {
        const struct pipeline_flight flight = p->landed_flights[--p->landed_count];
        p->options.calls.target_flushed(p->options.self, flight.cookie, flight.status);
    }
}
