/* stage_group: a rank of a stage joins its group, and ends with it. */
#include "machine/executor/stage_state.h"

#include "common/log.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Time for the devices to find each other, after all ranks are open. */
#define JOIN_MS 60000

static_assert(STAGE_GROUP_ID_BYTES == COMPUTE_GROUP_ID_BYTES, "an id goes as it is");
static_assert(LIMIT_RANKS == MODEL_RANKS_MAX, "a model can be cut into as many slices");

bool stage_is_rank(const struct stage *s)
{
    return s->process->shard.rank_count > 1;
}

static void fail(struct stage *s, const struct error *error)
{
    s->group_state = GROUP_FAILED;
    stage_state_send(s, false, error->text);
}

void stage_group_make(struct stage *s)
{
    struct stage_message message = {.kind = STAGE_GROUP};
    struct error error;
    if (!stage_is_rank(s) || s->process->shard.rank != 0)
        return;
    snprintf(message.group.device, sizeof(message.group.device), "%s", s->device.ops->name);
    if (s->device.ops->group->id_make(s->device.compute, message.group.id, &error) != ST_OK) {
        fail(s, &error);
        return;
    }
    s->group_state = GROUP_MADE;
    stage_send(s, s->head, &message);
}

enum status stage_group_take(struct stage *s, const struct stage_group *group, struct error *error)
{
    const enum stage_group_state wanted = s->process->shard.rank == 0 ? GROUP_MADE : GROUP_NONE;
    if (!stage_is_rank(s))
        return error_set(error, ST_INVALID, "GROUP for a stage that is not divided into ranks");
    if (s->group_state != wanted)
        return error_set(
            error, ST_INVALID,
            "GROUP comes too early, comes twice, or comes after an error of the group");
    if (strcmp(group->device, s->device.ops->name) != 0) {
        error_set(error, ST_MISMATCH,
                  "it computes on %s, rank 0 on %s: want devices of one kind for all ranks",
                  s->device.ops->name, group->device);
        fail(s, error);
        return ST_OK;
    }
    s->group_state = GROUP_JOINING;
    engine_group_join(s->device.engine, group->id, s->process->shard.rank_count, JOIN_MS);
    return ST_OK;
}

void stage_group_progress(struct stage *s)
{
    struct error error;
    s->event_count++;
    if (engine_group_joined(s->device.engine, &error) == ST_OK)
        s->group_state = GROUP_JOINED;
    else
        fail(s, &error);
}

void stage_group_head_gone(struct stage *s)
{
    if (s->group_state == GROUP_NONE)
        return;
    log_info("rank %u of %u ends with the machine that its group was made for",
             s->process->shard.rank, s->process->shard.rank_count);
    s->stopping = true;
}

bool stage_in_group(const struct stage *s)
{
    return s->group_state != GROUP_NONE;
}
