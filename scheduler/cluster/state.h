/* cluster_state: the state of the cluster scheduler, and the functions that the .c files of its
 * folder share. cluster.c handles events; queue.c has requests and actions; load.c the load of each
 * machine, and the pools; route.c the choice of machines by load; speed.c the machines' rates;
 * cores.c machines that share cores; links.c the time of transfers; stored.c what tiers have
 * stored; cheapest.c the choice of machines by the KV that they hold; together.c one machine for
 * both phases; repurpose.c home pools that follow the demand; admission.c how long requests may
 * wait; promises.c places for refused clients.
 *
 * The functions run on the thread that calls sched_cluster; not thread-safe. Pure: no clock, no
 * I/O. The header is private to this folder. */
#ifndef SCHEDULER_CLUSTER_STATE_H
#define SCHEDULER_CLUSTER_STATE_H

#include "scheduler/cluster/cluster.h"
#include "scheduler/cluster/tree.h"
#include "scheduler/queue.h"

#define REQUEST_NONE UINT32_MAX
#define ENDS_KEPT    64 /* Ends of requests that are remembered, to estimate retry_after_ms. */
/* Most places in the queue that are kept for refused clients. */
#define PROMISES_MAX   4096
#define MACHINE_WORDS  (SCHED_MACHINES_MAX / 64)
#define US_PER_S       1000000
#define DEMAND_BUCKETS 8 /* Parts of the window over which demand is measured. */

/* Where a request is. NONE: the slot is free. WAITING: in the queue `waiting`. ROUTED: on its
 * machines. LOST: in the list `lost`. */
enum request_place { PLACE_NONE, PLACE_WAITING, PLACE_ROUTED, PLACE_LOST };

struct cluster_request {
    uint8_t place;  /* enum request_place */
    bool resumed;   /* See struct sched_event. */
    bool computed;  /* The prompt no longer counts as pending. */
    bool prefilled; /* The request no longer has load on its prompt machine. */
    /* The request would be too large for its prompt machine ([0]) or its token machine ([1]) if
     * that machine were in the mixed pool. */
    bool too_large_if_mixed[2];
    uint32_t prompt_tokens;
    uint32_t output_tokens; /* Most tokens of the answer. */
    uint32_t prompt_machine;
    uint32_t token_machine; /* SCHED_NO_MACHINE = none is needed. */
    /* Tokens of the prompt that the prompt machine need not compute, because it has their KV. */
    uint32_t saved_tokens;
    uint32_t prefix_count;   /* Number of the request's hashes in prefixes_of. */
    uint32_t key_index;      /* See struct sched_event. */
    uint32_t weight;         /* See struct sched_event. */
    int32_t priority;        /* From -LIMIT_PRIORITY to LIMIT_PRIORITY. */
    uint32_t answer_charged; /* Tokens of the answer that the key was charged for in advance. */
    uint32_t answer_memory;  /* Tokens of the answer that are scheduled on the token machine. */
    uint64_t prompt_memory;  /* KV memory scheduled on its prompt machine, in tokens. */
    uint64_t token_memory;   /* KV memory scheduled on its token machine, in tokens. */
    uint32_t holder_plus_1;  /* See struct sched_event. */
    uint32_t held_tokens;    /* See struct sched_event. */
    bool wait_limited;       /* The request is in the list `limited`. */
    bool waited;             /* The request waited in the queue for some time. */
    bool has_kept_place;     /* The request was refused before, and a kept place was given to it. */
    uint64_t identity;       /* See struct sched_event. */
    int64_t waiting_since_us;
    uint32_t next; /* Neighbours in the list `lost` or `limited`. */
    uint32_t previous;
    /* Time at which the request became *stranded*: the scheduler found that no machine which is up
     * can take the request. -1 = not stranded. */
    int64_t stranded_us;
};

/* A list linked through the requests. */
struct request_list {
    uint32_t first;
    uint32_t last;
};

/* The load by which machines are compared: MEASURE_PENDING, the pending tokens of prompts, for rule
 * 1 of cluster.h; MEASURE_MEMORY, the scheduled KV memory in tokens, for rule 2. */
enum measure { MEASURE_PENDING, MEASURE_MEMORY, MEASURE_COUNT };

/* A set of machines, one bit for each. */
struct machine_set {
    uint64_t words[MACHINE_WORDS];
};

