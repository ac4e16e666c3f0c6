/* partition_state: struct partition, which owns the tables of the partitioner (partition.h), and
 * the functions that the files of solver/ share. The functions run on the thread that calls
 * partition_open or partition_solve. This part reads no profiles and no clusters: partition.h has
 * the problem in times and bytes.
 *
 * A *state* says which part of the cluster the first stages of a pipeline use. The *host vector* of
 * a state is the number of used hosts of each kind. If the latest stage is on a single host, this
 * host may be *open*: the next stage can use its unused devices. The state then has the number of
 * used devices of each kind on the open host. A *closed* state has no open host: the next stage
 * begins on another host. If the number of stages is given, the state also counts the stages.
 *
 * States are numbered so that each stage leads to a state with a higher number. The numbers are
 * ordered by stages, then by host vector, then by *slot*: the use of the open host, with `closed`
 * as the last slot. */
#ifndef TOOLS_PARTITION_SOLVER_STATE_H
#define TOOLS_PARTITION_SOLVER_STATE_H

#include "common/limits.h"
#include "tools/partition/solver/partition.h"

#include <stddef.h>

/* Bounds that every plan keeps: an interval, and a pace in ns. */
#define PARTITION_INTERVAL_ANY                                                                     \
    (struct partition_interval)                                                                    \
    {                                                                                              \
        .ns = 1ull << 49, .divisor = 1                                                             \
    }
#define PARTITION_PACE_ANY (1ull << 50)

/* Bounds that no stage or link may exceed. */
struct partition_bound {
    /* Bound on time / replicas of a stage, and on busy_ns of a link. */
    struct partition_interval interval;
    uint64_t pace_ns; /* Bound on the time of a stage, and on busy_ns of a link. */
};

/* The last stage of the best pipeline that leads to a state and a layer. */
struct partition_label {
    uint32_t from_state; /* Number of the state before the stage. */
    uint8_t first;       /* First layer of the stage. */
    uint8_t kind;        /* Kind of the stage's devices. */
    uint8_t replicas;    /* 0 = there is no stage: the open host was closed. */
    uint8_t host_kind;   /* Kind of the stage's hosts. */
};

/* Fields without a comment have equal names in struct partition_problem or partition_kind. */
struct partition {
    uint32_t layers;     /* layer_count of the problem. */
    uint32_t kinds;      /* Kinds of devices. */
    uint32_t host_kinds; /* Kinds of hosts. */
    uint32_t stages;     /* 0 = any number. */
    /* Most replicas of a stage, per kind of device; 0 = no such device. */
    uint32_t replicas_max[PARTITION_KINDS_MAX];
    uint32_t paths_max; /* 0 = any number. */
    /* Paths in the current search. Every replica count must divide this number; 0 = any counts. */
    uint32_t paths;
    /* [kind][layer]: sum of the times of the layers before the layer. first_ns counts for the first
     * layer, and last_ns for the last layer. */
    uint64_t time_ns[PARTITION_KINDS_MAX][LIMIT_LAYERS + 1];
    uint64_t stage_ns[PARTITION_KINDS_MAX];
    /* [layer]: sum of the bytes of the layers before the layer. first_bytes counts for the first
     * layer, and last_bytes for the last layer. */
    uint64_t bytes[LIMIT_LAYERS + 1];
    uint64_t shared_bytes;
    uint64_t workspace_bytes;
    uint64_t memory_bytes_of[PARTITION_KINDS_MAX]; /* Memory of one device of each kind. */
    struct partition_link inside_host;
    struct partition_link between_hosts;
    uint64_t return_inside_host_ns;
    uint64_t return_between_hosts_ns;
    struct partition_host hosts[PARTITION_HOSTS_MAX];

