/* sched_cluster: the cluster-level scheduler: which prompt machine and which token machine a
 * request gets, both at its arrival, so that layers can travel while the prompt runs; and which
 * pool each machine is in. Pure: no clock, no I/O, no log, no allocation after opening; events with
 * their time go in, a bounded array of actions comes out. The gateway and the simulator drive the
 * same object; what differs between them is options.
 *
 * Policy (Splitwise, section IV-A), `adaptive`:
 * 1. Prompt machine: the prompt pool's, else the mixed pool's, with the fewest pending tokens;
 *    refused if it has work and would be over the threshold.
 * 2. Token machine: the token pool's, else the mixed pool's, with the least KV memory scheduled;
 *    refused if the request would not fit beside it.
 * 3. None for prompts: the token pool's machine with the fewest pending tokens moves to the mixed
 *    pool; none for tokens: the prompt pool's with the least memory scheduled. It goes home when
 *    its work of the other kind is done. Home pool and current pool are kept apart.
 * 4. Still one missing: the machine with the fewest pending tokens of all does both phases.
 * Without `adaptive`, 3 and 4 happen only while no pair of machines is left that could serve at
 * all; a machine over its limits is then taken all the same.
 * The first of equals wins: who has never moved, by index, then in the order of the moves. Only
 * pairs whose link is up. When nobody can take a request, it waits here, up to queue_requests_max;
 * then the last one is refused. Those that wait are served by priority, and keys share by weight
 * (queue.h); without these, in order, and the last one is the one that comes.
 *
 * Repurposing: when the work of the two phases, measured over a window of minutes, keeps asking for
 * other pool sizes, a machine's home changes (cluster_repurpose.c). */
#ifndef SCHEDULER_CLUSTER_H
#define SCHEDULER_CLUSTER_H

#include "common/limits.h"
#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

enum sched_pool { SCHED_POOL_PROMPT, SCHED_POOL_TOKEN, SCHED_POOL_MIXED, SCHED_POOL_COUNT };

const char *sched_pool_name(enum sched_pool pool);

#define SCHED_NO_MACHINE UINT32_MAX
/* More than a gateway connects to: planners ask about larger clusters than one runs. */
#define SCHED_MACHINES_MAX 1024
/* So do simulators that look at what happens when too much comes. */
#define SCHED_REQUESTS_MAX 262144
/* Hashes of one prompt's prefix chain; more are not looked at. */
#define SCHED_PREFIX_MAX 32

/* When a machine in the mixed pool, whose home is another, goes home. */
enum sched_homing {
    SCHED_HOMING_DONE, /* its work of the other kind is done */
    SCHED_HOMING_IDLE, /* it has no work at all */
    SCHED_HOMING_TOLD, /* SCHED_MACHINE_IDLE says that it has none (Splitwise's simulator) */
};

struct sched_cluster_options {
    uint32_t request_count; /* slots of the caller's request table, ≤ SCHED_REQUESTS_MAX */
    uint32_t machine_count; /* indices of machines, ≤ SCHED_MACHINES_MAX */
    uint32_t prefix_count;  /* prefixes that are remembered, of all machines; 0: none */

    uint32_t queue_requests_max; /* waiting here; more are refused */
    int64_t wait_us_max;    /* a request that no machine which is up can take waits so long; 0: for
                               ever */
    int64_t cover_after_us; /* after a start, so long do others wait for the machines of a phase
                               before they do its work */

    uint64_t prompt_queue_threshold_tokens; /* rule 1; 0: off */
    bool token_memory_threshold;            /* rule 2 */
    bool answers_grow; /* token machines book memory as answers grow: then an answer is scheduled as
                          long as its key's lately were, but for what a machine must be able to
                          hold; else as long as it may become */
    uint32_t
        machine_kv_multiple;     /* a machine with so many times its kv_tokens pending (prompts) or
                                    scheduled (tokens) takes no more: they wait here; 0: no bound */
    uint64_t machine_tokens_max; /* nor one with so many tokens; 0: no bound */

    int64_t ageing_us; /* who waited for so long joins the next more urgent class; 0: never */

    bool adaptive;
    bool unsplit;     /* one machine for both phases, any, the one with the fewest pending tokens
                         (the baseline that Splitwise compares with) */
    bool queues_told; /* rule 1: SCHED_MACHINE_QUEUE says who has work; else: who has prompts */
    enum sched_homing homing;
    bool lent_stay;       /* a machine that rule 3 moves stays moved when rule 4 takes the request
                             (Splitwise's simulator); else it moves only for a pair */
    uint64_t stay_tokens; /* of mixed machines, that which computes the prompt decodes it too unless
                             another has so many tokens less scheduled; 0: no preference */

