/* plan_options: the table of options, and the checks between options. */
#include "tools/plan/options.h"

#include "common/limits.h"
#include "common/tier_kind.h"
#include "tools/report/gnuplot.h"

#include <string.h>

#define FIELD(member) offsetof(struct plan_options, member)

/* The table is read by columns. */
/* clang-format off */
static const struct option_entry entries[] = {
    /* name, value, type, field, lowest, highest (of texts: most of them), choices, default, help */
    {"lengths", "FILE", OPTION_TEXT, FIELD(lengths_trace), 0, 0, {NULL}, NULL, "requests with lengths drawn from this trace and Poisson arrivals"},
    {"pairs", NULL, OPTION_FLAG, FIELD(lengths_paired), 0, 0, {NULL}, NULL, "with --lengths: draw both lengths of a request from one row (default: independently, as in the paper)"},
    {"trace", "TRACE", OPTION_TEXT, FIELD(trace), 0, 0, {NULL}, NULL, "or: the requests of a trace or a synthetic workload (docs/simulator.md), made faster or slower"},
    {"table", "FILE", OPTION_TEXT, FIELD(perf_model), 0, 0, {NULL}, NULL, "times from perf_model.csv of Splitwise's simulator"},
    {"profile", "FILE", OPTION_TEXT, FIELD(profile), 0, 0, {NULL}, NULL, "or: times that cleave profile measured, and the gateway's policy; the layers of machines with several devices are split"},
    {"cores", "N", OPTION_WHOLE, FIELD(cores), 0, 1e6, {NULL}, "0", "with --profile: cores that all machines share; 0: each machine has its own cores"},
    {"model", "NAME", OPTION_TEXT, FIELD(model), 0, 0, {NULL}, NULL, "with --table: bloom-176b or llama2-70b (default: bloom-176b)"},
    {"hardware", "FILE", OPTION_TEXTS, FIELD(hardware), 0, PLAN_TEXTS_MAX, {NULL}, NULL, "a kind of machine, as in deploy/hardware; may be repeated (default: a100, h100 and h100-capped of that folder, with --profile cpu)"},
    {"fixed", "WHAT", OPTION_TEXTS, FIELD(budgets), 0, PLAN_TEXTS_MAX, {NULL}, NULL, "cost=X, power=X, machines=N or rate=X; iso-power or iso-cost: those of 40 h100; may be repeated; required"},
    {"clusters", "KINDS", OPTION_TEXTS, FIELD(clusters), 0, PLAN_TEXTS_MAX, {NULL}, NULL, "PROMPT+TOKEN: kinds of the two pools; KIND: one mixed pool; paper: the paper's six; may be repeated (default: all)"},
    {"least", "WHAT", OPTION_TEXT, FIELD(minimize), 0, 0, {NULL}, "cost", "what to minimize at a fixed rate: cost, power or machines"},
    {"slo", "LIMITS", OPTION_TEXT, FIELD(slo), 0, 0, {NULL}, NULL, "slowdowns at P50/P90/P99 of TTFT, TBT and E2E (default: 2/3/6,1.25/1.5/5,1.25/1.5/5)"},
    {"mtbf", "S", OPTION_REAL, FIELD(mtbf_s), 0, 1e12, {NULL}, "0", "with --profile: also simulate the plans with machines that fail every S seconds on average, with and without kv/checkpoint; 0: not"},
    {"repair", "S", OPTION_REAL, FIELD(repair_s), 0, 1e9, {NULL}, "60", "seconds until a failed machine is back"},
    {"step", "X", OPTION_REAL, FIELD(step_per_s), 0.001, 1e6, {NULL}, "5", "rates are multiples of X requests per second"},
    {"rate-most", "X", OPTION_REAL, FIELD(rate_max_per_s), 0.001, 1e6, {NULL}, "300", "highest rate to try"},
    {"machines-most", "N", OPTION_WHOLE, FIELD(machines_max), 1, 1000, {NULL}, "100", "largest number of machines of a plan"},
    {"duration", "S", OPTION_REAL, FIELD(duration_s), 0.1, 1e7, {NULL}, "120", "seconds of arrivals"},
    {"seed", "N", OPTION_WHOLE, FIELD(seed), 0, 9e15, {NULL}, "1", "seed of the random choices"},
    {"tier", "KIND:GIB:GB/S:US", OPTION_TEXTS, FIELD(tiers), 0, TIER_KIND_COUNT, {NULL}, NULL, "with --profile: KV below the machines' memory, as of cleave simulate; may be repeated"},
    {"acceptance", "P", OPTION_REAL, FIELD(acceptance), 0, 1, {NULL}, "0", "with --profile: probability that a drafted token is right if those before it are, as of cleave simulate; 0: no drafts"},
    {"draft-tokens", "N", OPTION_WHOLE, FIELD(draft_tokens), 1, LIMIT_DRAFT_TOKENS, {NULL}, "8", "with --acceptance: scheduler/speculative_tokens; the written config has them"},
    {"workers", "N", OPTION_WHOLE, FIELD(workers), 1, 64, {NULL}, NULL, "threads; the plan does not depend on them (default: all cores)"},
    {"full", NULL, OPTION_FLAG, FIELD(all_boundaries), 0, 0, {NULL}, NULL, "find the highest rate of every split, not only of those that may be the best"},
    {"state", "FILE", OPTION_TEXT, FIELD(journal), 0, 0, {NULL}, NULL, "keep the results of simulations here: a search that was stopped continues from them"},
    {"json", NULL, OPTION_FLAG, FIELD(json), 0, 0, {NULL}, NULL, "print the plans as JSON"},
    {"write-config", "FILE", OPTION_TEXT, FIELD(write_config), 0, 0, {NULL}, NULL, "write a config with the machines of the best plan and their stages"},
    {"html", "FILE", OPTION_TEXT, FIELD(html), 0, 0, {NULL}, NULL, "write a report with pictures (by gnuplot) and data; implies --full"},
    {"plot", "FILE", OPTION_TEXT, FIELD(plot), 0, 0, {NULL}, NULL, "draw the pictures of the first --fixed with gnuplot; the name ends in .svg or .png; implies --full"},
};
/* clang-format on */

