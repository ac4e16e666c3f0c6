/* plan_picture: draws the plans of one budget as one picture. It has curves over the request rate
 * (the worst slowdown in percent of its SLO limit, and the P90 of E2E), the best rate (or the
 * needed machines) of every split, and the distributions of TTFT, TBT and E2E at the plan's rate.
 * plan_main and the report (html.c) call it on the main thread, after the search. Drawing simulates
 * the plans' mixes again (try.h): at up to twelve rates for the curves, and once at the plan's rate
 * for the distributions. This part writes only the script for gnuplot; gnuplot.h runs gnuplot. */
#ifndef TOOLS_PLAN_PICTURE_H
#define TOOLS_PLAN_PICTURE_H

#include "tools/plan/search.h"
#include "tools/report/gnuplot.h"

struct plan_picture { /* The cells from `first` on that have the same budget. */
    const struct plan_search *search;
    uint32_t first; /* Index of the first cell. */
};

/* Returns the index of the first cell after this picture's cells. */
uint32_t plan_picture_end(const struct plan_picture *picture);
/* Returns true if no cell has a plan, so there is nothing to draw. */
bool plan_picture_is_empty(const struct plan_picture *picture);
/* Returns the picture for gnuplot.h. An empty picture must not be drawn. *picture must not be moved
 * until the picture is drawn. */
struct gnuplot_picture plan_picture_make(const struct plan_picture *picture);

#endif