    uint64_t prefix_slack_tokens; /* a machine that holds a prefix of the prompt may get it, or its
                                     answer, while it has no more than so many tokens (pending,
                                     scheduled) above those of the one that would else; used with
                                     prefix_count (cluster_cheapest.c) */
    uint32_t prefix_step_tokens;  /* from one hash of a chain to the next */
    bool prefix_saves; /* machines keep prefixes: what one holds is neither computed nor moved, nor
                          pending; without it none counts */

    int64_t ttft_us_max; /* a request that will wait longer for its first token is refused at once,
                            as far as rates are known; 0: off */

    int64_t repurpose_window_us; /* demand is measured over so long; 0: homes stay as they are */
    int64_t repurpose_interval_us_min;   /* between two changes */
    uint32_t repurpose_gain_percent_min; /* by so much must the busier phase's load fall */
};

enum sched_event_kind {
    SCHED_ARRIVED,    /* request, prompt_tokens, output_tokens (0: no token machine is needed),
                         resumed, prefix */
    SCHED_COMPUTED,   /* request: its prompt is computed; its KV may still be on its way */
    SCHED_PREFILLED,  /* request: its prompt machine has no more work for it */
    SCHED_ENDED,      /* request: done, failed or cancelled, wherever it stood; nothing if it is not
                         known. output_tokens: generated in this generation */
    SCHED_MACHINE_UP, /* machine, pool (its home), kv_tokens, mixed_kv_tokens */
    SCHED_MACHINE_DOWN, /* machine; its links, both ways, are down with it */
    SCHED_LINK_UP,      /* machine → peer can push KV */
    SCHED_LINK_DOWN,
    SCHED_MACHINE_DRAIN,   /* machine: gets no new requests, up or not; what it has it finishes */
    SCHED_MACHINE_UNDRAIN, /* machine: gets requests again */
    SCHED_MACHINE_HOME,  /* machine, pool: from now on it belongs there; what it has it finishes */
    SCHED_MACHINE_RATES, /* machine, prompt_tokens_per_s, output_tokens_per_s, push_tokens_per_s:
                            what it can do; 0: not known */
    SCHED_MACHINE_QUEUE, /* machine, busy: has it work that waits */
    SCHED_MACHINE_IDLE,  /* machine: has no work at all */
    SCHED_MACHINE_LOAD,  /* machine, others: what other schedulers have there, as it stands now */
    SCHED_CACHED,        /* machine, prefix: it holds the KV of these */
    SCHED_EVICTED,       /* machine, prefix: it does not any more; no prefix: nothing at all */
    SCHED_TICK,          /* time has passed (sched_cluster_due_us) */
};

/* The prefixes of a prompt: hashes[i] stands for its first (i + 1) × prefix_step_tokens tokens. */
struct sched_prefix {
    const uint64_t *hashes; /* read during the call only */
    uint32_t count;         /* more than SCHED_PREFIX_MAX: the first ones count */
};

/* What other schedulers of the same machines (other gateways) have on one of them. It counts in
 * every choice as what was routed there from here does; moves and homes go by what is ours. */
struct sched_others {
    uint64_t prompt_tokens; /* of prompts that are not computed */
    uint64_t kv_tokens;     /* scheduled */
    uint32_t prompts;       /* not computed */
    uint32_t decodes;
    bool mixed; /* one of them has it in the mixed pool: it keeps a share of its memory
                   (mixed_kv_tokens), wherever it is here */
    /* Demand, for repurposing: what has come to the machine from them since the last such event. */
    uint32_t arrived_answers;
    uint64_t arrived_prompt_tokens;
};

struct sched_event {
    enum sched_event_kind kind;
    bool resumed; /* it was accepted before: goes before those that were not, and is refused only if
                     it can never fit */
    bool busy;
    enum sched_pool pool;
    int64_t now_us;
    uint32_t request; /* slot of the gateway's table */
    uint32_t prompt_tokens;
    uint32_t output_tokens;
    uint32_t machine; /* < machine_count */
    uint32_t peer;
    uint32_t key;     /* SCHED_ARRIVED: whose request it is, UINT32_MAX: nobody's */
    uint32_t weight;  /* … of that key against others, from 1 on */
    int32_t priority; /* … a lower one comes earlier */
    uint32_t held; /* … 1 + the machine that had its KV until it was preempted or handed over; 0:
                      none. One that drains computes it again, for another one to decode */
    uint32_t prompt_tokens_per_s;
    uint32_t output_tokens_per_s;
    uint32_t push_tokens_per_s; /* whose KV it pushes, in the time that no compute hides */
    uint64_t
        kv_tokens; /* what the machine's KV memory holds: larger requests are not routed to it */
    uint64_t mixed_kv_tokens; /* the largest request that it shares with another machine while it
                                 is in the mixed pool; 0: kv_tokens */
    struct sched_prefix prefix;
    struct sched_others others;
};

