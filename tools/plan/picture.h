/* plan_picture: makes a picture of the plans of one budget. The picture has curves over the request
 * rate (the worst slowdown in percent of its SLO limit, and the P90 of E2E); for each number of
 * prompt machines whose limit the search has found, the best rate or, with a fixed rate, the fewest
 * token machines; and the distributions of TTFT, TBT and E2E at the plan's rate. A cell is one kind
 * of cluster at one budget (search.h). `cleave plan` calls the functions on the main thread, after
 * the search. Drawing the picture simulates the plans' mixes again (try.h). This part owns nothing,
 * and does not run gnuplot (gnuplot.h does). */
#ifndef TOOLS_PLAN_PICTURE_H
#define TOOLS_PLAN_PICTURE_H

#include "tools/plan/search.h"
#include "tools/report/gnuplot.h"

/* A picture of all cells of one budget, which are neighbours in plan_search.cells. */
struct plan_picture {
    const struct plan_search *search;
    uint32_t first_cell; /* Index of the budget's first cell. */
};

/* Returns the index of the cell after this picture's cells. */
uint32_t plan_picture_end(const struct plan_picture *picture);
/* Returns true if none of the cells has a plan: the picture must then not be drawn. */
bool plan_picture_is_empty(const struct plan_picture *picture);
/* Returns the picture for gnuplot.h. *picture must not be moved before the picture is drawn. */
struct gnuplot_picture plan_picture_make(const struct plan_picture *picture);

#endif
