/* simulate_options: the table of options, and the checks between options. */
#include "tools/simulate/simulate_options.h"

#include "common/tier_kind.h"
#include "tools/report/gnuplot.h"

#define FIELD(member) offsetof(struct simulate_options, member)

/* The table is read by columns. */
/* clang-format off */
static const struct option_entry entries[] = {
    /* name, value, type, field, lowest, highest (of texts: most of them), choices, default, help */
    {"trace", "TRACE", OPTION_TEXT, FIELD(trace), 0, 0, {NULL}, NULL, "requests: a file (Azure, BurstGPT, Splitwise, Mooncake) or a synthetic workload such as poisson:rate=5,seconds=60,lengths=FILE"},
    {"reference", "DIR", OPTION_TEXT, FIELD(reference), 0, 0, {NULL}, NULL, "or: run the cases of a folder of reference results (cases.json) and compare request by request; exit status 0 = all agree to 1e-9 s"},
    {"replay-log", "FILE", OPTION_TEXT, FIELD(replay_log), 0, 0, {NULL}, NULL, "or: give the events of a gateway's log (log/events_file) to the scheduler again and compare its decisions with those of the log; \"-\": standard input"},
    {"machines", "COUNT:POOL:FILE", OPTION_TEXTS, FIELD(machines), 0, SIMULATE_MACHINES_MAX, {NULL}, NULL, "machines of a kind, whose FILE is as in deploy/hardware; may be repeated (default: the machines of the config)"},
    {"profile", "FILE", OPTION_TEXT, FIELD(profile), 0, 0, {NULL}, NULL, "times that cleave profile measured (default: the config's profile)"},
    {"table", "FILE", OPTION_TEXT, FIELD(perf_model), 0, 0, {NULL}, NULL, "or: times from perf_model.csv of Splitwise's simulator"},
    {"model", "NAME", OPTION_TEXT, FIELD(model), 0, 0, {NULL}, NULL, "with --table: bloom-176b or llama2-70b (default: bloom-176b)"},
    {"policy", "POLICY", OPTION_TEXT, FIELD(policy), 0, 0, {"jsq", "deadline", "prefix", "splitwise-compat"}, NULL, "policy (default: the config's)"},
    {"message-us", "US", OPTION_REAL, FIELD(message_us), 0, 1e9, {NULL}, "100", "microseconds of a message between gateway and machine"},
    {"tier", "KIND:GIB:GB/S:US", OPTION_TEXTS, FIELD(tiers), 0, TIER_KIND_COUNT, {NULL}, NULL, "KV below the machines' memory, with hash ids: memory or file of each machine, or a store that all share; its size, bandwidth and the time of a load without its bytes; may be repeated"},
    {"acceptance", "P", OPTION_REAL, FIELD(acceptance), 0, 1, {NULL}, "0", "probability that a drafted token is right if those before it are: each decode step has drafts (scheduler/speculative_tokens); 0: none"},
    {"cores", "N", OPTION_WHOLE, FIELD(cores), 0, 1e6, {NULL}, "0", "cores that all machines share; 0: each machine has its own cores"},
    {"mtbf", "S", OPTION_REAL, FIELD(failure_s), 0, 1e12, {NULL}, "0", "mean seconds until a machine fails; 0: machines do not fail"},
    {"repair", "S", OPTION_REAL, FIELD(repair_s), 0, 1e9, {NULL}, "60", "seconds until a failed machine is back"},
    {"kills", "FILE", OPTION_TEXT, FIELD(kills), 0, 0, {NULL}, NULL, "or: machines fail at the times of a CSV file with the columns time_s and machine (its name)"},
    {"context", "N", OPTION_WHOLE, FIELD(context), 1, 1048576, {NULL}, NULL, "tokens of the longest request (default: what fits the largest machine's memory)"},
    {"seed", "N", OPTION_WHOLE, FIELD(seed), 0, 9e15, {NULL}, "1", "seed of the random choices"},
    {"on-bad-row", "WHAT", OPTION_CHOICE, FIELD(on_bad_row), 0, 0, {"refuse", "skip"}, "refuse", "what to do with an invalid row of the trace"},
    {"json", NULL, OPTION_FLAG, FIELD(json), 0, 0, {NULL}, NULL, "print the results and each machine's work as JSON; the tables go to standard error"},
    {"out", "FILE", OPTION_TEXT, FIELD(rows_path), 0, 0, {NULL}, NULL, "write a CSV row per request"},
    {"html", "FILE", OPTION_TEXT, FIELD(html), 0, 0, {NULL}, NULL, "write a report with pictures (by gnuplot) and data"},
    {"plot", "FILE", OPTION_TEXT, FIELD(plot), 0, 0, {NULL}, NULL, "draw how busy the machines are over time, with gnuplot; the name ends in .svg or .png"},
    {"events", "FILE", OPTION_TEXT, FIELD(events), 0, 0, {NULL}, NULL, "write the events and decisions of the scheduler, in the form of log/events_file"},
};
/* clang-format on */

static enum status check(void *out, struct error *error)
{
    struct simulate_options *o = out;
    if ((o->trace != NULL) + (o->reference != NULL) + (o->replay_log != NULL) != 1)
        return error_set(error, ST_USAGE,
                         "want one of --trace TRACE, --reference DIR and --replay-log FILE");
    if (o->json && o->trace == NULL)
        return error_set(error, ST_USAGE, "--json: --trace TRACE is missing");
    if (o->profile != NULL && o->perf_model != NULL)
        return error_set(error, ST_USAGE, "--profile and --table: want one of them");
    if (o->perf_model != NULL && o->machines.count == 0)
        return error_set(error, ST_USAGE,
                         "--table: wants --machines; a config's have the times of a profile");
    if (o->model != NULL && o->perf_model == NULL)
        return error_set(error, ST_USAGE, "--model: --table FILE is missing");
    if (o->kills != NULL && o->failure_s > 0)
        return error_set(error, ST_USAGE, "--kills and --mtbf: want one of them");
    o->model = o->model != NULL ? o->model : "bloom-176b";
    return gnuplot_option_check(o->plot, error);
}

const struct option_table simulate_options_table = {
    .command = "simulate",
    .usage = "[CONFIG] --trace TRACE|--reference DIR|--replay-log FILE [--option value]…",
    .about = "Runs the gateway's scheduler on simulated machines, and reports TTFT, TBT and E2E of "
             "the requests.\n",
    .entries = entries,
    .count = sizeof(entries) / sizeof(entries[0]),
    .operands = {{"CONFIG", FIELD(config), false}},
    .check = check};
