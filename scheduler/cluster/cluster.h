/* sched_cluster: the cluster scheduler. It chooses the prompt machine and the token machine of each
 * request, both when the request arrives, so that KV layers can travel while the prompt is
 * computed. It also decides which pool each machine is in. The gateway calls it from its event
 * loop; the simulator calls the same code with other options. It is not thread-safe.
 *
 * It is pure: no clock, no I/O, no log, no allocation after opening. Events with their time go in;
 * a bounded array of actions comes out.
 *
 * The policy (Splitwise, section IV-A) with the option `adaptive`:
 * 1. Prompt machine: the machine of the prompt pool with the fewest pending prompt tokens. A
 *    machine that has work is not taken if the request would put it over the threshold. Then the
 *    mixed pool is tried in the same order.
 * 2. Token machine: the machine of the token pool with the least scheduled KV memory. A machine is
 *    not taken if the request would not fit beside what is scheduled there. Then the mixed pool is
 *    tried.
 * 3. If no prompt machine was found, the token pool's machine with the fewest pending tokens moves
 *    to the mixed pool. If no token machine was found, the prompt pool's machine with the least
 *    scheduled memory does. A moved machine is *lent*: its current pool differs from its home pool,
 *    and it returns home when its work of the other phase is done.
 * 4. If a machine is still missing, the machine with the fewest pending tokens of all pools does
 *    both phases.
 *
 * Without `adaptive`, rules 3 and 4 apply only while no pair of machines could serve at all. A
 * machine over its thresholds is then taken anyway.
 *
 * Among equal machines, those that have never moved come first, by index; then the others in the
 * order of their moves. Only pairs whose link is up are chosen. A request that no machine can take
 * waits here. If more than queue_requests_max wait, the last one in the queue is refused. Waiting
 * requests are ordered by priority, and API keys share by weight (queue.h); without priorities and
 * keys, the order is that of arrival.
 *
 * Repurposing: when the measured work of the two phases keeps asking for other pool sizes, the home
 * pool of a machine changes (repurpose.c). */
#ifndef SCHEDULER_CLUSTER_CLUSTER_H
#define SCHEDULER_CLUSTER_CLUSTER_H

#include "common/limits.h"
#include "common/pool.h"
#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

#define SCHED_NO_MACHINE UINT32_MAX
/* Larger than the number of machines a gateway connects to, because the planner simulates larger
 * clusters. */
#define SCHED_MACHINES_MAX 1024
/* The simulator uses this many in order to study overload. */
#define SCHED_REQUESTS_MAX 262144
/* Prefix hashes used per prompt. Further hashes are ignored. */
#define SCHED_PREFIX_MAX 32

/* When a lent machine returns from the mixed pool to its home pool. */
enum sched_homing {
    SCHED_HOMING_DONE, /* when its work of the other phase is done */
    SCHED_HOMING_IDLE, /* when it has no work */
    SCHED_HOMING_TOLD, /* when the caller sends SCHED_MACHINE_IDLE (Splitwise's simulator) */
};

struct sched_cluster_options {
    uint32_t request_count; /* Slots of the caller's request table, ≤ SCHED_REQUESTS_MAX. */
    uint32_t machine_count; /* Machine indices, ≤ SCHED_MACHINES_MAX. */
    uint32_t prefix_count;  /* Prefixes remembered, for all machines together; 0 = none. */

    uint32_t queue_requests_max; /* Most requests that wait here; further requests are refused. */
    /* Time after which a waiting request expires if no machine that is up could ever take it; 0 =
     * never. */
    int64_t wait_us_max;
    /* Grace period after start-up before machines of one phase take over the work of the other. */
    int64_t cover_after_us;

    uint64_t prompt_queue_threshold_tokens; /* Rule 1; 0 = no threshold. */
    bool token_memory_threshold;            /* Rule 2 checks the scheduled memory. */
    /* true: token machines reserve memory as answers grow, so an answer is scheduled with the
     * length that recent answers of its API key had (at least 64 tokens). false: it is scheduled
     * with its maximum length. */
    bool answers_grow;
    /* A machine with this multiple of its kv_tokens pending (prompts) or scheduled (tokens) gets no
     * more requests: they wait here; 0 = no bound. */
    uint32_t machine_kv_multiple;
    /* A machine with this many tokens pending or scheduled gets no more requests; 0 = no bound. */
    uint64_t machine_tokens_max;

    /* Waiting time after which a request joins the next more urgent priority class; 0 = never. */
    int64_t ageing_us;

    bool adaptive;
    /* Baseline of the Splitwise paper: the machine with the fewest pending tokens does both phases
     * of a request. */
    bool unsplit;
    /* Which machines have work (rule 1). true: as SCHED_MACHINE_QUEUE reports. false: those with
     * prompts that are not computed. */
    bool queues_told;
    enum sched_homing homing;
    /* true: a machine moved by rule 3 stays in the mixed pool even if rule 4 takes the request
     * (Splitwise's simulator). false: rule 3 moves a machine only if that makes a pair. */
    bool lent_stay;
    /* A mixed machine that computes a prompt also decodes it, unless another mixed machine has this
     * many tokens less scheduled; 0 = no preference. */
    uint64_t stay_tokens;

