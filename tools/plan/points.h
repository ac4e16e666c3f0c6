/* plan_points: makes the splits of a cell, and computes with the values of a split (value_max and
 * boundary of struct plan_point). The cell owns its splits. The search and the output of a plan
 * call the functions on the main thread. During a search, all threads of the search call
 * plan_point_mix_at and plan_point_solved, each for its own split. The functions do not simulate
 * and do not choose which value to try.
 *
 * With a fixed budget, a value is the rate in steps (plan_search.step_per_s); the part of the
 * budget that the prompt machines leave buys the token machines. With a fixed rate, value_max + 1 −
 * value is the number of the split's token machines or, if the cell's machines do both phases, the
 * number of all machines. So a larger value is better with a fixed budget and with a fixed rate. */
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

/* Returns the best solved split; among equally good splits, the split with the fewest prompt
 * machines. NULL = no split meets the SLO. */
const struct plan_point *plan_cell_best(const struct plan_inputs *inputs,
                                        const struct plan_cell *cell);
/* Returns true if the split meets the SLO and is as good as `best`, another split of the cell. */
bool plan_point_equals(const struct plan_inputs *inputs, const struct plan_cell *cell,
                       const struct plan_point *point, const struct plan_point *best);
/* Returns the smallest value at which the split is as good as `best`; > point->value_max = no value
 * is. */
uint32_t plan_point_value_wanted(const struct plan_inputs *inputs, const struct plan_cell *cell,
                                 const struct plan_point *point, const struct plan_point *best);

#endif
