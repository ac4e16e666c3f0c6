/* simulate_html: the report of one simulation: one HTML file that refers to no other. */
#ifndef SIMULATOR_SIMULATE_HTML_H
#define SIMULATOR_SIMULATE_HTML_H

#include "simulator/sim_report.h"
#include "simulator/sim_usage.h"
#include "simulator/simulate_options.h"

struct simulate_html {
    const struct simulate_options *options; /* the command line */
    const struct sim_report *report;
    const struct sim_usage *usage;
    void (*text)(const void *self, FILE *out); /* what the command prints */
    void (*json)(const void *self, FILE *out); /* what it writes as --json */
    const void *self;
};

/* The command line, the text, pictures of how the machines are used over time and of how TTFT, TBT
 * and E2E are distributed, and the data. Without gnuplot it says so in the pictures' places. */
enum status simulate_html_write(const struct simulate_html *html, const char *path,
                                struct error *error);

#endif
