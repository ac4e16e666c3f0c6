/* trace_show: prints the statistics of a trace as text, or draws them with gnuplot. `cleave trace`
 * (main.c) calls it on the main thread when the trace has been read, or up to its first wrong row;
 * it draws the picture only after a whole trace. The functions have no state. They compute no
 * statistics: stats.h does. */
#ifndef TOOLS_TRACE_SHOW_H
#define TOOLS_TRACE_SHOW_H

#include "tools/trace/stats.h"

/* Writes counts and rates, statistics and histograms of the lengths, and a table with a line for
 * each interval of time. */
void trace_show_text(const struct trace_stats *stats, const struct trace_stats_options *options,
                     FILE *out);

/* Draws to `path`, .svg or .png. Returns an error if the path has another ending, or if gnuplot is
 * not installed or fails. */
enum status trace_show_picture(const struct trace_stats *stats, const char *title, const char *path,
                               struct error *error);

#endif
