/* cluster_state: private to the files of sched_cluster. cluster.c: events. queue.c:
 * requests and actions. load.c: the load of each machine, and the pools.
 * route.c: the choice by load. cheapest.c: the choice by prefixes that machines
 * hold. repurpose.c: home pools that follow the demand. prefix.c: which machine
 * holds which prefix. tree.c: machines ordered by load. Pure and not thread-safe, as
 * cluster.h. */
#ifndef SCHEDULER_CLUSTER_STATE_H
#define SCHEDULER_CLUSTER_STATE_H

#include "scheduler/cluster/cluster.h"
#include "scheduler/cluster/tree.h"
#include "scheduler/queue.h"

#define REQUEST_NONE   UINT32_MAX
#define ENDS_KEPT      64 /* Recent ends from which retry_after_ms is estimated. */
#define MACHINE_WORDS  (SCHED_MACHINES_MAX / 64)
#define DEMAND_BUCKETS 8

/* Where the scheduler has a request: nowhere (the slot is free), in the queue `waiting`, on
 * machines, or in the list `lost`. */
enum place { PLACE_NONE, PLACE_WAITING, PLACE_ROUTED, PLACE_LOST };

struct cluster_request {
    uint8_t place; /* enum place */
    bool resumed;
    bool computed; /* Its prompt is computed. */
    bool moved;    /* Its prompt machine has no more work for it. */
    /* Too large for its prompt machine [0] or token machine [1] if that were mixed: see
     * cluster_machine.large. */
    bool large[2];
    uint32_t prompt_tokens;
    uint32_t output_tokens;
    uint32_t prompt_machine;
    uint32_t token_machine;
    uint32_t saved_tokens; /* Tokens of the prompt that need not be computed. */
    uint32_t prefix_count; /* Hashes in sc->prefixes_of. */
    uint32_t key;          /* key, weight and priority are those of the sched_event. */
    uint32_t weight;
    int32_t priority;
    uint32_t answer_charged; /* Tokens of its answer that its key was charged for in advance. */
    uint32_t answer_memory;  /* Tokens of its answer that are scheduled on its token machine. */
    uint32_t held;           /* 1 + the machine that had its KV; 0 = none. */
    uint32_t next;           /* Next in the list `lost`. */
    uint32_t previous;
    /* Since when no machine that is up could take it; -1 = some machine can. */
    int64_t stranded_us;
};

struct request_list {
    uint32_t first;
    uint32_t last;
    uint32_t count;
};

/* The measures by which machines are ordered: pending tokens for rule 1, scheduled memory for rule
 * 2 (cluster.h). */
enum measure { MEASURE_PENDING, MEASURE_MEMORY, MEASURE_COUNT };

struct machine_set {
    uint64_t words[MACHINE_WORDS];
};

struct cluster_machine {
    bool up;
    bool draining;
    /* The machine was up at some time, so its size counts for what the cluster can ever hold. */
    bool known;
    bool busy; /* As SCHED_MACHINE_QUEUE reported. */
    /* No change of the machine's pools waits to be reported to the caller (SCHED_MOVED). */
    bool told;
    enum pool told_pool; /* Current pool that was reported to the caller last. */
    enum pool told_home; /* Home pool that was reported to the caller last. */
    enum pool home;
    enum pool pool;
    uint64_t kv_tokens;
    uint64_t mixed_kv_tokens;
    uint64_t prompt_tokens_pending;
    uint64_t memory_tokens;
    uint32_t prompts;         /* Prompts routed here whose KV has not moved on. */
    uint32_t prompts_pending; /* Prompts routed here and not computed. */
    uint32_t decodes;
    /* Requests here, not moved on, that are too large for a mixed machine. While there are any, the
     * machine must not become mixed. */
    uint32_t large;
    uint32_t prompt_tokens_per_s;
    uint32_t output_tokens_per_s;
    uint32_t push_tokens_per_s;
    struct sched_others others; /* As reported last. */
    struct machine_set links;   /* Machines that this machine can write KV to. */
};

struct demand {
    uint64_t prompt_tokens;
    uint64_t answers;   /* Requests that will be decoded. */
    uint64_t ended;     /* Answers that ended. */
    uint64_t generated; /* Tokens of the answers that ended. */
};

