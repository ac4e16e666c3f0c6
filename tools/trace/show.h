/* trace_show: prints the statistics of a trace as text, or draws them with gnuplot. `cleave trace`
 * (tools/trace/main.c) calls it on the main thread: the text after reading, also if a wrong row
 * ended the reading; the picture only if the whole trace was read. The functions have no state.
 * They compute no statistics: stats.h does. */
#ifndef TOOLS_TRACE_SHOW_H
#define TOOLS_TRACE_SHOW_H

#include "tools/trace/stats.h"

/* Writes counts and rates, statistics and histograms of the lengths, and a table with a line for
 * each interval of time. */
void trace_show_text(const struct trace_stats *stats, const struct trace_stats_options *options,
                     FILE *out);

/* Draws into the file `path`, whose name ends in .svg or .png. title: text above the picture.
 * Errors are those of gnuplot_file_draw, with --plot and the path. */
enum status trace_show_picture(const struct trace_stats *stats, const char *title, const char *path,
                               struct error *error);

#endif