/* The prompts that a machine got lately (cluster_prompts_add). */
struct recent_prompts {
    double tokens; /* Tokens to compute; older ones count less. */
    double us;     /* The time in which they came, also with older time counting less. */
    int64_t at_us; /* When the latest prompt came. */
};

struct cluster_machine {
    bool up;
    bool draining;
    /* The machine was up at some time, so its memory counts when the scheduler decides whether any
     * machine can ever hold a request. */
    bool was_up;
    bool busy; /* `busy` of the latest SCHED_MACHINE_QUEUE since the machine is up. */
    /* The caller knows the machine's pools: no SCHED_MOVED is needed. */
    bool move_reported;
    enum pool reported_pool;        /* Current pool that the caller knows. */
    enum pool reported_home;        /* Home pool that the caller knows. */
    enum pool home;                 /* Home pool. */
    enum pool pool;                 /* Current pool. */
    uint64_t kv_tokens;             /* See struct sched_event. */
    uint64_t mixed_kv_tokens;       /* See struct sched_event; 0 was replaced by kv_tokens. */
    struct sched_kv kv;             /* capacity_tokens > 0 if kv_tokens > 0. */
    uint32_t cores;                 /* Machines with the same number share cores; 0 = own cores. */
    uint32_t threads;               /* Cores on which the machine computes, ≥ 1. */
    uint32_t core_count;            /* Cores that machines with this `cores` share, ≥ 1. */
    uint64_t prompt_tokens_pending; /* See struct sched_machine_view. */
    uint64_t memory_tokens;         /* KV memory scheduled on the machine, in tokens. */
    uint32_t prompts;               /* Prompts routed to the machine, until SCHED_PREFILLED. */
    uint32_t prompts_pending;       /* Prompts routed to the machine, until SCHED_COMPUTED. */
    uint32_t decodes;               /* Answers routed to the machine, until SCHED_ENDED. */
    /* Number of requests on the machine, until SCHED_PREFILLED, that would be too large for it in
     * the mixed pool. While this is not 0, rule 3 does not move the machine. */
    uint32_t large_requests;
    uint32_t prompt_tokens_per_s; /* Measured; 0 = not known. */
    uint32_t output_tokens_per_s; /* Measured; 0 = not known. */
    struct sched_step_time step;  /* All zeros = not known. */
    uint32_t host;                /* Machines with the same number are on one host; 0 = unknown. */
    int64_t sends_until_us;       /* Expected end of the transfers from the machine. */
    int64_t receives_until_us;    /* Expected end of the transfers to the machine. */
    /* `tiers` of the latest SCHED_MACHINE_TIERS, with the latest known load times; none works after
     * the machine went down. */
    struct sched_tier tiers[TIER_KIND_COUNT];
    /* `others` of the latest SCHED_MACHINE_LOAD; all zeros after the machine went up or down. */
    struct sched_others others;
    struct recent_prompts recent_prompts;
    struct machine_set links; /* Machines to which the machine can write KV. */
};

/* The time of a transfer: latency_us, and token_ps picoseconds for each token. */
struct link_time {
    uint64_t latency_us;
    uint64_t token_ps;
    uint64_t error_percent;
};

/* The sum of the measured links of one kind. */
struct link_sum {
    uint64_t count;       /* Number of the links. */
    struct link_time all; /* The sum of each field over these links. */
};

/* The demand of one bucket (repurpose.c). */
struct demand {
    uint64_t prompt_tokens;
    uint64_t answers;   /* Arrived requests that need a token machine. */
    uint64_t ended;     /* Answers that ended. */
    uint64_t generated; /* Tokens of the answers that ended. */
};

/* A place that is kept for a client that should send a refused request again (promises.c). */
struct promise {
    /* Identity of the client's request; 0 = the place was given to the request. */
    uint64_t identity;
    int64_t at_us; /* Time at which the client should send the request again. */
};

/* A ring of promises, in the order of at_us. */
struct promises {
    struct promise ring[PROMISES_MAX];
    uint32_t first; /* Index of the earliest promise. */
    uint32_t count; /* Number of promises. */
};

