/* simulate_options: the command line of `cleave simulate --trace`. */
#ifndef SIMULATOR_SIMULATE_OPTIONS_H
#define SIMULATOR_SIMULATE_OPTIONS_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define SIMULATE_MACHINES_MAX 32

struct simulate_options {
    int argc; /* the command line, from the subcommand on */
    char **argv;
    const char *config; /* a file; NULL: the default */
    const char *trace;
    const char *policy; /* NULL: the config's */
    const char *profile;
    const char *table;
    const char *model;
    const char *out;
    const char *json;
    const char *events;
    const char *html;
    const char *plot;
    const char *on_bad_row; /* "refuse" or "skip" */
    const char *machines[SIMULATE_MACHINES_MAX];
    uint32_t machine_count;
    double message_us;
    double cores;
    double failure_s;
    double repair_s;
    double seed;
    double context;
};

/* ST_INVALID: the error says which option, and what was wanted. */
enum status simulate_options_read(int argc, char **argv, struct simulate_options *out,
                                  struct error *error);
void simulate_options_help(FILE *out);

#endif