    /* A machine that holds a prefix of the prompt may be preferred while it has at most this many
     * more tokens (pending or scheduled) than the machine that the rules chose. Used with
     * prefix_count (cheapest.c). */
    uint64_t prefix_slack_tokens;
    uint32_t prefix_step_tokens; /* Prompt tokens from one prefix hash to the next. */
    /* true: machines keep prefixes, so the tokens that a machine holds are not computed, moved or
     * counted as pending there. false: prefixes are ignored. */
    bool prefix_saves;

    /* A request whose first token is expected later than this is refused at once, if the machines'
     * rates are known; 0 = no limit. */
    int64_t ttft_us_max;

    /* Window over which demand is measured; 0 = home pools never change. */
    int64_t repurpose_window_us;
    int64_t repurpose_interval_us_min; /* Least time between two changes of a home pool. */
    /* Least reduction of the busier phase's load that justifies a change. */
    uint32_t repurpose_gain_percent_min;
};

enum sched_event_kind {
    /* A request arrives. Uses request, prompt_tokens, output_tokens (0 = no token machine is
     * needed), resumed, key, weight, priority, held, prefix. */
    SCHED_ARRIVED,
    SCHED_COMPUTED,  /* The prompt of `request` is computed; its KV may still be on its way. */
    SCHED_PREFILLED, /* The prompt machine of `request` has no more work for it. */
    /* The request is done, failed or cancelled, in any state; ignored if it is unknown.
     * output_tokens = tokens generated in this generation. */
    SCHED_ENDED,
    /* A machine is up. Uses machine, pool (its home pool), kv_tokens, mixed_kv_tokens. */
    SCHED_MACHINE_UP,
    SCHED_MACHINE_DOWN, /* A machine is down, with its links in both directions. */
    SCHED_LINK_UP,      /* `machine` can write KV to `peer`. */
    SCHED_LINK_DOWN,
    /* `machine` gets no new requests, also after it has come up again; it finishes those it has. */
    SCHED_MACHINE_DRAIN,
    SCHED_MACHINE_UNDRAIN, /* `machine` gets requests again. */
    /* The home pool of `machine` is now `pool`; it finishes the requests it has. */
    SCHED_MACHINE_HOME,
    /* Measured rates of `machine` (prompt_tokens_per_s, output_tokens_per_s, push_tokens_per_s); 0
     * = not known. */
    SCHED_MACHINE_RATES,
    SCHED_MACHINE_QUEUE, /* `busy`: whether `machine` has work that waits. */
    SCHED_MACHINE_IDLE,  /* `machine` has no work. If it is lent, it returns home. */
    SCHED_MACHINE_LOAD,  /* `others`: the present load that other schedulers have on `machine`. */
    SCHED_CACHED,        /* `machine` holds the KV of the prefixes in `prefix`. */
    /* `machine` no longer holds these prefixes; an empty `prefix` means that it holds none at all.
     */
    SCHED_EVICTED,
    SCHED_TICK, /* Time has passed: see sched_cluster_due_us. */
};

/* The prefixes of a prompt. hashes[i] stands for the prompt's first (i + 1) × prefix_step_tokens
 * tokens. */
struct sched_prefix {
    const uint64_t *hashes; /* Read only during the call. */
    uint32_t count;         /* Hashes; those after the first SCHED_PREFIX_MAX are ignored. */
};

/* The load that other schedulers (other gateways) have on a machine. It counts like this
 * scheduler's own load when a machine is chosen. Pool moves and returns home depend only on this
 * scheduler's own requests. */
struct sched_others {
    uint64_t prompt_tokens; /* Tokens of prompts that are not computed yet. */
    uint64_t kv_tokens;     /* KV tokens scheduled. */
    uint32_t prompts;       /* Prompts not computed yet. */
    uint32_t decodes;
    /* Another scheduler has the machine in its mixed pool. The machine then divides its memory
     * between the phases (mixed_kv_tokens), whichever pool it is in here. */
    bool mixed;
    /* Demand that other schedulers sent to the machine since the previous such event, for
     * repurposing. */
    uint32_t arrived_answers;
    uint64_t arrived_prompt_tokens;
};

struct sched_event {
    enum sched_event_kind kind;
    /* The request was accepted before. It goes before new requests, and is refused only if it can
     * never fit. */
    bool resumed;
    bool busy;
    enum pool pool;
    int64_t now_us;
    uint32_t request; /* Slot in the gateway's request table. */
    uint32_t prompt_tokens;
    uint32_t output_tokens;
    uint32_t machine; /* < machine_count */
    uint32_t peer;
    uint32_t key;     /* SCHED_ARRIVED: index of the API key; UINT32_MAX = no key. */
    uint32_t weight;  /* SCHED_ARRIVED: weight of that key, ≥ 1. */
    int32_t priority; /* SCHED_ARRIVED: priority; lower is more urgent. */
    /* SCHED_ARRIVED: 1 + the machine that had the request's KV until preemption or hand-over; 0 =
     * none. If that machine is draining, it may become the prompt machine, with another machine as
     * token machine. */
    uint32_t held;
    uint32_t prompt_tokens_per_s;
    uint32_t output_tokens_per_s;
    uint32_t push_tokens_per_s; /* Rate of KV transfer that is not hidden behind computing. */
    uint64_t kv_tokens; /* Size of the machine's KV memory. Larger requests are not routed to it. */
    /* The largest request of which the machine does one phase while it is in the mixed pool; 0 =
     * kv_tokens. */
    uint64_t mixed_kv_tokens;
    struct sched_prefix prefix;
    struct sched_others others;
};

