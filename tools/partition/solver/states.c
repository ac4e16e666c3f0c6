/* partition_states: numbers the states, walks over them, and lists the stages that may come
 * next. */
#include "tools/partition/solver/state.h"

#include <assert.h>
#include <string.h>

/* so that no product below overflows; PARTITION_MEMORY_MAX is reached earlier */
#define STATES_MAX (1u << 24)

bool partition_states_count(struct partition *p)
{
    uint64_t vectors = 1;
    for (uint32_t t = p->host_kinds; t-- > 0;) {
        p->host_stride[t] = (uint32_t)vectors;
        vectors *= p->hosts[t].count + 1;
        if (vectors > STATES_MAX)
            return false;
    }
    uint64_t slots = 0;
    for (uint32_t t = 0; t < p->host_kinds; t++) {
        uint64_t ways = 1;
        for (uint32_t k = p->kinds; k-- > 0;) {
            p->slot_stride[t][k] = (uint32_t)ways;
            ways *= p->hosts[t].devices[k] + 1;
            if (ways > STATES_MAX)
                return false;
        }
        p->slot_first[t] = (uint32_t)slots;
        p->slot_full[t] = (uint32_t)ways - 1;
        slots += ways > 2 ? ways - 2 : 0;
    }
    slots += 1;
    uint64_t states = vectors * slots;
    if (states > STATES_MAX || states * (p->stages + 1) > STATES_MAX)
        return false;
    p->vectors = (uint32_t)vectors;
    p->slots = (uint32_t)slots;
    p->states = (uint32_t)states * (p->stages + 1);
    return true;
}

void partition_place_first(const struct partition *p, struct partition_place *place)
{
    memset(place, 0, sizeof(*place));
    place->state = p->slots - 1;
}

uint32_t partition_place_closed(const struct partition *p, const struct partition_place *place)
{
    return place->state - place->state % p->slots + p->slots - 1;
}

/* Moves to the first slot of the first kind of host, from `host_kind` on, of which a host is used;
 * to `closed` if there is none. */
static void open_next(const struct partition *p, struct partition_place *place, uint32_t host_kind)
{
    uint32_t base = place->state - place->state % p->slots;
    for (uint32_t t = host_kind; t < p->host_kinds; t++) {
        if (place->used[t] == 0 || p->slot_full[t] < 2)
            continue;
        place->host_kind = t;
        place->host_use = 1;
        place->state = base + p->slot_first[t];
        return;
    }
    place->host_use = 0;
    place->state = base + p->slots - 1;
}

bool partition_place_next(const struct partition *p, struct partition_place *place)
{
    if (place->host_use > 0) {
        if (place->host_use + 1 < p->slot_full[place->host_kind]) {
            place->host_use++;
            place->state++;
        } else {
            open_next(p, place, place->host_kind + 1);
        }
        return true;
    }
    if (place->state + 1 == p->states)
        return false;
    place->state++; /* The first slot of the next host vector. */
    uint32_t t = p->host_kinds;
    while (t-- > 0) {
        if (place->used[t] < p->hosts[t].count) {
            place->used[t]++;
            place->hosts++;
            break;
        }
        place->hosts -= place->used[t];
        place->used[t] = 0;
        place->stage += t == 0;
    }
    open_next(p, place, 0);
    return true;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Devices of a kind in use on the open host. */
static uint32_t used_inside(const struct partition *p, const struct partition_place *place,
                            uint32_t kind)
{
    uint32_t ways = p->hosts[place->host_kind].devices[kind] + 1;
    return place->host_use / p->slot_stride[place->host_kind][kind] % ways;
}

uint32_t partition_moves(const struct partition *p, const struct partition_place *place,
                         struct partition_move *moves_out)
{
    uint32_t count = 0;
    uint32_t base = place->state - place->state % p->slots;
    if (p->stages > 0) {
        if (place->stage == p->stages)
            return 0;
        base += p->vectors * p->slots;
    }
    for (uint32_t t = 0; t < p->host_kinds; t++) {
        bool inside = place->host_use > 0;
        uint32_t left = p->hosts[t].count - place->used[t];
        if (inside ? t != place->host_kind : left == 0)
            continue;
        for (uint32_t k = 0; k < p->kinds; k++) {
            uint32_t devices = p->hosts[t].devices[k];
            uint32_t room = inside ? devices - used_inside(p, place, k) : left * devices;
            if (devices > 0 && room > 0)
                moves_out[count++] =
                    (struct partition_move){.kind = k,
                                            .host_kind = t,
                                            .on_open_host = inside,
                                            .replicas_max = smaller(room, p->replicas_max[k]),
                                            .per_host = devices,
                                            .host_use = place->host_use,
                                            .base = base};
        }
    }
    return count;
}

uint32_t partition_states_below(const struct partition *p, const struct partition_place *place,
                                uint32_t *states_out)
{
    uint32_t count = 0;
    for (uint32_t t = 0; t < p->host_kinds; t++) {
        bool open = place->host_use > 0 && t == place->host_kind;
        if (place->used[t] > (open ? 1 : 0))
            states_out[count++] = place->state - p->host_stride[t] * p->slots;
    }
    if (place->host_use == 0)
        return count;
    for (uint32_t k = 0; k < p->kinds; k++) {
        uint32_t stride = p->slot_stride[place->host_kind][k];
        if (used_inside(p, place, k) > 0 && place->host_use > stride)
            states_out[count++] = place->state - stride;
    }
    return count;
}
