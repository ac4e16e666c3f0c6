/* simulate_html: the report of one simulation: one HTML file without references to other files. */
#ifndef TOOLS_SIMULATE_SIMULATE_HTML_H
#define TOOLS_SIMULATE_SIMULATE_HTML_H

#include "tools/simulate/sim_report.h"
#include "tools/simulate/sim_usage.h"
#include "tools/simulate/simulate_options.h"

struct simulate_html {
    const struct simulate_options *options; /* Has the command line. */
    const struct sim_report *report;
    const struct sim_usage *usage;
    void (*text)(const void *self, FILE *out); /* Writes what the command prints. */
    void (*json)(const void *self, FILE *out); /* Writes what the command writes for --json. */
    const void *self;
};

/* Writes the command line, the text, pictures of the machines' use over time and of the
 * distributions of TTFT, TBT and E2E, and the data. Without gnuplot a sentence stands in the place
 * of each picture. */
enum status simulate_html_write(const struct simulate_html *html, const char *path,
                                struct error *error);

#endif
