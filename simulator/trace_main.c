#include "simulator/trace_main.h"

#include "simulator/trace_show.h"

#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_WRONG 2

struct trace_command {
    struct trace_options trace;
    struct trace_stats_options stats;
    const char *plot;
    bool help;
};

static int usage(FILE *out)
{
    fprintf(
        out,
        "usage: cleave trace TRACE [--option value]…\n\n"
        "Describes a trace: a file (Azure, BurstGPT or Splitwise CSV, Mooncake JSON lines), \"-\" "
        "for\n"
        "standard input, or a law as "
        "\"poisson:rate=5,seconds=60,prompt=fixed:9,output=fixed:2\".\n\n"
        "  --format NAME         auto (default), azure, burstgpt, splitwise or mooncake\n"
        "  --on-bad-row WHAT     refuse (default) or skip\n"
        "  --interval S          of the table over time (default: about twenty rows)\n"
        "  --tbt-ms MS           an answer's token takes so long (default: 50), …\n"
        "  --prompt-rate N       … and prompts are computed at so many tokens/s (default: 5000):\n"
        "                        for the active requests and tokens\n"
        "  --seed N              of a law (default: 1)\n"
        "  --plot FILE           draw it by gnuplot: .svg or .png\n");
    return out == stdout ? 0 : EXIT_WRONG;
}

static enum status number_read(const char *name, const char *text, double low, double high,
                               double *out, struct error *error)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != 0 || !(value >= low && value <= high))
        return error_set(error, ST_INVALID, "--%s = \"%s\": want a number from %g to %g", name,
                         text, low, high);
    *out = value;
    return ST_OK;
}

static enum status format_read(const char *text, enum trace_format *out, struct error *error)
{
    for (int format = TRACE_AUTO; format < TRACE_SYNTHETIC; format++)
        if (strcmp(text, trace_format_name((enum trace_format)format)) == 0) {
            *out = (enum trace_format)format;
            return ST_OK;
        }
    return error_set(error, ST_INVALID,
                     "--format = \"%s\": want auto, azure, burstgpt, splitwise or mooncake", text);
}

static enum status option_read(struct trace_command *command, int option, const char *text,
                               struct error *error)
{
    double number = 0;
    enum status status = ST_OK;
    if (option == 'f')
        return format_read(text, &command->trace.format, error);
    if (option == 'b') {
        command->trace.skip = strcmp(text, "skip") == 0;
        if (!command->trace.skip && strcmp(text, "refuse") != 0)
            return error_set(error, ST_INVALID, "--on-bad-row = \"%s\": want refuse or skip", text);
    } else if (option == 'p')
        command->plot = text;
    else if (option == 'i')
        status = number_read("interval", text, 1e-3, 1e9, &command->stats.interval_s, error);
    else if (option == 't') {
        status = number_read("tbt-ms", text, 1e-3, 1e6, &number, error);
        command->stats.tbt_s = number / 1000;
    } else if (option == 'r')
        status = number_read("prompt-rate", text, 1e-3, 1e12, &command->stats.prompt_tokens_per_s,
                             error);
    else if (option == 's') {
        status = number_read("seed", text, 0, 9e15, &number, error);
        command->trace.seed = (uint64_t)number;
    } else if (option == 'h')
        command->help = true;
    return status;
}

static enum status command_read(int argc, char **argv, struct trace_command *command,
                                struct error *error)
{
    static const struct option known[] = {{"format", required_argument, NULL, 'f'},
                                          {"on-bad-row", required_argument, NULL, 'b'},
                                          {"interval", required_argument, NULL, 'i'},
                                          {"tbt-ms", required_argument, NULL, 't'},
                                          {"prompt-rate", required_argument, NULL, 'r'},
                                          {"seed", required_argument, NULL, 's'},
                                          {"plot", required_argument, NULL, 'p'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    int option;
    optind = 1;
    opterr = 0;
    *command = (struct trace_command){.trace = {.seed = 1},
                                      .stats = {.tbt_s = 0.05, .prompt_tokens_per_s = 5000}};
    while ((option = getopt_long(argc, argv, ":", known, NULL)) != -1) {
        if (option == '?' || option == ':')
            return error_set(error, ST_INVALID, "%s \"%s\" (--help lists the options)",
                             option == ':' ? "no value for" : "unknown option", argv[optind - 1]);
        enum status status = option_read(command, option, optarg, error);
        if (status != ST_OK)
            return status;
    }
    if (command->help)
        return ST_OK;
    if (optind + 1 != argc)
        return error_set(error, ST_INVALID, "want one trace: cleave trace TRACE [--option value]…");
    command->trace.name = argv[optind];
    return ST_OK;
}

/* All rows of the trace. A bad one ends it, and what was read before it is still described. */
static enum status rows_add(struct trace *trace, struct trace_stats *stats, struct error *error)
{
    struct trace_row row;
    enum status status;
    while ((status = trace_next(trace, &row, error)) == ST_OK) {
        status = trace_stats_add(stats, &row);
        if (status != ST_OK)
            return error_set(error, status, "%s",
                             status == ST_TOO_LARGE ? "--interval: more than a million of them"
                                                    : "out of memory");
    }
    return status == ST_NOT_FOUND ? ST_OK : status;
}

static enum status describe(const struct trace_command *command, struct trace *trace,
                            struct trace_stats *stats, struct error *error)
{
    enum status status = rows_add(trace, stats, error);
    printf("%s: %s\n", command->trace.name, trace_format_name(trace_format(trace)));
    trace_show_text(stats, &command->stats, stdout);
    if (trace_skipped(trace) > 0)
        printf("\n%" PRIu64 " rows left out, the first: %s\n", trace_skipped(trace),
               trace_first_skipped(trace));
    if (status == ST_OK && trace_stats_count(stats) == 0)
        return error_set(error, ST_NOT_FOUND, "%s: no rows", command->trace.name);
    if (status == ST_OK && command->plot != NULL)
        status = trace_show_picture(stats, command->trace.name, command->plot, error);
    return status;
}

int trace_main(int argc, char **argv)
{
    struct trace_command command;
    struct trace *trace = NULL;
    struct trace_stats *stats = NULL;
    struct error error = {""};
    enum status status = command_read(argc, argv, &command, &error);
    if (status == ST_OK && command.help)
        return usage(stdout);
    signal(SIGPIPE, SIG_IGN); /* gnuplot may end before it has read all */
    if (status == ST_OK)
        status = trace_open(&command.trace, &trace, &error);
    if (status == ST_OK)
        status = trace_stats_open(&command.stats, &stats);
    if (status == ST_OK)
        status = describe(&command, trace, stats, &error);
    trace_stats_close(stats);
    trace_close(trace);
    if (status == ST_OK)
        return 0;
    fflush(stdout);
    fprintf(stderr, "cleave trace: %s\n", error.text[0] != 0 ? error.text : status_name(status));
    return EXIT_WRONG;
}