struct sched_cluster {
    struct sched_cluster_options options;
    int64_t now_us;
    struct sched_fair *fair;
    struct sched_queue waiting;
    struct request_list lost; /* Requests for which SCHED_LOST is still to be sent. */
    uint64_t waiting_tokens;  /* Prompt tokens of the waiting requests. */
    /* Earliest time at which a waiting request expires; INT64_MAX = none. */
    int64_t stranded_due_us;

    /* Machines that are up and do not drain. Exactly these are in the trees. */
    struct machine_set open;
    struct cluster_tree trees[MEASURE_COUNT][POOL_COUNT];
    struct cluster_rank *ranks[MEASURE_COUNT]; /* [machine_count] */
    /* Counter of pool moves, which orders machines of equal load. */
    uint64_t moves;
    uint32_t away;   /* Machines in the trees that are lent. */
    uint32_t untold; /* Machines whose `told` is false. */
    /* KV tokens of the largest known machine for prompts; UINT64_MAX = none known. */
    uint64_t prompt_tokens_most;
    /* KV tokens of the largest known machine for tokens; UINT64_MAX = none known. */
    uint64_t token_tokens_most;
    /* KV tokens of the largest known machine of all; UINT64_MAX = none known. */
    uint64_t tokens_most;
    /* Largest prompt without a token phase: [0] on machines for prompts, [1] on any machine. */
    uint64_t alone_most[2];
    /* A prompt machine and a token machine can serve together as the pools are now, or a mixed
     * machine alone. */
    bool pair;
    bool paired;         /* `pair` was true at some time: the start-up grace period is over. */
    int64_t first_up_us; /* Time at which the first machine was up; -1 = not yet. */

    int64_t ends_us[ENDS_KEPT]; /* Ring: times at which routed requests ended. */
    uint64_t ends;

    struct demand demand[DEMAND_BUCKETS]; /* Ring; demand_bucket is being filled. */
    uint32_t demand_bucket;
    uint32_t demand_filled;   /* Complete buckets in the ring. */
    int64_t demand_until_us;  /* End of the bucket being filled; -1 = not begun. */
    int64_t repurposed_us;    /* Time of the latest repurposing; -1 = never. */
    uint32_t repurpose_votes; /* Consecutive evaluations that wanted repurpose_to. */
    enum pool repurpose_to;

    struct cluster_prefixes *prefixes; /* NULL = prefixes are not remembered. */
    /* [request_count][SCHED_PREFIX_MAX]; NULL = prefixes are not remembered. */
    uint64_t *prefixes_of;

    struct cluster_machine *machines; /* [machine_count] */
    struct cluster_request *requests; /* [request_count] */
};

static inline bool set_has(const struct machine_set *set, uint32_t i)
{
    return (set->words[i / 64] >> (i % 64) & 1) != 0;
}

static inline void set_put(struct machine_set *set, uint32_t i, bool in)
{
    uint64_t bit = 1ull << (i % 64);
    set->words[i / 64] = in ? set->words[i / 64] | bit : set->words[i / 64] & ~bit;
}

static inline uint32_t set_words(const struct sched_cluster *sc)
{
    return (sc->options.machine_count + 63) / 64;
}

static inline bool phase_served(enum pool pool, enum pool phase)
{
    return pool == phase || pool == POOL_MIXED;
}

static inline uint64_t request_tokens(const struct cluster_request *request)
{
    return (uint64_t)request->prompt_tokens + request->output_tokens;
}

/* Tokens with which the request is scheduled on its token machine. request_tokens is the most that
 * it may become. */
static inline uint64_t request_memory(const struct cluster_request *request)
{
    return (uint64_t)request->prompt_tokens + request->answer_memory;
}

/* ---- queue.c ---- */

/* Handles SCHED_ARRIVED and appends the actions that follow. */
void cluster_request_arrived(struct sched_cluster *sc, const struct sched_event *event,
                             struct sched_actions *out);
