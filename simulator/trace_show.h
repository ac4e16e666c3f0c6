/* trace_show: the statistics of a trace as text, and as a picture by gnuplot. */
#ifndef SIMULATOR_TRACE_SHOW_H
#define SIMULATOR_TRACE_SHOW_H

#include "simulator/trace_stats.h"

void trace_show_text(const struct trace_stats *stats, const struct trace_stats_options *options,
                     FILE *out);

/* To `path`, .svg or .png. ST_UNSUPPORTED: another ending, or there is no gnuplot. */
enum status trace_show_picture(const struct trace_stats *stats, const char *title, const char *path,
                               struct error *error);

#endif
