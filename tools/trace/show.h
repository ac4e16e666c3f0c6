/* trace_show: prints the statistics of a trace as text, or draws them with gnuplot. `cleave trace`
 * calls the functions on the main thread. The functions keep no state and compute no statistics. */
#ifndef TOOLS_TRACE_SHOW_H
#define TOOLS_TRACE_SHOW_H

#include "tools/trace/stats.h"

/* Writes counts and rates, statistics and histograms of the lengths, and a table over time.
 * options: those of trace_stats_open. */
void trace_show_text(const struct trace_stats *stats, const struct trace_stats_options *options,
                     FILE *out);

/* Draws into the file `path`, whose name ends in .svg or .png. title: text above the picture.
 * Errors are those of gnuplot_file_draw. */
enum status trace_show_picture(const struct trace_stats *stats, const char *title, const char *path,
                               struct error *error);

#endif
