/* partition_state: what the files of the partitioner share; nobody else includes it.
 *
 * A state says what of the cluster a beginning of the pipe has used up: for each kind of hosts how
 * many, the one that it is on included; and of that one, if devices of it are left, how many of
 * each kind are used. `closed`: no host is open, the next stage begins on another one. A closed
 * state is no better than the open ones of the same hosts, so an open host may be closed at any
 * time. Where the number of stages is given, it is counted as well.
 *
 * States are numbered so that every step of the pipe leads to a higher number: by stages, then the
 * vector of hosts, then the slot: of the open host what is used, last of all `closed`. */
#ifndef SCHEDULER_PARTITION_STATE_H
#define SCHEDULER_PARTITION_STATE_H

#include "common/limits.h"
#include "scheduler/partition.h"

#include <stddef.h>

#define PARTITION_RATE_ANY                                                                         \
    (struct partition_rate)                                                                        \
    {                                                                                              \
        .ns = 1ull << 49, .over = 1                                                                \
    }
#define PARTITION_PACE_ANY (1ull << 50)

/* What no stage or link may exceed. */
struct partition_bound {
    struct partition_rate rate; /* time / replicas, busy_ns */
    uint64_t pace_ns;           /* time, busy_ns */
};

/* How the best way to a state and layer came there: the last stage, from state `from`. */
struct partition_label {
    uint32_t from;
    uint8_t start; /* its first layer */
    uint8_t kind;
    uint8_t replicas; /* 0: no stage, the host was closed */
    uint8_t host_kind;
};

struct partition {
    uint32_t layers;
    uint32_t kinds;
    uint32_t host_kinds;
    uint32_t stages;                            /* 0: any number */
    uint32_t replicas_max[PARTITION_KINDS_MAX]; /* 0: no such device */
    uint32_t paths_max;                         /* 0: any number */
    uint32_t paths;                             /* replica counts divide this; 0: any do */
    uint64_t time_ns[PARTITION_KINDS_MAX][LIMIT_LAYERS + 1]; /* of the layers before each */
    uint64_t stage_ns[PARTITION_KINDS_MAX];
    uint64_t bytes[LIMIT_LAYERS + 1];
    uint64_t shared_bytes;
    uint64_t workspace_bytes;
    uint64_t memory_bytes_of[PARTITION_KINDS_MAX]; /* of a device */
    struct partition_link inside;
    struct partition_link between;
    uint64_t back_inside_ns;
    uint64_t back_between_ns;
    struct partition_host hosts[PARTITION_HOSTS_MAX];

    uint32_t host_stride[PARTITION_HOSTS_MAX]; /* of one more host, in vectors */
    uint32_t vectors;
    uint32_t slot_first[PARTITION_HOSTS_MAX];
    uint32_t slot_full[PARTITION_HOSTS_MAX]; /* the index of a host of which all is used */
    uint32_t slot_stride[PARTITION_HOSTS_MAX][PARTITION_KINDS_MAX];
    uint32_t slots;  /* the last one is closed */
    uint32_t states; /* numbers slots - 1 (the start: closed, nothing used) … states - 1 */
    uint32_t width;  /* of a row: layers + 1 and what aligns it */

    uint16_t *reach; /* [kind][first layer][replicas]: the furthest end within the bound */
    uint16_t *back;  /* [kind][end][replicas]: the earliest first layer */
    uint16_t *far;   /* [state]: the furthest end of a pipe; 0: none */
    uint16_t *near;  /* [state]: the earliest first layer of a pipe's end that uses no more */
    uint16_t *need;  /* [state]: what is left can run the layers from here on, none before */
    uint64_t *value; /* [state][end]: of the best pipe: latency << 8 | devices */
    struct partition_label *label; /* [state][end] */
    uint64_t memory_bytes;
};

/* --- partition_states.c --- */

/* Numbers the states. False: there are too many. */
bool partition_states_count(struct partition *p);

/* A walk over the states in their order. */
struct partition_place {
    uint32_t state;
    uint32_t stage;     /* of those that are counted */
    uint32_t host_kind; /* of the open host */
    uint32_t index;     /* what of it is used; 0: closed */
    uint32_t hosts;     /* used */
    uint32_t used[PARTITION_HOSTS_MAX];
};