static enum status check(void *out, struct error *error)
{
    struct plan_options *o = out;
    if ((o->trace == NULL) == (o->lengths_trace == NULL))
        return error_set(error, ST_USAGE, "want --lengths FILE or --trace TRACE");
    if (o->lengths_paired && o->lengths_trace == NULL)
        return error_set(error, ST_USAGE, "--pairs: --lengths FILE is missing");
    if ((o->perf_model == NULL) == (o->profile == NULL))
        return error_set(error, ST_USAGE, "want --table FILE or --profile FILE");
    if (o->model != NULL && o->perf_model == NULL)
        return error_set(error, ST_USAGE, "--model: --table FILE is missing");
    if (o->tiers.count > 0 && o->profile == NULL)
        return error_set(error, ST_USAGE, "--tier: --profile FILE is missing");
    for (uint32_t i = 0; i < o->tiers.count && o->write_config != NULL; i++)
        if (strncmp(o->tiers.texts[i], "store:", 6) == 0)
            return error_set(error, ST_USAGE,
                             "--tier %s: --write-config does not know the store's servers",
                             o->tiers.texts[i]);
    if (o->acceptance > 0 && o->profile == NULL)
        return error_set(error, ST_USAGE, "--acceptance: --profile FILE is missing");
    if (o->cores > 0 && o->profile == NULL)
        return error_set(error, ST_USAGE, "--cores: --profile FILE is missing");
    if (o->mtbf_s > 0 && o->profile == NULL)
        return error_set(error, ST_USAGE, "--mtbf: --profile FILE is missing");
    if (o->budgets.count == 0)
        return error_set(error, ST_USAGE,
                         "--fixed is missing: want cost=X, power=X, machines=N or rate=X");
    if (o->rate_max_per_s < o->step_per_s)
        return error_set(error, ST_USAGE, "--rate-most %g: want at least --step %g",
                         o->rate_max_per_s, o->step_per_s);
    o->all_boundaries |= o->html != NULL || o->plot != NULL;
    o->model = o->model != NULL ? o->model : "bloom-176b";
    return gnuplot_option_check(o->plot, error);
}

const struct option_table plan_options_table = {
    .command = "plan",
    .usage = "--lengths FILE|--trace TRACE --table FILE|--profile FILE --fixed WHAT "
             "[--option value]…",
    .about = "Finds how many prompt and token machines a cluster needs, of which kind, and which "
             "layers belong on\nwhich of their devices. With cost, power or the number of machines "
             "fixed it finds the highest request\nrate within the SLO; with the rate fixed, the "
             "cheapest cluster.\n",
    .entries = entries,
    .count = sizeof(entries) / sizeof(entries[0]),
    .check = check};
