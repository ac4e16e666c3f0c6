/* sim_usage_show: how machines were used over time, as a picture and as data. */
#ifndef SIMULATOR_SIM_USAGE_SHOW_H
#define SIMULATOR_SIM_USAGE_SHOW_H

#include "simulator/gnuplot.h"
#include "simulator/sim_usage.h"

/* Requests, all machines together, and each machine, up to 240. *usage has ended,
 * and stays where it is. */
struct gnuplot_picture sim_usage_picture(const struct sim_usage *usage);

/* A JSON object. */
void sim_usage_json(const struct sim_usage *usage, FILE *out);

#endif
