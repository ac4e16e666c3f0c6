/* plan_points: makes the splits of a cell, and says what the values of a split mean (value_max and
 * boundary of struct plan_point). The cell owns its splits. The search and the output of a plan
 * call the functions. During a search, several threads call plan_point_mix_at and
 * plan_point_solved, each for another split; the other functions are for the main thread. The
 * functions do not simulate and do not choose which value to try.
 *
 * With a fixed budget, a value is the rate in steps (plan_search.step_per_s). The token machines
 * are as many as the budget allows beside the prompt machines. With a fixed rate, value_max + 1 −
 * value is the number of token machines or, if the cell's machines do both phases, of all machines.
 * So a larger value is better. */
#ifndef TOOLS_PLAN_POINTS_H
#define TOOLS_PLAN_POINTS_H

#include "tools/plan/search.h"

/* Makes the splits of a cell (cell->points, which plan_search_done frees). A cell whose budget is
 * too small gets no splits. ST_INVALID: a kind of hardware lacks the cost or power that
 * is fixed or minimized. ST_NO_MEMORY. */
enum status plan_points_make(const struct plan_search *search, struct plan_cell *cell,
                             struct error *error);

/* Returns the mix and the rate that a value from 1 to point->value_max stands for. */
void plan_point_mix_at(const struct plan_search *search, const struct plan_cell *cell,
                       const struct plan_point *point, uint32_t value, struct plan_mix *mix_out,
                       double *rate_out);
/* Stores a split's boundary: the largest value that meets the SLO; 0 = none does. */
void plan_point_solved(const struct plan_cell *cell, struct plan_point *point, uint32_t value);

/* Returns the best solved split; among equally good splits, the split with the fewest prompt
 * machines. NULL = no split meets the SLO. */
const struct plan_point *plan_cell_best(const struct plan_inputs *inputs,
                                        const struct plan_cell *cell);
/* Returns true if the split meets the SLO and is as good as `best`, a split of the cell. */
bool plan_point_equals(const struct plan_inputs *inputs, const struct plan_cell *cell,
                       const struct plan_point *point, const struct plan_point *best);
/* Returns the smallest value at which the split is at least as good as `best`; > value_max =
 * none. */
uint32_t plan_point_value_wanted(const struct plan_inputs *inputs, const struct plan_cell *cell,
                                 const struct plan_point *point, const struct plan_point *best);

#endif
