/* sim_usage_show: shows the use of the machines over time (sim_usage.h), as a picture and as data.
 * `cleave simulate` and `cleave plan` call the functions on the main thread, after a simulation.
 * The functions have no state, and do not run gnuplot (gnuplot.h does). */
#ifndef TOOLS_SIMULATE_SIM_USAGE_SHOW_H
#define TOOLS_SIMULATE_SIM_USAGE_SHOW_H

#include "tools/report/gnuplot.h"
#include "tools/simulate/sim_usage.h"

/* Returns a picture with one plot of the requests, one of the mean of all machines, and one of each
 * of the first 240 machines. Requires that the recording has ended (sim_usage_end). *usage must not
 * be moved or closed before the picture is drawn. */
struct gnuplot_picture sim_usage_picture(const struct sim_usage *usage);

/* Writes the recording as a JSON object: the mean of each gauge in each interval. Requires that the
 * recording has ended. */
void sim_usage_json(const struct sim_usage *usage, FILE *out);

#endif