enum sched_action_kind {
    /* Send `request` to `machine` (prompt) and `peer` (tokens; SCHED_NO_MACHINE = none is needed).
     * prefix_tokens = tokens of the prompt whose KV `machine` should already hold. */
    SCHED_ROUTE,
    SCHED_REFUSE,  /* Refuse `request`: why, retry_after_ms (0 = never retry). */
    SCHED_EXPIRED, /* `request` has waited for wait_us_max. */
    /* One of the machines of `request` went down. The scheduler has forgotten the request: send
     * SCHED_ARRIVED again to route it anew. */
    SCHED_LOST,
    SCHED_MOVED, /* `machine` is now in `pool`; its home pool is `home`. */
};

enum sched_refusal {
    SCHED_REFUSED_FULL,     /* too many requests wait */
    SCHED_REFUSED_LARGE,    /* no machine of the cluster can ever hold it */
    SCHED_REFUSED_LATE,     /* its first token would come after ttft_us_max */
    SCHED_REFUSED_TOO_LONG, /* its prompt takes longer than ttft_us_max even on an idle machine */
};

struct sched_action {
    enum sched_action_kind kind;
    enum sched_refusal why;
    enum pool pool;
    enum pool home;
    uint32_t request;
    uint32_t machine;
    uint32_t peer;
    uint32_t prefix_tokens;
    uint32_t retry_after_ms;
};

#define SCHED_ACTIONS_MAX 64

struct sched_actions {
    uint32_t count;
    bool more; /* Further actions are due: call sched_cluster_more until this is false. */
    struct sched_action items[SCHED_ACTIONS_MAX];
};

struct sched_cluster;

enum status sched_cluster_open(const struct sched_cluster_options *options,
                               struct sched_cluster **out);
void sched_cluster_close(struct sched_cluster *sc); /* NULL is fine */

/* Changes the options, for a changed config file. The counts (request_count, machine_count,
 * prefix_count) must be those of opening: ST_INVALID, with nothing changed, if they differ. Waiting
 * requests stay: a smaller queue_requests_max refuses new requests only. The pool of a machine is
 * changed with SCHED_MACHINE_HOME instead. */
enum status sched_cluster_configure(struct sched_cluster *sc,
                                    const struct sched_cluster_options *options, int64_t now_us,
                                    struct sched_actions *out);

void sched_cluster_event(struct sched_cluster *sc, const struct sched_event *event,
                         struct sched_actions *out);
void sched_cluster_more(struct sched_cluster *sc, int64_t now_us, struct sched_actions *out);

/* Time at which SCHED_TICK is needed if no other event occurs; INT64_MAX = never. */
int64_t sched_cluster_due_us(const struct sched_cluster *sc);

/* True when a request could be routed now: a pair of machines with a link can serve both phases, or
 * one machine can do both. */
bool sched_cluster_ready(const struct sched_cluster *sc);
/* True while a prompt machine and a token machine with a link between them, or a mixed machine, are
 * there: no machine has to do work of another phase. */
bool sched_cluster_paired(const struct sched_cluster *sc);
/* True while machines are up, but none of those that do not drain has one of the phases as its
 * home. */
bool sched_cluster_covering(const struct sched_cluster *sc);

/* True when `request` could be handed over now: its token machine is draining and has all its KV,
 * and with prompt_tokens in its prompt and output_tokens left to generate it would be routed back
 * to that machine as prompt machine, with another machine that has memory for it as token machine.
 */
bool sched_cluster_movable(const struct sched_cluster *sc, uint32_t request, uint32_t prompt_tokens,
                           uint32_t output_tokens);

struct sched_machine_view {
    bool up;
    bool draining;
    enum pool home;
    enum pool pool;
    /* Tokens of prompts routed to the machine and not computed, less the tokens whose KV it already
     * holds. */
    uint64_t prompt_tokens_pending;
    /* KV tokens of all requests routed to the machine that have neither ended nor moved on. */
    uint64_t kv_tokens_scheduled;
    uint64_t others_prompt_tokens; /* As the latest SCHED_MACHINE_LOAD reported. */
    uint64_t others_kv_tokens;
    uint32_t prompts; /* Prompts routed to the machine whose KV has not moved on. */
    uint32_t decodes; /* Requests routed here to be decoded that have not ended. */
};

void sched_cluster_view(const struct sched_cluster *sc, uint32_t machine,
                        struct sched_machine_view *out);
uint32_t sched_cluster_waiting(const struct sched_cluster *sc);

#endif
