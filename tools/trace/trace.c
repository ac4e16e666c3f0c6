/* trace: see the header. Lines go through one buffer of the greatest length. The reader of a format
 * parses a line; this file checks the order of the rows. */
#include "tools/trace/trace.h"

#include "tools/trace/line.h"
#include "tools/trace/synthetic.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A prompt of TRACE_TOKENS_MAX has 19,532 hash ids. Pages that no line reaches are never
 * touched. */
#define LINE_BYTES (1u << 20)

struct trace {
    FILE *file;
    struct trace_line line;
    struct trace_synthetic *synthetic; /* NULL = a file. */
    enum trace_format format;
    bool skip;
    bool line_waits; /* The first line was read to find the format, but is a row. */
    bool started;
    int64_t first_ticks;
    int64_t last_ticks;
    double last_s; /* In the time of the file. */
    uint64_t rows; /* Good and bad rows. */
    uint64_t skipped;
    struct error first_skipped;
};

const char *trace_format_name(enum trace_format format)
{
    static const char *const names[TRACE_FORMAT_COUNT] = {"auto",      "azure",    "burstgpt",
                                                          "splitwise", "mooncake", "synthetic"};
    return names[format];
}

enum status trace_line_wrong(const struct trace_line *line, const char *name, const char *value,
                             const char *wanted, struct error *error)
{
    return error_set(error, ST_INVALID, "%s:%llu: %s = \"%.*s\": want %s", line->path,
                     (unsigned long long)line->number, name, TRACE_SHOWN_BYTES, value, wanted);
}

/* Reads the next line without its end. ST_NOT_FOUND: end of the file. */
static enum status line_read(struct trace *trace, struct error *error)
{
    struct trace_line *line = &trace->line;
    size_t length = 0;
    bool is_text = true;
    int c;
    while ((c = getc_unlocked(trace->file)) != EOF && c != '\n') {
        if (c == 0 || length == LINE_BYTES - 1)
            is_text = false;
        else
            line->text[length++] = (char)c;
    }
    if (c == EOF && ferror(trace->file))
        return error_set(error, ST_IO, "%s: %s", line->path, strerror(errno));
    if (c == EOF && length == 0 && is_text)
        return ST_NOT_FOUND;
    line->number++;
    while (length > 0 && line->text[length - 1] == '\r')
        length--;
    line->text[length] = 0;
    if (!is_text)
        return error_set(error, ST_INVALID,
                         "%s:%llu: longer than %u bytes, or with a NUL byte: not a trace",
                         line->path, (unsigned long long)line->number, LINE_BYTES - 1);
    return ST_OK;
}

static enum status header_read(struct trace *trace, struct error *error)
{
    enum status status = line_read(trace, error);
    if (status == ST_NOT_FOUND)
        return error_set(error, ST_INVALID, "%s: the file is empty", trace->line.path);
    if (status != ST_OK)
        return status;
    if (trace->format == TRACE_AUTO && trace->line.text[0] == '{')
        trace->format = TRACE_MOONCAKE;
    trace->line_waits = trace->format == TRACE_MOONCAKE;
    return trace->line_waits ? ST_OK : trace_csv_header(&trace->line, &trace->format, error);
}

/* Checks the row's time against the rows above, and returns it relative to the first row. */
static enum status row_place(struct trace *trace, const struct trace_raw *raw, double *at_s_out,
                             struct error *error)
{
    bool as_it_is = trace->format == TRACE_SPLITWISE;
    if (trace->started &&
        (raw->ticks < trace->last_ticks || (as_it_is && raw->at_s < trace->last_s)))
        return error_set(
            error, ST_INVALID, "%s:%llu: %s: %.7f s before the row above: want rows sorted by time",
            trace->line.path, (unsigned long long)trace->line.number,
            trace->format == TRACE_MOONCAKE ? "timestamp" : trace->line.names[TRACE_COLUMN_TIME],
            (double)(trace->last_ticks - raw->ticks) / TRACE_TICKS_PER_S);
    if (!trace->started)
        trace->first_ticks = raw->ticks;
    trace->started = true;
    trace->last_ticks = raw->ticks;
    trace->last_s = raw->at_s;
    *at_s_out =
        as_it_is ? raw->at_s : (double)(raw->ticks - trace->first_ticks) / TRACE_TICKS_PER_S;
    return ST_OK;
}

