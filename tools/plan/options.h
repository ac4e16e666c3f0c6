/* plan_options: the command line of `cleave plan`. Texts point into the caller's arguments. */
#ifndef TOOLS_PLAN_OPTIONS_H
#define TOOLS_PLAN_OPTIONS_H

#include "common/options.h"

#define PLAN_TEXTS_MAX 16

struct plan_options {
    const char *trace; /* Exactly one of trace and lengths is set. */
    const char *lengths;
    bool pairs;
    const char *table; /* Exactly one of table and profile is set. */
    const char *profile;
    uint64_t cores;
    const char *model;
    struct option_texts hardware;
    struct option_texts clusters;
    struct option_texts fixed;
    const char *least;
    const char *slo; /* NULL = the SLO of the Splitwise paper. */
    double step;
    double rate_most;
    uint64_t machines_most;
    double duration;
    uint64_t seed;
    uint64_t workers; /* 0 = one per core. */
    bool full;
    const char *state;
    bool json;
    const char *write_config;
    const char *html;
    const char *plot;
};

extern const struct option_table plan_options_table;

#endif
