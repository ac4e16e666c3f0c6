/* simulate_options: a table of fields by offset. */
#include "simulator/simulate_options.h"

#include "simulator/gnuplot.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct option {
    const char *name;
    bool number;
    size_t offset;
    double low, high;
    const char *help;
};

#define TEXT(name, member, help)                                                                   \
    {                                                                                              \
        name, false, offsetof(struct simulate_options, member), 0, 0, help                         \
    }
#define NUMBER(name, member, low, high, help)                                                      \
    {                                                                                              \
        name, true, offsetof(struct simulate_options, member), low, high, help                     \
    }

/* clang-format off */
static const struct option table[] = {
    TEXT("trace", trace, "requests: a file (Azure, BurstGPT, Splitwise, Mooncake), or a law: poisson:rate=5,seconds=60,lengths=FILE"),
    TEXT("machines", machines, "COUNT:POOL:FILE of deploy/hardware, may be given again; else the config's machines"),
    TEXT("profile", profile, "times: what cleave profile measured"),
    TEXT("table", table, "times: perf_model.csv of Splitwise's simulator"),
    TEXT("model", model, "… of bloom-176b (default) or llama2-70b"),
    TEXT("policy", policy, "jsq or deadline (default: the config's), or splitwise-compat"),
    NUMBER("message-us", message_us, 0, 1e9, "microseconds of a message between gateway and machine (100)"),
    NUMBER("cores", cores, 0, 1e6, "cores that all machines share; 0: each one has its own (0)"),
    NUMBER("mtbf", failure_s, 0, 1e12, "mean seconds until a machine fails; 0: none does (0)"),
    NUMBER("repair", repair_s, 0, 1e9, "seconds until it is back (60)"),
    NUMBER("context", context, 1, 131072, "tokens of the longest request (the largest of the machines' memories)"),
    NUMBER("seed", seed, 0, 9e15, "of all that is by chance (1)"),
    TEXT("on-bad-row", on_bad_row, "refuse (default) or skip"),
    TEXT("out", out, "a CSV file, one row per request"),
    TEXT("json", json, "a file: all of them together, and each machine"),
    TEXT("html", html, "a file: a report of all of it, with pictures (by gnuplot) and data"),
    TEXT("plot", plot, "a file ending in .svg or .png: how the machines are used over time, by gnuplot"),
    TEXT("events", events, "a file: what the scheduler was told and said, as log/events_file"),
};
/* clang-format on */

#define TABLE_COUNT (sizeof(table) / sizeof(table[0]))

static const struct option *option_find(const char *name, size_t bytes)
{
    for (size_t i = 0; i < TABLE_COUNT; i++)
        if (strlen(table[i].name) == bytes && strncmp(table[i].name, name, bytes) == 0)
            return &table[i];
    return NULL;
}

static enum status option_set(const struct option *option, const char *value,
                              struct simulate_options *out, struct error *error)
{
    char *at = (char *)out + option->offset;
    if (strcmp(option->name, "machines") == 0) {
        if (out->machine_count == SIMULATE_MACHINES_MAX)
            return error_set(error, ST_TOO_LARGE, "--machines: more than %d",
                             SIMULATE_MACHINES_MAX);
        out->machines[out->machine_count++] = value;
        return ST_OK;
    }
    if (!option->number) {
        memcpy(at, &value, sizeof(value));
        return ST_OK;
    }
    char *end;
    double number = strtod(value, &end);
    if (end == value || *end != 0 || !(number >= option->low && number <= option->high))
        return error_set(error, ST_INVALID, "--%s %s: want a number from %g to %g", option->name,
                         value, option->low, option->high);
    memcpy(at, &number, sizeof(number));
    return ST_OK;
}

static enum status check(const struct simulate_options *o, struct error *error)
{
    if (o->trace == NULL)
        return error_set(error, ST_INVALID, "--trace: wanted");
    if (strcmp(o->on_bad_row, "skip") != 0 && strcmp(o->on_bad_row, "refuse") != 0)
        return error_set(error, ST_INVALID, "--on-bad-row %s: want refuse or skip", o->on_bad_row);
    if (o->profile != NULL && o->table != NULL)
        return error_set(error, ST_INVALID, "--profile and --table: want one of them");
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
    *out = (struct simulate_options){.argc = argc,
                                     .argv = argv,
                                     .model = "bloom-176b",
                                     .on_bad_row = "refuse",
                                     .message_us = 100,
                                     .repair_s = 60,
                                     .seed = 1};
    for (int i = 1; i < argc; i++) {
        const char *text = argv[i];
        if (strncmp(text, "--", 2) != 0) {
            if (out->config != NULL)
                return error_set(error, ST_INVALID, "%s: a second config file", text);
            out->config = text;
            continue;
        }
        size_t bytes = strcspn(text + 2, "=");
        const struct option *option = option_find(text + 2, bytes);
        if (option == NULL)
            return error_set(error, ST_INVALID, "%s: no such option", text);
        const char *value = text[2 + bytes] == '=' ? text + 3 + bytes : argv[++i];
        if (value == NULL)
            return error_set(error, ST_INVALID, "%s: a value is missing", text);
        enum status status = option_set(option, value, out, error);
        if (status != ST_OK)
            return status;
    }
    return check(out, error);
}

void simulate_options_help(FILE *out)
{
    for (size_t i = 0; i < TABLE_COUNT; i++)
        fprintf(out, "  --%-12s %s\n", table[i].name, table[i].help);
}