/* What was measured while requests waited in the queue (admission.c). */
struct admission {
    double busy_us; /* Time during which requests waited; older time counts less. */
    /* The value of busy_us when the latest prompt was computed. If busy_us exceeds twice this
     * value, this value becomes busy_us. */
    double measured_us;
    double computed;     /* Prompts that were computed in measured_us. */
    int64_t promised_us; /* Earliest retry time of the next refused client. */
    struct promises promises;
};

struct sched_cluster {
    struct sched_cluster_options options;
    int64_t now_us;                  /* Time of the latest event. */
    struct sched_accounts *accounts; /* Accounts of the API keys. */
    struct sched_queue waiting;
    struct request_list lost; /* Requests for which SCHED_LOST is still to be sent. */
    uint64_t waiting_tokens;  /* Prompt tokens of the waiting requests. */
    /* Waiting requests to which queue_us_max applies, in the order of their arrival: they are not
     * resumed, and were never stranded. */
    struct request_list limited;
    struct admission admission;
    /* Earliest time at which a waiting request expires; INT64_MAX = none. */
    int64_t stranded_due_us;

    /* Machines that are up and do not drain. The trees contain exactly these machines. */
    struct machine_set routable;
    struct cluster_tree trees[MEASURE_COUNT][POOL_COUNT]; /* By measure and current pool. */
    struct cluster_rank *ranks[MEASURE_COUNT];            /* [machine_count] */
    /* By measure: mean of the known rates of machines that are up, in tokens per second; US_PER_S =
     * no rate is known (speed.c). */
    uint64_t mean_rate[MEASURE_COUNT];
    /* By measure: machines are compared by time, because their rates differ (speed.c). */
    bool unequal[MEASURE_COUNT];
    /* Mean of the known steps of machines that are up; all zeros = none is known. */
    struct sched_step_time mean_step;
    /* Number of moves of machines to other pools so far. A machine's cluster_rank.order is the
     * value of move_count after the machine's latest move. */
    uint64_t move_count;
    uint32_t lent_count;       /* Machines in the trees that are lent. */
    uint32_t unreported_moves; /* Machines whose `move_reported` is false. */
    /* Most kv_tokens of a machine in the prompt or mixed pool that was ever up; UINT64_MAX =
     * none. */
    uint64_t prompt_tokens_most;
    /* Most kv_tokens of a machine in the token or mixed pool that was ever up; UINT64_MAX =
     * none. */
    uint64_t token_tokens_most;
    /* Most kv_tokens of a machine that was ever up; UINT64_MAX = none. */
    uint64_t tokens_most;
    uint64_t capacity_most; /* Most kv.capacity_tokens of a machine that was ever up. */
    /* Tokens of the largest prompt that fits a machine if the request needs no token machine.
     * [0]: the largest over the machines in the prompt and mixed pools; [1]: the largest over the
     * machines in all pools. Machines that were never up do not count. UINT64_MAX = no machine
     * counts. */
    uint64_t prompt_only_tokens_most[2];
    bool cores_shared;   /* A machine that shares cores was up at some time. */
    bool pair_can_serve; /* See sched_cluster_paired. */
    /* `pair_can_serve` was true at some time: cover_after_us no longer counts. */
    bool pair_could_serve;
    int64_t first_up_us; /* Time at which the first machine was up; -1 = not yet. */

    int64_t ends_us[ENDS_KEPT]; /* Ring: times at which routed requests ended. */
    uint64_t ended_count;       /* Number of routed requests that have ended. */

    struct demand demand[DEMAND_BUCKETS]; /* Ring. */
    uint32_t demand_bucket;               /* Index of the bucket being filled. */
    uint32_t demand_filled;               /* Complete buckets in the ring. */
    int64_t demand_until_us;              /* End of the bucket being filled; -1 = not begun. */
    int64_t repurposed_us;                /* Time of the latest repurposing; -1 = never. */
    /* Number of the latest evaluations that all gave repurpose_to; 0 after a change. */
    uint32_t repurpose_votes;
    enum pool repurpose_to; /* Pool that should get a machine; POOL_COUNT = none. */

    /* Prefixes that machines hold in memory; NULL = prefixes are not remembered. */
    struct cluster_prefixes *prefixes;
    bool tiers_worked; /* A tier of some machine has worked. */
    /* Prefixes that the tiers of each kind have stored (stored.c); NULL = not remembered. */
    struct cluster_prefixes *stored[TIER_KIND_COUNT];
    /* [request_count][SCHED_PREFIX_MAX]: hashes of each request's prefixes; NULL = prefixes are not
     * remembered. */
    uint64_t *prefixes_of;

