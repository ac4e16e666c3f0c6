/* trace_csv: the rows of the formats that are CSV tables. Columns are found by name and may stand
 * in any order, with others in between. Quoting is not supported: a field ends at a comma. Fields
 * point into the line. */
#include "tools/trace/line.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TIME_S_MAX 1e11 /* Three thousand years; larger times would not be exact in ticks. */

/* Columns of each format: time, prompt, output. */
static const char *const column_names[TRACE_FORMAT_COUNT][TRACE_COLUMN_ID] = {
    [TRACE_AZURE] = {"TIMESTAMP", "ContextTokens", "GeneratedTokens"},
    [TRACE_BURSTGPT] = {"Timestamp", "Request tokens", "Response tokens"},
    [TRACE_SPLITWISE] = {"arrival_timestamp", "prompt_size", "token_size"},
};

static uint32_t cut(char *text, char **fields)
{
    uint32_t count = 0;
    for (char *field = text; field != NULL; count++) {
        char *comma = strchr(field, ',');
        if (comma != NULL)
            *comma++ = 0;
        if (count < TRACE_COLUMNS_MAX)
            fields[count] = field;
        field = comma;
    }
    return count;
}

static bool column_find(struct trace_line *line, char *const *fields, const char *name,
                        enum trace_column column)
{
    for (uint32_t i = 0; i < line->header_columns && i < TRACE_COLUMNS_MAX; i++)
        if (strcmp(fields[i], name) == 0) {
            line->columns[column] = i;
            line->names[column] = name;
            return true;
        }
    return false;
}

/* Returns the format whose column of times is in the header; TRACE_AUTO = none. */
static enum trace_format format_find(struct trace_line *line, char *const *fields)
{
    for (int format = 0; format < TRACE_FORMAT_COUNT; format++)
        if (column_names[format][0] != NULL &&
            column_find(line, fields, column_names[format][0], TRACE_COLUMN_TIME))
            return (enum trace_format)format;
    return TRACE_AUTO;
}

enum status trace_csv_header(struct trace_line *line, enum trace_format *format,
                             struct error *error)
{
    char *fields[TRACE_COLUMNS_MAX];
    char *text = line->text;
    char shown[TRACE_SHOWN_BYTES + 1];
    /* Skip a byte order mark, as spreadsheets write it. */
    if (strncmp(text, "\xef\xbb\xbf", 3) == 0)
        text += 3;
    snprintf(shown, sizeof(shown), "%s", text);
    line->header_columns = cut(text, fields);
    if (*format == TRACE_AUTO)
        *format = format_find(line, fields);
    if (*format == TRACE_AUTO)
        return error_set(error, ST_INVALID,
                         "%s:%llu: header \"%s\": want the columns "
                         "TIMESTAMP,ContextTokens,GeneratedTokens (Azure), Timestamp,Request "
                         "tokens,Response tokens (BurstGPT), "
                         "arrival_timestamp,prompt_size,token_size, or JSON lines (Mooncake)",
                         line->path, (unsigned long long)line->number, shown);
    for (int column = 0; column < TRACE_COLUMN_ID; column++)
        if (!column_find(line, fields, column_names[*format][column], (enum trace_column)column))
            return error_set(
                error, ST_INVALID, "%s:%llu: header \"%s\": no column \"%s\", want %s,%s,%s",
                line->path, (unsigned long long)line->number, shown, column_names[*format][column],
                column_names[*format][0], column_names[*format][1], column_names[*format][2]);
    line->has_id = column_find(line, fields, "request_id", TRACE_COLUMN_ID);
    return ST_OK;
}

/* ---- fields ---- */

/* Reads `digits` decimal digits at *text, and moves *text past them. */
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

static bool take_char(const char **text, char a, char b)
{
    if (**text != a && **text != b)
        return false;
    (*text)++;
    return true;
}

