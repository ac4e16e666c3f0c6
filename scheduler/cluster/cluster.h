/* sched_cluster: the cluster scheduler. It chooses prompt machine and token machine of a request
 * together, so that KV can be written layer by layer while the prompt is computed. It also decides
 * which pool a machine is in. The gateway calls it on its event loop thread; the simulator calls
 * the same code. Not thread-safe. Pure: no clock, no I/O, no log, no allocation after opening. The
 * caller passes in events with their times, and carries out the actions that the scheduler returns.
 * The scheduler does not choose batches (scheduler/machine/machine.h) or KV blocks
 * (scheduler/memory.h).
 *
 * The policy (Splitwise, section IV-A) has four rules. The *pending tokens* of a machine are the
 * tokens that it must still compute of its prompts, and one token for each of its answers.
 * 1. Prompt machine: the machine of the prompt pool with the fewest pending tokens. With
 *    SCHED_HOMING_DONE, if this machine has prompts, a machine that the prompt pool has lent is
 *    taken instead if it has fewer pending tokens. If the found machine is over a threshold
 *    (prompt_queue_threshold_tokens to prompt_queue_threshold_us), or no machine was found, the
 *    machine of the mixed pool with the fewest pending tokens is taken, unless this machine is over
 *    a threshold.
 * 2. Token machine: the machine of the token pool with the least scheduled KV memory. If this
 *    machine has requests and the new request does not fit its free memory, or if there is no such
 *    machine, the machine of the mixed pool with the least scheduled KV memory is taken, if the
 *    request fits its free memory. Memory that a machine keeps for answers that grow or for prompts
 *    does not count as free.
 * 3. If rule 1 finds no machine, the machine of the token pool with the fewest pending tokens is
 *    lent: it moves to the mixed pool. If rule 2 finds no machine, the machine of the prompt pool
 *    with the least scheduled KV memory is lent.
 * 4. If a machine is still missing, the machine with the fewest pending tokens of all pools does
 *    both phases.
 *
 * A *pair* is a prompt machine and a token machine with a link between them, or one mixed machine
 * (sched_cluster_paired). Rules 3 and 4 do not apply until a pair could serve for the first time,
 * or until cover_after_us has passed since the first machine was up. After that, they apply while
 * no pair can serve, and with `adaptive` at any time. While they do not apply, rule 1 may take a
 * machine over a threshold, and rule 2 a machine without free memory.
 *
 * Exception: if rules 1 and 2 could serve the request later, rules 3 and 4 do not give the prompt
 * to a machine of the token pool whose cores are all used by machines that compute prompts
 * (cores.c). If no machine is then left for the prompt, rule 1 may take a machine over a threshold.
 *
 * Sole prompt machine: if only one machine's home pool computes prompts, lending this machine for
 * answers slows all prompts. So with `one_machine_routes`, machines that do not share cores, and a
 * known rate of this machine, rule 2 also takes a machine without free memory, where the answer
 * waits. A machine is lent for answers only if rule 2 finds none. Rules 1 and 2 give a lent machine
 * no work of the other phase, so that it returns soon. Rule 4 takes no machine without free memory.
 * This does not apply while no machine's home is the token pool, or to a request that only lent
 * machines can take.
 *
 * Two more choices may change the result of the rules. With `one_machine_routes`, one machine
 * does both phases where that is better (together.c). If machines hold KV of the prompt, or tiers
 * have stored some, the scheduler takes the machines that cost the least time (cheapest.c).
 *
 * "Fewest" and "least" compare numbers of tokens. With the option `compare_time`, if the machines'
 * rates differ (speed.c), they compare the times that the machines need for these tokens and for
 * the request. Two machines are chosen only if the link from the prompt machine to the token
 * machine is up. A request that no machine can take now waits in the queue of the scheduler
 * (scheduler/queue.h).
 *
 * Repurposing: the home pool of a machine changes when the demand for the two phases has changed
 * for long enough (repurpose.c). */
