/* cluster_model_choice: the part of the model of the cluster scheduler (cluster_model.h) that
 * chooses machines: the rules of scheduler/cluster/cluster.h, written as loops over all machines.
 * Only cluster_model*.c include it; they run on the test's one thread. It owns nothing, and changes
 * no machines: cluster_model.c does. */
#ifndef TESTS_SCHEDULER_CLUSTER_MODEL_CHOICE_H
#define TESTS_SCHEDULER_CLUSTER_MODEL_CHOICE_H

#include "tests/scheduler/cluster_model.h"

/* Measure by which machines are compared: model_pending or model_memory. */
enum by { PENDING, MEMORY };

/* What machines are searched for. */
struct model_search {
    const struct model *m;
    const struct model_request *r;
    bool assume_idle;         /* Machines count as if they had no requests. */
    bool flexible;            /* Machines of the other phase's pool may be lent. */
    bool thresholds;          /* Machines beyond the thresholds of the options are not taken. */
    bool sole_prompt_machine; /* "Sole prompt machine" of scheduler/cluster/cluster.h. */
    /* Rules 3 and 4 take no machine whose cores all compute prompts. above: rule 1 takes machines
     * above their thresholds. */
    bool need_cores;
    bool above;
};

struct model_route {
    uint32_t prompt_machine;
    uint32_t token_machine;
    bool prompt_moves; /* The prompt machine moves to the mixed pool. */
    bool token_moves;  /* The token machine moves to the mixed pool. */
    /* Another machine that moves to the mixed pool, although it is not chosen; NONE = none. */
    uint32_t lent_machine;
};

/* cluster_model.c */
bool model_is_open(const struct model *m, uint32_t i);
bool model_serves(enum pool pool, enum pool phase);
bool model_covers(const struct model *m);
bool model_has_large(const struct model *m, uint32_t i);

/* cluster_model_choice.c */
/* Returns true if the machine is large enough, and its load is below the limits. */
bool model_takes(const struct model_search *l, uint32_t i, enum by by, uint64_t tokens);
bool model_takes_both(const struct model_search *l, uint32_t i);
/* both = the machine would do both phases. */
bool model_token_over(const struct model_search *l, uint32_t i, bool both);
/* Returns true if machine `a` is taken before machine `b`. */
bool model_before(const struct model_search *l, uint32_t a, uint32_t b, enum by by);
/* Returns the load by which machines are ordered, in tokens. */
uint64_t model_rank(const struct model *m, uint32_t i, enum by by);
/* Returns the microseconds until all KV that `from` sends, and that is sent to `to`, has arrived. */
int64_t model_link_wait_us(const struct model *m, uint32_t from, uint32_t to);
/* Returns true if rules 1 and 2 find machines when all are idle. */
bool model_pools_can_serve(const struct model_search *l);
/* Stores the machines for a request. Returns false if there are none now. */
bool model_choose(const struct model_search *l, struct model_route *c);
/* Returns false if no machine that was ever up is large enough. A request of one token whose prompt
 * fits into no machine's share is changed into a request that decodes, if that is possible. */
bool model_ever_possible(const struct model *m, struct model_request *r);

/* cluster_model_together.c */
/* Returns true if "Sole prompt machine" of scheduler/cluster/cluster.h applies. */
bool model_sole_prompt_machine(const struct model *m);
/* Puts one machine for both phases into *c where the option `together` prefers it. */
void model_choose_together(const struct model_search *l, struct model_route *c);

#endif
