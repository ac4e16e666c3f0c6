/* simulate_options: the table of options, and the checks between options. */
#include "simulator/simulate_options.h"

#include "simulator/gnuplot.h"

#include <string.h>

#define FIELD(member) offsetof(struct simulate_options, member)

/* clang-format off */
static const struct option_entry entries[] = {
    /* name, type, field, lowest, highest (of texts: most of them), choices, default, help */
    {"trace", OPTION_TEXT, FIELD(trace), 0, 0, {NULL}, NULL, "requests: a file (Azure, BurstGPT, Splitwise, Mooncake), or a law: poisson:rate=5,seconds=60,lengths=FILE"},
    {"machines", OPTION_TEXTS, FIELD(machines), 0, SIMULATE_MACHINES_MAX, {NULL}, NULL, "COUNT:POOL:FILE of deploy/hardware, may be given again; else the config's machines"},
    {"profile", OPTION_TEXT, FIELD(profile), 0, 0, {NULL}, NULL, "times: what cleave profile measured"},
    {"table", OPTION_TEXT, FIELD(table), 0, 0, {NULL}, NULL, "times: perf_model.csv of Splitwise's simulator"},
    {"model", OPTION_TEXT, FIELD(model), 0, 0, {NULL}, NULL, "… of bloom-176b (default) or llama2-70b"},
    {"policy", OPTION_TEXT, FIELD(policy), 0, 0, {NULL}, NULL, "jsq or deadline (default: the config's), or splitwise-compat"},
    {"message-us", OPTION_REAL, FIELD(message_us), 0, 1e9, {NULL}, NULL, "microseconds of a message between gateway and machine (100)"},
    {"cores", OPTION_WHOLE, FIELD(cores), 0, 1e6, {NULL}, NULL, "cores that all machines share; 0: each one has its own (0)"},
    {"mtbf", OPTION_REAL, FIELD(failure_s), 0, 1e12, {NULL}, NULL, "mean seconds until a machine fails; 0: none does (0)"},
    {"repair", OPTION_REAL, FIELD(repair_s), 0, 1e9, {NULL}, NULL, "seconds until it is back (60)"},
    {"context", OPTION_WHOLE, FIELD(context), 1, 131072, {NULL}, NULL, "tokens of the longest request (the largest of the machines' memories)"},
    {"seed", OPTION_WHOLE, FIELD(seed), 0, 9e15, {NULL}, NULL, "of all that is by chance (1)"},
    {"on-bad-row", OPTION_CHOICE, FIELD(on_bad_row), 0, 0, {"refuse", "skip"}, "refuse", "what to do with a row of the trace that is wrong"},
    {"out", OPTION_TEXT, FIELD(out), 0, 0, {NULL}, NULL, "a CSV file, one row per request"},
    {"json", OPTION_TEXT, FIELD(json), 0, 0, {NULL}, NULL, "a file: all of them together, and each machine"},
    {"html", OPTION_TEXT, FIELD(html), 0, 0, {NULL}, NULL, "a file: a report of all of it, with pictures (by gnuplot) and data"},
    {"plot", OPTION_TEXT, FIELD(plot), 0, 0, {NULL}, NULL, "a file ending in .svg or .png: how the machines are used over time, by gnuplot"},
    {"events", OPTION_TEXT, FIELD(events), 0, 0, {NULL}, NULL, "a file: what the scheduler was told and said, as log/events_file"},
};
/* clang-format on */

static const struct option_table table = {.entries = entries,
                                          .count = sizeof(entries) / sizeof(entries[0]),
                                          .operand = "config",
                                          .operand_offset = FIELD(config)};

static enum status check(const struct simulate_options *o, struct error *error)
{
    if (o->trace == NULL)
        return error_set(error, ST_INVALID, "--trace: wanted");
    if (o->profile != NULL && o->table != NULL)
        return error_set(error, ST_INVALID, "--profile and --table: want one of them");
    if (o->table != NULL && o->machines.count == 0)
        return error_set(error, ST_INVALID,
                         "--table: wants --machines; a config's have the times of a profile");
    if (o->model != NULL && o->table == NULL)
        return error_set(error, ST_INVALID, "--model: --table FILE is missing");
    if (o->plot != NULL && gnuplot_path_check(o->plot, error) != ST_OK) {
        error_prefix(error, "--plot %s", o->plot);
        return ST_INVALID;
    }
    static const char *const policies[] = {"jsq", "deadline", "splitwise-compat"};
    bool known = o->policy == NULL;
    for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]) && !known; i++)
        known = strcmp(o->policy, policies[i]) == 0;
    if (!known)
        return error_set(error, ST_INVALID,
                         "--policy %s: want jsq, deadline or splitwise-compat (prefix caches are "
                         "not simulated)",
                         o->policy);
    return ST_OK;
}

enum status simulate_options_read(int argc, char **argv, struct simulate_options *out,
                                  struct error *error)
{
    *out = (struct simulate_options){
        .argc = argc, .argv = argv, .message_us = 100, .repair_s = 60, .seed = 1};
    enum status status = options_read(&table, argc, argv, out, error);
    if (status == ST_OK)
        status = check(out, error);
    out->model = out->model != NULL ? out->model : "bloom-176b";
    return status;
}

void simulate_options_help(FILE *out)
{
    options_help(&table, out);
}
