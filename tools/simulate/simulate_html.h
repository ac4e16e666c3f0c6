/* simulate_html: writes the report of one simulation (--html) as one HTML file.
 * simulate_trace.c calls the function on the main thread, after the simulation. This part owns
 * nothing and computes no results: the caller passes two functions that print the results. */
#ifndef TOOLS_SIMULATE_SIMULATE_HTML_H
#define TOOLS_SIMULATE_SIMULATE_HTML_H

#include "tools/simulate/sim_report.h"
#include "tools/simulate/sim_usage.h"
#include "tools/simulate/simulate_options.h"

struct simulate_html {
    const struct simulate_options *options; /* Options with the command line (argc, argv). */
    const struct sim_report *report;
    const struct sim_usage *usage;
    void (*text)(const void *self, FILE *out); /* Writes the results as text. */
    void (*json)(const void *self, FILE *out); /* Writes the results as JSON. */
    const void *self;                          /* First argument of `text` and `json`. */
};

/* Writes the file: the command line, the results as text, pictures of the machines' use over time
 * and of the distributions of TTFT, TBT and E2E, and as JSON the results and the use over time.
 * Without gnuplot, the file has a sentence in place of each picture, and a line on standard error
 * says so for each picture. Errors name the file. */
enum status simulate_html_write(const struct simulate_html *html, const char *path,
                                struct error *error);

#endif
