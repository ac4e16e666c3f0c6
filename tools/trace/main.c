#include "tools/trace/main.h"

#include "common/options.h"
#include "tools/report/gnuplot.h"
#include "tools/trace/served.h"
#include "tools/trace/show.h"
#include "tools/trace/window.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>

struct trace_command {
    struct trace_options trace;
    struct trace_stats_options stats;
    struct trace_window window;
    double tbt_ms; /* As given; becomes stats.tbt_s. */
    uint64_t max_context;
    enum { BAD_ROW_REFUSE, BAD_ROW_SKIP } on_bad_row;
    const char *plot;
    const char *write;
    struct option_texts from_events;
    struct served_totals served;
};

#define FIELD(member) offsetof(struct trace_command, member)

/* The table is read by columns. */
/* clang-format off */
static const struct option_entry entries[] = {
    /* name, value, type, field, lowest, highest, choices, default, help */
    {"format", "FORMAT", OPTION_CHOICE, FIELD(trace.format), 0, 0,
     {"auto", "azure", "burstgpt", "splitwise", "mooncake"}, "auto", "format of the file"},
    {"on-bad-row", "WHAT", OPTION_CHOICE, FIELD(on_bad_row), 0, 0, {"refuse", "skip"}, "refuse",
     "what to do with an invalid row"},
    {"from-events", "FILE", OPTION_TEXTS, FIELD(from_events), 0, OPTION_TEXTS_MAX, {NULL}, NULL,
     "in place of TRACE: the event log of a gateway (log/events_file); once for each file of its rotation, oldest first"},
    {"start", "S", OPTION_REAL, FIELD(window.start_s), 0, 1e9, {NULL}, NULL,
     "skip the first S seconds of the trace; the options from --start to --fit are those of cleave replay"},
    {"duration", "S", OPTION_REAL, FIELD(window.duration_s), 0, 1e9, {NULL}, NULL,
     "read S seconds of the trace (default: all)"},
    {"requests", "N", OPTION_WHOLE, FIELD(window.requests), 0, 1e15, {NULL}, NULL,
     "stop after N requests (default: all)"},
    {"speed", "X", OPTION_REAL, FIELD(window.speed), 1e-6, 1e6, {NULL}, "1",
     "2 makes the requests arrive twice as fast"},
    {"length-scale", "X", OPTION_REAL, FIELD(window.length_scale), 1e-6, 1e3, {NULL}, "1",
     "multiply prompt and answer lengths by X"},
    {"max-context", "N", OPTION_WHOLE, FIELD(max_context), 0, 1e8, {NULL}, NULL,
     "largest number of tokens of prompt and answer together (default: no limit)"},
    {"fit", "WHAT", OPTION_CHOICE, FIELD(window.fit), 0, 0, {"scale", "clip"}, "scale",
     "what to do with a request above --max-context"},
    {"write", "FILE", OPTION_TEXT, FIELD(write), 0, 0, {NULL}, NULL,
     "write the requests as a trace: as CSV without shared blocks or, if the name ends in .jsonl, with them"},
    {"interval", "S", OPTION_REAL, FIELD(stats.interval_s), 1e-3, 1e9, {NULL}, NULL,
     "seconds per row of the table over time (default: about 20 rows)"},
    {"tbt-ms", "MS", OPTION_REAL, FIELD(tbt_ms), 1e-3, 1e6, {NULL}, "50",
     "assumed time between two tokens of an answer, for the active requests"},
    {"prompt-rate", "X", OPTION_REAL, FIELD(stats.prompt_tokens_per_s), 1e-3, 1e12, {NULL}, "5000",
     "assumed prompt tokens per second, for the active requests"},
    {"seed", "N", OPTION_WHOLE, FIELD(trace.seed), 0, 9e15, {NULL}, "1",
     "seed of a synthetic workload"},
    {"plot", "FILE", OPTION_TEXT, FIELD(plot), 0, 0, {NULL}, NULL,
     "draw a picture with gnuplot; the name ends in .svg or .png"},
};
/* clang-format on */

static enum status check(void *out, struct error *error)
{
    struct trace_command *command = out;
    command->trace.skip = command->on_bad_row == BAD_ROW_SKIP;
    command->stats.tbt_s = command->tbt_ms / 1000;
    command->window.max_context = (uint32_t)command->max_context;
    if ((command->trace.name != NULL) == (command->from_events.count > 0))
        return error_set(error, ST_USAGE, "want a TRACE or --from-events FILE, and not both");
    return gnuplot_option_check(command->plot, error);
}

