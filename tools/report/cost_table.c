/* cost_table: see the header. */
#include "tools/report/cost_table.h"

#include "tools/report/csv.h"

#include <stdlib.h>
#include <string.h>

#define ROWS_MAX 4096 /* Most rows of one curve. */
/* Shortest time in seconds. Extrapolation beyond the measured points can go below 0. */
#define LEAST_S 1e-6

struct row {
    double tokens;
    double prompt_s;
    double token_s;
};

struct columns {
    uint32_t model;
    uint32_t hardware;
    uint32_t tensor_parallel;
    uint32_t prompt_size;
    uint32_t batch_size;
    uint32_t prompt_time;
    uint32_t token_time;
};

static enum status columns_find(const struct csv *csv, struct columns *out, struct error *error)
{
    const struct {
        const char *name;
        uint32_t *column;
    } wanted[] = {
        {"model", &out->model},
        {"hardware", &out->hardware},
        {"tensor_parallel", &out->tensor_parallel},
        {"prompt_size", &out->prompt_size},
        {"batch_size", &out->batch_size},
        {"prompt_time", &out->prompt_time},
        {"token_time", &out->token_time},
    };
    enum status status = ST_OK;
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]) && status == ST_OK; i++)
        status = csv_column_find(csv, wanted[i].name, wanted[i].column, error);
    return status;
}

static enum status time_read(const struct csv *csv, uint32_t column, double *out,
                             struct error *error)
{
    double ms;
    enum status status = csv_number_read(csv, column, &ms, error);
    if (status != ST_OK)
        return status;
    if (!(ms > 0))
        return error_set(error, ST_INVALID, "%s:%llu: %s = \"%.40s\": want milliseconds, above 0",
                         csv->path, (unsigned long long)csv->line, csv->names[column],
                         csv_text_at(csv, column));
    *out = ms / 1000;
    return ST_OK;
}

static enum status row_read(const struct csv *csv, const struct columns *columns, struct row *out,
                            struct error *error)
{
    uint32_t prompt_size;
    uint32_t batch_size;
    enum status status = csv_whole_read(csv, columns->prompt_size, &prompt_size, error);
    if (status == ST_OK)
        status = csv_whole_read(csv, columns->batch_size, &batch_size, error);
    if (status == ST_OK)
        status = time_read(csv, columns->prompt_time, &out->prompt_s, error);
    if (status == ST_OK)
        status = time_read(csv, columns->token_time, &out->token_s, error);
    if (status == ST_OK)
        out->tokens = (double)prompt_size * batch_size;
    return status;
}

static int by_tokens(const void *a, const void *b)
{
    double x = ((const struct row *)a)->tokens;
    double y = ((const struct row *)b)->tokens;
    return (x > y) - (x < y);
}

static int by_prompt_time(const void *a, const void *b)
{
    double x = ((const struct row *)a)->prompt_s;
    double y = ((const struct row *)b)->prompt_s;
    return (x > y) - (x < y);
}

static int by_token_time(const void *a, const void *b)
{
    double x = ((const struct row *)a)->token_s;
    double y = ((const struct row *)b)->token_s;
    return (x > y) - (x < y);
}

static double prompt_median(struct row *rows, uint32_t count)
{
    qsort(rows, count, sizeof(rows[0]), by_prompt_time);
    uint32_t middle = count / 2;
    return count % 2 == 1 ? rows[middle].prompt_s
                          : (rows[middle - 1].prompt_s + rows[middle].prompt_s) / 2;
}

static double token_median(struct row *rows, uint32_t count)
{
    qsort(rows, count, sizeof(rows[0]), by_token_time);
    uint32_t middle = count / 2;
    return count % 2 == 1 ? rows[middle].token_s
                          : (rows[middle - 1].token_s + rows[middle].token_s) / 2;
}

/* Makes one point of all rows with the same number of tokens. */
static enum status curve_make(struct row *rows, uint32_t row_count, struct cost_curve *out)
{
    qsort(rows, row_count, sizeof(rows[0]), by_tokens);
    out->count = 0;
    for (uint32_t first = 0, next = 0; first < row_count; first = next) {
        while (next < row_count && rows[next].tokens == rows[first].tokens)
            next++;
        if (out->count == COST_TABLE_POINTS)
            return ST_TOO_LARGE;
        out->tokens[out->count] = rows[first].tokens;
        out->prompt_s[out->count] = prompt_median(rows + first, next - first);
        out->token_s[out->count++] = token_median(rows + first, next - first);
    }
    return out->count >= 2 ? ST_OK : ST_NOT_FOUND;
}

enum status cost_table_read(const char *path, const char *model, const char *hardware,
                            uint32_t tensor_parallel, struct cost_curve *out, struct error *error)
{
    struct row *rows = malloc(ROWS_MAX * sizeof(rows[0]));
    struct csv csv;
    struct columns columns;
    uint32_t count = 0;
    if (rows == NULL)
        return error_set(error, ST_NO_MEMORY, "%s: out of memory", path);
    enum status status = csv_open(&csv, path, error);
    if (status != ST_OK) {
        free(rows);
        return status;
    }
    status = columns_find(&csv, &columns, error);
    while (status == ST_OK && csv_next(&csv, &status, error)) {
        uint32_t parallel;
        status = csv_whole_read(&csv, columns.tensor_parallel, &parallel, error);
        if (status != ST_OK || parallel != tensor_parallel ||
            strcmp(csv_text_at(&csv, columns.model), model) != 0 ||
            strcmp(csv_text_at(&csv, columns.hardware), hardware) != 0)
            continue;
        if (count == ROWS_MAX)
            status = error_set(error, ST_TOO_LARGE, "%s:%llu: more than %d rows of %s on %s", path,
                               (unsigned long long)csv.line, ROWS_MAX, model, hardware);
        else
            status = row_read(&csv, &columns, &rows[count++], error);
    }
    if (status == ST_OK) {
        status = curve_make(rows, count, out);
        if (status != ST_OK)
            error_set(error, status,
                      "%s: %u rows of %s on %s, tensor parallel %u: want "
                      "from 2 to %d numbers of tokens",
                      path, count, model, hardware, tensor_parallel, COST_TABLE_POINTS);
    }
    csv_close(&csv);
    free(rows);
    return status;
}

static double line_at(const struct cost_curve *curve, const double *y, double tokens)
{
    const double *x = curve->tokens;
    uint32_t high = 1;
    while (high + 1 < curve->count && x[high] < tokens)
        high++;
    double slope = (y[high] - y[high - 1]) / (x[high] - x[high - 1]);
    double seconds = slope * (tokens - x[high - 1]) + y[high - 1];
    return seconds > LEAST_S ? seconds : LEAST_S;
}

double cost_curve_prompts_s(const struct cost_curve *curve, double tokens)
{
    return line_at(curve, curve->prompt_s, tokens);
}

double cost_curve_decodes_s(const struct cost_curve *curve, double tokens)
{
    return line_at(curve, curve->token_s, tokens);
}
