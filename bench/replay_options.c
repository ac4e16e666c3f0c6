/* replay_options: the table of options, and the checks between options. */
#include "bench/replay_options.h"

#include "common/options.h"

#include <stdlib.h>

#define FIELD(member) offsetof(struct replay_options, member)

/* The table is read by columns. */
/* clang-format off */
static const struct option_entry entries[] = {
    /* name, type, field, lowest, highest, choices, default, help */
    {"format", OPTION_CHOICE, FIELD(format), 0, 0,
     {"auto", "azure", "burstgpt", "splitwise", "mooncake"}, "auto", "of the trace"},
    {"on-bad-row", OPTION_CHOICE, FIELD(on_bad_row), 0, 0, {"refuse", "skip"}, "refuse",
     "what to do with a row of the trace that is wrong"},
    {"url", OPTION_TEXT, FIELD(url), 0, 0, {NULL}, "http://127.0.0.1:8080",
     "the server, without /v1"},
    {"api", OPTION_CHOICE, FIELD(api), 0, 0, {"completions", "chat"}, "completions",
     "requests go to /v1/completions, or /v1/chat/completions"},
    {"model", OPTION_TEXT, FIELD(model), 0, 0, {NULL}, NULL,
     "the model's name (default: the first that the server lists)"},
    {"api-key", OPTION_TEXT, FIELD(api_key), 0, 0, {NULL}, NULL,
     "sent as a bearer token (default: OPENAI_API_KEY of the environment)"},
    {"start", OPTION_REAL, FIELD(start_s), 0, 1e9, {NULL}, NULL,
     "skip so many seconds of the trace"},
    {"duration", OPTION_REAL, FIELD(duration_s), 0, 1e9, {NULL}, NULL,
     "replay so many seconds of the trace (default: all)"},
    {"requests", OPTION_WHOLE, FIELD(requests), 0, 1e15, {NULL}, NULL,
     "stop after so many requests (default: all)"},
    {"speed", OPTION_REAL, FIELD(rate_scale), 1e-6, 1e6, {NULL}, NULL,
     "the same as --rate-scale"},
    {"rate-scale", OPTION_REAL, FIELD(rate_scale), 1e-6, 1e6, {NULL}, "1",
     "2 sends twice as fast as the trace, 0.5 half as fast"},
    {"length-scale", OPTION_REAL, FIELD(length_scale), 1e-6, 1e3, {NULL}, "1",
     "multiplies prompt and answer lengths"},
    {"max-context", OPTION_WHOLE, FIELD(max_context), 0, 1e8, {NULL}, NULL,
     "most tokens of prompt and answer (default: the server's max_model_len)"},
    {"fit", OPTION_CHOICE, FIELD(fit), 0, 0, {"scale", "clip"}, "scale",
     "what to do with a request over max-context"},
    {"prompt", OPTION_CHOICE, FIELD(prompt), 0, 0, {"auto", "ids", "text"}, "auto",
     "prompts of token ids, or of one-token words; auto: ids if the server takes them"},
    {"id-low", OPTION_WHOLE, FIELD(id_low), 0, 1e9, {NULL}, "1000",
     "the least token id that is drawn"},
    {"id-high", OPTION_WHOLE, FIELD(id_high), 0, 1e9, {NULL}, "30000", "the greatest"},
    {"seed", OPTION_WHOLE, FIELD(seed), 0, 1e15, {NULL}, "1",
     "the same seed sends the same prompts"},
    {"timeout", OPTION_REAL, FIELD(timeout_s), 0.001, 1e6, {NULL}, "600",
     "seconds that a request may take"},
    {"slo-ttft-ms", OPTION_REAL, FIELD(slo_ttft_ms), 0, 1e9, {NULL}, NULL,
     "goodput counts requests with a TTFT up to this"},
    {"slo-tbt-ms", OPTION_REAL, FIELD(slo_tbt_ms), 0, 1e9, {NULL}, NULL,
     "… and a mean TBT up to this"},
    {"slo-e2e-ms", OPTION_REAL, FIELD(slo_e2e_ms), 0, 1e9, {NULL}, NULL,
     "… and an E2E up to this"},
    {"slo-reference", OPTION_TEXT, FIELD(slo_reference), 0, 0, {NULL}, NULL,
     "times of each request alone (CSV as --out): slowdowns against the paper's nine limits"},
    {"compare", OPTION_TEXT, FIELD(compare), 0, 0, {NULL}, NULL,
     "what cleave simulate predicted: its --out (CSV) or its --json"},
    {"out", OPTION_TEXT, FIELD(out), 0, 0, {NULL}, NULL,
     "write a CSV row per request here, as cleave simulate does"},
    {"json", OPTION_TEXT, FIELD(json), 0, 0, {NULL}, NULL,
     "write the results and a row per request here"},
    {"help", OPTION_FLAG, FIELD(help), 0, 0, {NULL}, NULL, "this text"},
};
/* clang-format on */

static const struct option_table table = {.entries = entries,
                                          .count = sizeof(entries) / sizeof(entries[0]),
                                          .operand = "trace",
                                          .operand_offset = FIELD(trace)};

/* Checks the options against each other. */
static enum status options_check(const struct replay_options *options, struct error *error)
{
    if (options->trace == NULL)
        return error_set(error, ST_INVALID,
                         "no trace given: cleave replay TRACE [--option value]…");
    if (options->api == REPLAY_API_CHAT && options->prompt == REPLAY_PROMPT_IDS)
        return error_set(error, ST_INVALID, "--prompt ids: --api chat takes text only");
    if (options->id_low > options->id_high)
        return error_set(error, ST_INVALID, "--id-low = \"%llu\": want at most --id-high, %llu",
                         (unsigned long long)options->id_low, (unsigned long long)options->id_high);
    return ST_OK;
}

enum status replay_options_parse(int argc, char **argv, struct replay_options *out,
                                 struct error *error)
{
    struct replay_options options = {.api_key = getenv("OPENAI_API_KEY")};
    enum status status = options_read(&table, argc, argv, &options, error);
    if (status == ST_OK && !options.help)
        status = options_check(&options, error);
    if (status != ST_OK)
        return status;
    *out = options;
    return ST_OK;
}

void replay_options_print_help(FILE *file)
{
    fprintf(
        file,
        "cleave replay TRACE [--option value]…\n\n"
        "Sends the requests of a trace to an OpenAI-style server when the trace says, and reports\n"
        "TTFT, TBT and E2E. TRACE is a file (Azure, BurstGPT or Splitwise CSV, Mooncake JSON\n"
        "lines), \"-\" for standard input, or a law, as\n"
        "  poisson:rate=5,seconds=60,prompt=lognormal:1020:0.9,output=uniform:10:200\n"
        "  gamma:rate=5,cv=2,requests=1000,lengths=FILE\n"
        "  onoff:rate=5,on=10,off=20,seconds=300,prompt=fixed:512,output=fixed:64\n\n");
    options_help(&table, file);
}