#ifndef SCHEDULER_CLUSTER_CLUSTER_H
#define SCHEDULER_CLUSTER_CLUSTER_H

#include "common/limits.h"
#include "common/pool.h"
#include "common/status.h"
#include "common/tier_kind.h"
#include "scheduler/memory.h"
#include "scheduler/pace.h"
#include "scheduler/rates.h"

#include <stdbool.h>
#include <stdint.h>

#define SCHED_NO_MACHINE UINT32_MAX
/* Greatest machine_count. More than LIMIT_MACHINES, because larger clusters can be simulated. */
#define SCHED_MACHINES_MAX 1024
/* Greatest request_count. More than LIMIT_CLUSTER_REQUESTS, for simulations of overload. */
#define SCHED_REQUESTS_MAX 262144
/* Prefix hashes used per prompt. Later hashes are ignored. */
#define SCHED_PREFIX_MAX 32

/* When a lent machine returns from the mixed pool to its home pool. The *other phase* is the phase
 * that its home pool does not do. DONE and IDLE also require that a pair could serve after the
 * return, or that the lent machine is down or drains. */
enum sched_homing {
    SCHED_HOMING_DONE,     /* The machine has no work of the other phase. */
    SCHED_HOMING_IDLE,     /* The machine has no work. */
    SCHED_HOMING_REPORTED, /* The caller sends SCHED_MACHINE_IDLE (Splitwise's simulator). */
};

struct sched_cluster_options {
    uint32_t request_count; /* Slots of the caller's request table, from 1 to SCHED_REQUESTS_MAX. */
    uint32_t machine_count; /* Machine indices, from 1 to SCHED_MACHINES_MAX. */
    uint32_t prefix_count;  /* Prefixes remembered, for all machines together; 0 = none. */

    /* If a new request must wait and the queue has more requests than this number, the last new
     * request of the queue is refused. */
    uint32_t queue_requests_max;
    /* Longest wait of a new request for its prompt's first batch; 0 = no limit. Requests are
     * refused in three cases:
     * - A new request must wait, and the last new request of the queue would probably wait longer
     *   (admission.c): this last request is refused.
     * - A request has been in the queue for this time: this request is refused, and so are the last
     *   new requests of the queue that would probably wait longer.
     * - SCHED_OVERDUE: a routed request has waited for this time.
     * Resumed requests, and requests that no machine which is up can take, may wait longer. */
    int64_t queue_us_max;
    /* A waiting request expires (SCHED_EXPIRED) at this time after the scheduler first found that
     * no machine which is up can take the request; 0 = never. */
    int64_t wait_us_max;
    /* Time after the first machine was up from which rules 3 and 4 apply without a pair. */
    int64_t cover_after_us;

    /* A machine with prompts is over this threshold if the request would raise its pending tokens
     * above this number; 0 = no threshold. */
    uint64_t prompt_queue_threshold_tokens;
    /* The same for machines without a known rate; 0 = no threshold of their own. */
    uint64_t prompt_queue_threshold_unmeasured;
    /* A machine with prompts and a known rate is over this threshold if its pending tokens take
     * longer than this time; 0 = no threshold. */
    int64_t prompt_queue_threshold_us;
    /* Machines are compared by time instead of tokens if their rates differ (speed.c). */
    bool compare_time;
    bool token_memory_threshold; /* Rule 2 checks the free memory; false: it does not. */
    /* The memory that rule 2 leaves free on a machine for answers that grow: this percentage of its
     * KV memory, or growth_reserve_tokens for each answer on the machine, whichever is more. 0 if
     * the machine has no answers, or if growth_reserve_tokens is 0. */
    uint32_t growth_reserve_percent;
    uint32_t growth_reserve_tokens;
    /* Tokens that are scheduled for an answer. true: the mean length of recent answers of its API
     * key and priority, at least 64, at most its greatest length. false: its greatest length. */
    bool schedule_mean_answer;
    /* Bound on a machine's load, as a multiple of sched_kv.capacity_tokens: while the machine's
     * pending tokens reach the bound, it gets no more prompts; while its scheduled tokens reach the
     * bound, it gets no more answers. 0 = no bound. */
    uint32_t machine_kv_multiple;
    /* A machine gets no more prompts while its pending tokens reach this number, and no more
     * answers while its scheduled tokens reach this number; 0 = no bound. */
    uint64_t machine_tokens_max;
    /* A machine gets no more prompts while its pending tokens take longer than this time, if its
     * rate is known; 0 = no bound. */
    int64_t machine_us_max;
    /* While a machine's rate is not known, it gets no more prompts while its pending tokens reach
     * this number; 0 = no bound. */
    uint64_t machine_tokens_unmeasured;

