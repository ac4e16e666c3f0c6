/* cluster_seek: what the two files of the choice share: cluster_route.c, by load and by the rules
 * of cluster.h, and cluster_cheapest.c, by what machines hold. */
#ifndef SCHEDULER_CLUSTER_SEEK_H
#define SCHEDULER_CLUSTER_SEEK_H

#include "scheduler/cluster_state.h"

/* What one look for a route goes by. */
struct seek {
    const struct sched_cluster *sc;
    const struct cluster_request *request;
    bool flexible;    /* machines may do what is not their pool's work */
    bool thresholds;  /* they count */
    bool idle;        /* as if all machines had nothing to do: neither they nor the bounds count */
    uint64_t below;   /* no machine with so many tokens takes more */
    uint32_t partner; /* a token machine that could be had, looked up once; SCHED_NO_MACHINE */
    uint32_t prompt;  /* the prompt machine, while its partner is looked for; or SCHED_NO_MACHINE */
    uint32_t lent;    /* 1 + a machine that rule 4 takes for one of the mixed pool; 0: none */
    bool alone;       /* the prompt machine may be its own partner, though it is not mixed */
};

/* The machine is large enough, and below its bound. */
bool seek_holds(const struct seek *s, uint32_t machine, enum measure measure, uint64_t tokens);
/* A token machine for the request: of seek->prompt, if that is known. */
bool seek_token_fits(const void *self, uint32_t machine);
/* Both phases on one machine. */
bool seek_both_fit(const void *self, uint32_t machine);
/* Over the threshold of rule 1, of rule 2. */
bool seek_prompt_over(const struct seek *s, uint32_t machine);
bool seek_token_over(const struct seek *s, uint32_t machine);
/* It cannot become mixed now. */
bool seek_keeps_pool(const struct seek *s, uint32_t machine);

/* Another route than *out, which is complete and by the rules, where that costs less time by what
 * machines hold of the prompt. Changes nothing but *out. */
void cluster_cheapest(const struct seek *s, struct route *out);

#endif
