/* pipeline_staging: KV of the stage processes on its way to and from the head's staging memory
 * (staging.h). All processes of the machine are on the only path: a machine with several paths has
 * no prefix cache, and so no tiers. */
#include "machine/executor/pipeline_state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Returns true if the process writes its KV when it is fetched: of equal copies, only one is
 * fetched. */
static bool process_is_fetched(const struct pipeline *p, uint32_t process)
{
    const struct kv_arena arena =
        machine_shape_arena(p->options.shape, &p->plan->processes[process]);
    return arena.copy_count == 0 || arena.copy_index == 0;
}

static void copy_begin(struct pipeline *p, uint32_t slot)
{
    assert(slot < STAGING_SLOTS && !p->copies[slot].unreported && p->plan->paths.path_count <= 1);
    p->copies[slot] = (struct pipeline_copy){.unreported = true};
}

void pipeline_kv_fetch(struct executor *e, const struct executor_copy *copy)
{
    struct pipeline *p = pipeline_of(e);
    const uint32_t groups = layer_groups_count(&p->options.shape->arena.groups);
    uint32_t ids[LAYER_GROUPS_MAX * STAGING_SPANS_MAX];
    for (uint32_t group = 0; group < groups; group++)
        memcpy(ids + group * copy->span_count, copy->blocks + (size_t)group * copy->stride,
               copy->span_count * sizeof(ids[0]));
    const struct stage_message message = {.kind = STAGE_FETCH,
                                          .fetch = {.slot = copy->slot,
                                                    .span_count = copy->span_count,
                                                    .window_first = copy->window_first,
                                                    .block_count = groups * copy->span_count,
                                                    .blocks = ids}};
    copy_begin(p, copy->slot);
    for (uint32_t i = 0; i < p->plan->process_count; i++) {
        if (!process_is_fetched(p, i))
            continue;
        p->copies[copy->slot].unanswered++;
        pipeline_send(p, &p->processes[i], &message);
    }
}

void pipeline_kv_deliver(struct executor *e, const struct executor_copy *copy)
{
    struct pipeline *p = pipeline_of(e);
    kv_block_id ids[LAYER_GROUPS_MAX * STAGING_SPANS_MAX];
    const struct staging_side own = {
        .arena = &p->executor.staging, .blocks = ids, .stride = STAGING_SPANS_MAX};
    struct pipeline_copy *entry = &p->copies[copy->slot];
    staging_slot_blocks(own.arena, copy->slot, ids);
    copy_begin(p, copy->slot);
    for (uint32_t i = 0; i < p->plan->process_count; i++) {
        struct transport_peer *peer = p->processes[i].peer;
        const struct kv_arena arena = machine_shape_arena(p->options.shape, &p->plan->processes[i]);
        const struct staging_side theirs = {
            .arena = &arena, .blocks = copy->blocks, .stride = copy->stride};
        enum status status = ST_UNREACHABLE;
        if (peer != NULL)
            status = staging_write(p->transport, peer, &own, &theirs, copy->window_first,
                                   copy->span_count);
        if (status < 0) {
            entry->status = status;
            continue;
        }
        entry->unanswered++;
        transport_flush(p->transport, peer, copy->slot);
    }
}

static void copy_answered(struct pipeline *p, uint32_t slot, enum status status)
{
    struct pipeline_copy *copy = &p->copies[slot];
    if (status != ST_OK)
        copy->status = status;
    copy->unanswered--;
}

void pipeline_fetched_take(struct pipeline *p, const struct stage_process *process,
                           const struct stage_fetched *fetched)
{
    if (fetched->slot >= STAGING_SLOTS || p->copies[fetched->slot].unanswered == 0)
        pipeline_fail(p, "stage %s: it sends KV that was not fetched", process->name);
    else
        copy_answered(p, fetched->slot, (enum status)fetched->status);
}

void pipeline_peer_flushed(struct executor *e, struct transport_peer *peer, uint64_t cookie,
                           enum status status)
{
    (void)peer; /* The head writes to stage processes only. */
    copy_answered(pipeline_of(e), (uint32_t)cookie, status);
}

void pipeline_copies_report(struct pipeline *p)
{
    for (uint32_t slot = 0; slot < STAGING_SLOTS; slot++) {
        struct pipeline_copy *copy = &p->copies[slot];
        if (!copy->unreported || copy->unanswered > 0)
            continue;
        copy->unreported = false;
        p->options.calls.kv_copied(p->options.self, slot, copy->status);
    }
}
