/* cluster_seek: the search for a pair of machines for a request, as route.c and cheapest.c share
 * it. route.c chooses by load, with the rules of cluster.h, and defines the functions seek_*; then
 * it calls cheapest.c, which considers what machines hold of the prompt. No other file includes it.
 * Pure: a search changes nothing but the route that it returns (queue.c carries that out), and the
 * thread that calls sched_cluster runs it; not thread-safe. */
#ifndef SCHEDULER_CLUSTER_SEEK_H
#define SCHEDULER_CLUSTER_SEEK_H

#include "scheduler/cluster/state.h"

/* The conditions of one search for a route. */
struct seek {
    const struct sched_cluster *sc;
    const struct cluster_request *request;
    bool flexible;   /* Machines may do work of the other phase (rules 3 and 4). */
    bool thresholds; /* The thresholds of rules 1 and 2 apply. */
    bool idle;       /* Search as if all machines were idle: bounds and loads do not count. */
    uint64_t below;  /* Only machines whose rank (enum measure) has fewer tokens are considered. */
    /* A token machine that could take the request, found beforehand; SCHED_NO_MACHINE = none. */
    uint32_t partner;
    /* The prompt machine for which a token machine is being searched; SCHED_NO_MACHINE = not
     * chosen. */
    uint32_t prompt;
    /* 1 + the machine that rule 3 has moved to the mixed pool for this request; 0 = none. At
     * equal load, rule 4 prefers the machines that were in the mixed pool before. */
    uint32_t lent;
    /* The prompt machine may also be the token machine, although it is not in the mixed pool. */
    bool alone;
};

/* True if the machine's KV memory holds `tokens` and its load by `measure` (tokens pending, or
 * tokens in memory) is below its bound. */
bool seek_holds(const struct seek *s, uint32_t machine, enum measure measure, uint64_t tokens);
/* These two are passed to the search trees (tree.h), so `self` is a const struct seek *.
 *
 * True if the machine can be the request's token machine and, if the prompt machine is chosen, that
 * machine reaches it. */
bool seek_token_fits(const void *self, uint32_t machine);
/* True if the machine can do both phases of the request. */
bool seek_both_fit(const void *self, uint32_t machine);
/* True if the request would put the machine over the threshold of rule 1 (prompt) or rule 2
 * (token). */
bool seek_prompt_over(const struct seek *s, uint32_t machine);
bool seek_token_over(const struct seek *s, uint32_t machine);
/* True if the machine cannot move to the mixed pool now, because of a request that is too large for
 * a mixed machine. */
bool seek_keeps_pool(const struct seek *s, uint32_t machine);

/* Replaces *out, a complete route by the rules, if another route takes less time because of the
 * prefixes that machines hold. Fills out->prefix_tokens. Changes nothing else. */
void cluster_cheapest(const struct seek *s, struct route *out);

#endif