    /* Increment of a host vector's index for one more host of a kind. */
    uint32_t host_stride[PARTITION_HOSTS_MAX];
    uint32_t vectors;                         /* Number of host vectors. */
    uint32_t slot_first[PARTITION_HOSTS_MAX]; /* First slot of each kind of open host. */
    /* [kind of host]: use of the open host, as an index, when all its devices are in use. */
    uint32_t slot_full[PARTITION_HOSTS_MAX];
    /* [kind of host][kind]: increment of the open host's use for one more device of a kind. */
    uint32_t slot_stride[PARTITION_HOSTS_MAX][PARTITION_KINDS_MAX];
    uint32_t slots; /* Slots per host vector; the last slot is `closed`. */
    /* State numbers are slots - 1 (the start: closed, nothing used) … states - 1. */
    uint32_t states;
    uint32_t width; /* Elements of a row: layers + 1, rounded up to a multiple of 8. */

    uint16_t *reach;      /* [kind][first layer][replicas]: furthest end within the bound. */
    uint16_t *reach_back; /* [kind][end][replicas]: earliest first layer within the bound. */
    /* [state]: furthest layer at which a pipeline in this state ends; 0 = none. In
     * partition_shortest_find: last entry of the state's row of best_score that may be set. */
    uint16_t *furthest_end;
    /* [state]: earliest layer from which the state's devices can run all layers to the last. */
    uint16_t *earliest_first;
    /* [state]: earliest layer from which the devices that the state does not use can run all layers
     * to the last. */
    uint16_t *rest_first;
    /* [state - (slots - 1)][end]: score (latency << 8 | devices) of the best pipeline that uses at
     * most the devices of the state; UINT64_MAX = none. */
    uint64_t *best_score;
    struct partition_label *label; /* [state - (slots - 1)][end]. */
    uint64_t memory_bytes;         /* Bytes allocated for this struct and its tables. */
};

/* --- states.c --- */

/* Numbers the states. Returns false if there are too many states. */
bool partition_states_count(struct partition *p);

/* A position in the walk over all states in the order of their numbers. */
struct partition_place {
    uint32_t state;
    uint32_t stage;                     /* Stages of the state, if their number is given. */
    uint32_t host_kind;                 /* Kind of the open host. */
    uint32_t host_use;                  /* Use of the open host, as an index; 0 = closed. */
    uint32_t hosts;                     /* Hosts in use, of all kinds. */
    uint32_t used[PARTITION_HOSTS_MAX]; /* Hosts in use, of each kind. */
};

/* Sets *place to the first state. */
void partition_place_first(const struct partition *p, struct partition_place *place);
/* Goes to the next state. Returns false if *place is the last state. */
bool partition_place_next(const struct partition *p, struct partition_place *place);
/* Returns the closed state with the host vector and the stages of *place. */
uint32_t partition_place_closed(const struct partition *p, const struct partition_place *place);

/* A possible next stage: 1 … replicas_max replicas of one kind of device, on the open host or on
 * unused hosts of one kind. */
struct partition_move {
    uint32_t kind;
    uint32_t host_kind;
    bool on_open_host;
    uint32_t replicas_max;
    uint32_t per_host; /* Devices of this kind on a host. */
    uint32_t host_use; /* Use of the open host before the stage, as an index. */
    /* Number of the first state with the current host vector; with one more stage if p->stages is
     * given. */
    uint32_t base;
};

#define PARTITION_MOVES_MAX (PARTITION_HOSTS_MAX * PARTITION_KINDS_MAX)

/* Stores the possible next stages, at most PARTITION_MOVES_MAX. Returns their number. */
uint32_t partition_moves(const struct partition *p, const struct partition_place *place,
                         struct partition_move *moves_out);

/* Returns the state after the move with this number of replicas. */
static inline uint32_t partition_move_target(const struct partition *p,
                                             const struct partition_move *move, uint32_t replicas)
{
    uint32_t hosts = move->on_open_host ? 0 : (replicas - 1) / move->per_host + 1;
    uint32_t base = move->base + hosts * p->host_stride[move->host_kind] * p->slots;
    uint32_t index = move->host_use + replicas * p->slot_stride[move->host_kind][move->kind];
    if (hosts > 1 || index == p->slot_full[move->host_kind])
        return base + p->slots - 1;
    return base + p->slot_first[move->host_kind] + index - 1;
}

