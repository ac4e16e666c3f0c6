#include "tools/simulate/splitwise/reference_expected.h"

#include "tools/report/csv.h"

#include <stdlib.h>

struct columns {
    uint32_t id;
    uint32_t ttft;
    uint32_t tbt;
    uint32_t e2e;
};

static enum status columns_find(const struct csv *csv, struct columns *out, struct error *error)
{
    enum status status = csv_column_find(csv, "request_id", &out->id, error);
    if (status == ST_OK)
        status = csv_column_find(csv, "ttft_s", &out->ttft, error);
    if (status == ST_OK)
        status = csv_column_find(csv, "tbt_s", &out->tbt, error);
    return status == ST_OK ? csv_column_find(csv, "e2e_s", &out->e2e, error) : status;
}

static enum status row_read(const struct csv *csv, const struct columns *columns,
                            struct expected_row *out, struct error *error)
{
    uint32_t id;
    enum status status = csv_whole_read(csv, columns->id, &id, error);
    *out = (struct expected_row){.id = id};
    if (status == ST_OK)
        status = csv_number_read(csv, columns->ttft, &out->ttft_s, error);
    if (status == ST_OK)
        status = csv_number_read(csv, columns->tbt, &out->tbt_s, error);
    return status == ST_OK ? csv_number_read(csv, columns->e2e, &out->e2e_s, error) : status;
}

static int by_id(const void *a, const void *b)
{
    uint64_t x = ((const struct expected_row *)a)->id;
    uint64_t y = ((const struct expected_row *)b)->id;
    return (x > y) - (x < y);
}

enum status reference_expected_read(struct reference_expected *out, const char *path,
                                    struct error *error)
{
    struct csv csv;
    struct columns columns;
    uint64_t room = 0;
    *out = (struct reference_expected){0};
    enum status status = csv_open(&csv, path, error);
    if (status != ST_OK)
        return status;
    status = columns_find(&csv, &columns, error);
    while (status == ST_OK && csv_next(&csv, &status, error)) {
        if (out->count == room) {
            room = room == 0 ? 1024 : 2 * room;
            struct expected_row *rows = realloc(out->rows, room * sizeof(rows[0]));
            if (rows == NULL) {
                status = error_set(error, ST_NO_MEMORY, "%s: out of memory", path);
                break;
            }
            out->rows = rows;
        }
        status = row_read(&csv, &columns, &out->rows[out->count++], error);
    }
    csv_close(&csv);
    if (status != ST_OK) {
        reference_expected_done(out);
        return status;
    }
    if (out->count > 0)
        qsort(out->rows, out->count, sizeof(out->rows[0]), by_id);
    out->untaken = out->count;
    return ST_OK;
}

void reference_expected_done(struct reference_expected *expected)
{
    free(expected->rows);
    *expected = (struct reference_expected){0};
}

struct expected_row *reference_expected_take(struct reference_expected *expected, uint64_t id)
{
    const struct expected_row key = {.id = id};
    if (expected->count == 0)
        return NULL;
    struct expected_row *row =
        bsearch(&key, expected->rows, expected->count, sizeof(expected->rows[0]), by_id);
    if (row == NULL || row->taken)
        return NULL;
    row->taken = true;
    expected->untaken--;
    return row;
}
