/* plan_picture: the plans of one budget as a picture: how near the limits and how late requests are
 * over the rate; what every split is good for; how TTFT, TBT and E2E are distributed at the rate of
 * the plan. Simulates the mixes of the plans again, at twelve rates. */
#ifndef SIMULATOR_PLAN_PICTURE_H
#define SIMULATOR_PLAN_PICTURE_H

#include "simulator/gnuplot.h"
#include "simulator/plan_search.h"

struct plan_picture { /* of the cells from first on that have its budget */
    const struct plan_search *search;
    uint32_t first;
};

/* The cell behind the last one of it. */
uint32_t plan_picture_end(const struct plan_picture *picture);
/* None of its cells has a plan: there is nothing to draw. */
bool plan_picture_is_empty(const struct plan_picture *picture);
/* *picture must stay where it is, and not be empty. */
struct gnuplot_picture plan_picture_make(const struct plan_picture *picture);

#endif
