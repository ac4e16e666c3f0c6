/* plan_picture: the plans of one budget as an SVG picture, drawn by gnuplot: how near the limits
 * and how late requests are over the rate; what every split is good for; how TTFT, TBT and E2E are
 * distributed at the rate of the plan. Simulates the mixes of the plans again, at twelve rates. */
#ifndef SIMULATOR_PLAN_PICTURE_H
#define SIMULATOR_PLAN_PICTURE_H

#include "simulator/plan_search.h"

#include <stdio.h>

/* Of the cells from first on that have its budget. *svg_out: the picture, from "<svg" on, to be
 * freed. ST_UNSUPPORTED: there is no gnuplot. */
enum status plan_picture(const struct plan_search *search, uint32_t first, char **svg_out,
                         struct error *error);

#endif
