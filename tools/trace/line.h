/* trace_line: the line of a trace file that was read last, and the functions that read the formats.
 * trace.c owns the struct, and calls csv.c and mooncake.c on the thread that reads the trace. The
 * functions do not compare a row with the row before it. */
#ifndef TOOLS_TRACE_LINE_H
#define TOOLS_TRACE_LINE_H

#include "tools/trace/trace.h"

#include <stddef.h>

#define TRACE_COLUMNS_MAX 64       /* Columns that are searched for names. */
#define TRACE_SHOWN_BYTES 60       /* Bytes of a wrong value that an error shows. */
#define TRACE_TICKS_PER_S 10000000 /* Seven decimals of a second, as in Azure's traces. */

enum trace_column {
    TRACE_COLUMN_TIME,
    TRACE_COLUMN_PROMPT,
    TRACE_COLUMN_OUTPUT,
    TRACE_COLUMN_ID,
    TRACE_COLUMN_COUNT
};

struct trace_line {
    char *path;      /* The file's name in errors. */
    char *text;      /* The line, without its line feed and the carriage returns before it. */
    uint64_t number; /* Line of the file, from 1. */

    uint32_t header_columns; /* Columns of a CSV's header; every row must have this number. */
    uint32_t columns[TRACE_COLUMN_COUNT];  /* Position of each column in a row, from 0. */
    const char *names[TRACE_COLUMN_COUNT]; /* Name of each column in the header; constants. */
    bool has_id;                           /* The file has a column with ids. */
    char day[12];                          /* The date that was read last; "" = none. */
    int64_t day_number;                    /* Days from 1970-01-01 to `day`. */

    int64_t *blocks;     /* [block_room]: hash ids of the row that was read last. */
    uint32_t block_room; /* Room of `blocks`, in ids. */
};

/* The values of a line. */
struct trace_raw {
    int64_t ticks; /* The file's time, in units of 1 / TRACE_TICKS_PER_S seconds. */
    double at_s;   /* The file's time in seconds; exact if the file has seconds. */
    uint64_t id;   /* request_id; unchanged if the line has no such number. */
    uint32_t prompt_tokens;
    uint32_t output_tokens;
    uint32_t block_count;  /* Hash ids in line->blocks. */
    uint32_t block_tokens; /* Tokens of each block; 0 = not in the line. */
    uint32_t tenant;       /* trace_row.tenant. */
};

/* Returns ST_INVALID with the error "path:line: name = "value": want …". */
enum status trace_line_wrong(const struct trace_line *line, const char *name, const char *value,
                             const char *wanted, struct error *error);

/* Finds the columns in the header line. If *format is TRACE_AUTO, sets *format. Overwrites
 * line->text. ST_INVALID: a column is missing. */
enum status trace_csv_header(struct trace_line *line, enum trace_format *format,
                             struct error *error);
/* Reads the line as a CSV row. Overwrites line->text. ST_INVALID: a field is missing or wrong. */
enum status trace_csv_row(struct trace_line *line, enum trace_format format, struct trace_raw *out,
                          struct error *error);
/* Reads the line as a JSON object of Mooncake. ST_INVALID: a field is missing or wrong.
 * ST_NO_MEMORY: memory runs out. */
enum status trace_mooncake_row(struct trace_line *line, struct trace_raw *out, struct error *error);

#endif
