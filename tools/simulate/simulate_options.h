/* simulate_options: the command line of `cleave simulate`, as values; simulate_options.c has each
 * option's help text. simulate_main.c reads the options once on the main thread (common/options.h).
 * Texts point into the program's arguments or are literals; NULL = not given. The struct owns
 * nothing. This part opens no files. */
#ifndef TOOLS_SIMULATE_SIMULATE_OPTIONS_H
#define TOOLS_SIMULATE_SIMULATE_OPTIONS_H

#include "common/options.h"

#define SIMULATE_MACHINES_MAX 32 /* Most values of --machines. */

struct simulate_options {
    int argc;           /* Number of entries in `argv`; the caller sets argc and argv. */
    char **argv;        /* [argc]: the arguments from the subcommand on. */
    const char *config; /* A file; NULL = the default config. */
    /* Exactly one of trace, reference and replay_log is set. */
    const char *trace;      /* A trace or a synthetic workload. */
    const char *reference;  /* A directory of reference results. */
    const char *replay_log; /* An event log of a gateway. */
    const char *policy;     /* NULL = the config's policy. */
    const char *profile;    /* File of `cleave profile`; NULL = the config's profile. */
    const char *perf_model; /* File with a table of times (perf_model.csv). */
    /* Name of the model in perf_model.csv; if --model is missing, the option table's check sets
     * "bloom-176b". */
    const char *model;
    const char *rows_path; /* File for a CSV row per request. */
    const char *events;    /* File for the scheduler's events. */
    const char *html;      /* File for a report. */
    const char *plot;      /* File for a picture of the machines' use. */
    /* REFUSE = a wrong row of the trace ends the simulation; SKIP = the row is skipped. */
    enum { SIMULATE_BAD_ROW_REFUSE, SIMULATE_BAD_ROW_SKIP } on_bad_row;
    bool json;                    /* Print the results as JSON, and the tables to standard error. */
    struct option_texts machines; /* COUNT:POOL:FILE each; none = the config's machines. */
    double acceptance;            /* Probability that a drafted token is right; 0 = no drafts. */
    struct option_texts tiers;    /* KIND:GIB:GB/S:US each (sim_tier.h). */
    double message_us;            /* Time of a message between gateway and machine. */
    double failure_s;             /* Mean time until a machine fails at random; 0 = never. */
    double repair_s;              /* Time until a failed machine is up again. */
    const char *kills;            /* File with failures at given times. */
    uint64_t cores;               /* Cores that all machines share; 0 = each machine has its own. */
    uint64_t seed;                /* Seed of synthetic workloads, failures and drafts. */
    uint64_t context;             /* Longest request in tokens; 0 = what the machines can hold. */
};

extern const struct option_table simulate_options_table;

#endif
