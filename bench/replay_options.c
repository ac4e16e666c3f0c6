/* replay_options: a table of fields by offset, and one reader per type of value. */
#include "bench/replay_options.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum option_type { OPTION_TEXT, OPTION_REAL, OPTION_WHOLE, OPTION_CHOICE, OPTION_FLAG };

struct option {
    const char *name;
    enum option_type type;
    size_t offset;
    double low, high;          /* of a number */
    const char *choices[6];    /* of a choice: its index is the enum's value */
    const char *default_value; /* NULL: zero, or no text */
    const char *help;
};

#define FIELD(member) offsetof(struct replay_options, member)

/* Read down its columns. */
/* clang-format off */
static const struct option options_table[] = {
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
#define OPTION_COUNT (sizeof(options_table) / sizeof(options_table[0]))

static const struct option *option_find(const char *name, size_t size)
{
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (strlen(options_table[i].name) == size && memcmp(options_table[i].name, name, size) == 0)
            return &options_table[i];
    return NULL;
}

static enum status number_set(const struct option *option, const char *value, char *field,
                              struct error *error)
{
    char *end;
    bool whole = option->type == OPTION_WHOLE;
    errno = 0;
    double number = strtod(value, &end);
    if (errno != 0 || end == value || *end != 0 || !isfinite(number) || number < option->low ||
        number > option->high || (whole && number != floor(number)))
        return error_set(error, ST_INVALID, "--%s = \"%s\": want a %snumber from %g to %g",
                         option->name, value, whole ? "whole " : "", option->low, option->high);
    if (whole)
        *(uint64_t *)(void *)field = (uint64_t)number;
    else
        *(double *)(void *)field = number;
    return ST_OK;
}

/* "a, b or c" */
static void choices_list(const struct option *option, char *out, size_t room)
{
    size_t used = 0;
    for (unsigned i = 0; option->choices[i] != NULL && used < room; i++) {
        const char *before = i == 0 ? "" : option->choices[i + 1] == NULL ? " or " : ", ";
        used += (size_t)snprintf(out + used, room - used, "%s%s", before, option->choices[i]);
    }
}

static enum status choice_set(const struct option *option, const char *value, char *field,
                              struct error *error)
{
    for (unsigned choice = 0; option->choices[choice] != NULL; choice++)
        if (strcmp(option->choices[choice], value) == 0) {
            memcpy(field, &choice, sizeof(choice)); /* our enums are unsigned ints */
            return ST_OK;
        }
    char wanted[100];
    choices_list(option, wanted, sizeof(wanted));
    return error_set(error, ST_INVALID, "--%s = \"%s\": want %s", option->name, value, wanted);
}

static enum status option_set(const struct option *option, const char *value,
                              struct replay_options *options, struct error *error)
{
    char *field = (char *)options + option->offset;
    switch (option->type) {
    case OPTION_TEXT:
        *(const char **)(void *)field = value;
        return ST_OK;
    case OPTION_REAL:
    case OPTION_WHOLE:
        return number_set(option, value, field, error);
    case OPTION_CHOICE:
        return choice_set(option, value, field, error);
    case OPTION_FLAG:
        *(bool *)field = true;
        return ST_OK;
    }
    return ST_INVALID;
}

/* What holds between options. */
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
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (options_table[i].default_value != NULL)
            option_set(&options_table[i], options_table[i].default_value, &options, NULL);

    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        if (strncmp(argument, "--", 2) != 0) {
            if (options.trace != NULL)
                return error_set(error, ST_INVALID, "two traces given: \"%s\" and \"%s\"",
                                 options.trace, argument);
            options.trace = argument;
            continue;
        }
        const char *name = argument + 2, *equals = strchr(name, '=');
        const struct option *option =
            option_find(name, equals != NULL ? (size_t)(equals - name) : strlen(name));
        if (option == NULL)
            return error_set(error, ST_INVALID, "unknown option \"%s\" (--help lists them)",
                             argument);
        const char *value = equals != NULL ? equals + 1 : "";
        if (equals == NULL && option->type != OPTION_FLAG) {
            if (i + 1 == argc)
                return error_set(error, ST_INVALID, "--%s: want a value after it", option->name);
            value = argv[++i];
        }
        enum status status = option_set(option, value, &options, error);
        if (status != ST_OK)
            return status;
    }
    if (!options.help) {
        enum status status = options_check(&options, error);
        if (status != ST_OK)
            return status;
    }
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
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const struct option *option = &options_table[i];
        fprintf(file, "  --%-14s %s", option->name, option->help);
        if (option->type == OPTION_CHOICE) {
            char choices[100];
            choices_list(option, choices, sizeof(choices));
            fprintf(file, ": %s", choices);
        }
        if (option->default_value != NULL)
            fprintf(file, " (default: %s)", option->default_value);
        fprintf(file, "\n");
    }
}