    /* [from × machine_count + to]; tokens_per_s 0 = not measured. */
    struct sched_link_speed *link_speeds;
    struct link_sum link_sums[2];     /* [0]: links between hosts; [1]: links inside a host. */
    struct cluster_machine *machines; /* [machine_count] */
    struct cluster_request *requests; /* [request_count] */
};

/* Returns true if machine i is in the set. */
static inline bool machine_set_has(const struct machine_set *set, uint32_t i)
{
    return (set->words[i / 64] >> (i % 64) & 1) != 0;
}

/* Adds machine i to the set (in = true) or removes it. */
static inline void machine_set_put(struct machine_set *set, uint32_t i, bool in)
{
    uint64_t bit = 1ull << (i % 64);
    set->words[i / 64] = in ? set->words[i / 64] | bit : set->words[i / 64] & ~bit;
}

/* Returns the number of words of a machine_set that are in use. */
static inline uint32_t set_words(const struct sched_cluster *sc)
{
    return (sc->options.machine_count + 63) / 64;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Returns true if machines of the pool do work of the phase (POOL_PROMPT or POOL_TOKEN). */
static inline bool pool_serves_phase(enum pool pool, enum pool phase)
{
    return pool == phase || pool == POOL_MIXED;
}

/* Returns the tokens of the prompt and of the longest answer. */
static inline uint64_t request_tokens(const struct cluster_request *request)
{
    return (uint64_t)request->prompt_tokens + request->output_tokens;
}

/* Returns the KV memory, in tokens, of a context of `tokens` tokens on the machine. has_prompt =
 * the machine also computes the prompt. */
static inline uint64_t machine_kv_tokens(const struct cluster_machine *machine, uint64_t tokens,
                                         bool has_prompt)
{
    const struct sched_kv *kv = &machine->kv;
    return layer_groups_kv_tokens(&kv->groups, kv->block_tokens, tokens,
                                  kv->kept_spans[has_prompt]);
}

/* Returns the KV memory, in tokens, that is scheduled for the request on the machine that generates
 * its answer. A long answer may need more: the memory of request_tokens tokens. has_prompt = the
 * machine also computes the prompt. */
static inline uint64_t request_scheduled_tokens(const struct cluster_request *request,
                                                const struct cluster_machine *machine,
                                                bool has_prompt)
{
    return machine_kv_tokens(machine, (uint64_t)request->prompt_tokens + request->answer_memory,
                             has_prompt);
}

/* ---- queue.c ---- */

/* Handles SCHED_ARRIVED and appends the actions that follow to *out. */
void cluster_request_arrived(struct sched_cluster *sc, const struct sched_event *event,
                             struct sched_actions *out);
/* Handles SCHED_COMPUTED, SCHED_PREFILLED and SCHED_ENDED. */
void cluster_request_event(struct sched_cluster *sc, const struct sched_event *event);
/* Handles SCHED_OVERDUE and appends the refusal to *out. */
void cluster_request_overdue(struct sched_cluster *sc, const struct sched_event *event,
                             struct sched_actions *out);
/* Puts all requests that have load on the machine, which is down, into the list `lost`. */
void cluster_requests_lose(struct sched_cluster *sc, uint32_t machine);
/* Puts the requests that are too large for a mixed machine, and that have load on this machine,
 * into the list `lost`. Requests with `prefilled` set stay. */
void cluster_requests_lose_large(struct sched_cluster *sc, uint32_t machine);
/* Appends to *out the actions that follow from the present state, until *out has count_max actions,
 * and sets out->more. */
void cluster_actions_append(struct sched_cluster *sc, struct sched_actions *out,
                            uint32_t count_max);
/* Puts the request at the end of the list. */
void cluster_list_append(struct sched_cluster *sc, struct request_list *list, uint32_t id);
/* Removes the request from the list, which must contain it. */
void cluster_list_remove(struct sched_cluster *sc, struct request_list *list, uint32_t id);

/* ---- load.c ---- */

/* Adds the request to the load of its machines. */
void cluster_load_route(struct sched_cluster *sc, struct cluster_request *request);
/* Removes the pending tokens of the prompt from the load. */
void cluster_load_computed(struct sched_cluster *sc, struct cluster_request *request);
/* Removes the prompt from the load of the prompt machine. If this machine is lent, returns it to
 * its home pool if the option `homing` allows that now. */
void cluster_load_prefilled(struct sched_cluster *sc, struct cluster_request *request);
/* Removes all load of the request, and returns its machines as cluster_load_prefilled does. */
void cluster_load_end(struct sched_cluster *sc, struct cluster_request *request);

/* Sets the load that other schedulers have on the machine. If another scheduler has the machine in
 * its mixed pool, calls cluster_requests_lose_large. */
void cluster_load_others(struct sched_cluster *sc, uint32_t machine,
                         const struct sched_others *others);

/* Adds the machine to the trees or removes it. Call it when `up` or `draining` has changed. */
void cluster_pool_refresh(struct sched_cluster *sc, uint32_t machine);
/* Changes the machine's current pool. The action SCHED_MOVED follows, unless the machine is back in
 * its reported pools before the action is appended. */
void cluster_pool_move(struct sched_cluster *sc, uint32_t machine, enum pool pool);
/* Changes the home pool. The current pool becomes the home pool, or the mixed pool if the machine
 * has work of the other phase; requests that are too large for the mixed machine are then lost. */
void cluster_pool_home(struct sched_cluster *sc, uint32_t machine, enum pool home);
/* Returns each lent machine that is up and does not drain to its home pool, if the option `homing`
 * allows it now. */
void cluster_pools_return_lent(struct sched_cluster *sc);
/* Computes prompt_tokens_most, token_tokens_most, tokens_most, capacity_most and
 * prompt_only_tokens_most. Call it when a machine's `was_up` or size has changed. */
void cluster_pool_sizes(struct sched_cluster *sc);

/* Computes pair_can_serve and pair_could_serve. Call it after a change of pools, links or routable.
 */
void cluster_pool_pair(struct sched_cluster *sc);

/* ---- speed.c ---- */

/* Computes mean_rate, unequal and mean_step. Call it after a change of rates, `up` or options. */
void cluster_speeds_refresh(struct sched_cluster *sc);
/* Returns the machine's rate in tokens per second: of prompts (MEASURE_PENDING) or of answers
 * (MEASURE_MEMORY). An unknown rate counts as the mean of the known rates; if no rate is known,
 * 1,000,000. */
uint64_t cluster_rate(const struct sched_cluster *sc, uint32_t machine, enum measure measure);
/* Returns the nanoseconds that a batch of `decodes` answers takes on the machine, by its measured
 * times, or else by the mean of the known times; 0 = none is known. */
uint64_t cluster_step_ns(const struct sched_cluster *sc, uint32_t machine, uint64_t decodes);
/* Returns the microseconds that the machine needs for its load (by `measure`) and `more` tokens. */
uint64_t cluster_work_us(const struct sched_cluster *sc, uint32_t machine, enum measure measure,
                         uint64_t more);

/* Counts prompt tokens that the machine must compute since now (struct recent_prompts). Needed, and
 * does something, only with the option one_machine_routes. */
void cluster_prompts_add(struct sched_cluster *sc, uint32_t machine, uint64_t tokens);
/* Returns the part of the machine's time, from 0 to 1, that its recent prompts take. */
double cluster_prompts_part(const struct sched_cluster *sc, uint32_t machine);

/* ---- cores.c ---- */

/* Returns true if both machines take turns on the same cores. */
bool cluster_same_cores(const struct sched_cluster *sc, uint32_t a, uint32_t b);
/* Returns true if this phase (POOL_PROMPT or POOL_TOKEN) gets more cores when the machine does this
 * phase, too: the machine has cores of its own, or the machines of the phase that share its cores
 * have fewer threads than there are cores. */
bool cluster_adds_cores(const struct sched_cluster *sc, uint32_t machine, enum pool phase);
/* Returns the pending tokens of the machine and of all machines that share its cores. */
uint64_t cluster_cores_pending(const struct sched_cluster *sc, uint32_t machine);
/* Returns the measured prompt tokens per second of the machine or, if they are not known, of a
 * machine that shares its cores; 0 = no such rate is known. */
uint32_t cluster_cores_rate(const struct sched_cluster *sc, uint32_t machine);

/* ---- links.c ---- */

/* Records the measured speed of a link. */
void cluster_link_measured(struct sched_cluster *sc, uint32_t from, uint32_t to,
                           const struct sched_link_speed *speed);
/* Records the machine's host. If the host has changed, forgets the speeds of its links. */
void cluster_host_set(struct sched_cluster *sc, uint32_t machine, uint32_t host);
/* Returns true if both machines are known to be on one host. */
bool cluster_same_host(const struct sched_cluster *sc, uint32_t a, uint32_t b);
/* Returns the estimated microseconds of a transfer of `tokens` tokens if the link is idle. */
uint64_t cluster_transfer_us(const struct sched_cluster *sc, uint32_t from, uint32_t to,
                             uint64_t tokens);
/* Returns the mean error of the estimate of cluster_transfer_us, in microseconds. */
uint64_t cluster_transfer_error_us(const struct sched_cluster *sc, uint32_t from, uint32_t to,
                                   uint64_t tokens);
/* Returns the microseconds until the transfers from `from` and the transfers to `to` have ended. */
uint64_t cluster_transfer_wait_us(const struct sched_cluster *sc, uint32_t from, uint32_t to);
/* Returns the time from the end of a prompt's computation to the arrival of the KV, in
 * microseconds. tokens: tokens of the prompt whose KV is sent. The computation takes compute_us
 * microseconds and ends computed_us microseconds from now. Layers are sent while later layers are
 * computed, but only after all transfers that were begun before. */
uint64_t cluster_exposed_us(const struct sched_cluster *sc, uint32_t from, uint32_t to,
                            uint64_t tokens, uint64_t computed_us, uint64_t compute_us);
/* Records a transfer of KV of `tokens` tokens that begins after cluster_transfer_wait_us. */
void cluster_transfer_begin(struct sched_cluster *sc, uint32_t from, uint32_t to, uint64_t tokens);

/* ---- stored.c ---- */

/* Opens the tables of sc->stored. Returns ST_NO_MEMORY on failure. */
enum status cluster_stored_open(struct sched_cluster *sc);
void cluster_stored_close(struct sched_cluster *sc);
/* Records the machine's tiers, [TIER_KIND_COUNT]. When the machine's memory tier or file tier no
 * longer works, what that tier has stored is forgotten. */
void cluster_tiers_set(struct sched_cluster *sc, uint32_t machine, const struct sched_tier *tiers);
/* Records that the machine is down. What its memory tier has stored is forgotten; its file and the
 * shared store keep their KV. */
void cluster_tiers_down(struct sched_cluster *sc, uint32_t machine);
/* Records that the machine, which holds the KV of these prefixes in memory, also stores the KV in
 * its tiers: in the tiers that work and that machines of its home pool write. hashes: [count]. */
void cluster_stored_add(struct sched_cluster *sc, uint32_t machine, const uint64_t *hashes,
                        uint32_t count);
/* Calls `take` with each machine whose memory tier has probably stored the prefix, then with each
 * machine whose file tier has. Requires that prefixes are remembered. */
void cluster_stored_holders(const struct sched_cluster *sc, uint64_t hash,
                            bool (*take)(void *self, uint32_t machine), void *self);

/* What a machine loads from its tiers: `tokens` tokens in `us` microseconds. */
struct cluster_load {
    uint32_t tokens;
    uint64_t us;
};

/* Estimates, by the rule of scheduler/tier_loads.h, what the machine loads if it already holds the
 * KV of the prompt's first held_tokens tokens. Requires that prefixes are remembered. */
struct cluster_load cluster_load_estimate(const struct sched_cluster *sc,
                                          const struct cluster_request *request, uint32_t machine,
                                          uint32_t held_tokens);

/* ---- route.c ---- */

enum route_result {
    ROUTE_FOUND,
    ROUTE_BUSY,     /* Machines could take the request, but have too much work now. */
    ROUTE_STRANDED, /* No machines that are up could take the request, even if idle. */
};

struct route {
    uint32_t prompt_machine;
    uint32_t token_machine;         /* SCHED_NO_MACHINE = none is needed. */
    uint32_t prefix_tokens;         /* See struct sched_action. */
    uint32_t load_tokens;           /* See struct sched_action. */
    uint32_t pull_source_plus_1;    /* See struct sched_action; 0 = none. */
    uint32_t token_held;            /* Tokens of the prompt whose KV the token machine has. */
    struct sched_decision decision; /* See struct sched_action. */
    bool prompt_moves; /* The prompt machine moves to the mixed pool for this request. */
    bool token_moves;  /* The token machine moves to the mixed pool for this request. */
    /* 1 + a machine that also moves to the mixed pool for this request
     * (options.lends_as_splitwise); 0 = none. */
    uint32_t lent_plus_1;
};

/* Finds the machines for a request by the policy of cluster.h. *out is valid with ROUTE_FOUND. */
enum route_result cluster_route_find(const struct sched_cluster *sc,
                                     const struct cluster_request *request, struct route *out);

/* Returns false if no machine that was ever up, in a pool that may take the request, is large
 * enough for the request. */
bool cluster_route_possible(const struct sched_cluster *sc, const struct cluster_request *request);
/* Returns by how many microseconds the request's first token would miss ttft_us_max; ≤ 0 = in time,
 * or not known. The estimate is for the machine that would compute the token first. tokens_before =
 * prompt tokens of the waiting requests before the request. *never_out = whether the first token
 * would be too late even on an idle machine; written only if the time is known. */
int64_t cluster_route_late_us(const struct sched_cluster *sc, const struct cluster_request *request,
                              uint64_t tokens_before, bool *never_out);

/* ---- admission.c ---- */

/* Records when the request began to wait. Adds a request that is not resumed to the list `limited`.
 */
void cluster_admission_wait_begin(struct sched_cluster *sc, uint32_t id);
/* Removes the request from the list `limited`, and records whether it waited. */
void cluster_admission_wait_end(struct sched_cluster *sc, uint32_t id);
/* Adds the time from sc->now_us to now_us to the measurement, if requests wait. Call it before
 * sc->now_us changes. */
void cluster_admission_time(struct sched_cluster *sc, int64_t now_us);
/* Counts a prompt that was computed, if requests wait. Does nothing if none waits. */
void cluster_admission_computed(struct sched_cluster *sc, const struct cluster_request *request);
/* Returns a request that has waited for queue_us_max; REQUEST_NONE = none. */
uint32_t cluster_admission_overdue(const struct sched_cluster *sc);
/* Returns the time at which the next waiting request is overdue; INT64_MAX = none. */
int64_t cluster_admission_due_us(const struct sched_cluster *sc);
/* Returns true if the last waiting request would probably wait longer than queue_us_max. newcomer =
 * a request without a kept place (cluster_promise_take) has just arrived. If this request would
 * wait longer than half of queue_us_max, kept places count as waiting requests, too. */
bool cluster_admission_late(const struct sched_cluster *sc, bool newcomer);
/* Returns the milliseconds after which the client of this refused request should send it again, and
 * keeps a place for the request (cluster_promise_add). The next refused request gets a later time.
 */
uint32_t cluster_admission_retry_ms(struct sched_cluster *sc, uint32_t id);

/* ---- promises.c ---- */

/* Keeps a place for a refused request that should be sent again at at_us. Keeps no place if
 * `identity` is 0, or if PROMISES_MAX places are kept. */
void cluster_promise_add(struct sched_cluster *sc, uint64_t identity, int64_t at_us);
/* Returns true, and gives the place to the request, if a place is kept for the request and its
 * at_us has passed or is in the next second. */
bool cluster_promise_take(struct sched_cluster *sc, uint64_t identity);
/* Returns the number of places that are kept now, because their at_us has passed. */
uint32_t cluster_promises_due(const struct sched_cluster *sc);

/* ---- repurpose.c ---- */

/* Counts a request that has arrived. */
void cluster_demand_arrived(struct sched_cluster *sc, const struct cluster_request *request);
/* Counts an answer that has ended after `generated` tokens. */
void cluster_demand_ended(struct sched_cluster *sc, uint32_t generated);
/* Counts the requests that other schedulers have sent to a machine. */
void cluster_demand_others(struct sched_cluster *sc, const struct sched_others *others);
/* Closes the buckets that are complete, evaluates the demand, and changes a home pool if enough
 * consecutive evaluations agree. */
void cluster_demand_tick(struct sched_cluster *sc);

#endif
