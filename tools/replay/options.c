/* replay_options: the table of options, and the checks between options. */
#include "tools/replay/options.h"

#include "common/secret.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELD(member) offsetof(struct replay_options, member)

/* The table is read by columns. */
/* clang-format off */
static const struct option_entry entries[] = {
    /* name, value, type, field, lowest, highest, choices, default, help */
    {"format", "FORMAT", OPTION_CHOICE, FIELD(format), 0, 0,
     {"auto", "azure", "burstgpt", "splitwise", "mooncake"}, "auto", "format of the trace"},
    {"on-bad-row", "WHAT", OPTION_CHOICE, FIELD(on_bad_row), 0, 0, {"refuse", "skip"}, "refuse",
     "what to do with an invalid row of the trace"},
    {"url", "URL", OPTION_TEXT, FIELD(url), 0, 0, {NULL}, "http://127.0.0.1:8080",
     "the server, without /v1"},
    {"api", "API", OPTION_CHOICE, FIELD(api), 0, 0, {"completions", "chat"}, "completions",
     "send the requests to /v1/completions or to /v1/chat/completions"},
    {"model", "NAME", OPTION_TEXT, FIELD(model), 0, 0, {NULL}, NULL,
     "the model's name (default: the first that the server lists)"},
    {"api-key", "KEY", OPTION_TEXT, FIELD(api_key), 0, 0, {NULL}, NULL,
     "key sent as a bearer token (default: the environment's OPENAI_API_KEY); other users may see it in the list of "
     "processes for a moment: prefer --api-key-file"},
    {"api-key-file", "FILE", OPTION_TEXT, FIELD(api_key_file), 0, 0, {NULL}, NULL,
     "file with the key; only its owner may read it"},
    {"start", "S", OPTION_REAL, FIELD(start_s), 0, 1e9, {NULL}, NULL,
     "skip the first S seconds of the trace"},
    {"duration", "S", OPTION_REAL, FIELD(duration_s), 0, 1e9, {NULL}, NULL,
     "replay S seconds of the trace (default: all)"},
    {"requests", "N", OPTION_WHOLE, FIELD(requests), 0, 1e15, {NULL}, NULL,
     "stop after N requests (default: all)"},
    {"speed", "X", OPTION_REAL, FIELD(rate_scale), 1e-6, 1e6, {NULL}, NULL,
     "another name of --rate-scale"},
    {"rate-scale", "X", OPTION_REAL, FIELD(rate_scale), 1e-6, 1e6, {NULL}, "1",
     "2 sends twice as fast as the trace, 0.5 half as fast"},
    {"length-scale", "X", OPTION_REAL, FIELD(length_scale), 1e-6, 1e3, {NULL}, "1",
     "multiply prompt and answer lengths by X"},
    {"max-context", "N", OPTION_WHOLE, FIELD(max_context), 0, 1e8, {NULL}, NULL,
     "largest number of tokens of prompt and answer together (default: the server's max_model_len)"},
    {"fit", "WHAT", OPTION_CHOICE, FIELD(fit), 0, 0, {"scale", "clip"}, "scale",
     "what to do with a request above --max-context"},
    {"prompt", "KIND", OPTION_CHOICE, FIELD(prompt), 0, 0, {"auto", "ids", "text"}, "auto",
     "send prompts as token ids, or as text of one-token words; auto means ids if the server takes them"},
    {"id-low", "N", OPTION_WHOLE, FIELD(id_low), 0, 1e9, {NULL}, "1000",
     "smallest token id of a prompt"},
    {"id-high", "N", OPTION_WHOLE, FIELD(id_high), 0, 1e9, {NULL}, "30000",
     "largest token id of a prompt"},
    {"seed", "N", OPTION_WHOLE, FIELD(seed), 0, 1e15, {NULL}, "1",
     "seed of the prompts and of a synthetic workload"},
    {"timeout", "S", OPTION_REAL, FIELD(timeout_s), 0.001, 1e6, {NULL}, "600",
     "longest time of a request"},
    {"slo-ttft-ms", "MS", OPTION_REAL, FIELD(slo_ttft_ms), 0, 1e9, {NULL}, NULL,
     "goodput counts requests with at most this TTFT"},
    {"slo-tbt-ms", "MS", OPTION_REAL, FIELD(slo_tbt_ms), 0, 1e9, {NULL}, NULL,
     "goodput counts requests with at most this mean TBT"},
    {"slo-e2e-ms", "MS", OPTION_REAL, FIELD(slo_e2e_ms), 0, 1e9, {NULL}, NULL,
     "goodput counts requests with at most this E2E"},
    {"slo-reference", "FILE", OPTION_TEXT, FIELD(slo_reference), 0, 0, {NULL}, NULL,
     "compare the slowdowns with the paper's nine limits; FILE has the times of each request alone, as a CSV of --out"},
    {"compare", "FILE", OPTION_TEXT, FIELD(compare), 0, 0, {NULL}, NULL,
     "compare with the prediction of cleave simulate: its --out (CSV) or its --json"},
    {"out", "FILE", OPTION_TEXT, FIELD(out), 0, 0, {NULL}, NULL,
     "write a CSV row per request, as cleave simulate does"},
    {"json", NULL, OPTION_FLAG, FIELD(json), 0, 0, {NULL}, NULL,
     "print the results and a row per request as JSON; the tables go to standard error"},
};
/* clang-format on */

