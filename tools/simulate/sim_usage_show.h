/* sim_usage_show: shows the use of the machines over time, as a picture and as data. */
#ifndef TOOLS_SIMULATE_SIM_USAGE_SHOW_H
#define TOOLS_SIMULATE_SIM_USAGE_SHOW_H

#include "tools/report/gnuplot.h"
#include "tools/simulate/sim_usage.h"

/* Shows the requests, the mean of all machines, and each machine, up to 240. Requires that *usage
 * has ended and is not moved until the picture is drawn. */
struct gnuplot_picture sim_usage_picture(const struct sim_usage *usage);

/* Writes a JSON object. */
void sim_usage_json(const struct sim_usage *usage, FILE *out);

#endif