    /* Waiting time after which a request joins the next more urgent priority class; 0 = never. */
    int64_t ageing_us;

    /* After a pair could serve once, rules 3 and 4 apply even while pairs can serve. */
    bool adaptive;
    /* Only rule 4 applies (the baseline of the Splitwise paper). */
    bool unsplit;
    /* How rule 1 decides that a machine has prompts. true: `busy` of the machine's latest
     * SCHED_MACHINE_QUEUE is true. false: the machine has prompts that are not computed. */
    bool busy_is_reported;
    enum sched_homing homing;
    /* Rule 3 works as in Splitwise's simulator. A machine that it chooses moves to the mixed pool
     * even if rule 3 finds no pair and rule 4 decides. For a prompt, rule 3 chooses a machine of
     * the token pool without regard to the machine's free memory. */
    bool lends_as_splitwise;
    /* One machine does both phases of a request where that is better (together.c). */
    bool one_machine_routes;
    /* TTFT and TBT targets by which a route with one machine and a route with two machines are
     * compared, > 0; used only with `one_machine_routes`. */
    struct sched_pace_targets one_machine_targets;
    /* If rule 2 takes a machine of the mixed pool, and the prompt machine is mixed, too, the prompt
     * machine generates the answer. Exceptions: the request exceeds its KV memory; its scheduled
     * tokens reach their bound; they are at least this number more than those of the machine of
     * rule 2. */
    uint64_t stay_tokens;

    /* Instead of the machine that the rules choose, the scheduler may take a machine that holds a
     * prefix of the prompt, if this machine's pending or scheduled tokens are higher by at most
     * this number (cheapest.c). */
    uint64_t prefix_slack_tokens;
    uint32_t prefix_step_tokens; /* Prompt tokens from one prefix hash to the next. */
    /* true: machines keep prefixes. Prompt tokens whose KV a machine holds are not computed on this
     * machine, and not sent to it. false: only the KV on the machine holder_plus_1 - 1 (struct
     * sched_event) counts. */
    bool prefix_saves;

    /* A new request whose first token is expected later than this time after its arrival is refused
     * when it arrives, if the machines' rates are known. If the machine of rule 1 would compute a
     * prompt too late, rule 1 takes the machine of the prompt or mixed pool that would compute the
     * prompt first; a machine whose rate is not known counts as the first. 0 = no limit. */
    int64_t ttft_us_max;

    /* Window over which demand is measured; 0 = repurposing is off. */
    int64_t repurpose_window_us;
    int64_t repurpose_interval_us_min; /* Least time between two changes of a home pool. */
    /* Least percentage by which a change of a home pool must reduce the busier phase's load. */
    uint32_t repurpose_gain_percent_min;
};

/* The speed of the link from one machine to another: KV of n tokens takes latency_us + 1000000 × n
 * / tokens_per_s microseconds. error_percent: see struct link_estimate (scheduler/link_speed.h). */
struct sched_link_speed {
    uint32_t latency_us;
    uint32_t tokens_per_s; /* 0 = not measured. */
    uint32_t error_percent;
};

