/* plan_search: finds the best split into prompt and token machines for each cell. A cell is a kind
 * of machine for prompts, a kind of machine for tokens, and the amount that is fixed. With cost,
 * power or the number of machines fixed, the best split serves the most requests per second within
 * the SLO. With the rate fixed, the best split is the split with the least cost or power, or with
 * the fewest machines. Of equal splits, the split furthest below the SLO's limits is best.
 *
 * The search assumes that a mix that meets the SLO also meets it at a lower rate and with one more
 * token machine. So each split has a boundary: the largest value that meets the SLO (points.h says
 * what a value is). Growing steps and then halving find the boundary. A split that cannot reach the
 * best split found so far costs one simulation, or none. The search runs in levels. All workers
 * share the points (splits) of a level, and the next level depends only on the results of the
 * previous one. So the plan does not depend on the number of workers or on the journal.
 *
 * plan_main calls plan_search_run on the main thread, which works too and waits for the worker
 * threads; no worker thread exists after the call. try.h simulates a mix, and print.h prints the
 * plans. */
#ifndef TOOLS_PLAN_SEARCH_H
#define TOOLS_PLAN_SEARCH_H

#include "tools/plan/memo.h"

/* What can be fixed or minimized. */
enum plan_measure { PLAN_COST, PLAN_POWER, PLAN_MACHINES, PLAN_RATE };

/* Returns "cost", "power", "machines" or "rate". */
const char *plan_measure_name(enum plan_measure measure);

enum plan_point_state {
    PLAN_OPEN,   /* Not tried yet. */
    PLAN_SOLVED, /* The split's boundary is known. */
    PLAN_PRUNED, /* Not as good as the best split; its boundary is not known. */
};

/* A split of a cell: a number of prompt machines, with the token machines and the rate that belong
 * to it. */
struct plan_point {
    uint32_t prompts; /* Prompt machines; baseline with a fixed budget: all machines. */
    /* Token machines. With the rate fixed: the number that the split needs, known when the split is
     * solved. */
    uint32_t tokens;
    uint32_t value_max; /* Largest value to try. */
    uint32_t boundary;  /* If the split is solved: largest value that meets the SLO; 0 = none. */
    enum plan_point_state state;
};

struct plan_cell {
    const char *name;     /* The kinds of machines, as the command line has them. */
    const char *budget;   /* The fixed amount as the command line has it, such as "cost=100". */
    uint32_t prompt_kind; /* Kind of the prompt machines: index in inputs->kinds. */
    uint32_t token_kind;  /* Kind of the token machines: index in inputs->kinds. */
    /* true: the cell has prompt machines and token machines. false: the baseline, where all
     * machines are of prompt_kind and do both phases. */
    bool split;
    /* Baseline only: use the layer split of prompt machines (plan_mix). */
    bool prompt_layer_split;
    enum plan_measure fixed;    /* What is fixed. */
    double amount;              /* The fixed amount of that measure. */
    enum plan_measure minimize; /* With the rate fixed: the measure to minimize. */

    struct plan_point *points; /* [point_count], ordered by the number of prompt machines. */
    uint32_t point_count;
    /* The budget would buy more than machines_max machines; larger mixes are not tried. */
    bool machines_cut;
    bool found; /* A mix meets the SLO; the fields below are set. */
    struct plan_mix best;
    double best_rate_per_s;      /* Highest rate of the best mix, or the fixed rate. */
    struct plan_outcome outcome; /* Outcome of the best mix at its rate. */
    struct plan_goodput goodput[PLAN_GOODPUTS]; /* Filled by plan_failures_run. */
};

struct plan_search {
    const struct plan_inputs *inputs;
    struct plan_memo *memo;
    double step_per_s;     /* Rates are multiples of this step. */
    double rate_max;       /* Highest rate to try, in requests per second. */
    uint32_t machines_max; /* Most machines of a mix. */
    /* Find the boundary of every split, not only of splits that can be the best. */
    bool all_boundaries;
    uint32_t worker_count; /* Threads, including the caller's; more than 65 count as 65. */
    uint32_t cell_count;
    /* [cell_count]: belongs to the caller. The search allocates the cells' points, and
     * plan_search_done frees them. */
    struct plan_cell *cells;
    /* Reports the progress after each point: called by any worker thread, one thread at a time.
     * points: number of all points; runs: simulations so far. NULL = none. */
    void (*progress)(void *self, uint64_t points_done, uint64_t points, uint64_t runs);
    void *self; /* First argument of `progress`. */
    /* Simulations in all, set at the end. The number can vary with the number of workers. */
    uint64_t runs;
};

/* Returns the cost, power or number of the mix's machines. Hardware without a cost or power counts
 * as 0. */
double plan_mix_amount(const struct plan_inputs *inputs, const struct plan_mix *mix,
                       enum plan_measure measure);

/* Searches the best split of each cell, and fills the cells' fields from `points` to `outcome`.
 * Requires that the caller has set the fields before `points`, and that the memo is open. Returns
 * ST_NO_MEMORY, the errors of plan_points_make, and the errors of a simulation. Call
 * plan_search_done also after an error. */
enum status plan_search_run(struct plan_search *search, struct error *error);
/* Frees the points of all cells. */
void plan_search_done(struct plan_search *search);

#endif
