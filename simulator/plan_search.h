/* plan_search: of each cell (a kind of machine for prompts, one for tokens, and what is fixed) the
 * split into prompt and token machines that is best: with cost, power or the number of machines
 * fixed, the one that serves the most requests a second within the SLO; with the rate fixed, the
 * one that is cheapest, takes the least power or has the fewest machines.
 *
 * It takes for granted that a mix which meets the SLO also does at a lower rate, and with one token
 * machine more; so each split has a boundary, which is bracketed and halved. Splits that cannot
 * reach the best one so far take one run, or none. The points of a level are tried by all workers,
 * and what is tried in the next one goes by their results alone: any number of workers, and any
 * state to continue from, gives the same plan. */
#ifndef SIMULATOR_PLAN_SEARCH_H
#define SIMULATOR_PLAN_SEARCH_H

#include "simulator/plan_memo.h"

enum plan_measure { PLAN_COST, PLAN_POWER, PLAN_MACHINES, PLAN_RATE };

/* "cost", "power", "machines", "rate". */
const char *plan_measure_name(enum plan_measure measure);

enum plan_point_state {
    PLAN_OPEN,
    PLAN_SOLVED, /* `value` is its boundary */
    PLAN_PRUNED, /* it is not as good as the best one; how good is not known */
};

struct plan_point {
    uint32_t prompts;
    uint32_t tokens; /* rate fixed: what it needs, once solved */
    uint32_t most;   /* of `value` */
    uint32_t value;  /* steps of the rate; or by how much its tokens are below the most; 0: none */
    enum plan_point_state state;
};

struct plan_cell {
    const char *name;
    const char *budget; /* what the fixed amount is called */
    uint32_t prompt_kind;
    uint32_t token_kind;
    bool split;      /* false: the baseline; all machines are of prompt_kind … */
    bool as_prompts; /* … with the layers of prompt machines (plan_mix) */
    enum plan_measure fixed;
    double amount;
    enum plan_measure least; /* rate fixed: what is to be least */

    struct plan_point *points; /* [point_count], by prompts */
    uint32_t point_count;
    bool cut; /* the budget has room for more than machines_most, which are not tried */
    bool found;
    struct plan_mix best;
    double best_rate_per_s;
    struct plan_outcome outcome; /* of the best at that rate */
};

struct plan_search {
    const struct plan_inputs *inputs;
    struct plan_memo *memo;
    double step_per_s; /* rates are multiples of it … */
    double rate_most;  /* … up to this */
    uint32_t machines_most;
    bool full; /* every split's boundary */
    uint32_t worker_count;
    uint32_t cell_count;
    struct plan_cell *cells; /* points: freed by plan_search_done */
    /* After each point; one thread at a time. NULL: none. */
    void (*progress)(void *self, uint64_t points_done, uint64_t points, uint64_t runs);
    void *self;
    uint64_t runs; /* simulations, final ones too; not the same for any number of workers */
};

/* Of machines of these kinds; cost and power of one that does not say are 0. */
double plan_mix_amount(const struct plan_inputs *inputs, const struct plan_mix *mix,
                       enum plan_measure measure);

enum status plan_search_run(struct plan_search *search, struct error *error);
void plan_search_done(struct plan_search *search);

#endif
