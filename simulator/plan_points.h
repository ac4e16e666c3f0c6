/* plan_points: the splits of a cell, and what a value of one means (plan_search.h): with a budget
 * fixed, `value` steps of the rate, and as many token machines as the budget has left; with the
 * rate fixed, most + 1 − value token machines, so that more is better here too. */
#ifndef SIMULATOR_PLAN_POINTS_H
#define SIMULATOR_PLAN_POINTS_H

#include "simulator/plan_search.h"

/* ST_INVALID: a kind does not say what is fixed or to be least; nothing fits. */
enum status plan_points_make(const struct plan_search *search, struct plan_cell *cell,
                             struct error *error);

/* The mix and the rate of a point at a value from 1 to its most. */
void plan_point_try(const struct plan_search *search, const struct plan_cell *cell,
                    const struct plan_point *point, uint32_t value, struct plan_mix *mix_out,
                    double *rate_out);
void plan_point_solved(const struct plan_cell *cell, struct plan_point *point, uint32_t value);

/* Of those that are solved, the best one; NULL: none serves. */
const struct plan_point *plan_cell_best(const struct plan_inputs *inputs,
                                        const struct plan_cell *cell);
bool plan_point_equals(const struct plan_inputs *inputs, const struct plan_cell *cell,
                       const struct plan_point *point, const struct plan_point *best);
/* The least value at which it is as good as the best one; > most: it never is. */
uint32_t plan_point_bar(const struct plan_inputs *inputs, const struct plan_cell *cell,
                        const struct plan_point *point, const struct plan_point *best);

#endif
