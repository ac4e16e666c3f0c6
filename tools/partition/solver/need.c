/* partition_need_fill: how many layers the first stages must have covered, given what they use, so
 * that the unused devices can run the rest. It is partition_reach from the other end: the earliest
 * layer at which an end of the pipeline can begin that uses no more than a state. What the first
 * stages leave unused is such a state as well: the other hosts, and the other devices of the open
 * host. */
#include "tools/partition/solver/state.h"

#include <string.h>

static void fill(struct partition *p)
{
    for (uint32_t k = 0; k < p->kinds; k++) {
        for (uint32_t r = 1; r <= p->replicas_max[k]; r++) {
            uint32_t first = 0;
            for (uint32_t end = 1; end <= p->layers; end++) {
                while (first < end && partition_reach_of(p, k, first)[r] < end)
                    first++;
                partition_reach_back_of(p, k, end)[r] = (uint16_t)first;
            }
        }
    }
}

/* Adds one stage before an end of the pipeline that begins at layer `at`. */
static void advance(struct partition *p, const struct partition_place *place, uint32_t at,
                    const bool *fits /* [inside] */)
{
    struct partition_move moves[PARTITION_MOVES_MAX];
    uint32_t count = partition_moves(p, place, moves);
    for (uint32_t m = 0; m < count; m++) {
        if (at < p->layers && !fits[moves[m].on_open_host])
            continue;
        uint32_t before = at; /* First layer with fewer replicas. */
        const uint16_t *back = partition_reach_back_of(p, moves[m].kind, at);
        for (uint32_t r = 1; r <= moves[m].replicas_max && before > 0; r++) {
            uint32_t first = back[r];
            if (first == before)
                continue;
            before = first;
            uint16_t *near = &p->earliest_first[partition_move_target(p, &moves[m], r)];
            *near = first < *near ? (uint16_t)first : *near;
        }
    }
}

static void fill_near(struct partition *p, const bool *fits)
{
    struct partition_place place;
    for (uint32_t state = p->slots - 1; state < p->states; state++)
        p->earliest_first[state] = (uint16_t)p->layers;
    partition_place_first(p, &place);
    do {
        uint32_t below[PARTITION_HOSTS_MAX + PARTITION_KINDS_MAX];
        uint32_t count = partition_states_below(p, &place, below);
        uint16_t *near = &p->earliest_first[place.state];
        for (uint32_t b = 0; b < count; b++)
            *near = p->earliest_first[below[b]] < *near ? p->earliest_first[below[b]] : *near;
        uint16_t *closed = &p->earliest_first[partition_place_closed(p, &place)];
        *closed = *near < *closed ? *near : *closed;
        if (*near > 0)
            advance(p, &place, *near, fits);
    } while (partition_place_next(p, &place));
}

bool partition_need_fill(struct partition *p, const struct partition_bound *bound)
{
    const bool fits[2] = {partition_link_fits(&p->between_hosts, bound),
                          partition_link_fits(&p->inside_host, bound)};
    if (p->stages > 0) {
        memset(p->rest_first, 0, p->states * sizeof(p->rest_first[0]));
        return partition_reach(p, bound) == p->layers;
    }
    partition_reach_fill(p, bound);
    fill(p);
    fill_near(p, fits);
    if (p->earliest_first[p->states - 1] > 0) /* With all devices. */
        return false;
    struct partition_place place;
    partition_place_first(p, &place);
    do {
        /* First state of the other hosts. */
        uint32_t left = (p->vectors - 1 - place.state / p->slots) * p->slots;
        uint16_t need = p->earliest_first[left + p->slots - 1];
        if (place.host_use > 0) {
            uint32_t t = place.host_kind;
            uint32_t rest = p->slot_full[t] - place.host_use;
            uint32_t open = left + p->host_stride[t] * p->slots + p->slot_first[t] + rest - 1;
            need = p->earliest_first[open] < need ? p->earliest_first[open] : need;
        }
        p->rest_first[place.state] = need;
    } while (partition_place_next(p, &place));
    return true;
}