/* A tier of a machine (kvcache/tiers/): KV of n tokens is loaded in load_fixed_us + n ×
 * load_token_ns / 1000 microseconds. */
struct sched_tier {
    bool works;             /* The tier is in use. */
    uint32_t load_fixed_us; /* 0, with load_token_ns 0 = the times were not measured lately. */
    uint32_t load_token_ns;
};

/* The kinds of events, and the fields of struct sched_event that each kind uses besides now_us. */
enum sched_event_kind {
    /* `request` arrives: prompt_tokens, output_tokens, resumed, key_index, weight, priority,
     * holder_plus_1, held_tokens, identity, prefix. output_tokens = most tokens of the answer; 0 =
     * at most one, which the prompt machine generates: no token machine is needed. 0 counts as 1 if
     * the prompt is too large to run like this on any machine (mixed_kv_tokens). */
    SCHED_ARRIVED,
    SCHED_COMPUTED,  /* The prompt of `request` is computed; its KV may still be on its way. */
    SCHED_PREFILLED, /* The prompt machine of `request` has no more work for the request. */
    /* `request` leaves the queue or its machines, for example because it is done, cancelled or
     * preempted. Ignored if the scheduler does not know the request. output_tokens = tokens
     * generated since its latest SCHED_ARRIVED. */
    SCHED_ENDED,
    /* `request`, which is routed and computes nothing yet, has waited for queue_us_max: the request
     * is refused. Ignored if it is not routed. */
    SCHED_OVERDUE,
    /* `machine` is up: pool (its home pool), kv_tokens, mixed_kv_tokens, kv, cores, core_count,
     * threads. */
    SCHED_MACHINE_UP,
    SCHED_MACHINE_DOWN, /* `machine` is down, with its links in both directions. */
    SCHED_LINK_UP,      /* `machine` can write KV to `peer`. */
    SCHED_LINK_DOWN,    /* `machine` can no longer write KV to `peer`. */
    SCHED_LINK_SPEED,   /* The measured speed of the link from `machine` to `peer`: link. */
    SCHED_MACHINE_HOST, /* `machine` is on `host`. */
    /* `machine` finishes its requests, and gets no new requests until SCHED_MACHINE_UNDRAIN. */
    SCHED_MACHINE_DRAIN,
    SCHED_MACHINE_UNDRAIN, /* `machine` gets requests again. */
    /* The home pool of `machine` is now `pool`. The machine finishes its requests, except those
     * that are too large for it in the mixed pool (SCHED_LOST). */
    SCHED_MACHINE_HOME,
    /* Measured rates of `machine`: prompt_tokens_per_s, output_tokens_per_s, step; 0 = not
     * known. */
    SCHED_MACHINE_RATES,
    /* The tiers of `machine`: tiers. None works before this event, or after SCHED_MACHINE_DOWN. */
    SCHED_MACHINE_TIERS,
    SCHED_MACHINE_QUEUE, /* `busy` = whether prompts wait on `machine`. */
    SCHED_MACHINE_IDLE,  /* `machine` has no work. If it is lent, it returns to its home pool. */
    SCHED_MACHINE_LOAD,  /* `others`: the present load that other schedulers have on `machine`. */
    SCHED_CACHED,        /* `machine` holds the KV of the prefixes in `prefix`. */
    /* `machine` no longer holds the prefixes in `prefix`; an empty `prefix` = holds none at all. */
    SCHED_EVICTED,
    SCHED_TICK, /* Time has passed: see sched_cluster_due_us. */
};

/* Prefixes. SCHED_ARRIVED: hashes[i] stands for the prompt's first (i + 1) × prefix_step_tokens
 * tokens; hashes after the first SCHED_PREFIX_MAX are ignored. SCHED_CACHED, SCHED_EVICTED: any
 * prefixes of the machine. */
struct sched_prefix {
    const uint64_t *hashes; /* Read only during the call. */
    uint32_t count;         /* Number of hashes. */
};

