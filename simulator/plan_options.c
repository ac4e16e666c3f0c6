/* plan_options: a table of fields by offset. */
#include "simulator/plan_options.h"

#include "simulator/gnuplot.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum option_type { OPTION_TEXT, OPTION_TEXTS, OPTION_WHOLE, OPTION_REAL, OPTION_FLAG };

struct option {
    const char *name;
    enum option_type type;
    size_t offset;
    double low, high; /* of a number */
    const char *help;
};

#define FIELD(member) offsetof(struct plan_options, member)

/* Read down its columns. */
/* clang-format off */
static const struct option table[] = {
    /* name, type, field, lowest, highest, help */
    {"lengths", OPTION_TEXT, FIELD(lengths), 0, 0, "FILE  requests with the lengths of a trace's rows, by chance, and Poisson arrivals"},
    {"pairs", OPTION_FLAG, FIELD(pairs), 0, 0, "… both lengths of a request from one row; without: independent, as the paper's"},
    {"trace", OPTION_TEXT, FIELD(trace), 0, 0, "NAME  or the requests of a trace or law (docs/simulator.md), made faster or slower"},
    {"table", OPTION_TEXT, FIELD(table), 0, 0, "FILE  times: perf_model.csv of Splitwise's simulator"},
    {"profile", OPTION_TEXT, FIELD(profile), 0, 0, "FILE  or times that cleave profile measured, and the gateway's policy; the layers of machines with several devices are split"},
    {"cores", OPTION_WHOLE, FIELD(cores), 0, 1e6, "… that all machines share; 0: each one has its own (0)"},
    {"model", OPTION_TEXT, FIELD(model), 0, 0, "of the table: bloom-176b (default) or llama2-70b"},
    {"hardware", OPTION_TEXTS, FIELD(hardware), 0, 0, "FILE of deploy/hardware, may be given again; without: its a100, h100 and h100-capped, or cpu"},
    {"fixed", OPTION_TEXTS, FIELD(fixed), 0, 0, "cost=X, power=X, machines=N or rate=X; iso-power or iso-cost: of 40 h100; may be given again"},
    {"clusters", OPTION_TEXTS, FIELD(clusters), 0, 0, "PROMPT+TOKEN kinds, or KIND of the baseline; paper: its six; may be given again; without: all"},
    {"least", OPTION_TEXT, FIELD(least), 0, 0, "with the rate fixed: cost (default), power or machines"},
    {"slo", OPTION_TEXT, FIELD(slo), 0, 0, "A/B/C,D/E/F,G/H/I  slowdowns at P50/P90/P99 of TTFT, TBT, E2E (2/3/6,1.25/1.5/5,1.25/1.5/5)"},
    {"step", OPTION_REAL, FIELD(step), 0.001, 1e6, "requests a second: rates are multiples of it (5)"},
    {"rate-most", OPTION_REAL, FIELD(rate_most), 0.001, 1e6, "the highest rate that is tried (300)"},
    {"machines-most", OPTION_WHOLE, FIELD(machines_most), 1, 1000, "of a plan (100)"},
    {"duration", OPTION_REAL, FIELD(duration), 0.1, 1e7, "seconds of arrivals (120)"},
    {"seed", OPTION_WHOLE, FIELD(seed), 0, 9e15, "of all that is by chance (1)"},
    {"workers", OPTION_WHOLE, FIELD(workers), 1, 64, "threads; the plan is the same (all cores)"},
    {"full", OPTION_FLAG, FIELD(full), 0, 0, "the boundary of every split, not of those alone that may be the best"},
    {"state", OPTION_TEXT, FIELD(state), 0, 0, "FILE  what was tried: a plan that was stopped goes on from there"},
    {"json", OPTION_FLAG, FIELD(json), 0, 0, "the plans as JSON"},
    {"write-config", OPTION_TEXT, FIELD(write_config), 0, 0, "FILE  a config with the machines of the best plan, and their stages"},
    {"html", OPTION_TEXT, FIELD(html), 0, 0, "FILE  a report with pictures (by gnuplot) and data; --full is implied"},
    {"plot", OPTION_TEXT, FIELD(plot), 0, 0, "FILE ending in .svg or .png: the pictures of the first --fixed alone; --full is implied"},
    {"help", OPTION_FLAG, FIELD(help), 0, 0, "this text"},
};
/* clang-format on */
#define OPTION_COUNT (sizeof(table) / sizeof(table[0]))

