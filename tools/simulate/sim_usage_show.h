/* sim_usage_show: shows the use of the machines over time (sim_usage.h), as a picture and as data.
 * `cleave simulate` and `cleave plan` call it on the main thread, after a simulation. The functions
 * have no state, and do not run gnuplot (gnuplot.h does). */
#ifndef TOOLS_SIMULATE_SIM_USAGE_SHOW_H
#define TOOLS_SIMULATE_SIM_USAGE_SHOW_H

#include "tools/report/gnuplot.h"
#include "tools/simulate/sim_usage.h"

/* Returns a picture of the requests, of the mean of all machines, and of each machine, up to 240.
 * Requires that *usage has ended and is not moved until the picture is drawn. */
struct gnuplot_picture sim_usage_picture(const struct sim_usage *usage);

/* Writes all means as a JSON object. */
void sim_usage_json(const struct sim_usage *usage, FILE *out);

#endif