/* The load that schedulers of other gateways have on a machine. When the scheduler chooses a
 * machine, this load counts like the scheduler's own load. It does not keep a lent machine from
 * returning. */
struct sched_others {
    uint64_t prompt_tokens; /* Tokens of prompts that are not computed yet. */
    uint64_t kv_tokens;     /* KV memory scheduled, in tokens (sched_memory_tokens_of). */
    uint32_t prompts;       /* Prompts not computed yet. */
    uint32_t decodes;       /* Requests that are or will be decoded. */
    /* Another scheduler has the machine in its mixed pool. The machine then divides its memory
     * between the phases (mixed_kv_tokens), even if this scheduler has it in another pool. */
    bool mixed;
    /* What other schedulers sent to the machine since the previous SCHED_MACHINE_LOAD. */
    uint32_t arrived_answers;       /* Requests to be decoded. */
    uint64_t arrived_prompt_tokens; /* Tokens of prompts. */
};

/* An event. enum sched_event_kind says which fields are used. */
struct sched_event {
    enum sched_event_kind kind;
    /* SCHED_ARRIVED: the request was accepted before. It goes before the new requests of its
     * priority class. A waiting resumed request is refused only if it can never fit. */
    bool resumed;
    bool busy;
    enum pool pool;
    int64_t now_us;
    uint32_t request; /* Slot in the caller's request table, < request_count. */
    uint32_t prompt_tokens;
    uint32_t output_tokens;
    uint32_t machine;   /* < machine_count */
    uint32_t peer;      /* Index of another machine. */
    uint32_t key_index; /* SCHED_ARRIVED: index of the API key; UINT32_MAX = no key. */
    uint32_t weight;    /* SCHED_ARRIVED: weight of that key, ≥ 1. */
    int32_t priority;   /* SCHED_ARRIVED: priority; lower is more urgent. */
    /* SCHED_ARRIVED: 1 + the index of the machine that holds most of the request's KV after a
     * preemption, a hand-over or the loss of a machine; 0 = none. This machine may be chosen as
     * prompt machine even while it drains. */
    uint32_t holder_plus_1;
    /* SCHED_ARRIVED: number of the prompt's first tokens whose KV the machine holder_plus_1 - 1
     * keeps in its prefix cache; 0 = none. */
    uint32_t held_tokens;
    /* SCHED_ARRIVED: a number by which the request is recognised if it is refused and the client
     * sends it again (promises.c); 0 = not known. */
    uint64_t identity;
    uint32_t prompt_tokens_per_s;
    uint32_t output_tokens_per_s;
    uint32_t host; /* SCHED_MACHINE_HOST: equal for machines on one host; 0 = unknown. */
    struct sched_link_speed link;
    struct sched_tier tiers[TIER_KIND_COUNT];
    struct sched_step_time step; /* SCHED_MACHINE_RATES: the time of a batch that only decodes. */
    /* SCHED_MACHINE_UP: tokens of the longest context that fits the machine's KV memory. */
    uint64_t kv_tokens;
    /* SCHED_MACHINE_UP: size of the largest request of which the machine does only one phase while
     * it is in the mixed pool. If this is the prompt phase, the size is the prompt's tokens;
     * otherwise, the tokens of prompt and answer. 0 = kv_tokens. */
    uint64_t mixed_kv_tokens;
    /* SCHED_MACHINE_UP: how requests fill the machine's KV memory. */
    struct sched_kv kv;
    /* SCHED_MACHINE_UP: machines with the same number share cores; 0 = own cores. */
    uint32_t cores;
    uint32_t core_count; /* SCHED_MACHINE_UP: how many cores these machines share; 0 = 1. */
    /* SCHED_MACHINE_UP: on how many of these cores the machine computes; 0 = all. */
    uint32_t threads;
    struct sched_prefix prefix;
    struct sched_others others;
};

