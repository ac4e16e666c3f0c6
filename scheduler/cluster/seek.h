/* cluster_seek: the search for the machines of one request; shared by route.c, cheapest.c and
 * together.c. route.c chooses two machines by load, with the rules of cluster.h, and defines the
 * functions seek_*. Then route.c calls cluster_cheapest (cheapest.c), which also considers the KV
 * that machines hold or have stored in tiers, and cluster_together (together.c), which considers
 * one machine for both phases. queue.c calls cluster_route_find (route.c), which makes a struct
 * seek on its stack, on the thread that calls sched_cluster. Pure: a search changes only the route
 * that it returns; queue.c carries the route out. */
#ifndef SCHEDULER_CLUSTER_SEEK_H
#define SCHEDULER_CLUSTER_SEEK_H

#include "scheduler/cluster/state.h"

/* The conditions of one search for a route. */
struct seek {
    const struct sched_cluster *sc;
    const struct cluster_request *request;
    /* Rules 3 and 4 apply: machines may do work of the other phase. */
    bool flexible;
    bool thresholds;          /* The thresholds of rules 1 and 2 apply. */
    bool sole_prompt_machine; /* "Sole prompt machine" in cluster.h applies. */
    bool assume_idle; /* Search as if all machines were idle: ignore bounds on their load. */
    /* Only machines with fewer tokens than this number in sc->ranks are considered. Ignored if
     * sc->unequal: machines are then compared by time. */
    uint64_t tokens_below;
    /* A token machine that could take the request, found before the search for a prompt machine;
     * SCHED_NO_MACHINE = none. */
    uint32_t token_candidate;
    /* The prompt machine for which a token machine is searched; SCHED_NO_MACHINE = not chosen. */
    uint32_t prompt_machine;
    /* 1 + the machine that rule 3 has chosen, while rule 4 searches with the option
     * lends_as_splitwise; 0 = none. At equal load, rule 4 prefers the machines of the prompt and
     * mixed pool to this machine. */
    uint32_t lent_plus_1;
    /* Rule 3 searches for a machine to lend: every machine counts as mixed. */
    bool counts_as_mixed;
    /* Rules 3 and 4 give the prompt to a machine of the token pool only if the machine adds cores
     * (cores.c). Rule 1 may take a machine over its threshold. */
    bool prompts_need_cores;
};

/* Returns true if the machine's KV memory has room for `tokens` tokens when empty, and its load by
 * `measure` is below its bound (options machine_kv_multiple to machine_tokens_unmeasured). */
bool seek_has_room(const struct seek *s, uint32_t machine, enum measure measure, uint64_t tokens);
/* Returns true if the machine can be the request's token machine. If s->prompt_machine is chosen,
 * one of two conditions must also hold. Either the machine is the prompt machine, and is mixed. Or
 * the link from the prompt machine to the machine is up, and each of the two machines has enough
 * mixed_kv_tokens (struct sched_event) for its phase of the request; this applies only to a machine
 * that this or another scheduler has in the mixed pool. `self` is a struct seek. */
bool seek_token_fits(const void *self, uint32_t machine);
/* Returns true if the machine can do both phases of the request. `self` is a struct seek. */
bool seek_both_fit(const void *self, uint32_t machine);
/* Returns the machine with the least work by `measure` of the machines in the pool for which
 * fits(s, machine) is true; SCHED_NO_MACHINE = none. */
uint32_t seek_least_loaded(const struct seek *s, enum measure measure, enum pool pool,
                           bool (*fits)(const void *self, uint32_t machine));
/* Returns true if s->thresholds is true and the machine is over the threshold of rule 1. */
bool seek_prompt_over_threshold(const struct seek *s, uint32_t machine);
/* Returns true if s->thresholds is true and the machine is over the threshold of rule 2. both = the
 * machine would do both phases of the request. */
bool seek_token_over_threshold(const struct seek *s, uint32_t machine, bool both);
/* Returns true if the machine must not move to the mixed pool now, because a request of the machine
 * is too large for a mixed machine. With s->assume_idle, returns false. */
bool seek_keeps_pool(const struct seek *s, uint32_t machine);

/* If machines hold KV of the prompt, or tiers have stored some, replaces *out by the route with the
 * least cost, with its estimates. Requires a route with all machines that the request needs. */
void cluster_cheapest(const struct seek *s, struct route *out);

/* With the option one_machine_routes, replaces *out by a route with one machine for both phases if
 * that route is better. If the request should wait until that machine has room, replaces *out by a
 * route without machines. Does not change a route that uses KV of the prompt or moves a machine.
 * Requires a route with all machines that the request needs. */
void cluster_together(const struct seek *s, struct route *out);

#endif
