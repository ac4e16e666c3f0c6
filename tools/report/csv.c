/* csv: see the header. */
#include "tools/report/csv.h"

#include "tools/report/lines.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint32_t cut(char *text, char **fields)
{
    uint32_t count = 0;
    while (count < CSV_COLUMNS_MAX) {
        fields[count++] = text;
        char *comma = strchr(text, ',');
        if (comma == NULL)
            break;
        *comma = 0;
        text = comma + 1;
    }
    return count;
}

/* Reads the next line that is not empty. False: end of the file, or an error (lines_end_check). */
static bool line_read(struct csv *csv)
{
    ssize_t bytes;
    do {
        bytes = getline(&csv->text, &csv->text_capacity, csv->file);
        if (bytes < 0)
            return false;
        csv->line++;
        while (bytes > 0 && (csv->text[bytes - 1] == '\n' || csv->text[bytes - 1] == '\r'))
            csv->text[--bytes] = 0;
    } while (bytes == 0);
    return true;
}

enum status csv_open(struct csv *csv, const char *path, struct error *error)
{
    bool input = strcmp(path, "-") == 0;
    FILE *file = input ? stdin : fopen(path, "r");
    if (file == NULL)
        return error_set(error, ST_IO, "%s: %s", path, strerror(errno));
    return csv_open_file(csv, file, input ? "standard input" : path, error);
}

enum status csv_open_file(struct csv *csv, FILE *file, const char *path, struct error *error)
{
    *csv = (struct csv){.file = file};
    snprintf(csv->path, sizeof(csv->path), "%s", path);
    if (!line_read(csv)) {
        enum status status = lines_end_check(csv->file, csv->path, error);
        csv_close(csv);
        return status != ST_OK
                   ? status
                   : error_set(error, ST_INVALID,
                               "%s: empty: want a line with the names of the columns", csv->path);
    }
    const char *begin = csv->text;
    if (strncmp(begin, "\xef\xbb\xbf", 3) == 0) /* Skip a byte order mark. */
        begin += 3;
    csv->header = strdup(begin);
    if (csv->header == NULL) {
        csv_close(csv);
        return error_set(error, ST_NO_MEMORY, "%s: out of memory", path);
    }
    char *names[CSV_COLUMNS_MAX];
    csv->column_count = cut(csv->header, names);
    for (uint32_t i = 0; i < csv->column_count; i++)
        csv->names[i] = names[i];
    return ST_OK;
}

void csv_close(struct csv *csv)
{
    if (csv->file != NULL && csv->file != stdin)
        fclose(csv->file);
    free(csv->text);
    free(csv->header);
    csv->file = NULL;
    csv->text = csv->header = NULL;
}

enum status csv_column_find(const struct csv *csv, const char *name, uint32_t *column_out,
                            struct error *error)
{
    for (uint32_t i = 0; i < csv->column_count; i++)
        if (strcmp(csv->names[i], name) == 0) {
            *column_out = i;
            return ST_OK;
        }
    return error_set(error, ST_NOT_FOUND, "%s:1: no column \"%s\"", csv->path, name);
}

bool csv_next(struct csv *csv, enum status *status_out, struct error *error)
{
    const bool is_row = line_read(csv);
    *status_out = is_row ? ST_OK : lines_end_check(csv->file, csv->path, error);
    csv->field_count = is_row ? cut(csv->text, csv->fields) : 0;
    return is_row;
}

const char *csv_text_at(const struct csv *csv, uint32_t column)
{
    return column < csv->field_count ? csv->fields[column] : "";
}

static enum status field_wrong(const struct csv *csv, uint32_t column, const char *wanted,
                               struct error *error)
{
    return error_set(error, ST_INVALID, "%s:%llu: %s = \"%.40s\": want %s", csv->path,
                     (unsigned long long)csv->line, csv->names[column], csv_text_at(csv, column),
                     wanted);
}

enum status csv_number_read(const struct csv *csv, uint32_t column, double *out,
                            struct error *error)
{
    const char *text = csv_text_at(csv, column);
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != 0 || !isfinite(value))
        return field_wrong(csv, column, "a number", error);
    *out = value;
    return ST_OK;
}

enum status csv_whole_read(const struct csv *csv, uint32_t column, uint32_t *out,
                           struct error *error)
{
    const char *text = csv_text_at(csv, column);
    uint64_t value = 0;
    uint32_t digits = 0;
    for (; text[digits] >= '0' && text[digits] <= '9' && digits < 10; digits++)
        value = value * 10 + (uint64_t)(text[digits] - '0');
    if (digits == 0 || text[digits] != 0 || value > UINT32_MAX)
        return field_wrong(csv, column, "a whole number", error);
    *out = (uint32_t)value;
    return ST_OK;
}
