#include "tools/simulate/sim_trace.h"

#include <string.h>
#include <sys/stat.h>

/* True if opening the file again begins at its first byte: not standard input, a pipe or a device.
 */
static bool is_readable_twice(const char *name)
{
    struct stat file;
    return strcmp(name, "-") != 0 && stat(name, &file) == 0 && S_ISREG(file.st_mode);
}

/* Returns true if a row of the file has hash ids. A file that cannot be read twice counts as a
 * trace that has them. Errors are found when the rows are read again. */
static bool ids_find(const struct trace_options *options, enum trace_format format)
{
    struct trace_row row = {.block_count = 0};
    struct trace *trace;
    if (format != TRACE_MOONCAKE || !is_readable_twice(options->name))
        return format == TRACE_MOONCAKE;
    if (trace_open(options, &trace, NULL) != ST_OK)
        return false;
    while (row.block_count == 0 && trace_next(trace, &row, NULL) == ST_OK)
        continue;
    trace_close(trace);
    return row.block_count > 0;
}

enum status sim_trace_open(struct sim_trace *trace, const char *name, bool skip_wrong_rows,
                           uint64_t seed, struct error *error)
{
    const struct trace_options options = {.name = name, .skip = skip_wrong_rows, .seed = seed};
    *trace = (struct sim_trace){.name = name, .skip_wrong_rows = skip_wrong_rows};
    enum status status = trace_open(&options, &trace->trace, error);
    if (status == ST_OK)
        trace->has_prefixes = ids_find(&options, trace_format(trace->trace));
    return status;
}

void sim_trace_array_open(struct sim_trace *trace, const char *name,
                          const struct sim_arrival *arrivals, uint64_t count, double time_scale,
                          double end_s)
{
    *trace = (struct sim_trace){.name = name,
                                .arrivals = arrivals,
                                .arrival_count = count,
                                .time_scale = time_scale,
                                .end_s = end_s};
    for (uint64_t i = 0; i < count && !trace->has_prefixes; i++)
        trace->has_prefixes = arrivals[i].block_count > 0;
}

static void array_next(struct sim_trace *trace, struct sim_arrival *out, bool *end_out)
{
    *end_out = trace->arrival_next == trace->arrival_count;
    if (*end_out)
        return;
    *out = trace->arrivals[trace->arrival_next++];
    out->at_s *= trace->time_scale;
    *end_out = out->at_s >= trace->end_s;
}

void sim_trace_close(struct sim_trace *trace)
{
    trace_close(trace->trace);
    trace->trace = NULL;
}

enum status sim_trace_next(struct sim_trace *trace, struct sim_arrival *out, bool *end_out,
                           struct error *error)
{
    struct trace_row row;
    if (trace->trace == NULL) {
        array_next(trace, out, end_out);
        return ST_OK;
    }
    enum status status = trace_next(trace->trace, &row, error);
    *end_out = status == ST_NOT_FOUND;
    if (status != ST_OK)
        return *end_out ? ST_OK : status;
    *out = (struct sim_arrival){.at_s = row.at_s,
                                .id = row.id,
                                .line = row.line,
                                .prompt_tokens = row.prompt_tokens,
                                .output_tokens = row.output_tokens,
                                .blocks = row.blocks,
                                .block_count = row.block_count,
                                .block_tokens = row.block_tokens};
    return ST_OK;
}

enum status sim_trace_reject(struct sim_trace *trace, const struct sim_arrival *arrival,
                             const char *reason, struct error *error)
{
    struct error full;
    error_set(&full, ST_INVALID, "%s:%llu: %u and %u tokens: %s", trace->name,
              (unsigned long long)arrival->line, arrival->prompt_tokens, arrival->output_tokens,
              reason);
    if (!trace->skip_wrong_rows)
        return error_set(error, ST_INVALID, "%s", full.text);
    if (trace->rejected++ == 0)
        trace->first_rejected = full;
    return ST_OK;
}

uint64_t sim_trace_skipped(const struct sim_trace *trace)
{
    return trace->rejected + (trace->trace != NULL ? trace_skipped(trace->trace) : 0);
}

const char *sim_trace_first_skipped(const struct sim_trace *trace)
{
    return trace->trace != NULL && trace_skipped(trace->trace) > 0
               ? trace_first_skipped(trace->trace)
               : trace->first_rejected.text;
}