enum sched_action_kind {
    /* Let `machine` compute the prompt of `request` and `token_machine` generate its answer
     * (SCHED_NO_MACHINE = none is needed). prefix_tokens = number of the prompt's first tokens
     * whose KV `machine` probably holds; if pull_source_plus_1 is not 0, the machine
     * pull_source_plus_1 - 1 must first send this KV to `machine`. load_tokens = number of tokens
     * after prefix_tokens that `machine` will probably load from its tiers. decision = the
     * estimated costs by which the route was chosen. */
    SCHED_ROUTE,
    /* Refuse `request`, for the reason `refusal`. The client may send it again after
     * retry_after_ms; 0 = never. The scheduler has forgotten the request. */
    SCHED_REFUSE,
    SCHED_EXPIRED, /* wait_us_max is over. The scheduler has forgotten `request`. */
    /* A machine that `request` still needs is down, or is now mixed and too small for the request.
     * The scheduler has forgotten the request; SCHED_ARRIVED routes it again. */
    SCHED_LOST,
    SCHED_MOVED, /* `machine` is now in `pool`; its home pool is `home`. */
};

/* Why a request is refused. */
enum sched_refusal {
    SCHED_REFUSED_FULL, /* Too many requests wait. */
    /* No machine that was ever up, in a pool that may take the request, can hold it. */
    SCHED_REFUSED_LARGE,
    SCHED_REFUSED_LATE,     /* The first token would come after ttft_us_max. */
    SCHED_REFUSED_TOO_LONG, /* The prompt takes longer than ttft_us_max even on an idle machine. */
    SCHED_REFUSED_WAIT,     /* The request would wait, or has waited, for queue_us_max. */
};

/* Estimated times, in microseconds, by which cheapest.c chose the route. All zeros = cheapest.c did
 * not choose the route. */
struct sched_decision {
    /* The least cost of each kind of route, including the time that other requests lose; 0 = there
     * was no route of this kind. The route with the least cost was taken. */
    uint32_t compute_us; /* The prompt machine has no KV of the prompt. */
    uint32_t keep_us;    /* The prompt machine holds KV of the prompt. */
    uint32_t move_us;    /* The prompt machine gets KV from another machine. */
    uint32_t load_us;    /* The prompt machine loads KV from its tiers. */
    /* Times on the route that was taken, from the decision on. */
    uint32_t loaded_us;   /* Until KV is loaded from tiers; 0 = none is loaded. */
    uint32_t pull_us;     /* Until KV has arrived from another machine; 0 = none is sent. */
    uint32_t computed_us; /* Until the prompt is computed. */
};

/* An action. enum sched_action_kind says which fields are used. */
struct sched_action {
    enum sched_action_kind kind;
    enum sched_refusal refusal;
    enum pool pool;
    enum pool home;
    uint32_t request;
    uint32_t machine;
    uint32_t token_machine;
    uint32_t prefix_tokens;
    uint32_t load_tokens;
    uint32_t pull_source_plus_1;
    uint32_t retry_after_ms;
    struct sched_decision decision;
};

#define SCHED_ACTIONS_MAX 64 /* Most actions of one call. */

/* Actions in the order in which the caller carries them out. */
struct sched_actions {
    uint32_t count;
    bool more; /* More actions follow: call sched_cluster_more_actions until this is false. */
    struct sched_action items[SCHED_ACTIONS_MAX];
};

struct sched_cluster;

/* Opens a scheduler with no machine up and no request; copies *options. Returns ST_NO_MEMORY, or
 * ST_INVALID if request_count or machine_count is out of range, if prefix_count is set without
 * prefix_step_tokens, or if `one_machine_routes` is set without targets. */
enum status sched_cluster_open(const struct sched_cluster_options *options,
                               struct sched_cluster **out);
void sched_cluster_close(struct sched_cluster *sc); /* NULL is fine */

/* Changes the options, and stores the actions that follow. Returns ST_INVALID, with nothing
 * changed, for options that sched_cluster_open refuses, and if request_count, machine_count or
 * prefix_count would change. */
