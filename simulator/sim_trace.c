/* sim_trace: see the header. */
#include "simulator/sim_trace.h"

#include "common/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TICKS_PER_S 10000000 /* seven digits of a second, as Azure's traces have */

static bool column_of(struct sim_trace *trace, const char *a, const char *b, uint32_t *out)
{
    return csv_column(&trace->csv, a, out, NULL) == ST_OK ||
           csv_column(&trace->csv, b, out, NULL) == ST_OK;
}

enum status sim_trace_open(struct sim_trace *trace, const char *path, bool skip,
                           struct error *error)
{
    *trace = (struct sim_trace){.skip = skip, .first_ticks = -1};
    enum status status = csv_open(&trace->csv, path, error);
    if (status != ST_OK)
        return status;
    const char *missing = NULL;
    trace->has_id = csv_column(&trace->csv, "request_id", &trace->id_column, NULL) == ST_OK;
    trace->dated = csv_column(&trace->csv, "TIMESTAMP", &trace->time_column, NULL) == ST_OK;
    if (!trace->dated &&
        csv_column(&trace->csv, "arrival_timestamp", &trace->time_column, NULL) != ST_OK)
        missing = "arrival_timestamp\" or \"TIMESTAMP";
    else if (!column_of(trace, "prompt_size", "ContextTokens", &trace->prompt_column))
        missing = "prompt_size\" or \"ContextTokens";
    else if (!column_of(trace, "token_size", "GeneratedTokens", &trace->output_column))
        missing = "token_size\" or \"GeneratedTokens";
    if (missing == NULL)
        return ST_OK;
    error_set(error, ST_INVALID, "%s:1: no column \"%s\"", trace->csv.path, missing);
    csv_close(&trace->csv);
    return ST_INVALID;
}

void sim_trace_close(struct sim_trace *trace)
{
    free(trace->synthetic.lengths);
    trace->synthetic.lengths = NULL;
    csv_close(&trace->csv);
}

