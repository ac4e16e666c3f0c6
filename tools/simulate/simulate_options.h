/* simulate_options: the command line of `cleave simulate`. */
#ifndef TOOLS_SIMULATE_SIMULATE_OPTIONS_H
#define TOOLS_SIMULATE_SIMULATE_OPTIONS_H

#include "common/options.h"

#define SIMULATE_MACHINES_MAX 32

struct simulate_options {
    int argc; /* Arguments from the subcommand on; the caller sets them. */
    char **argv;
    const char *config; /* A file; NULL = the default config. */
    const char *trace;  /* Exactly one of trace, reference and replay_log is set. */
    const char *reference;
    const char *replay_log;
    const char *policy; /* NULL = the config's policy. */
    const char *profile;
    const char *table;
    const char *model;
    const char *out;
    const char *events;
    const char *html;
    const char *plot;
    enum { SIMULATE_BAD_ROW_REFUSE, SIMULATE_BAD_ROW_SKIP } on_bad_row;
    bool json;
    struct option_texts machines;
    double message_us;
    double failure_s;
    double repair_s;
    uint64_t cores;
    uint64_t seed;
    uint64_t context; /* 0 = not given. */
};

extern const struct option_table simulate_options_table;

#endif
