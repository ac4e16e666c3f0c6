/* plan_options: the table of options, and the checks between options. */
#include "simulator/plan_options.h"

#include "simulator/gnuplot.h"

#define FIELD(member) offsetof(struct plan_options, member)

/* The table is read by columns. */
/* clang-format off */
static const struct option_entry entries[] = {
    /* name, type, field, lowest, highest (of texts: most of them), choices, default, help */
    {"lengths", OPTION_TEXT, FIELD(lengths), 0, 0, {NULL}, NULL, "FILE  requests with the lengths of a trace's rows, by chance, and Poisson arrivals"},
    {"pairs", OPTION_FLAG, FIELD(pairs), 0, 0, {NULL}, NULL, "… both lengths of a request from one row; without: independent, as the paper's"},
    {"trace", OPTION_TEXT, FIELD(trace), 0, 0, {NULL}, NULL, "NAME  or the requests of a trace or law (docs/simulator.md), made faster or slower"},
    {"table", OPTION_TEXT, FIELD(table), 0, 0, {NULL}, NULL, "FILE  times: perf_model.csv of Splitwise's simulator"},
    {"profile", OPTION_TEXT, FIELD(profile), 0, 0, {NULL}, NULL, "FILE  or times that cleave profile measured, and the gateway's policy; the layers of machines with several devices are split"},
    {"cores", OPTION_WHOLE, FIELD(cores), 0, 1e6, {NULL}, NULL, "… that all machines share; 0: each one has its own (0)"},
    {"model", OPTION_TEXT, FIELD(model), 0, 0, {NULL}, NULL, "of the table: bloom-176b (default) or llama2-70b"},
    {"hardware", OPTION_TEXTS, FIELD(hardware), 0, PLAN_TEXTS_MAX, {NULL}, NULL, "FILE of deploy/hardware, may be given again; without: its a100, h100 and h100-capped, or cpu"},
    {"fixed", OPTION_TEXTS, FIELD(fixed), 0, PLAN_TEXTS_MAX, {NULL}, NULL, "cost=X, power=X, machines=N or rate=X; iso-power or iso-cost: of 40 h100; may be given again"},
    {"clusters", OPTION_TEXTS, FIELD(clusters), 0, PLAN_TEXTS_MAX, {NULL}, NULL, "PROMPT+TOKEN kinds, or KIND of the baseline; paper: its six; may be given again; without: all"},
    {"least", OPTION_TEXT, FIELD(least), 0, 0, {NULL}, NULL, "with the rate fixed: cost (default), power or machines"},
    {"slo", OPTION_TEXT, FIELD(slo), 0, 0, {NULL}, NULL, "A/B/C,D/E/F,G/H/I  slowdowns at P50/P90/P99 of TTFT, TBT, E2E (2/3/6,1.25/1.5/5,1.25/1.5/5)"},
    {"step", OPTION_REAL, FIELD(step), 0.001, 1e6, {NULL}, NULL, "requests a second: rates are multiples of it (5)"},
    {"rate-most", OPTION_REAL, FIELD(rate_most), 0.001, 1e6, {NULL}, NULL, "the highest rate that is tried (300)"},
    {"machines-most", OPTION_WHOLE, FIELD(machines_most), 1, 1000, {NULL}, NULL, "of a plan (100)"},
    {"duration", OPTION_REAL, FIELD(duration), 0.1, 1e7, {NULL}, NULL, "seconds of arrivals (120)"},
    {"seed", OPTION_WHOLE, FIELD(seed), 0, 9e15, {NULL}, NULL, "of all that is by chance (1)"},
    {"workers", OPTION_WHOLE, FIELD(workers), 1, 64, {NULL}, NULL, "threads; the plan is the same (all cores)"},
    {"full", OPTION_FLAG, FIELD(full), 0, 0, {NULL}, NULL, "the boundary of every split, not of those alone that may be the best"},
    {"state", OPTION_TEXT, FIELD(state), 0, 0, {NULL}, NULL, "FILE  what was tried: a plan that was stopped goes on from there"},
    {"json", OPTION_FLAG, FIELD(json), 0, 0, {NULL}, NULL, "the plans as JSON"},
    {"write-config", OPTION_TEXT, FIELD(write_config), 0, 0, {NULL}, NULL, "FILE  a config with the machines of the best plan, and their stages"},
    {"html", OPTION_TEXT, FIELD(html), 0, 0, {NULL}, NULL, "FILE  a report with pictures (by gnuplot) and data; --full is implied"},
    {"plot", OPTION_TEXT, FIELD(plot), 0, 0, {NULL}, NULL, "FILE ending in .svg or .png: the pictures of the first --fixed alone; --full is implied"},
    {"help", OPTION_FLAG, FIELD(help), 0, 0, {NULL}, NULL, "this text"},
};
/* clang-format on */

static const struct option_table table = {.entries = entries,
                                          .count = sizeof(entries) / sizeof(entries[0])};

void plan_options_help(FILE *out)
{
    options_help(&table, out);
}

static enum status check(const struct plan_options *o, struct error *error)
{
    if ((o->trace == NULL) == (o->lengths == NULL))
        return error_set(error, ST_INVALID, "want --lengths FILE or --trace NAME");
    if (o->pairs && o->lengths == NULL)
        return error_set(error, ST_INVALID, "--pairs: --lengths FILE is missing");
    if ((o->table == NULL) == (o->profile == NULL))
        return error_set(error, ST_INVALID, "want --table FILE or --profile FILE");
    if (o->model != NULL && o->table == NULL)
        return error_set(error, ST_INVALID, "--model: --table FILE is missing");
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
    *out = (struct plan_options){.least = "cost",
                                 .step = 5,
                                 .rate_most = 300,
                                 .machines_most = 100,
                                 .duration = 120,
                                 .seed = 1};
    enum status status = options_read(&table, argc, argv, out, error);
    if (status != ST_OK || out->help)
        return status;
    out->full |= out->html != NULL || out->plot != NULL;
    status = check(out, error);
    out->model = out->model != NULL ? out->model : "bloom-176b";
    return status;
}