static const struct option_table table = {
    .command = "trace",
    .usage = "TRACE | --from-events FILE [--option value]…",
    .about = "Describes a trace: lengths, rate over time and active requests. TRACE is a file "
             "(Azure, BurstGPT or\nSplitwise CSV, Mooncake JSON lines), \"-\" for standard input, "
             "or a synthetic workload such as\n"
             "\"poisson:rate=5,seconds=60,prompt=fixed:9,output=fixed:2\".\n"
             "With --from-events it is what a gateway served: cleave trace --from-events "
             "events.jsonl --write today.jsonl\n",
    .entries = entries,
    .count = sizeof(entries) / sizeof(entries[0]),
    .operands = {{"TRACE", FIELD(trace.name), false}},
    .check = check};

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

/* Adds all rows of the window to the statistics, and writes them to `out` (NULL = not wanted). A
 * wrong row ends the reading; the rows before it are still described. */
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
        if (out != NULL && ends_with(command->write, ".jsonl"))
            trace_row_write(out, &row);
        else if (out != NULL)
            fprintf(out, "%" PRIu64 ",%.9f,%" PRIu32 ",%" PRIu32 "\n", row.id, row.at_s,
                    row.prompt_tokens, row.output_tokens);
    }
    return status == ST_NOT_FOUND ? ST_OK : status;
}

/* Calls rows_add, with the file of --write if one is wanted. */
static enum status rows_read(struct trace_command *command, struct trace *trace,
                             struct trace_stats *stats, struct error *error)
{
    FILE *out = NULL;
    if (command->write != NULL) {
        out = fopen(command->write, "we");
        if (out == NULL)
            return error_set(error, ST_IO, "--write %s: %s", command->write, strerror(errno));
        if (!ends_with(command->write, ".jsonl"))
            fputs("request_id,arrival_timestamp,prompt_size,token_size\n", out);
    }
    enum status status = rows_add(command, trace, stats, out, error);
    bool bad = out != NULL && ferror(out) != 0;
    bad |= out != NULL && fclose(out) != 0;
    if (bad && status == ST_OK)
        return error_set(error, ST_IO, "--write %s: cannot be written", command->write);
    return status;
}

static void served_print(const struct served_totals *served)
{
    const struct {
        uint64_t count;
        const char *text;
    } notes[] = {
        {served->refused, "requests were refused or expired while they waited: left out"},
        {served->tokenless, "requests ended before their first token: left out"},
        {served->requests_unended, "requests have no end in the log: left out"},
        {served->lines_lost, "lines are missing: the gateway could not write them"},
        {served->files_incomplete, "files end within a line, which is left out"},
    };
    if (served->begins_after_start)
        printf("the log begins after the gateway's start: requests that arrived before are left "
               "out\n");
    for (size_t i = 0; i < sizeof(notes) / sizeof(notes[0]); i++)
        if (notes[i].count > 0)
            printf("%" PRIu64 " %s\n", notes[i].count, notes[i].text);
    if (served->lines_wrong > 0)
        printf("%" PRIu64 " wrong lines left out, the first: %s\n", served->lines_wrong,
               served->first_wrong);
}

static enum status describe(struct trace_command *command, struct trace *trace,
                            struct trace_stats *stats, struct error *error)
{
    enum status status = rows_read(command, trace, stats, error);
    bool events = command->from_events.count > 0;
    printf("%s: %s\n", command->trace.name,
           events ? "events" : trace_format_name(trace_format(trace)));
    if (events)
        served_print(&command->served);
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

/* Reads the event logs into a temporary file, and opens it as the trace. */
static enum status served_open(struct trace_command *command, struct trace **trace_out,
                               struct error *error)
{
    const struct option_texts *files = &command->from_events;
    FILE *file = tmpfile();
    if (file == NULL)
        return error_set(error, ST_IO, "a temporary file: %s", strerror(errno));
    enum status status = trace_served_write(files->texts, files->count, command->trace.skip, file,
                                            &command->served, error);
    if (status == ST_OK && (fflush(file) != 0 || ferror(file)))
        status = error_set(error, ST_IO, "a temporary file: %s", strerror(errno));
    if (status != ST_OK) {
        fclose(file);
        return status;
    }
    rewind(file);
    command->trace.name = files->texts[0];
    command->trace.format = TRACE_MOONCAKE;
    return trace_open_file(file, &command->trace, trace_out, error);
}

int trace_main(int argc, char **argv)
{
    struct trace_command command = {.plot = NULL};
    struct trace *trace = NULL;
    struct trace_stats *stats = NULL;
    struct error error = {""};
    int exit_status = options_start(&table, argc, argv, &command);
    if (exit_status >= 0)
        return exit_status;
    signal(SIGPIPE, SIG_IGN); /* gnuplot may exit before it has read the whole script. */
    enum status status = command.from_events.count > 0 ? served_open(&command, &trace, &error)
                                                       : trace_open(&command.trace, &trace, &error);
    if (status == ST_OK)
        status = trace_stats_open(&command.stats, &stats);
    if (status == ST_OK)
        status = describe(&command, trace, stats, &error);
    trace_stats_close(stats);
    trace_close(trace);
    return status == ST_OK ? 0 : options_fail(&table, status, &error);
}
