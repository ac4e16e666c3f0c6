/* cluster_state: what the files of sched_cluster share. cluster.c has the events; cluster_queue.c
 * the requests and the actions; cluster_load.c what each machine has to do, and the pools;
 * cluster_route.c the choice by load; cluster_cheapest.c that by what machines hold;
 * cluster_repurpose.c the homes that follow the demand; cluster_prefix.c who holds which prefix. */
#ifndef SCHEDULER_CLUSTER_STATE_H
#define SCHEDULER_CLUSTER_STATE_H

#include "scheduler/cluster.h"
#include "scheduler/cluster_tree.h"
#include "scheduler/queue.h"

#define REQUEST_NONE   UINT32_MAX
#define ENDS_KEPT      64 /* recent ends that retry_after_ms is estimated from */
#define MACHINE_WORDS  (SCHED_MACHINES_MAX / 64)
#define DEMAND_BUCKETS 8

enum place { PLACE_NONE, PLACE_WAITING, PLACE_ROUTED, PLACE_LOST };

struct cluster_request {
    uint8_t place; /* enum place */
    bool resumed;
    bool computed; /* its prompt is no longer pending */
    bool moved;    /* its prompt machine has no more work for it */
    bool large[2]; /* for its prompt machine, its token machine: see cluster_machine.large */
    uint32_t prompt_tokens;
    uint32_t output_tokens;
    uint32_t prompt_machine;
    uint32_t token_machine;
    uint32_t saved_tokens; /* of the prompt: they need not be computed */
    uint32_t prefix_count; /* of sc->prefixes_of */
    uint32_t key;          /* these three are sched_event's */
    uint32_t weight;
    int32_t priority;
    uint32_t answer_charged; /* tokens of its answer, to its key */
    uint32_t answer_memory;  /* … that are scheduled on its token machine */
    uint32_t held;           /* 1 + the machine that had its KV; 0: none */
    uint32_t next;           /* among the lost */
    uint32_t previous;
    int64_t stranded_us; /* while waiting: since when nobody can take it; -1: somebody can */
};

struct request_list {
    uint32_t first;
    uint32_t last;
    uint32_t count;
};

/* What the two phases choose by: rule 1 and rule 2 of cluster.h. */
enum measure { MEASURE_PENDING, MEASURE_MEMORY, MEASURE_COUNT };

struct machine_set {
    uint64_t words[MACHINE_WORDS];
};

struct cluster_machine {
    bool up;
    bool draining;
    bool known; /* was up at some time: its size says what the cluster can ever hold */
    bool busy;  /* SCHED_MACHINE_QUEUE */
    bool told;  /* the caller knows of its pool and home: */
    enum sched_pool told_pool;
    enum sched_pool told_home;
    enum sched_pool home;
    enum sched_pool pool;
    uint64_t kv_tokens;
    uint64_t mixed_kv_tokens;
    uint64_t prompt_tokens_pending;
    uint64_t memory_tokens;
    uint32_t prompts;         /* routed and not moved on */
    uint32_t prompts_pending; /* of those, not computed */
    uint32_t decodes;
    uint32_t
        large; /* of them, not moved, and too large for a mixed machine: it must not become one */
    uint32_t prompt_tokens_per_s;
    uint32_t output_tokens_per_s;
    uint32_t push_tokens_per_s;
    struct sched_others others; /* as told last */
    struct machine_set links;   /* it can push KV to these */
};

struct demand {
    uint64_t prompt_tokens;
    uint64_t answers;   /* requests that will be decoded */
    uint64_t ended;     /* answers that ended … */
    uint64_t generated; /* … and their tokens */
};

struct sched_cluster {
    struct sched_cluster_options options;
    int64_t now_us;
    struct sched_fair *fair;
    struct sched_queue waiting;
    struct request_list lost; /* not told to the caller yet */
    uint64_t waiting_tokens;  /* of prompts */
    int64_t stranded_due_us;  /* the first to expire; INT64_MAX: nobody */

    struct machine_set open; /* up, and not draining: these and only these are in the trees */
    struct cluster_tree trees[MEASURE_COUNT][SCHED_POOL_COUNT];
    struct cluster_rank *ranks[MEASURE_COUNT]; /* [machine_count] */
    uint64_t moves;                            /* the order of machines that moved */
    uint32_t away;                             /* machines in the trees that are not at home */
    uint32_t untold;                           /* machines that are not `told` */
    uint64_t prompt_tokens_most;               /* the largest known machine of each phase, */
    uint64_t token_tokens_most;                /* UINT64_MAX while none is known; */
    uint64_t tokens_most;                      /* of all */
    uint64_t alone_most[2]; /* prompts that nobody decodes: of machines for prompts, of all */
    bool pair;   /* a prompt machine and a token machine can serve together as the pools are now */
    bool paired; /* a pair was there at some time: no start any more */
    int64_t first_up_us; /* -1: nobody was up yet */

    int64_t ends_us[ENDS_KEPT]; /* a ring: when requests that were routed ended */
    uint64_t ends;

