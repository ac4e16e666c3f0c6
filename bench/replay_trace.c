/* replay_trace: a line at a time through a fixed buffer; a field is a range of it, copied for
 * nobody. */
#include "bench/replay_trace.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LINE_BYTES   4096 /* the widest known trace has 60 bytes a line */
#define COLUMNS_MAX  32
#define SHOWN_BYTES  60 /* of a bad value in an error text */
#define MICROSECONDS 1000000

enum column { COLUMN_TIME, COLUMN_CONTEXT, COLUMN_GENERATED, COLUMN_COUNT };

static const char *const column_names[COLUMN_COUNT] = {"TIMESTAMP", "ContextTokens",
                                                       "GeneratedTokens"};

struct replay_trace {
    FILE *file;
    char *path;
    char line[LINE_BYTES];
    uint64_t line_number;
    size_t column_count;          /* of the header: every row has as many */
    size_t columns[COLUMN_COUNT]; /* where each wanted column stands */
    bool started;
    int64_t first_us; /* of the epoch */
    int64_t last_us;
};

static enum status row_invalid(const struct replay_trace *trace, enum column column,
                               const char *value, const char *wanted, struct error *error)
{
    return error_set(error, ST_INVALID, "%s:%llu: %s = \"%.*s\": want %s", trace->path,
                     (unsigned long long)trace->line_number, column_names[column], SHOWN_BYTES,
                     value, wanted);
}

/* The next line without its end; ST_NOT_FOUND at the end of the file. */
static enum status line_read(struct replay_trace *trace, struct error *error)
{
    if (fgets(trace->line, sizeof(trace->line), trace->file) == NULL) {
        if (ferror(trace->file))
            return error_set(error, ST_IO, "%s: %s", trace->path, strerror(errno));
        return ST_NOT_FOUND;
    }
    trace->line_number++;
    size_t length = strlen(trace->line);
    if (length + 1 == sizeof(trace->line) && trace->line[length - 1] != '\n')
        return error_set(error, ST_INVALID,
                         "%s:%llu: the line is longer than %d bytes: not a trace", trace->path,
                         (unsigned long long)trace->line_number, LINE_BYTES - 1);
    while (length > 0 && (trace->line[length - 1] == '\n' || trace->line[length - 1] == '\r'))
        trace->line[--length] = 0;
    return ST_OK;
}

/* Cuts the line at its commas. Returns how many fields there are, those past `max` counted too. */
static size_t line_split(char *line, char **fields, size_t max)
{
    size_t count = 0;
    for (char *field = line; field != NULL; count++) {
        char *comma = strchr(field, ',');
        if (comma != NULL)
            *comma++ = 0;
        if (count < max)
            fields[count] = field;
        field = comma;
    }
    return count;
}

static enum status header_read(struct replay_trace *trace, struct error *error)
{
    char *fields[COLUMNS_MAX];
    enum status status = line_read(trace, error);
    if (status == ST_NOT_FOUND)
        return error_set(error, ST_INVALID, "%s: the file is empty", trace->path);
    if (status != ST_OK)
        return status;

    char *start = trace->line;
    if (strncmp(start, "\xef\xbb\xbf", 3) == 0) /* a byte order mark, as spreadsheets write it */
        start += 3;
    char shown[SHOWN_BYTES + 1];
    snprintf(shown, sizeof(shown), "%.*s", SHOWN_BYTES, start);

    trace->column_count = line_split(start, fields, COLUMNS_MAX);
    for (int column = 0; column < COLUMN_COUNT; column++) {
        size_t at = 0;
        size_t seen = trace->column_count < COLUMNS_MAX ? trace->column_count : COLUMNS_MAX;
        while (at < seen && strcmp(fields[at], column_names[column]) != 0)
            at++;
        if (at == seen)
            return error_set(error, ST_INVALID,
                             "%s:1: header \"%s\": want the columns "
                             "TIMESTAMP,ContextTokens,GeneratedTokens",
                             trace->path, shown);
        trace->columns[column] = at;
    }
    return ST_OK;
}

/* `digits` decimal digits at *text, which moves past them. */
static bool take_number(const char **text, int digits, int *number_out)
{
    int number = 0;
    for (int i = 0; i < digits; i++, (*text)++) {
        if (**text < '0' || **text > '9')
            return false;
        number = number * 10 + (**text - '0');
    }
    *number_out = number;
    return true;
}

static bool take_char(const char **text, const char *any_of)
{
    if (**text == 0 || strchr(any_of, **text) == NULL)
        return false;
    (*text)++;
    return true;
}

/* Nothing, Z, or +hh:mm; how far local time is ahead. */
static bool take_zone(const char **text, int *seconds_out)
{
    int hours, minutes;
    *seconds_out = 0;
    if (**text == 0 || take_char(text, "Z"))
        return true;
    int sign = **text == '-' ? -1 : 1;
    if (!take_char(text, "+-") || !take_number(text, 2, &hours) || !take_char(text, ":") ||
        !take_number(text, 2, &minutes))
        return false;
    *seconds_out = sign * (hours * 3600 + minutes * 60);
    return true;
}