/* Copies the key of the command line and overwrites it there, so that the list of processes does
 * not show it any more. */
static enum status key_take(struct replay_options *options, struct error *error)
{
    char *given = (char *)options->api_key; /* A text of argv, which is writable. */
    size_t bytes = strlen(given);
    if (bytes >= sizeof(options->api_key_copy))
        return error_set(error, ST_USAGE, "--api-key: %zu bytes: want less than %zu", bytes,
                         sizeof(options->api_key_copy));
    memcpy(options->api_key_copy, given, bytes + 1);
    memset(given, 'x', bytes);
    options->api_key = options->api_key_copy;
    return ST_OK;
}

static enum status key_read(struct replay_options *options, struct error *error)
{
    enum status status = secret_api_key_read(options->api_key_file, options->api_key_copy,
                                             sizeof(options->api_key_copy), error);
    if (status == ST_OK)
        options->api_key = options->api_key_copy;
    return status;
}

static enum status check(void *out, struct error *error)
{
    struct replay_options *options = out;
    enum status status = ST_OK;
    if (options->api_key != NULL && options->api_key_file != NULL)
        return error_set(error, ST_USAGE, "--api-key and --api-key-file: want one of them");
    if (options->api_key != NULL)
        status = key_take(options, error);
    else if (options->api_key_file != NULL)
        status = key_read(options, error);
    else
        options->api_key = getenv("OPENAI_API_KEY");
    if (status != ST_OK)
        return status;
    if (options->api == REPLAY_API_CHAT && options->prompt == REPLAY_PROMPT_IDS)
        return error_set(error, ST_USAGE, "--prompt ids: --api chat takes text only");
    if (options->id_low > options->id_high)
        return error_set(error, ST_USAGE, "--id-low = \"%llu\": want at most --id-high, %llu",
                         (unsigned long long)options->id_low, (unsigned long long)options->id_high);
    return ST_OK;
}

const struct option_table replay_options_table = {
    .command = "replay",
    .usage = "TRACE [--option value]…",
    .about = "Sends the requests of a trace to an OpenAI-style server at the times of the trace, "
             "and reports TTFT,\nTBT and E2E. TRACE is a file (Azure, BurstGPT or Splitwise CSV, "
             "Mooncake JSON lines), \"-\" for standard\ninput, or a synthetic workload such as\n"
             "  poisson:rate=5,seconds=60,prompt=lognormal:1020:0.9,output=uniform:10:200\n"
             "  gamma:rate=5,cv=2,requests=1000,lengths=FILE\n"
             "  onoff:rate=5,on=10,off=20,seconds=300,prompt=fixed:512,output=fixed:64\n",
    .entries = entries,
    .count = sizeof(entries) / sizeof(entries[0]),
    .operands = {{"TRACE", FIELD(trace), true}},
    .check = check};