/* Days from 1970-01-01 (H. Hinnant, "chrono-compatible low-level date algorithms"). */
static int64_t days_of(int64_t year, int month, int day)
{
    year -= month <= 2;
    int64_t era = year / 400;
    int64_t of_era = year - era * 400;
    int64_t of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

/* Reads YYYY-MM-DD. Most rows have the day of the row above, which is not computed again. */
static bool take_day(struct trace_line *line, const char **text)
{
    int year, month, day;
    if (strncmp(*text, line->day, 10) == 0 && line->day[0] != 0) {
        *text += 10;
        return true;
    }
    const char *begin = *text;
    if (!take_number(text, 4, &year) || !take_char(text, '-', '-') ||
        !take_number(text, 2, &month) || !take_char(text, '-', '-') || !take_number(text, 2, &day))
        return false;
    if (year < 1970 || month < 1 || month > 12 || day < 1 || day > 31)
        return false;
    memcpy(line->day, begin, 10);
    line->day_number = days_of(year, month, day);
    return true;
}

/* Reads nothing, Z, or +hh:mm. *seconds_out: how far local time is ahead of UTC. */
static bool take_zone(const char **text, int *seconds_out)
{
    int hours, minutes;
    *seconds_out = 0;
    if (**text == 0 || take_char(text, 'Z', 'Z'))
        return true;
    int sign = **text == '-' ? -1 : 1;
    if (!take_char(text, '+', '-') || !take_number(text, 2, &hours) || !take_char(text, ':', ':') ||
        !take_number(text, 2, &minutes))
        return false;
    *seconds_out = sign * (hours * 3600 + minutes * 60);
    return true;
}

/* Reads a date as ticks since 1970. Digits beyond a tick are dropped. */
static bool date_read(struct trace_line *line, const char *text, int64_t *ticks_out)
{
    int hour, minute, second, zone, digit;
    int64_t fraction = 0;
    if (!take_day(line, &text) || !take_char(&text, ' ', 'T') || !take_number(&text, 2, &hour) ||
        !take_char(&text, ':', ':') || !take_number(&text, 2, &minute) ||
        !take_char(&text, ':', ':') || !take_number(&text, 2, &second) || hour > 23 ||
        minute > 59 || second > 60)
        return false;
    if (take_char(&text, '.', '.')) {
        const char *first = text;
        for (int64_t unit = TRACE_TICKS_PER_S / 10; take_number(&text, 1, &digit); unit /= 10)
            fraction += digit * unit;
        if (text == first)
            return false;
    }
    if (!take_zone(&text, &zone) || *text != 0)
        return false;
    *ticks_out =
        (line->day_number * 86400 + hour * 3600 + minute * 60 + second - zone) * TRACE_TICKS_PER_S +
        fraction;
    return true;
}

static enum status time_read(struct trace_line *line, enum trace_format format, const char *text,
                             struct trace_raw *out, struct error *error)
{
    const char *name = line->names[TRACE_COLUMN_TIME];
    char *end;
    if (format == TRACE_AZURE) {
        if (!date_read(line, text, &out->ticks))
            return trace_line_wrong(line, name, text, "YYYY-MM-DD HH:MM:SS[.fraction][+hh:mm]",
                                    error);
        out->at_s = (double)out->ticks / TRACE_TICKS_PER_S;
        return ST_OK;
    }
    out->at_s = strtod(text, &end);
    if (end == text || *end != 0 || !(out->at_s >= 0 && out->at_s <= TIME_S_MAX))
        return trace_line_wrong(line, name, text, "seconds, 0 or more", error);
    out->ticks = llround(out->at_s * TRACE_TICKS_PER_S);
    return ST_OK;
}

static bool whole_read(const char *text, uint64_t low, uint64_t high, uint64_t *out)
{
    uint64_t value = 0;
    uint32_t digits = 0;
    for (; text[digits] >= '0' && text[digits] <= '9' && digits < 19; digits++)
        value = value * 10 + (uint64_t)(text[digits] - '0');
    *out = value;
    return digits > 0 && text[digits] == 0 && value >= low && value <= high;
}

static enum status tokens_read(const struct trace_line *line, char *const *fields,
                               enum trace_column column, uint32_t *out, struct error *error)
{
    uint64_t value;
    const char *text = fields[line->columns[column]];
    if (!whole_read(text, 1, TRACE_TOKENS_MAX, &value))
        return trace_line_wrong(line, line->names[column], text,
                                "a whole number from 1 to 10000000", error);
    *out = (uint32_t)value;
    return ST_OK;
}

enum status trace_csv_row(struct trace_line *line, enum trace_format format, struct trace_raw *out,
                          struct error *error)
{
    char *fields[TRACE_COLUMNS_MAX];
    uint32_t count = cut(line->text, fields);
    if (count != line->header_columns)
        return error_set(error, ST_INVALID, "%s:%llu: %u columns, the header has %u", line->path,
                         (unsigned long long)line->number, count, line->header_columns);
    enum status status =
        time_read(line, format, fields[line->columns[TRACE_COLUMN_TIME]], out, error);
    if (status == ST_OK)
        status = tokens_read(line, fields, TRACE_COLUMN_PROMPT, &out->prompt_tokens, error);
    if (status == ST_OK)
        status = tokens_read(line, fields, TRACE_COLUMN_OUTPUT, &out->output_tokens, error);
    if (status != ST_OK || !line->has_id)
        return status;
    const char *id = fields[line->columns[TRACE_COLUMN_ID]];
    if (!whole_read(id, 0, INT64_MAX, &out->id))
        return trace_line_wrong(line, "request_id", id, "a whole number", error);
    return ST_OK;
}
