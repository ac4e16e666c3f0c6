#include "simulator/trace_main.h"

#include "simulator/trace_show.h"
#include "simulator/trace_window.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_WRONG 2

struct trace_command {
    struct trace_options trace;
    struct trace_stats_options stats;
    struct trace_window window;
    double tbt_ms, seed, requests, max_context; /* as given, for the above */
    const char *plot;
    const char *write;
    bool help;
};

static const struct number {
    const char *name;
    size_t offset;
    double low, high;
} numbers[] = {
    {"start", offsetof(struct trace_command, window.start_s), 0, 1e9},
    {"duration", offsetof(struct trace_command, window.duration_s), 0, 1e9},
    {"speed", offsetof(struct trace_command, window.speed), 1e-6, 1e6},
    {"length-scale", offsetof(struct trace_command, window.length_scale), 1e-6, 1e3},
    {"requests", offsetof(struct trace_command, requests), 0, 1e15},
    {"max-context", offsetof(struct trace_command, max_context), 0, 1e8},
    {"interval", offsetof(struct trace_command, stats.interval_s), 1e-3, 1e9},
    {"tbt-ms", offsetof(struct trace_command, tbt_ms), 1e-3, 1e6},
    {"prompt-rate", offsetof(struct trace_command, stats.prompt_tokens_per_s), 1e-3, 1e12},
    {"seed", offsetof(struct trace_command, seed), 0, 9e15},
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
        "  --start S, --duration S, --requests N, --speed X, --length-scale X, --max-context N,\n"
        "  --fit scale|clip      which part of it, how fast, with which lengths: as cleave replay\n"
        "  --write FILE          write that as a CSV: what cleave simulate must be given to "
        "predict\n"
        "                        such a replay\n"
        "  --interval S          of the table over time (default: about twenty rows)\n"
        "  --tbt-ms MS           an answer's token takes so long (default: 50), …\n"
        "  --prompt-rate N       … and prompts are computed at so many tokens/s (default: 5000):\n"
        "                        for the active requests and tokens\n"
        "  --seed N              of a law (default: 1)\n"
        "  --plot FILE           draw it by gnuplot: .svg or .png\n");
    return out == stdout ? 0 : EXIT_WRONG;
}

static enum status number_set(struct trace_command *command, const struct number *number,
                              const char *text, struct error *error)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != 0 || !(value >= number->low && value <= number->high))
        return error_set(error, ST_INVALID, "--%s = \"%s\": want a number from %g to %g",
                         number->name, text, number->low, number->high);
    memcpy((char *)command + number->offset, &value, sizeof(value));
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

/* One of two words: *second_out says which. */
static enum status word_read(const char *name, const char *text, const char *first,
                             const char *second, bool *second_out, struct error *error)
{
    *second_out = strcmp(text, second) == 0;
    return *second_out || strcmp(text, first) == 0
               ? ST_OK
               : error_set(error, ST_INVALID, "--%s = \"%s\": want %s or %s", name, text, first,
                           second);
}

static enum status option_set(struct trace_command *command, const char *name, const char *text,
                              struct error *error)
{
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (strcmp(name, numbers[i].name) == 0)
            return number_set(command, &numbers[i], text, error);
    if (strcmp(name, "format") == 0)
        return format_read(text, &command->trace.format, error);
    if (strcmp(name, "on-bad-row") == 0)
        return word_read(name, text, "refuse", "skip", &command->trace.skip, error);
    if (strcmp(name, "fit") == 0) {
        bool clip;
        enum status status = word_read(name, text, "scale", "clip", &clip, error);
        command->window.fit = clip ? TRACE_FIT_CLIP : TRACE_FIT_SCALE;
        return status;
    }
    if (strcmp(name, "plot") == 0)
        command->plot = text;
    else if (strcmp(name, "write") == 0)
        command->write = text;
    else
        return error_set(error, ST_INVALID, "unknown option \"--%s\" (--help lists them)", name);
    return ST_OK;
}

/* Options are `--name value`; what is none is the trace. */
static enum status command_read(int argc, char **argv, struct trace_command *command,
                                struct error *error)
{
    *command = (struct trace_command){.window = {.speed = 1, .length_scale = 1},
                                      .stats = {.prompt_tokens_per_s = 5000},
                                      .tbt_ms = 50,
                                      .seed = 1};
    for (int i = 1; i < argc; i++) {
        enum status status = ST_OK;
        if (strcmp(argv[i], "--help") == 0)
            command->help = true;
        else if (strncmp(argv[i], "--", 2) == 0 && i + 1 == argc)
            status = error_set(error, ST_INVALID, "%s: want a value after it", argv[i]);
        else if (strncmp(argv[i], "--", 2) == 0) {
            status = option_set(command, argv[i] + 2, argv[i + 1], error);
            i++;
        } else if (command->trace.name != NULL)
            status = error_set(error, ST_INVALID, "two traces given: \"%s\" and \"%s\"",
                               command->trace.name, argv[i]);
        else
            command->trace.name = argv[i];
        if (status != ST_OK)
            return status;
    }
    command->trace.seed = (uint64_t)command->seed;
    command->stats.tbt_s = command->tbt_ms / 1000;
    command->window.requests = (uint64_t)command->requests;
    command->window.max_context = (uint32_t)command->max_context;
    if (command->trace.name == NULL && !command->help)
        return error_set(error, ST_INVALID, "no trace given: cleave trace TRACE [--option value]…");
    return ST_OK;
}

/* All rows of the window. A bad one ends it, and what was read before it is still described. */
static enum status rows_add(struct trace_command *command, struct trace *trace,
                            struct trace_stats *stats, FILE *out, struct error *error)
{
    struct trace_row row;
    enum status status;
    while ((status = trace_window_next(&command->window, trace, &row, error)) == ST_OK) {
        status = trace_stats_add(stats, &row);
        if (status != ST_OK)
            return error_set(error, status, "%s",
                             status == ST_TOO_LARGE ? "--interval: more than a million of them"
                                                    : "out of memory");
        if (out != NULL)
            fprintf(out, "%" PRIu64 ",%.9f,%" PRIu32 ",%" PRIu32 "\n", row.id, row.at_s,
                    row.prompt_tokens, row.output_tokens);
    }
    return status == ST_NOT_FOUND ? ST_OK : status;
}

/* … which are written too, where that is wanted. */
static enum status rows_read(struct trace_command *command, struct trace *trace,
                             struct trace_stats *stats, struct error *error)
{
    FILE *out = NULL;
    if (command->write != NULL) {
        out = fopen(command->write, "we");
        if (out == NULL)
            return error_set(error, ST_IO, "--write %s: %s", command->write, strerror(errno));
        fputs("request_id,arrival_timestamp,prompt_size,token_size\n", out);
    }
    enum status status = rows_add(command, trace, stats, out, error);
    bool bad = out != NULL && ferror(out) != 0;
    bad |= out != NULL && fclose(out) != 0;
    if (bad && status == ST_OK)
        return error_set(error, ST_IO, "--write %s: cannot be written", command->write);
    return status;
}

static enum status describe(struct trace_command *command, struct trace *trace,
                            struct trace_stats *stats, struct error *error)
{
    enum status status = rows_read(command, trace, stats, error);
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
