/* pipeline_group: passes the group that rank 0 of a stage has made to all ranks of the stage. */
#include "machine/executor/pipeline_state.h"

void pipeline_group_made(struct pipeline *p, struct place *place, const struct stage_group *group)
{
    const struct stage_place *at = &p->plan->places[place->index];
    if (at->shard.rank != 0 || at->shard.ranks == 1 || place->group_made ||
        place->state < PLACE_OPENING) {
        pipeline_fail(p, "stage %s: it made a group that was not asked for", place->name);
        return;
    }
    place->group_made = true;
    place->group = *group;
    pipeline_groups_send(p);
}

static void group_send_when_open(struct pipeline *p, uint32_t first)
{
    const uint32_t ranks = p->plan->places[first].shard.ranks;
    struct place *places = &p->places[first];
    for (uint32_t rank = 0; rank < ranks; rank++)
        if (places[rank].state < PLACE_OPENING)
            return;
    const struct stage_message message = {.kind = STAGE_GROUP, .group = places[0].group};
    places[0].group_sent = true;
    for (uint32_t rank = 0; rank < ranks; rank++)
        pipeline_send(p, &places[rank], &message);
}

void pipeline_groups_send(struct pipeline *p)
{
    for (uint32_t i = 0; i < p->plan->place_count; i++)
        if (p->places[i].group_made && !p->places[i].group_sent)
            group_send_when_open(p, i);
}
