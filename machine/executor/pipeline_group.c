/* pipeline_group: passes the group that rank 0 of a stage has made to all ranks of the stage. */
#include "machine/executor/pipeline_state.h"

void pipeline_group_take(struct pipeline *p, struct stage_process *process,
                         const struct stage_group *group)
{
    const struct stage_plan_process *at = &p->plan->processes[process->index];
    if (at->shard.rank != 0 || at->shard.rank_count == 1 || process->group_made ||
        process->state < PROCESS_OPENING) {
        pipeline_fail(p, "stage %s: it made a group that was not asked for", process->name);
        return;
    }
    process->group_made = true;
    process->group = *group;
    pipeline_groups_send(p);
}

static void group_send_when_open(struct pipeline *p, uint32_t first)
{
    const uint32_t ranks = p->plan->processes[first].shard.rank_count;
    struct stage_process *processes = &p->processes[first];
    for (uint32_t rank = 0; rank < ranks; rank++)
        if (processes[rank].state < PROCESS_OPENING)
            return;
    const struct stage_message message = {.kind = STAGE_GROUP, .group = processes[0].group};
    processes[0].group_sent = true;
    for (uint32_t rank = 0; rank < ranks; rank++)
        pipeline_send(p, &processes[rank], &message);
}

void pipeline_groups_send(struct pipeline *p)
{
    for (uint32_t i = 0; i < p->plan->process_count; i++)
        if (p->processes[i].group_made && !p->processes[i].group_sent)
            group_send_when_open(p, i);
}
