/* plan_points: the splits of a cell, and the meaning of a split's `value` (search.h). With a budget
 * fixed, `value` is the rate in steps (plan_search.step_per_s), and the rest of the budget buys the
 * token machines. With the rate fixed, value_max + 1 − value is the number of a split's token
 * machines, or of a baseline's machines. So a larger value is better in both cases. The search and
 * the output of a plan call the functions on the main thread; during a search, all threads of the
 * search call plan_point_mix_at and plan_point_solved, each for its own split. The functions do not
 * simulate and do not choose which value to try. */
#ifndef TOOLS_PLAN_POINTS_H
#define TOOLS_PLAN_POINTS_H

#include "tools/plan/search.h"

/* Makes the splits of a cell (cell->points, which plan_search_done frees). A cell whose budget is
 * too small has no splits. Returns ST_INVALID if the cost or power is fixed or minimized and the
 * file of a kind of hardware does not give it; ST_NO_MEMORY. */
enum status plan_points_make(const struct plan_search *search, struct plan_cell *cell,
                             struct error *error);

/* Returns the mix and the rate that a value from 1 to point->value_max stands for. */
void plan_point_mix_at(const struct plan_search *search, const struct plan_cell *cell,
                       const struct plan_point *point, uint32_t value, struct plan_mix *mix_out,
                       double *rate_out);
/* Stores a split's boundary: the largest value that meets the SLO; 0 = none does. */
void plan_point_solved(const struct plan_cell *cell, struct plan_point *point, uint32_t value);

/* Returns the best solved split, of equal ones the one with the fewest prompt machines; NULL = none
 * meets the SLO. */
const struct plan_point *plan_cell_best(const struct plan_inputs *inputs,
                                        const struct plan_cell *cell);
/* Returns true if the split meets the SLO and is as good as `best`, a split of the same cell. */
bool plan_point_equals(const struct plan_inputs *inputs, const struct plan_cell *cell,
                       const struct plan_point *point, const struct plan_point *best);
/* Returns the smallest value at which the split is as good as `best`; > point->value_max = it never
 * is. */
uint32_t plan_point_value_wanted(const struct plan_inputs *inputs, const struct plan_cell *cell,
                                 const struct plan_point *point, const struct plan_point *best);

#endif
