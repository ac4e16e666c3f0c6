/* sched_cluster: the cluster-level scheduler: which prompt machine and which token machine a
 * request gets, both at its arrival, so that layers can travel while the prompt runs. Pure: no
 * clock, no I/O, no log, no allocation after opening; events with their time go in, a bounded array
 * of actions comes out.
 *
 * Policy, first form (Splitwise, section IV-A): join the shortest queue by pending tokens over the
 * machines of the pool, then over the mixed pool (together, once the pool's queues are over the
 * threshold); a mixed machine decodes what it has computed itself when no other has less to do;
 * otherwise the lowest index wins a tie; only pairs whose link is up. When nobody can serve, the
 * request waits here in order, up to queue_requests_max; then it is refused. */
#ifndef SCHEDULER_CLUSTER_H
#define SCHEDULER_CLUSTER_H

#include "common/limits.h"
#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

enum sched_pool { SCHED_POOL_PROMPT, SCHED_POOL_TOKEN, SCHED_POOL_MIXED, SCHED_POOL_COUNT };

const char *sched_pool_name(enum sched_pool pool);

#define SCHED_NO_MACHINE UINT32_MAX

struct sched_cluster_options {
    uint32_t request_count; /* slots of the gateway's request table, ≤ LIMIT_CLUSTER_REQUESTS */
    uint32_t queue_requests_max;            /* waiting here; more are refused */
    uint64_t prompt_queue_threshold_tokens; /* a prompt machine with more pending is no better than
                                               a mixed one; 0: off */
    uint32_t
        machine_kv_multiple; /* … nor one with so many times its kv_tokens pending; 0: no bound */
    uint64_t machine_tokens_max; /* a machine with so many pending tokens takes no more (they wait
                                    here); 0: no bound */
};

enum sched_event_kind {
    SCHED_ARRIVED,    /* request, prompt_tokens, output_tokens (0: no token machine is needed) */
    SCHED_PREFILLED,  /* request: its prompt machine has no more work for it */
    SCHED_ENDED,      /* request: done, failed or cancelled, wherever it stood; nothing if it is not
                         known */
    SCHED_MACHINE_UP, /* machine, pool, kv_tokens */
    SCHED_MACHINE_DOWN, /* machine; its links, both ways, are down with it */
    SCHED_LINK_UP,      /* machine → peer can push KV */
    SCHED_LINK_DOWN,
    SCHED_MACHINE_DRAIN,   /* machine: gets no new requests, up or not; what it has it finishes */
    SCHED_MACHINE_UNDRAIN, /* machine: gets requests again */
    SCHED_MACHINE_HOME, /* machine, pool: from now on it belongs there; what it has it finishes */
};

struct sched_event {
    enum sched_event_kind kind;
    int64_t now_us;
    uint32_t request; /* slot of the gateway's table */
    uint32_t prompt_tokens;
    uint32_t output_tokens;
    uint32_t machine; /* < LIMIT_MACHINES */
    uint32_t peer;
    enum sched_pool pool;
    uint32_t key;     /* SCHED_ARRIVED: whose request it is, UINT32_MAX: nobody's */
    uint32_t weight;  /* … of that key against others, from 1 on */
    int32_t priority; /* … a lower one comes earlier */
    uint64_t
        kv_tokens; /* what the machine's KV memory holds: larger requests are not routed to it */
};

enum sched_action_kind {
    SCHED_ROUTE, /* request to machine (prompt) and peer (token; SCHED_NO_MACHINE if none is needed)
                  */
    SCHED_REFUSE, /* request: too many wait (retry_after_ms), or no machine of the cluster can ever
                     hold it (0) */
    SCHED_LOST, /* request: one of its machines went down. It is forgotten: arrive again to re-route
                   it */
};

struct sched_action {
    enum sched_action_kind kind;
    uint32_t request;
    uint32_t machine;
    uint32_t peer;
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

/* Other options from now on, as a changed config file says; request_count stays as it was opened,
 * ST_INVALID (and nothing changed) if `options` has another. Requests keep their places: a smaller
 * queue_requests_max refuses those that come, not those that wait. Which pool a machine belongs to
 * is SCHED_MACHINE_HOME's. */
enum status sched_cluster_configure(struct sched_cluster *sc,
                                    const struct sched_cluster_options *options, int64_t now_us,
                                    struct sched_actions *out);

void sched_cluster_event(struct sched_cluster *sc, const struct sched_event *event,
                         struct sched_actions *out);
void sched_cluster_more(struct sched_cluster *sc, int64_t now_us, struct sched_actions *out);

/* True when a request could be routed now: both phases have a machine, and one pair has its link.
 */
bool sched_cluster_ready(const struct sched_cluster *sc);

struct sched_machine_view {
    bool up;
    bool draining;
    enum sched_pool pool;
    uint64_t prompt_tokens_pending;
    uint64_t token_tokens_pending;
    uint32_t prompts;
    uint32_t decodes;
};

void sched_cluster_view(const struct sched_cluster *sc, uint32_t machine,
                        struct sched_machine_view *out);
uint32_t sched_cluster_waiting(const struct sched_cluster *sc);

#endif
