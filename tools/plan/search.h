/* plan_search: finds the best split into prompt and token machines for each cell. A cell is a kind
 * of machine for prompts, a kind of machine for tokens, and the amount that is fixed. With cost,
 * power or the number of machines fixed, the best split serves the most requests per second within
 * the SLO. With the rate fixed, the best split has the least cost or power, or the fewest machines.
 * Among equally good splits, the split furthest below the SLO's limits is best.
 *
 * The search assumes: a mix that meets the SLO also meets the SLO at a lower rate, and with one
 * more token machine (baseline: one more machine). So each split has a boundary: the largest value
 * that meets the SLO (points.h says what a value is). The plan does not depend on the number of
 * threads or on the journal.
 *
 * plan_main owns the structs, and calls plan_search_run on the main thread. The call uses worker
 * threads, which end before the call returns. This part does not simulate (try.h does). */
#ifndef TOOLS_PLAN_SEARCH_H
#define TOOLS_PLAN_SEARCH_H

#include "tools/plan/memo.h"

/* What can be fixed. All except the rate can also be minimized. */
enum plan_measure { PLAN_COST, PLAN_POWER, PLAN_MACHINES, PLAN_RATE };

/* Returns "cost", "power", "machines" or "rate". */
const char *plan_measure_name(enum plan_measure measure);

enum plan_point_state {
    PLAN_OPEN,   /* Not tried yet. */
    PLAN_SOLVED, /* The split's boundary is known. */
    PLAN_PRUNED, /* Not as good as the best split; the boundary is not known. */
};

/* A split of a cell: a number of prompt machines, and the other numbers that follow from it. */
struct plan_point {
    /* Prompt machines. Baseline: all machines; with the rate fixed, the most machines to try. */
    uint32_t prompts;
    /* Token machines. With the rate fixed: the most to try; after the split is solved, the number
     * that is needed (0 = no number meets the SLO). */
    uint32_t tokens;
    uint32_t value_max; /* Largest value to try. */
    uint32_t boundary;  /* If the split is solved: largest value that meets the SLO; 0 = none. */
    enum plan_point_state state;
};

struct plan_cell {
    const char *name;       /* Name in the output: kinds of machines, or the paper's name. */
    const char *fixed_text; /* The fixed amount as the command line has it, such as "cost=100". */
    uint32_t prompt_kind;   /* Kind of the prompt machines: index in inputs->kinds. */
    uint32_t token_kind;    /* Kind of the token machines: index in inputs->kinds. */
    /* true: the cell has prompt machines and token machines. false: the baseline, where all
     * machines are of prompt_kind and do both phases. */
    bool split;
    /* Baseline only: use the layer split of prompt machines (plan_mix). */
    bool prompt_layer_split;
    enum plan_measure fixed;    /* What is fixed. */
    double amount;              /* The fixed amount. */
    enum plan_measure minimize; /* With the rate fixed: the measure to minimize. */

    struct plan_point *points; /* [point_count], ordered by the number of prompt machines. */
    uint32_t point_count;
    /* The budget would buy more than machines_max machines; larger mixes are not tried. */
    bool machines_cut;
    bool found; /* A mix meets the SLO; best, best_rate_per_s and outcome are set. */
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
    struct plan_cell *cells; /* [cell_count]: belongs to the caller. */
    /* Reports the progress of the search, on any thread of the search, but one thread at a time.
     * points: number of all splits; at the end, the best splits count once more. runs: simulations
     * so far. NULL = none. */
    void (*progress)(void *self, uint64_t points_done, uint64_t points, uint64_t runs);
    void *self; /* First argument of `progress`. */
    /* Number of simulations, set at the end; can depend on the number of threads. */
    uint64_t runs;
};

/* Returns the cost, power or number of the mix's machines. Unknown costs and powers count as 0. */
double plan_mix_amount(const struct plan_inputs *inputs, const struct plan_mix *mix,
                       enum plan_measure measure);

/* Finds the best split of each cell, and fills the cells' fields from `points` to `outcome`.
 * Requires that the caller has set the fields before `points`, and that the memo is open. Returns
 * ST_NO_MEMORY, the errors of plan_points_make, or the errors of a simulation. Call
 * plan_search_done also after an error. */
enum status plan_search_run(struct plan_search *search, struct error *error);
/* Frees the points of all cells. */
void plan_search_done(struct plan_search *search);

#endif