/* Stores the states that use one host or one device less: at most PARTITION_HOSTS_MAX +
 * PARTITION_KINDS_MAX. Returns their number. */
uint32_t partition_states_below(const struct partition *p, const struct partition_place *place,
                                uint32_t *states_out);

/* --- reach.c --- */

/* Returns true if the current number of paths allows this number of replicas. */
static inline bool partition_replicas_fit(const struct partition *p, uint32_t replicas)
{
    return p->paths == 0 || p->paths % replicas == 0;
}

/* Returns the time of a stage with the layers first … end - 1 (at least one). */
static inline uint64_t partition_run_ns(const struct partition *p, uint32_t kind, uint32_t first,
                                        uint32_t end)
{
    return p->time_ns[kind][end] - p->time_ns[kind][first] + p->stage_ns[kind];
}

/* Returns the bytes on each device of a stage with the layers first … end - 1. */
static inline uint64_t partition_run_bytes(const struct partition *p, uint32_t first, uint32_t end)
{
    uint64_t bytes = p->bytes[end] - p->bytes[first] + p->workspace_bytes;
    return first == 0 && end == p->layers ? bytes - p->shared_bytes : bytes;
}

/* Returns the row of p->reach for a kind and a first layer, indexed by the number of replicas. */
static inline uint16_t *partition_reach_of(const struct partition *p, uint32_t kind, uint32_t first)
{
    return p->reach + ((size_t)kind * p->width + first) * (PARTITION_DEVICES_MAX + 1);
}

/* Returns the row of p->reach_back for a kind and an end, indexed by the number of replicas. */
static inline uint16_t *partition_reach_back_of(const struct partition *p, uint32_t kind,
                                                uint32_t end)
{
    return p->reach_back + ((size_t)kind * p->width + end) * (PARTITION_DEVICES_MAX + 1);
}

/* Returns true if the link is within the bound. */
bool partition_link_fits(const struct partition_link *link, const struct partition_bound *bound);

/* Fills p->reach for the bound. */
void partition_reach_fill(struct partition *p, const struct partition_bound *bound);

/* Returns how many layers, from the first on, a pipeline can run within the bound. If p->stages is
 * given, the pipeline has at most this number of stages. Fills p->reach for the bound, and
 * overwrites p->furthest_end. */
uint32_t partition_reach(struct partition *p, const struct partition_bound *bound);

/* --- need.c --- */

/* Fills p->reach and p->rest_first for the bound, and overwrites other tables. Returns false if no
 * plan is within the bound; p->rest_first is then not valid. If p->stages is given, p->rest_first
 * is 0 everywhere, and true means only that at most p->stages stages can run all layers. */
bool partition_need_fill(struct partition *p, const struct partition_bound *bound);

/* --- candidates.c --- */

/* Returns the largest interval below `interval` that is possible for a link, or for a stage that
 * takes at most pace_ns; 0 = none. */
struct partition_interval partition_interval_before(const struct partition *p,
                                                    struct partition_interval interval,
                                                    uint64_t pace_ns);
/* Returns the largest possible time below pace_ns of a piece in a stage or on a link; 0 = none. */
uint64_t partition_pace_before(const struct partition *p, uint64_t pace_ns);

/* --- paths.c --- */

/* Finds the plan within the bound with the smallest score: latency of one micro-batch << 8 |
 * devices. If p->stages is given, the plan has exactly this number of stages. Returns false if no
 * plan has a score below `cutoff`. Overwrites all tables. */
bool partition_shortest_find(struct partition *p, const struct partition_bound *bound,
                             uint64_t cutoff, struct partition_plan *plan_out);

#endif