void partition_place_first(const struct partition *p, struct partition_place *place);
bool partition_place_next(const struct partition *p, struct partition_place *place);
uint32_t partition_place_closed(const struct partition *p, const struct partition_place *place);

/* The next stage: 1 … room replicas of one kind, on the open host or on others of one kind. */
struct partition_move {
    uint32_t kind;
    uint32_t host_kind;
    bool inside;
    uint32_t room;
    uint32_t per_host;
    uint32_t index; /* of the open host, before */
    uint32_t base;  /* the state's first slot, a stage later */
};

#define PARTITION_MOVES_MAX (PARTITION_HOSTS_MAX * PARTITION_KINDS_MAX)

uint32_t partition_moves(const struct partition *p, const struct partition_place *place,
                         struct partition_move *moves_out);

static inline uint32_t partition_target(const struct partition *p,
                                        const struct partition_move *move, uint32_t replicas)
{
    uint32_t hosts = move->inside ? 0 : (replicas - 1) / move->per_host + 1;
    uint32_t base = move->base + hosts * p->host_stride[move->host_kind] * p->slots;
    uint32_t index = move->index + replicas * p->slot_stride[move->host_kind][move->kind];
    if (hosts > 1 || index == p->slot_full[move->host_kind])
        return base + p->slots - 1;
    return base + p->slot_first[move->host_kind] + index - 1;
}

/* Those states that have used no more, in one step; at most one for each kind of hosts and of
 * devices. */
uint32_t partition_below(const struct partition *p, const struct partition_place *place,
                         uint32_t *states_out);

/* --- partition_reach.c --- */

static inline bool partition_replicas_fit(const struct partition *p, uint32_t replicas)
{
    return p->paths == 0 || p->paths % replicas == 0;
}

/* Of a stage of one layer or more. */
static inline uint64_t partition_run_ns(const struct partition *p, uint32_t kind, uint32_t first,
                                        uint32_t end)
{
    return p->time_ns[kind][end] - p->time_ns[kind][first] + p->stage_ns[kind];
}

static inline uint64_t partition_run_bytes(const struct partition *p, uint32_t first, uint32_t end)
{
    uint64_t bytes = p->bytes[end] - p->bytes[first] + p->workspace_bytes;
    return first == 0 && end == p->layers ? bytes - p->shared_bytes : bytes;
}

static inline uint16_t *partition_reach_of(const struct partition *p, uint32_t kind, uint32_t first)
{
    return p->reach + ((size_t)kind * p->width + first) * (PARTITION_DEVICES_MAX + 1);
}

static inline uint16_t *partition_back_of(const struct partition *p, uint32_t kind, uint32_t end)
{
    return p->back + ((size_t)kind * p->width + end) * (PARTITION_DEVICES_MAX + 1);
}

bool partition_link_fits(const struct partition_link *link, const struct partition_bound *bound);

void partition_reach_fill(struct partition *p, const struct partition_bound *bound); /* `reach` */

/* Fills `reach` for the bound and finds how many layers a pipe can hold within it, from the first
 * one on; p->layers: all of them. Of p->stages at most, if they are given. */
uint32_t partition_reach(struct partition *p, const struct partition_bound *bound);

/* --- partition_need.c --- */

/* Fills `reach` and `need` for the bound. False: no plan is within it. Where the number of stages
 * is given, `need` is all 0. */
bool partition_need(struct partition *p, const struct partition_bound *bound);

/* --- partition_candidates.c --- */

/* The largest rate, of what takes pace_ns at most, and the largest pace, below a given one that
 * some stage or link can have; 0: none. */
struct partition_rate partition_rate_before(const struct partition *p, struct partition_rate rate,
                                            uint64_t pace_ns);
uint64_t partition_pace_before(const struct partition *p, uint64_t pace_ns);

/* --- partition_paths.c --- */

/* The plan of the least latency (with one micro-batch) within the bound, of those the one with the
 * fewest devices, if that is below `cutoff` (latency << 8 | devices). Of p->stages exactly, if they
 * are given. */
bool partition_shortest(struct partition *p, const struct partition_bound *bound, uint64_t cutoff,
                        struct partition_plan *plan_out);

#endif