void plan_options_help(FILE *out)
{
    for (size_t i = 0; i < OPTION_COUNT; i++)
        fprintf(out, "  --%-14s %s\n", table[i].name, table[i].help);
}

static enum status number_set(const struct option *option, const char *value, void *field,
                              struct error *error)
{
    char *end;
    errno = 0;
    bool whole = option->type == OPTION_WHOLE;
    double number = strtod(value, &end);
    if (errno != 0 || end == value || *end != 0 || !(number >= option->low) ||
        number > option->high || (whole && number != floor(number)))
        return error_set(error, ST_INVALID, "--%s \"%.60s\": want a %snumber from %g to %g",
                         option->name, value, whole ? "whole " : "", option->low, option->high);
    if (whole)
        *(uint64_t *)field = (uint64_t)number;
    else
        *(double *)field = number;
    return ST_OK;
}

static enum status option_set(const struct option *option, const char *value,
                              struct plan_options *out, struct error *error)
{
    void *field = (char *)out + option->offset;
    struct plan_texts *texts = field;
    switch (option->type) {
    case OPTION_TEXT:
        *(const char **)field = value;
        return ST_OK;
    case OPTION_TEXTS:
        if (texts->count == PLAN_TEXTS_MAX)
            return error_set(error, ST_TOO_LARGE, "--%s: more than %d", option->name,
                             PLAN_TEXTS_MAX);
        texts->texts[texts->count++] = value;
        return ST_OK;
    case OPTION_WHOLE:
    case OPTION_REAL:
        return number_set(option, value, field, error);
    case OPTION_FLAG:
        break;
    }
    *(bool *)field = true;
    return ST_OK;
}

static enum status check(const struct plan_options *o, struct error *error)
{
    if ((o->trace == NULL) == (o->lengths == NULL))
        return error_set(error, ST_INVALID, "want --lengths FILE or --trace NAME");
    if (o->pairs && o->lengths == NULL)
        return error_set(error, ST_INVALID, "--pairs: --lengths FILE is missing");
    if ((o->table == NULL) == (o->profile == NULL))
        return error_set(error, ST_INVALID, "want --table FILE or --profile FILE");
    if (o->cores > 0 && o->profile == NULL)
        return error_set(error, ST_INVALID, "--cores: --profile FILE is missing");
    if (o->plot != NULL && gnuplot_path_check(o->plot, error) != ST_OK) {
        error_prefix(error, "--plot %s", o->plot);
        return ST_INVALID;
    }
    if (o->fixed.count == 0)
        return error_set(error, ST_INVALID,
                         "--fixed is missing: want cost=X, power=X, machines=N or rate=X");
    if (o->rate_most < o->step)
        return error_set(error, ST_INVALID, "--rate-most %g: want at least --step %g", o->rate_most,
                         o->step);
    return ST_OK;
}

enum status plan_options_read(int argc, char **argv, struct plan_options *out, struct error *error)
{
    *out = (struct plan_options){.model = "bloom-176b",
                                 .least = "cost",
                                 .step = 5,
                                 .rate_most = 300,
                                 .machines_most = 100,
                                 .duration = 120,
                                 .seed = 1};
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) != 0)
            return error_set(error, ST_INVALID, "\"%s\": want --option value", argv[i]);
        const char *name = argv[i] + 2;
        size_t length = strcspn(name, "=");
        size_t found = 0;
        while (found < OPTION_COUNT && (strlen(table[found].name) != length ||
                                        strncmp(table[found].name, name, length) != 0))
            found++;
        if (found == OPTION_COUNT)
            return error_set(error, ST_INVALID, "unknown option %s: --help lists them", argv[i]);
        bool flag = table[found].type == OPTION_FLAG;
        const char *value = name[length] == '=' ? name + length + 1 : NULL;
        if (flag ? value != NULL : value == NULL && i + 1 == argc)
            return error_set(error, ST_INVALID, "--%s %s", table[found].name,
                             flag ? "takes no value" : "wants a value");
        if (!flag && value == NULL)
            value = argv[++i];
        enum status status = option_set(&table[found], value, out, error);
        if (status != ST_OK)
            return status;
    }
    out->full |= out->html != NULL || out->plot != NULL;
    return out->help ? ST_OK : check(out, error);
}
