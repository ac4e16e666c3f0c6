/* csv: rows of a CSV file, read line by line, so that a file may be larger than memory. Columns are
 * found by the names in its first line. No quoting: a field ends at a comma. One thread. */
#ifndef SIMULATOR_CSV_H
#define SIMULATOR_CSV_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define CSV_COLUMNS_MAX 64

struct csv {
    FILE *file;
    char path[1024];
    uint64_t line; /* of the row that was read last, from 1 on */
    char *text;    /* that row, cut into fields */
    size_t room;
    uint32_t column_count;
    uint32_t field_count; /* of that row */
    char *header;
    const char *names[CSV_COLUMNS_MAX];
    char *fields[CSV_COLUMNS_MAX];
};

/* Opens the file and reads its header. "-" is standard input. */
enum status csv_open(struct csv *csv, const char *path, struct error *error);
void csv_close(struct csv *csv);

/* The column of that name, or ST_NOT_FOUND without a message (NULL) or with one. */
enum status csv_column(const struct csv *csv, const char *name, uint32_t *column_out,
                       struct error *error);

/* False: no more rows, or *status_out is not ST_OK. Empty lines are left out. */
bool csv_next(struct csv *csv, enum status *status_out, struct error *error);

/* Of the row that was read. The error names file, line and column. */
enum status csv_number(const struct csv *csv, uint32_t column, double *out, struct error *error);
enum status csv_count(const struct csv *csv, uint32_t column, uint32_t *out, struct error *error);
/* The text of the field; "" where the row is too short. */
const char *csv_text(const struct csv *csv, uint32_t column);

#endif
