/* plan_options: the command line of `cleave plan`. Texts are the caller's arguments. */
#ifndef SIMULATOR_PLAN_OPTIONS_H
#define SIMULATOR_PLAN_OPTIONS_H

#include "common/options.h"

#define PLAN_TEXTS_MAX 16

struct plan_options {
    const char *trace; /* one of these two */
    const char *lengths;
    bool pairs;
    const char *table; /* one of these two */
    const char *profile;
    uint64_t cores;
    const char *model;
    struct option_texts hardware;
    struct option_texts clusters;
    struct option_texts fixed;
    const char *least;
    const char *slo; /* NULL: the paper's */
    double step;
    double rate_most;
    uint64_t machines_most;
    double duration;
    uint64_t seed;
    uint64_t workers; /* 0: as many as there are cores */
    bool full;
    const char *state;
    bool json;
    const char *write_config;
    const char *html;
    const char *plot;
    bool help;
};

/* The error names the option and what was wanted. */
enum status plan_options_read(int argc, char **argv, struct plan_options *out, struct error *error);
void plan_options_help(FILE *out);

#endif
