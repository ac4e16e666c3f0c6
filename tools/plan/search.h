/* plan_search: finds the best split into prompt and token machines for each cell. A cell is a kind
 * of machine for prompts, a kind for tokens, and what is fixed. With cost, power or the number of
 * machines fixed, the best split serves the most requests per second within the SLO. With the rate
 * fixed, it is the cheapest one, the one with the least power, or the one with the fewest machines.
 *
 * The search assumes that a mix that meets the SLO also meets it at a lower rate and with one more
 * token machine. So each split has a boundary, which is found by growing steps and then by halving.
 * A split that cannot reach the best split found so far costs one simulation, or none. The search
 * runs in levels. All workers share the points of a level, and the next level depends only on the
 * results of the previous one. So the plan does not depend on the number of workers or on the
 * journal. */
#ifndef TOOLS_PLAN_SEARCH_H
#define TOOLS_PLAN_SEARCH_H

#include "tools/plan/memo.h"

enum plan_measure { PLAN_COST, PLAN_POWER, PLAN_MACHINES, PLAN_RATE };

/* Returns "cost", "power", "machines" or "rate". */
const char *plan_measure_name(enum plan_measure measure);

enum plan_point_state {
    PLAN_OPEN,
    PLAN_SOLVED, /* `value` is the split's boundary. */
    PLAN_PRUNED, /* Not as good as the best split; its boundary is not known. */
};

struct plan_point {
    uint32_t prompts;
    /* With the rate fixed: the token machines it needs, known once it is solved. */
    uint32_t tokens;
    uint32_t most; /* Largest possible `value`. */
    /* With a budget fixed: steps of the rate. With the rate fixed: 1 + how many machines fewer than
     * the most the split needs (points.h). 0 = none meets the SLO. */
    uint32_t value;
    enum plan_point_state state;
};

struct plan_cell {
    const char *name;
    const char *budget; /* Name of the fixed amount, as the command line has it. */
    uint32_t prompt_kind;
    uint32_t token_kind;
    bool split; /* False: the baseline, where all machines are of prompt_kind and do both phases. */
    bool as_prompts; /* Baseline only: use the layer split of prompt machines (plan_mix). */
    enum plan_measure fixed;
    double amount;
    enum plan_measure least; /* With the rate fixed: the measure to minimize. */

    struct plan_point *points; /* [point_count], ordered by the number of prompt machines. */
    uint32_t point_count;
    /* The budget would buy more than machines_most machines; those mixes are not tried. */
    bool cut;
    bool found;
    struct plan_mix best;
    double best_rate_per_s;
    struct plan_outcome outcome; /* Outcome of the best mix at its rate. */
};

struct plan_search {
    const struct plan_inputs *inputs;
    struct plan_memo *memo;
    double step_per_s; /* Rates are multiples of this step. */
    double rate_most;  /* Highest rate to try. */
    uint32_t machines_most;
    bool full; /* True: find the boundary of every split, not only of those that can be the best. */
    uint32_t worker_count;
    uint32_t cell_count;
    /* Their points are allocated by the search and freed by plan_search_done. */
    struct plan_cell *cells;
    /* Called after each point, by one thread at a time. NULL = none. */
    void (*progress)(void *self, uint64_t points_done, uint64_t points, uint64_t runs);
    void *self;
    /* Number of simulations, with the final ones; it can vary with the number of workers. */
    uint64_t runs;
};

/* Returns the cost, power or number of the mix's machines. Hardware without a cost or power counts
 * as 0. */
double plan_mix_amount(const struct plan_inputs *inputs, const struct plan_mix *mix,
                       enum plan_measure measure);

enum status plan_search_run(struct plan_search *search, struct error *error);
void plan_search_done(struct plan_search *search);

#endif