enum status sched_cluster_configure(struct sched_cluster *sc,
                                    const struct sched_cluster_options *options, int64_t now_us,
                                    struct sched_actions *out);

/* Handles an event, and stores the actions that follow. Requires that SCHED_ARRIVED names a request
 * that the scheduler does not know. */
void sched_cluster_event(struct sched_cluster *sc, const struct sched_event *event,
                         struct sched_actions *out);
/* Stores the next actions that follow from the present state. */
void sched_cluster_more_actions(struct sched_cluster *sc, int64_t now_us,
                                struct sched_actions *out);

/* Returns the time at which SCHED_TICK is needed if no other event occurs; INT64_MAX = never. */
int64_t sched_cluster_due_us(const struct sched_cluster *sc);

/* Returns true if requests can be routed: sched_cluster_paired is true, or a machine that is up and
 * does not drain may do both phases (rule 4). */
bool sched_cluster_ready(const struct sched_cluster *sc);
/* Returns true if a prompt machine and a token machine with a link between them, or a mixed
 * machine, are up and do not drain. */
bool sched_cluster_paired(const struct sched_cluster *sc);
/* Returns true if at least one machine is up and does not drain, and the home pools of all such
 * machines together lack one of the two phases. */
bool sched_cluster_lacks_phase(const struct sched_cluster *sc);

/* Returns true if the answer of `request` can be handed over now: its token machine is draining and
 * has all KV of the request, and another machine, to which the link is up, has free memory for
 * prompt_tokens + output_tokens tokens. prompt_tokens = tokens of the present context;
 * output_tokens = tokens that are left to generate, at least 1. */
bool sched_cluster_can_hand_over(const struct sched_cluster *sc, uint32_t request,
                                 uint32_t prompt_tokens, uint32_t output_tokens);

/* Returns the machine that should keep a copy of the KV of the request's answer; SCHED_NO_MACHINE =
 * no machine can, or the request has no token machine. The result is another machine than the token
 * machine, is up and does not drain. The token machine has a link to the result, and the result's
 * memory has room for the prompt and the longest answer. The order of preference: machines that are
 * not known to be on the token machine's host; the prompt machine; the machine with the least
 * scheduled KV memory; the machine with the lowest index. */
uint32_t sched_cluster_copy_target(const struct sched_cluster *sc, uint32_t request);

/* What the scheduler knows of one machine, for display. */
struct sched_machine_view {
    bool up;
    bool draining;
    enum pool home; /* Home pool. */
    enum pool pool; /* Current pool. */
    /* Prompt tokens that the machine must still compute for the requests routed to it. */
    uint64_t prompt_tokens_pending;
    /* KV memory, in tokens, that routed requests take on the machine: for prompts until
     * SCHED_PREFILLED, for answers until SCHED_ENDED. */
    uint64_t kv_tokens_scheduled;
    /* prompt_tokens of the latest SCHED_MACHINE_LOAD; 0 after the machine went up or down. */
    uint64_t others_prompt_tokens;
    /* kv_tokens of the latest SCHED_MACHINE_LOAD; 0 after the machine went up or down. */
    uint64_t others_kv_tokens;
    uint32_t prompts; /* Prompts routed to the machine, until SCHED_PREFILLED. */
    uint32_t decodes; /* Answers routed to the machine, until SCHED_ENDED. */
};

/* Stores what the scheduler knows of the machine. */
void sched_cluster_view(const struct sched_cluster *sc, uint32_t machine,
                        struct sched_machine_view *out);
/* Stores the measured speed of the link from one machine to another. */
void sched_cluster_link_view(const struct sched_cluster *sc, uint32_t from, uint32_t to,
                             struct sched_link_speed *out);
/* Returns the number of requests in the scheduler's queue. */
uint32_t sched_cluster_waiting(const struct sched_cluster *sc);

#endif
