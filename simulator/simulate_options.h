/* simulate_options: the command line of `cleave simulate --trace`. */
#ifndef SIMULATOR_SIMULATE_OPTIONS_H
#define SIMULATOR_SIMULATE_OPTIONS_H

#include "common/options.h"

#define SIMULATE_MACHINES_MAX 32

struct simulate_options {
    int argc; /* Arguments from the subcommand on. */
    char **argv;
    const char *config; /* A file; NULL = the default config. */
    const char *trace;
    const char *policy; /* NULL = the config's policy. */
    const char *profile;
    const char *table;
    const char *model;
    const char *out;
    const char *json;
    const char *events;
    const char *html;
    const char *plot;
    enum { SIMULATE_BAD_ROW_REFUSE, SIMULATE_BAD_ROW_SKIP } on_bad_row;
    struct option_texts machines;
    double message_us;
    double failure_s;
    double repair_s;
    uint64_t cores;
    uint64_t seed;
    uint64_t context; /* 0 = not given. */
};

/* ST_INVALID: the error names the option and what was wanted. */
enum status simulate_options_read(int argc, char **argv, struct simulate_options *out,
                                  struct error *error);
void simulate_options_help(FILE *out);

#endif
