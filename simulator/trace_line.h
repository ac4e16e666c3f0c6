/* trace_line: what the readers of a trace's formats share: the line that was read, where it stands,
 * and what the header said. Owned by trace.c; not for others. */
#ifndef SIMULATOR_TRACE_LINE_H
#define SIMULATOR_TRACE_LINE_H

#include "simulator/trace.h"

#include <stddef.h>

#define TRACE_COLUMNS_MAX 64
#define TRACE_SHOWN_BYTES 60       /* of a bad value in an error */
#define TRACE_TICKS_PER_S 10000000 /* seven digits of a second, as Azure's traces have */

enum trace_column {
    TRACE_COLUMN_TIME,
    TRACE_COLUMN_PROMPT,
    TRACE_COLUMN_OUTPUT,
    TRACE_COLUMN_ID,
    TRACE_COLUMN_COUNT
};

struct trace_line {
    char *path;
    char *text; /* without its end */
    uint64_t number;

    uint32_t header_columns; /* of a CSV: every row has as many */
    uint32_t columns[TRACE_COLUMN_COUNT];
    const char *names[TRACE_COLUMN_COUNT]; /* literals */
    bool has_id;
    char day[12]; /* the date that was read last, and its days since 1970 */
    int64_t day_number;

    int64_t *blocks;
    uint32_t block_room;
};

/* What a line says, before it is compared with others. */
struct trace_raw {
    int64_t ticks; /* of time, from wherever the file counts */
    double at_s;   /* the same in seconds, exact where the file has seconds */
    uint64_t id;
    uint32_t prompt_tokens;
    uint32_t output_tokens;
    uint32_t block_count; /* in line->blocks */
};

/* "path:line: name = "value": want …" */
enum status trace_line_wrong(const struct trace_line *line, const char *name, const char *value,
                             const char *wanted, struct error *error);

/* Finds the format (if it is TRACE_AUTO) and the columns. The text is cut into pieces. */
enum status trace_csv_header(struct trace_line *line, enum trace_format *format,
                             struct error *error);
enum status trace_csv_row(struct trace_line *line, enum trace_format format, struct trace_raw *out,
                          struct error *error);
enum status trace_mooncake_row(struct trace_line *line, struct trace_raw *out, struct error *error);

#endif
