/* plan_options: the command line of `cleave plan`, as values; options.c has each option's help
 * text. plan_main reads the options once, on the main thread (common/options.h). Texts point into
 * the program's arguments or are literals; nothing is owned. This part opens no files. */
#ifndef TOOLS_PLAN_OPTIONS_H
#define TOOLS_PLAN_OPTIONS_H

#include "common/options.h"

#define PLAN_TEXTS_MAX 16 /* Most values of --hardware, --clusters or --fixed. */

struct plan_options {
    /* A trace or a synthetic workload. NULL = lengths_trace is set instead. */
    const char *trace;
    /* Trace whose rows give the lengths of random requests; NULL = `trace` is set instead. */
    const char *lengths_trace;
    bool lengths_paired; /* Both lengths of a request are drawn from one row. */
    /* Table of the Splitwise authors (perf_model.csv); NULL = `profile` is set instead. */
    const char *perf_model;
    const char *profile;       /* File of `cleave profile`; NULL = perf_model is set instead. */
    uint64_t cores;            /* Cores that all machines share; 0 = each machine has its own. */
    struct option_texts tiers; /* KIND:GIB:GB/S:US each, as for `cleave simulate`. */
    /* Probability that a drafted token is right if all drafted tokens before it are right; 0 = no
     * drafts. */
    double acceptance;
    uint64_t draft_tokens; /* Drafted tokens of a decode step (scheduler/speculative_tokens). */
    const char *model;     /* Name of the model in perf_model; not used with a profile. */
    /* Files with kinds of machines; none = the files that the option's help text names. */
    struct option_texts hardware;
    /* "PROMPT+TOKEN", "KIND", "paper" or a name of a cluster of the Splitwise paper; none = all. */
    struct option_texts clusters;
    struct option_texts budgets; /* Fixed amounts, such as "cost=100", "rate=50" or "iso-cost". */
    const char *minimize;        /* "cost", "power" or "machines"; used if the rate is fixed. */
    double mtbf_s;         /* Mean time until a machine fails; 0 = failures are not simulated. */
    double repair_s;       /* Time until a failed machine is up again. */
    const char *slo;       /* Nine limits of slowdowns; NULL = the SLO of the Splitwise paper. */
    double step_per_s;     /* Rates are multiples of this number of requests per second. */
    double rate_max_per_s; /* Highest rate to try, in requests per second. */
    uint64_t machines_max; /* Most machines of a plan. */
    double duration_s;     /* Time in which requests arrive. */
    uint64_t seed;         /* Seed of the random choices. */
    uint64_t workers;      /* Threads of the search; 0 = one per core. */
    /* Find the boundary of every split (search.h). Also set if `html` or `plot` is set. */
    bool all_boundaries;
    const char *journal;      /* The journal (memo.h); NULL = none. */
    bool json;                /* Print the plans as JSON. */
    const char *write_config; /* File for a config of the best plan; NULL = none. */
    const char *html;         /* File for a report; NULL = none. */
    const char *plot;         /* File for the pictures of the first budget; NULL = none. */
};

extern const struct option_table plan_options_table;

#endif