/* Microseconds of the epoch; digits of the fraction below them are dropped. */
static bool time_parse(const char *text, int64_t *us_out)
{
    struct tm tm = {0};
    int fraction = 0, zone, digit;
    if (!take_number(&text, 4, &tm.tm_year) || !take_char(&text, "-") ||
        !take_number(&text, 2, &tm.tm_mon) || !take_char(&text, "-") ||
        !take_number(&text, 2, &tm.tm_mday) || !take_char(&text, " T") ||
        !take_number(&text, 2, &tm.tm_hour) || !take_char(&text, ":") ||
        !take_number(&text, 2, &tm.tm_min) || !take_char(&text, ":") ||
        !take_number(&text, 2, &tm.tm_sec))
        return false;
    if (tm.tm_year < 1970 || tm.tm_mon < 1 || tm.tm_mon > 12 || tm.tm_mday < 1 || tm.tm_mday > 31 ||
        tm.tm_hour > 23 || tm.tm_min > 59 || tm.tm_sec > 60)
        return false;
    if (take_char(&text, ".")) {
        const char *first = text;
        for (int unit = MICROSECONDS / 10; take_number(&text, 1, &digit); unit /= 10)
            fraction += digit * unit;
        if (text == first)
            return false;
    }
    if (!take_zone(&text, &zone) || *text != 0)
        return false;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    *us_out = ((int64_t)timegm(&tm) - zone) * MICROSECONDS + fraction;
    return true;
}

static bool tokens_parse(const char *text, uint32_t *tokens_out)
{
    char *end;
    if (text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    unsigned long tokens = strtoul(text, &end, 10);
    if (errno != 0 || *end != 0 || tokens > REPLAY_TOKENS_MAX)
        return false;
    *tokens_out = (uint32_t)tokens;
    return true;
}

/* The time of this row against the first one, which must not run backwards. */
static enum status row_place(struct replay_trace *trace, const char *text, int64_t *at_out,
                             struct error *error)
{
    int64_t us;
    if (!time_parse(text, &us))
        return row_invalid(trace, COLUMN_TIME, text, "YYYY-MM-DD HH:MM:SS[.fraction][+hh:mm]",
                           error);
    if (!trace->started) {
        trace->started = true;
        trace->first_us = trace->last_us = us;
    }
    if (us < trace->last_us)
        return row_invalid(trace, COLUMN_TIME, text,
                           "a time not before the row above (sort the trace by time)", error);
    trace->last_us = us;
    *at_out = us - trace->first_us;
    return ST_OK;
}

enum status replay_trace_next(struct replay_trace *trace, struct replay_row *row_out,
                              struct error *error)
{
    char *fields[COLUMNS_MAX];
    struct replay_row row;
    enum status status;
    do {
        status = line_read(trace, error);
        if (status != ST_OK)
            return status;
    } while (trace->line[0] == 0);

    size_t count = line_split(trace->line, fields, COLUMNS_MAX);
    if (count != trace->column_count)
        return error_set(error, ST_INVALID, "%s:%llu: %zu columns, the header has %zu", trace->path,
                         (unsigned long long)trace->line_number, count, trace->column_count);
    status = row_place(trace, fields[trace->columns[COLUMN_TIME]], &row.at_us, error);
    if (status != ST_OK)
        return status;
    static const char *const wanted = "a whole number from 0 to 10000000";
    const char *context = fields[trace->columns[COLUMN_CONTEXT]];
    if (!tokens_parse(context, &row.context_tokens))
        return row_invalid(trace, COLUMN_CONTEXT, context, wanted, error);
    const char *generated = fields[trace->columns[COLUMN_GENERATED]];
    if (!tokens_parse(generated, &row.generated_tokens))
        return row_invalid(trace, COLUMN_GENERATED, generated, wanted, error);
    row.line = trace->line_number;
    *row_out = row;
    return ST_OK;
}

enum status replay_trace_open(const char *path, struct replay_trace **trace_out,
                              struct error *error)
{
    enum status status = ST_NO_MEMORY;
    struct replay_trace *trace = calloc(1, sizeof(*trace));
    if (trace == NULL)
        return status;
    trace->path = strdup(path);
    if (trace->path == NULL)
        goto undo_trace;
    trace->file = fopen(path, "re");
    if (trace->file == NULL) {
        status = error_set(error, errno == ENOENT ? ST_NOT_FOUND : ST_IO, "%s: %s", path,
                           strerror(errno));
        goto undo_trace;
    }
    status = header_read(trace, error);
    if (status != ST_OK)
        goto undo_trace;
    *trace_out = trace;
    return ST_OK;

undo_trace:
    replay_trace_close(trace);
    return status;
}

void replay_trace_close(struct replay_trace *trace)
{
    if (trace == NULL)
        return;
    if (trace->file != NULL)
        fclose(trace->file);
    free(trace->path);
    free(trace);
}
