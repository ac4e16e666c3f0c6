/* cluster_state: what cluster.c (events, queues, actions) and cluster_route.c (which pair of
 * machines) share. */
#ifndef SCHEDULER_CLUSTER_STATE_H
#define SCHEDULER_CLUSTER_STATE_H

#include "scheduler/cluster.h"

#define REQUEST_NONE UINT32_MAX
#define ENDS_KEPT    64 /* recent ends that retry_after_ms is estimated from */

enum place { PLACE_NONE, PLACE_WAITING, PLACE_ROUTED, PLACE_LOST };

struct cluster_request {
    uint8_t place; /* enum place */
    bool prefilled;
    uint32_t prompt_tokens;
    uint32_t output_tokens;
    uint32_t prompt_machine;
    uint32_t token_machine;
    uint32_t next; /* in the queue of its place */
    uint32_t previous;
};

struct request_queue {
    uint32_t first;
    uint32_t last;
    uint32_t count;
};

struct cluster_machine {
    enum sched_pool pool;
    uint64_t kv_tokens;
    uint64_t prompt_tokens_pending; /* prompts routed and not prefilled */
    uint64_t token_tokens_pending;  /* prompt and output of requests routed and not ended */
    uint32_t prompts;
    uint32_t decodes;
    uint64_t links; /* bit i: it can push KV to machine i */
};

struct sched_cluster {
    struct sched_cluster_options options;
    struct request_queue waiting;
    struct request_queue lost; /* not told to the caller yet */
    uint64_t up;               /* bit per machine */
    uint64_t draining;
    uint64_t known; /* were up at some time: their sizes say what the cluster can ever hold */
    uint64_t prompt_tokens_most; /* the largest known machine of each phase; */
    uint64_t token_tokens_most;  /* UINT64_MAX while none is known */
    struct cluster_machine machines[LIMIT_MACHINES];
    int64_t ends_us[ENDS_KEPT]; /* a ring: when requests that were routed ended */
    uint64_t ends;
    struct cluster_request requests[];
};

enum route_result {
    ROUTE_FOUND,
    ROUTE_BUSY,     /* a pair could take it, but has too many tokens pending */
    ROUTE_STRANDED, /* no pair that is up could take it, however idle */
};

/* The pair for a request by the policy of cluster.h. *token_out is SCHED_NO_MACHINE if none is
 * needed. */
enum route_result sched_route_find(const struct sched_cluster *sc,
                                   const struct cluster_request *request, uint32_t *prompt_out,
                                   uint32_t *token_out);

/* After a change of sc->known, or of what a known machine is. */
void sched_route_sizes(struct sched_cluster *sc);

/* False when no machine that was ever up is large enough: waiting is no use. */
bool sched_route_possible(const struct sched_cluster *sc, const struct cluster_request *request);

#endif