/* Handles SCHED_COMPUTED, SCHED_PREFILLED and SCHED_ENDED. */
void cluster_request_event(struct sched_cluster *sc, const struct sched_event *event);
/* Puts all requests that have work or KV on the machine, which is down, into the list `lost`. */
void cluster_requests_lose(struct sched_cluster *sc, uint32_t machine);
/* Puts requests into the list `lost` that are too large for the machine now that it is mixed. */
void cluster_requests_lose_large(struct sched_cluster *sc, uint32_t machine);
/* Appends to *out the actions that follow from the present state, up to `most` in all. */
void cluster_pump(struct sched_cluster *sc, struct sched_actions *out, uint32_t most);

/* ---- load.c ---- */

/* Adds the request to the load of its machines, or removes what is done: its prompt computed, its
 * KV moved on, or the whole request. */
void cluster_load_route(struct sched_cluster *sc, struct cluster_request *request);
void cluster_load_computed(struct sched_cluster *sc, struct cluster_request *request);
void cluster_load_moved(struct sched_cluster *sc, struct cluster_request *request);
void cluster_load_end(struct sched_cluster *sc, struct cluster_request *request);

/* Sets the load that other schedulers have on the machine. */
void cluster_load_others(struct sched_cluster *sc, uint32_t machine,
                         const struct sched_others *others);

/* Puts the machine into the trees or takes it out. Call after its `up` or `draining` has changed.
 */
void cluster_pool_refresh(struct sched_cluster *sc, uint32_t machine);
/* Moves the machine to another pool, as the last in the order of moves. The caller of the scheduler
 * gets SCHED_MOVED. */
void cluster_pool_move(struct sched_cluster *sc, uint32_t machine, enum pool pool);
/* Changes the home pool. The machine goes there at once if it has no work of the other phase, else
 * it stays mixed until that is done. */
void cluster_pool_home(struct sched_cluster *sc, uint32_t machine, enum pool home);
/* Returns the machine, or all lent machines, to the home pool if the option `homing` allows it now.
 */
void cluster_pool_settle(struct sched_cluster *sc, uint32_t machine);
void cluster_pool_settle_all(struct sched_cluster *sc);
/* Computes the sizes of the largest machines again. Call after a change of the known machines,
 * their pools or sizes. */
void cluster_pool_sizes(struct sched_cluster *sc);

/* Computes sc->pair and sc->paired again. Call after a change of pools or links. */
void cluster_pool_pair(struct sched_cluster *sc);

/* ---- route.c ---- */

enum route_result {
    ROUTE_FOUND,
    ROUTE_BUSY,     /* a pair could take the request, but has too much work now */
    ROUTE_STRANDED, /* no pair that is up could take the request, even if idle */
};

struct route {
    uint32_t prompt;
    uint32_t token; /* SCHED_NO_MACHINE = none is needed. */
    uint32_t prefix_tokens;
    bool prompt_moves; /* The prompt machine moves to the mixed pool for this request. */
    bool token_moves;
    /* 1 + another machine that moves to the mixed pool (options.lent_stay); 0 = none. */
    uint32_t lent;
};

/* Finds the pair of machines for a request by the policy of cluster.h. Changes nothing. */
enum route_result cluster_route_find(const struct sched_cluster *sc,
                                     const struct cluster_request *request, struct route *out);

/* False when no machine that was ever up is large enough, so that waiting is useless. */
bool cluster_route_possible(const struct sched_cluster *sc, const struct cluster_request *request);

/* Microseconds by which the request's first token would be later than ttft_us_max on the earliest
 * machine, behind tokens_before waiting prompt tokens; ≤ 0 = in time, or not known. *never_out: the
 * first token would be too late even on an idle machine. */
int64_t cluster_route_late_us(const struct sched_cluster *sc, const struct cluster_request *request,
                              uint64_t tokens_before, bool *never_out);

/* True when machines may do work of the other phase because no other machine can. */
bool cluster_route_covers(const struct sched_cluster *sc);

/* ---- repurpose.c ---- */

void cluster_demand_arrived(struct sched_cluster *sc, const struct cluster_request *request);
void cluster_demand_ended(struct sched_cluster *sc, uint32_t generated);
/* Adds the demand that other schedulers sent to a machine. */
void cluster_demand_others(struct sched_cluster *sc, const struct sched_others *others);
/* Closes the buckets that are complete, and changes a home pool if enough evaluations in a row
 * asked for it. */
void cluster_demand_tick(struct sched_cluster *sc);

#endif