static enum status row_read(struct trace *trace, struct trace_row *out, struct error *error)
{
    struct trace_raw raw = {.id = trace->rows};
    enum status status = trace->format == TRACE_MOONCAKE
                             ? trace_mooncake_row(&trace->line, &raw, error)
                             : trace_csv_row(&trace->line, trace->format, &raw, error);
    if (status == ST_OK)
        status = row_place(trace, &raw, &out->at_s, error);
    out->id = raw.id;
    out->line = trace->line.number;
    out->prompt_tokens = raw.prompt_tokens;
    out->output_tokens = raw.output_tokens;
    out->blocks = raw.block_count > 0 ? trace->line.blocks : NULL;
    out->block_count = raw.block_count;
    out->block_tokens = raw.block_tokens > 0 ? raw.block_tokens : TRACE_BLOCK_TOKENS;
    out->tenant = raw.tenant;
    return status;
}

/* Reads the next line that is not blank as a row. */
static enum status row_next(struct trace *trace, struct trace_row *out, struct error *error)
{
    enum status status = ST_OK;
    if (trace->line_waits)
        trace->line_waits = false;
    else
        do
            status = line_read(trace, error);
        while (status == ST_OK && trace->line.text[0] == 0);
    if (status == ST_NOT_FOUND)
        return status;
    if (status == ST_OK)
        status = row_read(trace, out, error);
    trace->rows++;
    return status;
}

enum status trace_next(struct trace *trace, struct trace_row *row_out, struct error *error)
{
    struct trace_row row = {0};
    if (trace->synthetic != NULL)
        return trace_synthetic_next(trace->synthetic, row_out);
    for (;;) {
        struct error why = {""};
        enum status status = row_next(trace, &row, &why);
        if (status == ST_OK) {
            *row_out = row;
            return ST_OK;
        }
        if (status != ST_INVALID || !trace->skip)
            return error_set(error, status, "%s", why.text);
        if (trace->skipped++ == 0)
            trace->first_skipped = why;
    }
}

static enum status file_open(struct trace *trace, FILE *file, const struct trace_options *options,
                             struct error *error)
{
    trace->file = file;
    trace->format = options->format;
    trace->skip = options->skip;
    trace->line.path = strdup(options->name);
    trace->line.text = malloc(LINE_BYTES);
    if (trace->line.path == NULL || trace->line.text == NULL)
        return error_set(error, ST_NO_MEMORY, "%s: out of memory", options->name);
    return header_read(trace, error);
}

enum status trace_open_file(FILE *file, const struct trace_options *options,
                            struct trace **trace_out, struct error *error)
{
    struct trace *trace = calloc(1, sizeof(*trace));
    if (trace == NULL) {
        fclose(file);
        return error_set(error, ST_NO_MEMORY, "%s: out of memory", options->name);
    }
    enum status status = file_open(trace, file, options, error);
    if (status != ST_OK) {
        trace_close(trace);
        return status;
    }
    *trace_out = trace;
    return ST_OK;
}

static enum status synthetic_open(const struct trace_options *options, struct trace **trace_out,
                                  struct error *error)
{
    struct trace *trace = calloc(1, sizeof(*trace));
    if (trace == NULL)
        return error_set(error, ST_NO_MEMORY, "%s: out of memory", options->name);
    trace->format = TRACE_SYNTHETIC;
    enum status status =
        trace_synthetic_open(options->name, options->seed, options->skip, &trace->synthetic, error);
    if (status != ST_OK) {
        trace_close(trace);
        return status;
    }
    const char *why;
    trace->skipped = trace_synthetic_skipped(trace->synthetic, &why);
    error_set(&trace->first_skipped, ST_OK, "%s", why);
    *trace_out = trace;
    return ST_OK;
}

enum status trace_open(const struct trace_options *options, struct trace **trace_out,
                       struct error *error)
{
    if (trace_is_synthetic(options->name))
        return synthetic_open(options, trace_out, error);
    bool input = strcmp(options->name, "-") == 0;
    FILE *file = input ? stdin : fopen(options->name, "re");
    if (file == NULL)
        return error_set(error, errno == ENOENT ? ST_NOT_FOUND : ST_IO, "%s: %s", options->name,
                         strerror(errno));
    struct trace_options named = *options;
    named.name = input ? "standard input" : options->name;
    return trace_open_file(file, &named, trace_out, error);
}

void trace_close(struct trace *trace)
{
    if (trace == NULL)
        return;
    if (trace->file != NULL && trace->file != stdin)
        fclose(trace->file);
    trace_synthetic_close(trace->synthetic);
    free(trace->line.path);
    free(trace->line.text);
    free(trace->line.blocks);
    free(trace);
}

enum trace_format trace_format(const struct trace *trace)
{
    return trace->format;
}

uint64_t trace_skipped(const struct trace *trace)
{
    return trace->skipped;
}

const char *trace_first_skipped(const struct trace *trace)
{
    return trace->first_skipped.text;
}