enum sched_action_kind {
    SCHED_ROUTE,   /* request to machine (prompt) and peer (token; SCHED_NO_MACHINE if none is
                      needed); prefix_tokens: of the prompt, `machine` should hold their KV */
    SCHED_REFUSE,  /* request: why, retry_after_ms (0: never) */
    SCHED_EXPIRED, /* request: has waited for wait_us_max */
    SCHED_LOST,    /* request: one of its machines went down. It is forgotten: arrive again to
                      re-route it */
    SCHED_MOVED,   /* machine is in `pool` now, and belongs to `home` */
};

enum sched_refusal {
    SCHED_REFUSED_FULL,     /* too many wait */
    SCHED_REFUSED_LARGE,    /* no machine of the cluster can ever hold it */
    SCHED_REFUSED_LATE,     /* its first token would come after ttft_us_max */
    SCHED_REFUSED_TOO_LONG, /* its prompt alone takes longer than that on any machine */
};

struct sched_action {
    enum sched_action_kind kind;
    enum sched_refusal why;
    enum sched_pool pool;
    enum sched_pool home;
    uint32_t request;
    uint32_t machine;
    uint32_t peer;
    uint32_t prefix_tokens;
    uint32_t retry_after_ms;
};

#define SCHED_ACTIONS_MAX 64

struct sched_actions {
    uint32_t count;
    bool more; /* call sched_cluster_more until this is false */
    struct sched_action items[SCHED_ACTIONS_MAX];
};

struct sched_cluster;

enum status sched_cluster_open(const struct sched_cluster_options *options,
                               struct sched_cluster **out);
void sched_cluster_close(struct sched_cluster *sc); /* NULL is fine */

/* Other options from now on, as a changed config file says; the counts stay as they were opened,
 * ST_INVALID (and nothing changed) if `options` has others. Requests keep their places: a smaller
 * queue_requests_max refuses those that come, not those that wait. Which pool a machine belongs to
 * is SCHED_MACHINE_HOME's. */
enum status sched_cluster_configure(struct sched_cluster *sc,
                                    const struct sched_cluster_options *options, int64_t now_us,
                                    struct sched_actions *out);

void sched_cluster_event(struct sched_cluster *sc, const struct sched_event *event,
                         struct sched_actions *out);
void sched_cluster_more(struct sched_cluster *sc, int64_t now_us, struct sched_actions *out);

/* When SCHED_TICK is wanted next if nothing else happens; INT64_MAX: not at all. */
int64_t sched_cluster_due_us(const struct sched_cluster *sc);

/* True when a request could be routed now: both phases have a machine, and one pair has its link;
 * or one machine does both. */
bool sched_cluster_ready(const struct sched_cluster *sc);
/* True while a prompt machine and a token machine that share a link, or a mixed one, could serve:
 * nobody would have to do another's work. */
bool sched_cluster_paired(const struct sched_cluster *sc);
/* True while machines of one phase have to do the other's work because nobody else is there. */
bool sched_cluster_covering(const struct sched_cluster *sc);

/* True when `request`, whose token machine drains and has its KV, could be handed over now: it
 * would be routed to that machine, with so many tokens in its prompt and left to generate, for
 * another one to decode. */
bool sched_cluster_movable(const struct sched_cluster *sc, uint32_t request, uint32_t prompt_tokens,
                           uint32_t output_tokens);

struct sched_machine_view {
    bool up;
    bool draining;
    enum sched_pool home;
    enum sched_pool pool;
    uint64_t prompt_tokens_pending; /* prompts routed to it and not computed, less what it holds */
    uint64_t kv_tokens_scheduled;   /* of all requests routed to it and not ended or moved on */
    uint64_t others_prompt_tokens;  /* as SCHED_MACHINE_LOAD said last */
    uint64_t others_kv_tokens;
    uint32_t prompts; /* routed, KV not moved on */
    uint32_t decodes; /* routed to be decoded here, not ended */
};

void sched_cluster_view(const struct sched_cluster *sc, uint32_t machine,
                        struct sched_machine_view *out);
uint32_t sched_cluster_waiting(const struct sched_cluster *sc);

#endif
