/* csv: reads a CSV file row by row, so a file may be larger than memory. The first line that is not
 * empty is the header, with the names of the columns. Quoting is not supported: a field ends at a
 * comma. Columns after the first CSV_COLUMNS_MAX are ignored. Commands of tools/ use this part,
 * each struct on one thread at a time. The struct owns the text that was read, and the file, except
 * standard input. Traces have another reader (tools/trace/). */
#ifndef TOOLS_REPORT_CSV_H
#define TOOLS_REPORT_CSV_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define CSV_COLUMNS_MAX 64

struct csv {
    FILE *file;
    char path[1024];                    /* Name of the file in errors. */
    uint64_t line;                      /* Number of the line that was read last, from 1. */
    char *text;                         /* The row that was read last, cut into fields. */
    size_t text_capacity;               /* Size of `text` in bytes. */
    uint32_t column_count;              /* Columns of the header, at most CSV_COLUMNS_MAX. */
    uint32_t field_count;               /* Fields of the row that was read last. */
    char *header;                       /* The header, cut into `names`. */
    const char *names[CSV_COLUMNS_MAX]; /* [column_count] */
    char *fields[CSV_COLUMNS_MAX];      /* [field_count] */
};

/* Opens the file and reads its header. "-" is standard input. ST_IO: the file cannot be read.
 * ST_INVALID: the file has no header. ST_NO_MEMORY. After an error nothing is open. */
enum status csv_open(struct csv *csv, const char *path, struct error *error);
/* As csv_open, for an open file, which is read from its position on. Takes ownership of `file`; an
 * error closes it. path: the file's name in errors. */
enum status csv_open_file(struct csv *csv, FILE *file, const char *path, struct error *error);
void csv_close(struct csv *csv);

/* Finds the column with this name. ST_NOT_FOUND: no such column; `error` may be NULL. */
enum status csv_column_find(const struct csv *csv, const char *name, uint32_t *column_out,
                            struct error *error);

/* Reads the next row; empty lines are skipped. Returns false at the end of the file and on an
 * error. *status_out: ST_OK = a row, or the end of the file; ST_IO = the file cannot be read;
 * ST_NO_MEMORY = memory ran out for the row. */
bool csv_next(struct csv *csv, enum status *status_out, struct error *error);

/* Reads a field of the current row as a number. ST_INVALID: the field is no finite number; the
 * error names file, line and column. */
enum status csv_number_read(const struct csv *csv, uint32_t column, double *out,
                            struct error *error);
/* Reads a field of the current row as a whole number. ST_INVALID: the field is no whole number up
 * to UINT32_MAX; the error names file, line and column. */
enum status csv_whole_read(const struct csv *csv, uint32_t column, uint32_t *out,
                           struct error *error);
/* Returns the field's text, valid until the next row is read; "" = the row is too short. */
const char *csv_text_at(const struct csv *csv, uint32_t column);

#endif