    struct demand demand[DEMAND_BUCKETS]; /* a ring; the last one is being filled */
    uint32_t demand_bucket;
    uint32_t demand_filled;   /* whole buckets that are there */
    int64_t demand_until_us;  /* the bucket's end; -1: not begun */
    int64_t repurposed_us;    /* -1: never */
    uint32_t repurpose_votes; /* evaluations in a row that wanted repurpose_to */
    enum sched_pool repurpose_to;

    struct cluster_prefixes *prefixes; /* NULL: none are remembered */
    uint64_t *prefixes_of;             /* [request_count][SCHED_PREFIX_MAX], or NULL */

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

static inline bool phase_served(enum sched_pool pool, enum sched_pool phase)
{
    return pool == phase || pool == SCHED_POOL_MIXED;
}

static inline uint64_t request_tokens(const struct cluster_request *request)
{
    return (uint64_t)request->prompt_tokens + request->output_tokens;
}

/* What it is scheduled with on its token machine; request_tokens is what it may become. */
static inline uint64_t request_memory(const struct cluster_request *request)
{
    return (uint64_t)request->prompt_tokens + request->answer_memory;
}

/* ---- cluster_queue.c ---- */

/* SCHED_ARRIVED, and what follows from it. */
void cluster_request_arrived(struct sched_cluster *sc, const struct sched_event *event,
                             struct sched_actions *out);
/* SCHED_COMPUTED, SCHED_PREFILLED, SCHED_ENDED. */
void cluster_request_event(struct sched_cluster *sc, const struct sched_event *event);
/* The machine is gone, and what it had of requests with it. */
void cluster_requests_lose(struct sched_cluster *sc, uint32_t machine);
/* So are those that a machine which is mixed now cannot hold beside what it shares. */
void cluster_requests_lose_large(struct sched_cluster *sc, uint32_t machine);
/* Says what follows from the state now, up to `most` actions in *out. */
void cluster_pump(struct sched_cluster *sc, struct sched_actions *out, uint32_t most);

/* ---- cluster_load.c ---- */

/* The request's work goes to its machines, or is done. */
void cluster_load_route(struct sched_cluster *sc, struct cluster_request *request);
void cluster_load_computed(struct sched_cluster *sc, struct cluster_request *request);
void cluster_load_moved(struct sched_cluster *sc, struct cluster_request *request);
void cluster_load_end(struct sched_cluster *sc, struct cluster_request *request);

/* What other schedulers have on the machine. */
void cluster_load_others(struct sched_cluster *sc, uint32_t machine,
                         const struct sched_others *others);

/* After `up` or `draining` of a machine has changed. */
void cluster_pool_refresh(struct sched_cluster *sc, uint32_t machine);
/* The machine is in another pool now, last in its order; the caller is told. */
void cluster_pool_move(struct sched_cluster *sc, uint32_t machine, enum sched_pool pool);
/* Another home: the machine goes there at once if it has nothing else to finish. */
void cluster_pool_home(struct sched_cluster *sc, uint32_t machine, enum sched_pool home);
/* Sends the machine home if it may go; all of them. */
void cluster_pool_settle(struct sched_cluster *sc, uint32_t machine);
void cluster_pool_settle_all(struct sched_cluster *sc);
/* The largest machines of each phase; after a change of who is known, where or how large. */
void cluster_pool_sizes(struct sched_cluster *sc);

/* After what cluster_pool_* did, or a change of links: sc->pair and sc->paired. */
void cluster_pool_pair(struct sched_cluster *sc);

/* ---- cluster_route.c ---- */

enum route_result {
    ROUTE_FOUND,
    ROUTE_BUSY,     /* a pair could take it, but has too many tokens pending */
    ROUTE_STRANDED, /* no pair that is up could take it, however idle */
};

struct route {
    uint32_t prompt;
    uint32_t token; /* SCHED_NO_MACHINE: none is needed */
    uint32_t prefix_tokens;
    bool prompt_moves; /* to the mixed pool, for this request */
    bool token_moves;
    uint32_t lent; /* 1 + a machine that moves there as well (options.lent_stay); 0: none */
};

/* The pair for a request by the policy of cluster.h. Changes nothing. */
enum route_result cluster_route_find(const struct sched_cluster *sc,
                                     const struct cluster_request *request, struct route *out);

/* False when no machine that was ever up is large enough: waiting is no use. */
bool cluster_route_possible(const struct sched_cluster *sc, const struct cluster_request *request);

/* Microseconds by which the request's first token would be too late on the machine that would be
 * the earliest, behind so many tokens that wait; ≤ 0: in time, or not known. *never_out: it would
 * be too late on an idle one. */
int64_t cluster_route_late_us(const struct sched_cluster *sc, const struct cluster_request *request,
                              uint64_t tokens_before, bool *never_out);

/* True when machines may do the work of a phase that is not theirs because nobody else can. */
bool cluster_route_covers(const struct sched_cluster *sc);

/* ---- cluster_repurpose.c ---- */

void cluster_demand_arrived(struct sched_cluster *sc, const struct cluster_request *request);
void cluster_demand_ended(struct sched_cluster *sc, uint32_t generated);
/* What came to a machine from other schedulers. */
void cluster_demand_others(struct sched_cluster *sc, const struct sched_others *others);
/* Closes buckets that are over, and changes a home if that has been due for long enough. */
void cluster_demand_tick(struct sched_cluster *sc);

#endif
