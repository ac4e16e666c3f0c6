/* partition_reach: which bounds on stages can be kept at all. If devices can run layers from some
 * layer on, they can also run those from a later layer on. So of all pipelines that use the same
 * devices only the furthest one counts: one number per state, instead of layers within the
 * state. */
#include "tools/partition/solver/state.h"

#include <string.h>

bool partition_link_fits(const struct partition_link *link, const struct partition_bound *bound)
{
    return link->busy_ns <= bound->pace_ns &&
           link->busy_ns * bound->interval.divisor <= bound->interval.ns;
}

void partition_reach_fill(struct partition *p, const struct partition_bound *bound)
{
    for (uint32_t k = 0; k < p->kinds; k++) {
        uint64_t room = p->memory_bytes_of[k];
        for (uint32_t first = 0; first < p->layers; first++) {
            uint32_t end = first;
            for (uint32_t r = 0; r <= p->replicas_max[k]; r++) {
                uint64_t most = bound->interval.ns * r / bound->interval.divisor;
                most = most < bound->pace_ns ? most : bound->pace_ns;
                while (r > 0 && partition_replicas_fit(p, r) && end < p->layers &&
                       partition_run_ns(p, k, first, end + 1) <= most &&
                       partition_run_bytes(p, first, end + 1) <= room)
                    end++;
                partition_reach_of(p, k, first)[r] = (uint16_t)end;
            }
        }
    }
}

/* Adds one stage after a pipeline that ends at layer `at`. */
static void advance(struct partition *p, const struct partition_place *place, uint32_t at,
                    const bool *fits /* [inside] */)
{
    struct partition_move moves[PARTITION_MOVES_MAX];
    uint32_t count = partition_moves(p, place, moves);
    for (uint32_t m = 0; m < count; m++) {
        if (at > 0 && !fits[moves[m].on_open_host])
            continue;
        const uint16_t *reach = partition_reach_of(p, moves[m].kind, at);
        for (uint32_t r = 1; r <= moves[m].replicas_max; r++) {
            uint32_t end = reach[r];
            uint16_t *far = &p->furthest_end[partition_move_target(p, &moves[m], r)];
            if (end > at && end > *far)
                *far = (uint16_t)end;
            if (end == p->layers)
                break; /* More replicas use more devices and reach no further layer. */
        }
    }
}

uint32_t partition_reach(struct partition *p, const struct partition_bound *bound)
{
    partition_reach_fill(p, bound);
    const bool fits[2] = {partition_link_fits(&p->between_hosts, bound),
                          partition_link_fits(&p->inside_host, bound)};
    memset(p->furthest_end, 0, p->states * sizeof(p->furthest_end[0]));
    uint32_t furthest = 0;
    struct partition_place place;
    partition_place_first(p, &place);
    do {
        uint32_t at = p->furthest_end[place.state];
        furthest = at > furthest ? at : furthest;
        if (furthest == p->layers)
            break;
        if (at == 0 && place.state != p->slots - 1)
            continue;
        uint16_t *closed = &p->furthest_end[partition_place_closed(p, &place)];
        if (at > *closed)
            *closed = (uint16_t)at;
        advance(p, &place, at, fits);
    } while (partition_place_next(p, &place));
    return furthest;
}