/* Days from 1970-01-01 (H. Hinnant, "chrono-compatible low-level date algorithms"). */
static int64_t days_of(int64_t year, uint32_t month, uint32_t day)
{
    year -= month <= 2;
    int64_t era = (year >= 0 ? year : year - 399) / 400;
    int64_t of_era = year - era * 400;
    int64_t of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

/* "2023-11-16 18:15:46.6805900", with "T" for the space, and an offset of zero, if they like. */
static bool date_read(const char *text, int64_t *ticks_out)
{
    int year, month, day, hour, minute, second, used = 0;
    int64_t fraction = 0;
    if (sscanf(text, "%4d-%2d-%2d%*1[ T]%2d:%2d:%2d%n", &year, &month, &day, &hour, &minute,
               &second, &used) != 6 ||
        month < 1 || month > 12 || day < 1 || day > 31 || hour < 0 || hour > 23 || minute < 0 ||
        minute > 59 || second < 0 || second > 60)
        return false;
    text += used;
    if (*text == '.') {
        int64_t unit = TICKS_PER_S / 10;
        for (text++; *text >= '0' && *text <= '9'; text++, unit /= 10)
            fraction += (*text - '0') * unit;
    }
    if (*text != 0 && strcmp(text, "Z") != 0 && strcmp(text, "+00:00") != 0)
        return false;
    *ticks_out = (days_of(year, (uint32_t)month, (uint32_t)day) * 86400 + hour * 3600 +
                  minute * 60 + second) *
                     TICKS_PER_S +
                 fraction;
    return true;
}

static enum status time_read(struct sim_trace *trace, double *out, struct error *error)
{
    const struct csv *csv = &trace->csv;
    const char *text = csv_text(csv, trace->time_column);
    int64_t ticks;
    if (!trace->dated)
        return csv_number(csv, trace->time_column, out, error);
    if (!date_read(text, &ticks))
        return error_set(error, ST_INVALID,
                         "%s:%llu: TIMESTAMP = \"%.40s\": want a date as 2023-11-16 18:15:46.68",
                         csv->path, (unsigned long long)csv->line, text);
    if (trace->first_ticks < 0)
        trace->first_ticks = ticks;
    *out = (double)(ticks - trace->first_ticks) / TICKS_PER_S;
    return ST_OK;
}

static enum status row_read(struct sim_trace *trace, struct sim_arrival *out, struct error *error)
{
    const struct csv *csv = &trace->csv;
    const char *time = csv->names[trace->time_column];
    unsigned long long line = csv->line;
    uint32_t id = 0;
    *out = (struct sim_arrival){.line = csv->line};
    enum status status = time_read(trace, &out->at_s, error);
    if (status == ST_OK)
        status = csv_count(csv, trace->prompt_column, &out->prompt_tokens, error);
    if (status == ST_OK)
        status = csv_count(csv, trace->output_column, &out->output_tokens, error);
    if (status == ST_OK && trace->has_id)
        status = csv_count(csv, trace->id_column, &id, error);
    if (status != ST_OK)
        return status;
    out->id = trace->has_id ? id : trace->rows;
    if (out->at_s < 0)
        return error_set(error, ST_INVALID, "%s:%llu: %s = %s: want 0 or more", csv->path, line,
                         time, csv_text(csv, trace->time_column));
    if (out->at_s < trace->last_s)
        return error_set(error, ST_INVALID,
                         "%s:%llu: %s = %s: want rows sorted by time, the one before has %.9g",
                         csv->path, line, time, csv_text(csv, trace->time_column), trace->last_s);
    if (out->prompt_tokens == 0 || out->output_tokens == 0)
        return error_set(
            error, ST_INVALID, "%s:%llu: %s = 0: want at least 1", csv->path, line,
            csv->names[out->prompt_tokens == 0 ? trace->prompt_column : trace->output_column]);
    return ST_OK;
}

static enum status skipped(struct sim_trace *trace, const struct error *why)
{
    if (trace->skipped++ == 0)
        trace->first_skipped = *why;
    return ST_OK;
}

/* Uniform in [0, 1). */
static double draw(struct sim_synthetic *s)
{
    return (double)(random_at(s->seed, s->drawn++) >> 11) * 0x1p-53;
}

static bool synthetic_next(struct sim_synthetic *s, struct sim_arrival *out)
{
    uint64_t id = s->drawn / 2;
    s->at_s -= log1p(-draw(s)) / s->rate_per_s;
    uint32_t row = (uint32_t)(draw(s) * s->length_count);
    *out = (struct sim_arrival){.at_s = s->at_s,
                                .id = id,
                                .line = id + 1,
                                .prompt_tokens = s->lengths[row][0],
                                .output_tokens = s->lengths[row][1]};
    return s->at_s <= s->seconds;
}

enum status sim_trace_next(struct sim_trace *trace, struct sim_arrival *out, bool *end_out,
                           struct error *error)
{
    enum status status;
    struct error why = {""};
    *end_out = false;
    if (trace->synthetic.lengths != NULL) {
        *end_out = !synthetic_next(&trace->synthetic, out);
        return ST_OK;
    }
    while (csv_next(&trace->csv, &status, error)) {
        status = row_read(trace, out, &why);
        trace->rows++;
        if (status == ST_OK) {
            trace->last_s = out->at_s;
            return ST_OK;
        }
        if (!trace->skip)
            return error_set(error, status, "%s", why.text);
        skipped(trace, &why);
    }
    *end_out = true;
    return status;
}

enum status sim_trace_reject(struct sim_trace *trace, const struct sim_arrival *arrival,
                             const char *why, struct error *error)
{
    struct error full;
    error_set(&full, ST_INVALID, "%s:%llu: %u and %u tokens: %s", trace->csv.path,
              (unsigned long long)arrival->line, arrival->prompt_tokens, arrival->output_tokens,
              why);
    return trace->skip ? skipped(trace, &full) : error_set(error, ST_INVALID, "%s", full.text);
}

enum status sim_trace_open_synthetic(struct sim_trace *trace, const char *path, bool skip,
                                     double rate_per_s, double seconds, uint64_t seed,
                                     struct error *error)
{
    struct sim_synthetic synthetic = {.rate_per_s = rate_per_s, .seconds = seconds, .seed = seed};
    struct sim_arrival row;
    uint32_t room = 0;
    bool end = false;
    enum status status = sim_trace_open(trace, path, skip, error);
    if (status != ST_OK)
        return status;
    while ((status = sim_trace_next(trace, &row, &end, error)) == ST_OK && !end) {
        if (synthetic.length_count == room) {
            room = room == 0 ? 1024 : 2 * room;
            uint32_t(*lengths)[2] = realloc(synthetic.lengths, room * sizeof(lengths[0]));
            if (lengths == NULL) {
                status = error_set(error, ST_NO_MEMORY, "%s: out of memory", path);
                break;
            }
            synthetic.lengths = lengths;
        }
        synthetic.lengths[synthetic.length_count][0] = row.prompt_tokens;
        synthetic.lengths[synthetic.length_count++][1] = row.output_tokens;
    }
    if (status == ST_OK && synthetic.length_count == 0)
        status = error_set(error, ST_INVALID, "%s: no rows to draw lengths from", path);
    trace->synthetic = synthetic;
    if (status != ST_OK)
        sim_trace_close(trace);
    return status;
}
